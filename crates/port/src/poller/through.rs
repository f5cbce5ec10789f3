//! Which right a message came through.

use super::lane::NO_RIGHT;
use super::{Poller, named};
use crate::link::introductions::Named;
use crate::port::ports;
use crate::process::Process;
use crate::request::Request;
use crate::seal::Seal;
use core::sync::atomic::Ordering;
use handfast_layout::link::{Kind, REVOKED};
use handfast_layout::part::{is_member, receiver_of};
use handfast_proto::rota::Key;
use handfast_ring::lane::Header;
use handfast_ring::{Fault, Rule};

/// The meaning of the right that a message came through.
pub(super) enum Through {
    To(Seal),
    /// The right leads nowhere: the bytes of a reply of kind [`Kind::DeadPort`] to it.
    Dead(&'static [u8]),
}

impl Poller {
    /// Looks up the right that the message just taken came through, unless it is the lane's last one.
    #[cold]
    pub(super) fn look_up(&mut self, key: Key, header: Header) -> Result<Through, Fault> {
        let Some(lane) = self.lanes[key].as_mut() else {
            return Ok(Through::Dead(&[]));
        };
        let offset = lane.consumer.place().head();
        let rule = Rule::RightHandle;
        // Together with the seal it vouches for, or not at all.
        lane.word = NO_RIGHT;
        lane.ended = lane.link.rights.ended.load(Ordering::Acquire);
        let link = &lane.link;
        let seal = match named((self.protocols, &self.process), link, header.port, 0) {
            Named::To(target) if target.port == self.port => Seal::of(target),
            Named::To(target) if is_beside(&self.process, self.receiver, target.port) => {
                Seal::of_member(target)
            }
            Named::To(_) | Named::Dead => return Ok(Through::Dead(&[])),
            Named::Revoked => return Ok(Through::Dead(REVOKED)),
            Named::Trail(_) | Named::NotYet(_) | Named::Unclaimed | Named::Unknown => {
                return Err(Fault { rule, offset });
            }
        };
        (lane.word, lane.seal) = (header.port.into(), seal);
        Ok(Through::To(lane.seal))
    }

    /// Answers a message for a port that has ended, or by a right that was revoked.
    #[cold]
    pub(super) fn refuse(&mut self, request: Request, why: &[u8]) -> Option<Request> {
        if let Some(reply) = request.reply_right() {
            reply.answer(Kind::DeadPort, why);
        }
        drop(request.answered());
        self.looks.again = true;
        None
    }
}

/// Whether that is a port which shares this receiver.
pub(super) fn is_beside(process: &Process, receiver: u32, port: u32) -> bool {
    is_member(port) && receiver_of(port) == receiver && ports::by_id(process, port).is_some()
}
