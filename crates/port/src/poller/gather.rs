//! Taking many messages of a lane at once.

use super::{Poller, lane};
use crate::message::Message;
use crate::request::{Request, is_plain};
use crate::seal::Seal;
use handfast_layout::link::Kind;
use handfast_ring::lane::Unusual;
use handfast_sys::socket::Peer;

/// Messages that are taken at once ([`Batch`](crate::Batch)).
pub(crate) trait Gathers {
    /// The first one, and its sender.
    fn start(&mut self, message: Message, sender: (Peer, Seal));

    /// Buffers for the next ones.
    fn places(&mut self) -> &mut [Message];

    /// So many of them are filled.
    fn add(&mut self, count: usize);
}

/// Puts the message just received into the batch, and the one-way messages that follow it in its lane,
/// until there are no more, the batch is full, or a message comes that is returned: a call, or one with
/// rights or through another right.
pub(crate) fn gather(
    poller: &mut Poller,
    first: Request,
    batch: &mut impl Gathers,
) -> Option<Request> {
    if !is_plain(&first) {
        return Some(first);
    }
    let (peer, seal) = (first.peer(), first.seal());
    batch.start(first.into_message(), (peer, seal));
    let key = poller.last;
    let lane = poller.lanes.get_mut(key)?.as_mut()?;
    let region = lane.link.region.view();
    let usual = lane.usual();
    let places = batch.places();
    let run = lane
        .consumer
        .poll_many(&region, places, usual, |header| header.kind == Kind::Call);
    if run.messages > 0 {
        // Once: the word lies beside the head, which a producer without room looks at all the
        // time.
        lane::wake_for_room(&lane.link, lane.consumer.place());
    }
    poller.counts.sends += run.messages as u64;
    poller.counts.bytes += run.bytes;
    let last = run.last.and_then(|last| match last {
        Ok((header, len_bytes)) => {
            poller.spare = core::mem::replace(&mut places[run.messages], Message::new());
            poller.taken(key, header, len_bytes)
        }
        Err(Unusual) => poller.take(key),
    });
    batch.add(run.messages);
    last
}
