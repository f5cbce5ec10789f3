//! How a caller waits for its answer.

use super::Call;
use crate::ahead::{self, Progress};
use crate::announced;
use crate::link::doorbell;
use crate::send::{SendRight, spread};
use crate::slots::SLOTS_PER_LANE;
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_channel::bell;
use handfast_sys::{clock, cpu};
use handfast_wait::place::{Parked, Place, Sleep, Start};

/// The reply slot, at which a caller waits.
pub(super) struct Answer<'a, 'b>(pub(super) &'a mut Call<'b>);

impl Place for Answer<'_, '_> {
    #[inline]
    fn look(&mut self) -> bool {
        self.0.is_answered_or_troubled() || self.0.copies_ahead() == Some(true)
    }

    fn is_caller(&self) -> bool {
        true
    }

    fn is_put_off(&mut self) -> bool {
        let region = &self.0.right.link().region;
        self.0
            .slot()
            .is_deferred(region, self.0.state.ticket.generation)
    }

    fn asked_limit_ns(&mut self) -> Option<u64> {
        bell::load_hint(
            doorbell::bells(self.0.right.link()),
            self.0.right.receiver(),
        )
        .map(|(spin_ns, _)| u64::from(spin_ns).min(ASKED_LIMIT_MAX_NS))
    }

    fn shares_processor(&mut self) -> bool {
        self.0.shares_processor()
    }

    fn worked_ns(&mut self) -> u64 {
        ahead::worked_ns()
    }

    fn park(&mut self, how: Sleep, deadline_ns: Option<u64>, start: Option<Start>) -> Parked {
        let call = &mut *self.0;
        if !matches!(call.copies_ahead(), Some(false)) {
            return Parked {
                ready: call.is_answered_or_troubled(),
                posted_after_ns: None,
            };
        }
        let (right, ticket) = (call.right, call.state.ticket);
        let link = right.link();
        let (mut hopes, until) = (call.state.hopes, || until(right, deadline_ns));
        let of = (link, ticket.index, ticket.generation);
        let look = || call.is_answered_or_troubled();
        let mut parked = announced::sleep(of, (how, start), &mut hopes, look, until);
        call.state.hopes = hopes;
        parked.ready = parked.ready || call.copies_ahead() == Some(true);
        let hint = bell::load_hint(doorbell::bells(link), right.receiver());
        if let Some((_, server_cpu)) = hint
            && server_cpu == cpu::current()
        {
            cpu::leave(server_cpu);
        }
        parked
    }
}

impl Call<'_> {
    /// Copies what is there of a long answer that is not sent yet. Whether it has come then, or something else has happened; `None` where the
    /// sender goes on, and this thread is not to sleep.
    #[inline]
    fn copies_ahead(&self) -> Option<bool> {
        match self.right.link().parts.fills.come() {
            true => self.copies_long(),
            false => Some(false),
        }
    }

    #[cold]
    fn copies_long(&self) -> Option<bool> {
        let (link, slot) = (self.right.link(), self.state.ticket.index);
        let has_come = match ahead::look(link, slot / SLOTS_PER_LANE, slot + 1) {
            Progress::Nothing => return Some(self.is_answered_or_troubled()),
            Progress::GoesOn => return None,
            Progress::InVain => false,
            Progress::ComesSoon => {
                ahead::await_soon(|| self.is_answered_or_troubled().then_some(())).is_some()
            }
        };
        if !has_come {
            link.parts.fills.come_no_more();
        }
        Some(has_come)
    }

    /// Whether the server is known to work on this thread's processor.
    pub(crate) fn shares_processor(&self) -> bool {
        // Relaxed: a hint.
        spread::peer_cpu(self.right).load(Ordering::Relaxed) == cpu::current()
    }
}

/// Until when a caller sleeps that has announced its sleep: not long where it cannot make the server fence.
pub(crate) fn until(right: &SendRight, deadline_ns: Option<u64>) -> Option<u64> {
    if bell::fence_for_sleep(doorbell::bells(right.link()), right.receiver()) {
        return deadline_ns;
    }
    let soon = clock::deadline_ns(UNFENCED_SLEEP);
    Some(deadline_ns.map_or(soon, |deadline_ns| deadline_ns.min(soon)))
}

/// How long a caller sleeps at a time where it cannot make the server fence.
const UNFENCED_SLEEP: Duration = Duration::from_millis(1);

/// A server may ask for spinning, not for burning.
const ASKED_LIMIT_MAX_NS: u64 = 100_000;
