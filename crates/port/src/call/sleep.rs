//! How a caller waits for its answer.

use super::Call;
use crate::elsewhere::Elsewhere;
use crate::slots::SLOTS_PER_LANE;
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_channel::{bell, stamped_after};
use handfast_sys::{clock, cpu};
use handfast_wait::waiter::{Parked, Place, Sleep, Start};
use handfast_wait::word;

/// The reply slot, at which a caller waits.
pub(super) struct Answer<'a, 'b>(pub(super) &'a mut Call<'b>);

impl Place for Answer<'_, '_> {
    #[inline]
    fn look(&mut self) -> bool {
        self.0.is_answered()
            // Acquire: pairs with the addition in `disturb`.
            || self.0.right.link().trouble.load(Ordering::Acquire) != self.0.trouble
    }

    fn is_put_off(&mut self) -> bool {
        let region = &self.0.right.link().region;
        self.0.slot().is_deferred(region, self.0.ticket.generation)
    }

    fn asked_limit_ns(&mut self) -> Option<u64> {
        bell::load_hint(self.0.right.link().bells(), self.0.right.receiver())
            .map(|(spin_ns, _)| u64::from(spin_ns).min(ASKED_LIMIT_MAX_NS))
    }

    fn shares_processor(&mut self) -> bool {
        // Relaxed: a hint.
        self.0.right.peer_cpu().load(Ordering::Relaxed) == cpu::current()
    }

    fn park(&mut self, how: Sleep, deadline_ns: Option<u64>, start: Option<Start>) -> Parked {
        let (right, slot) = (self.0.right, self.0.slot());
        let link = right.link();
        let parked = link.waiters.parked.of(self.0.ticket.index / SLOTS_PER_LANE);
        // AcqRel: the keeper looks after this thread while it is not zero.
        parked.fetch_add(1, Ordering::AcqRel);
        right.process().watch_sleepers();
        let notified = crate::arrivals::epoch();
        let how = match how {
            Sleep::Notify if crate::arrivals::is_active() => word::DESCRIPTOR,
            // Without a handler no signal would end the sleep.
            Sleep::Notify | Sleep::Block => word::ASLEEP,
        };
        let elsewhere = match how {
            word::ASLEEP if self.0.hopes > 0 => Elsewhere::of(link, self.0.ticket.index),
            _ => Elsewhere::nowhere(),
        };
        elsewhere.announce((link, slot));
        word::announce(&link.region, slot.wait(), how);
        let deadline_ns = if bell::fence_for_sleep(link.bells(), right.receiver()) {
            deadline_ns
        } else {
            let soon = clock::deadline_ns(UNFENCED_SLEEP);
            Some(deadline_ns.map_or(soon, |deadline_ns| deadline_ns.min(soon)))
        };
        let start_ns = start.map(Start::now_ns);
        if self.look() {
        } else if elsewhere.is_answered(self.0.ticket.generation) {
            // The peer that may say so does it only when the call has been moved there: soon, or never.
            self.0.hopes -= 1;
        } else if how == word::ASLEEP {
            elsewhere.park((&link.region, slot.wait(), how), deadline_ns);
        } else {
            let _ = crate::arrivals::wait(notified, deadline_ns);
        }
        word::withdraw(&link.region, slot.wait());
        elsewhere.withdraw();
        parked.fetch_sub(1, Ordering::AcqRel);
        let hint = bell::load_hint(link.bells(), right.receiver());
        if let Some((_, server_cpu)) = hint
            && server_cpu == cpu::current()
        {
            cpu::leave(server_cpu);
        }
        let stamp = |start_ns| stamped_after(&link.region, slot.stamp(), start_ns);
        Parked {
            ready: self.look(),
            posted_after_ns: start_ns.map(stamp).filter(|after_ns| *after_ns > 0),
        }
    }
}

/// How long a caller sleeps at a time where it cannot make the server fence.
const UNFENCED_SLEEP: Duration = Duration::from_millis(1);

/// A server may ask for spinning, not for burning.
const ASKED_LIMIT_MAX_NS: u64 = 100_000;
