//! Which right a message came through.

use super::{NO_RIGHT, Poller};
use crate::adopt::adopt;
use crate::introduce::{Named, UNCLAIMED_NS, Wait};
use crate::request::{Request, Seal};
use core::sync::atomic::Ordering;
use handfast_layout::link::{Kind, REVOKED};
use handfast_layout::part::is_handle;
use handfast_proto::rota::Key;
use handfast_ring::lane::Header;
use handfast_ring::{Fault, Rule};

/// What the right says that a message came through.
pub(super) enum Through {
    To(Seal),
    /// It leads nowhere: what a reply of kind [`Kind::DeadPort`] says of it.
    Dead(&'static [u8]),
}

impl Poller {
    /// Whether what the message in a lane names is known already. What was provided may not have come
    /// yet; the message waits for that, for a while.
    pub(super) fn is_due(&mut self, key: Key) -> bool {
        let Some(lane) = self.lanes[key].as_mut() else {
            return false;
        };
        let word = match lane.consumer.peek(&lane.link.region) {
            Ok((header, _)) if header.kind == Kind::CONTROL && header.port == 0 => return true,
            Ok((header, _)) => header.port,
            // Told of when it is taken.
            Err(_) => return true,
        };
        let limit_ns = match is_handle(word) {
            true => None,
            false => match lane.link.named(&self.process, word) {
                // The claim itself ends that.
                Named::NotYet => Some(u64::MAX),
                Named::Unclaimed => Some(UNCLAIMED_NS),
                _ => None,
            },
        };
        let Some(limit_ns) = limit_ns else {
            lane.wait = None;
            return true;
        };
        let wait = lane.wait.map_or_else(Wait::new, Wait::look);
        lane.wait = Some(wait);
        self.parked = wait.waited_ns <= limit_ns;
        !self.parked
    }

    /// Takes up the rights in the message just taken, and looks up the right it came through.
    #[cold]
    pub(super) fn look_up(&mut self, key: Key, header: Header) -> Result<Through, Fault> {
        let Some(lane) = self.lanes[key].as_mut() else {
            return Ok(Through::Dead(&[]));
        };
        let offset = lane.consumer.place().head();
        let rule = Rule::RightHandle;
        if header.units > 0 {
            adopt(&self.process, &lane.link, &mut self.spare)?;
            if u64::from(header.port) == lane.usual() {
                return Ok(Through::To(lane.seal));
            }
        }
        // Together with what it vouches for, or not at all.
        lane.word = NO_RIGHT;
        lane.ended = lane.link.ended.load(Ordering::Acquire);
        let target = match lane.link.named(&self.process, header.port) {
            Named::To(target) if target.port == self.port => target,
            Named::To(_) | Named::Dead => return Ok(Through::Dead(&[])),
            Named::Revoked => return Ok(Through::Dead(REVOKED)),
            Named::NotYet | Named::Unclaimed | Named::Unknown => {
                return Err(Fault { rule, offset });
            }
        };
        (lane.word, lane.seal) = (header.port.into(), Seal::of(target));
        Ok(Through::To(lane.seal))
    }

    /// Answers a message for a port that is no more, or by a right that was revoked.
    #[cold]
    pub(super) fn refuse(&mut self, request: Request, why: &[u8]) -> Option<Request> {
        if let Some(reply) = request.reply_right() {
            reply.answer(Kind::DeadPort, why);
        }
        drop(request.answered());
        self.again = true;
        None
    }
}
