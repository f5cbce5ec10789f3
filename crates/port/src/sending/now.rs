//! Messages with one right that is named in one step: to a port of this process, a block, or what the peer has already.

use crate::link::doorbell;
use crate::options::Waiting;
use crate::port::notice;
use crate::port::own::OwnRight;
use crate::right::Right;
use crate::send::{Origin, Posted, SendRight};
use crate::slots::Ticket;
use crate::{again, give_back, lending};
use core::sync::atomic::Ordering;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::Kind;
use handfast_layout::part::Part;
use handfast_ring::lane::Unit;
use std::sync::Arc;

/// A message for a lane: bytes, kind, two words, and the link's count of troubles before the right beside it was named.
type ToPost<'a> = (&'a [u8], Kind, (u32, u32), u32);

impl SendRight {
    /// As [`Self::post_loaded`], with one right, if nothing at all stands in the way. A right that was sent is left in
    /// `rights`, to be dropped.
    #[inline(always)]
    pub(crate) fn give_now(
        &self,
        (bytes, kind): (&[u8], Kind),
        rights: &mut Vec<Right>,
        waiting: Waiting,
    ) -> Option<Posted<'_>> {
        let [given] = &rights[..] else {
            return None;
        };
        let right = self.best();
        if bytes.len() > MESSAGE_BYTES_MAX || right.is_forked() {
            return None;
        }
        let words = match kind {
            Kind::Call => waiting.words(),
            _ => (0, 0),
        };
        // Acquire: pairs with the addition in `disturb`. A name read after that may be another by then.
        let trouble = right.link().trouble.load(Ordering::Acquire);
        let message = (bytes, kind, words, trouble);
        let mut lent = 0;
        let (lane, ticket) = match given {
            Right::Own(own) => right.give_own(message, own)?,
            Right::Send(sent) => right.give_known(message, sent)?,
            Right::Block(block) if !matches!(right.origin(), Origin::Vine(_)) => {
                let described = lending::lend_now(right.link(), block)?;
                lent = described.loan;
                let (units, count) = Part::Loan(described).to_units();
                let posted = right.post_named(message, &units[..count]);
                posted.or_else(|| {
                    lending::lends_not(right.link(), lent);
                    None
                })?
            }
            _ => return None,
        };
        let woke_peer = doorbell::ring(right.link(), lane, right.receiver());
        match given {
            Right::Send(sent) => sent.used_at(right.link(), Some(lane)),
            Right::Block(_) => {
                if let Some(Right::Block(block)) = rights.pop() {
                    lending::has_lent(right.link(), lent, block);
                }
            }
            _ => {}
        }
        Some((right, (ticket, trouble, woke_peer)))
    }

    /// With a right to a port that is here.
    #[inline(always)]
    fn give_own(&self, message: ToPost<'_>, own: &OwnRight) -> Option<(u32, Ticket)> {
        let port = own.port();
        let is_other = !Arc::ptr_eq(&port.process, self.process());
        if port.home.get().is_some() || own.is_over() || is_other {
            return None;
        }
        let handle = notice::export_own(self.link(), own)?.ok()?;
        let unit = Part::unit_of_sender(handle, own.port().id);
        let posted = self.post_units(message, &[unit]);
        posted.or_else(|| {
            give_back::retract(self.link(), self.process(), handle);
            None
        })
    }

    /// With a right of the peer's own, or one of a third process's that the peer keeps.
    #[inline]
    fn give_known(&self, message: ToPost<'_>, sent: &Self) -> Option<(u32, Ticket)> {
        if matches!(sent.origin(), Origin::Home(_)) {
            return None;
        }
        let sent = sent.best();
        if sent.is_forked() || sent.is_down() || sent.is_revoked() {
            return None;
        }
        if Arc::ptr_eq(sent.link(), self.link()) {
            let handle = sent.handle();
            let (units, count) = Part::OfReceiver { handle }.to_units();
            return matches!(sent.origin(), Origin::Exporter)
                .then(|| self.post_named(message, &units[..count]))
                .flatten();
        }
        if !Arc::ptr_eq(sent.process(), self.process()) {
            return None;
        }
        let number = again::give_again(self.link(), sent)?;
        let (units, count) = Part::Again { number }.to_units();
        let posted = self.post_named(message, &units[..count]);
        posted.or_else(|| {
            again::unsent_again(self.link(), number);
            None
        })
    }

    /// Posts on this thread's lane, if there has been no trouble since. Its lane and ticket.
    #[inline(never)]
    fn post_named(&self, message: ToPost<'_>, units: &[Unit]) -> Option<(u32, Ticket)> {
        self.post_units(message, units)
    }

    /// As [`Self::post_named`], in line: for the messages that carry most rights.
    #[inline(always)]
    fn post_units(
        &self,
        (bytes, kind, words, before): ToPost<'_>,
        units: &[Unit],
    ) -> Option<(u32, Ticket)> {
        let (lane, mut outgoing, trouble) = self.lane_now()?;
        if trouble != before {
            return None;
        }
        let posted = self.post_described(&mut outgoing, lane, (bytes, kind, words), units);
        Some((lane, posted.ok()?))
    }
}
