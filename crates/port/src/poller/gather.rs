//! Taking many messages of a lane at once.

use super::{Poller, wake_for_room};
use crate::batch::Batch;
use crate::message::Message;
use crate::request::Request;
use handfast_layout::link::Kind;
use handfast_ring::lane::Broken;

impl Poller {
    /// Puts the message just received into the batch, and the one-way messages that follow it in
    /// its lane, until there is no more, the batch is full, or a call comes, which is returned.
    pub(crate) fn gather(&mut self, first: Request, batch: &mut Batch) -> Option<Request> {
        if first.is_call() {
            return Some(first);
        }
        let peer = first.peer();
        batch.start(first.into_message(), peer);
        let key = self.last;
        let lane = self.lanes.get_mut(key)?.as_mut()?;
        let region = lane.link.region.view();
        let port = self.port;
        let places = batch.places();
        let run = lane.consumer.poll_many(&region, places, |header| {
            header.kind == Kind::Call || header.port != port
        });
        if run.messages > 0 {
            // Once: the word lies beside the head, which a producer without room looks at all the
            // time.
            wake_for_room(&region, lane.consumer.place());
        }
        self.counts.sends += run.messages as u64;
        self.counts.bytes += run.bytes;
        let last = run.last.and_then(|last| match last {
            Ok((header, len_bytes)) => {
                self.spare = core::mem::replace(&mut places[run.messages], Message::new());
                self.taken(key, header, len_bytes)
            }
            Err(Broken) => self.take(key),
        });
        batch.add(run.messages);
        last
    }
}
