//! How a thread that receives gives the poller up and sleeps, and how it follows others that have it.

use super::{Guard, try_lock};
use crate::ahead;
use crate::link::group;
use crate::poller::{bells, clearing, idle, in_turn, waiting};
use crate::port::receiver::{FUTILE_PER_USEFUL, Receiver, park};
use crate::request::Request;
use core::sync::atomic::Ordering;
use handfast_region::{Memory, Wait};
use handfast_sys::{clock, futex};
use handfast_wait::place::{Parked, Place, Sleep, Start};
use handfast_wait::word;

/// Waits until no other thread polls, asleep in the bells meanwhile; then polls.
pub(super) fn follow(port: &Receiver, deadline_ns: Option<u64>) -> Option<Guard<'_>> {
    // Relaxed: ordered by the fence below.
    port.followers.fetch_add(1, Ordering::Relaxed);
    let got = loop {
        let groups = group::of(&port.process).all();
        // Acquire, and before the bells: a count seen brings the announcement before it, and
        // the free lock.
        let handed = port.handed.count();
        // Acquire: pairs with the exchange of a waker.
        let mut words: Vec<_> = groups
            .iter()
            .filter_map(|group| group.sleeps_in(port.index))
            .map(|(bells, sleep)| (bells, sleep, bells.load(sleep, Ordering::Acquire)))
            .collect();
        words.push(port.handed.word(handed));
        // E7 hand-over. Fence of all threads of this process. Pairs with the compiler fence in
        // `leave`, which every message passes and which therefore must cost nothing.
        futex::fence_own_threads();
        if let Some(mut guard) = try_lock(port) {
            idle::withdraw(&mut guard);
            break Some(guard);
        }
        if deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns) {
            break None;
        }
        park(words.iter().copied(), deadline_ns);
    };
    // Relaxed: a thread that leaves wrongly seen as a follower costs one arming.
    port.followers.fetch_sub(1, Ordering::Relaxed);
    got
}

/// The places where a receiving thread waits: the poller while it looks, the bells while it sleeps.
pub(super) struct Receiving<'a> {
    pub(super) port: &'a Receiver,
    pub(super) guard: Option<Guard<'a>>,
    /// The result of the last look.
    pub(super) found: Option<Request>,
    /// Sleeps in the kernel. A prepared sleep that was not needed does not count.
    pub(super) parks: u64,
}

impl Place for Receiving<'_> {
    #[inline]
    fn look(&mut self) -> bool {
        if self.found.is_none() {
            self.found = self.guard.as_mut().and_then(|poller| poller.next());
        }
        self.found.is_some() || self.port.process.is_over()
    }

    fn shares_processor(&mut self) -> bool {
        self.guard
            .as_ref()
            .is_some_and(|poller| poller.shares_processor())
    }

    fn worked_ns(&mut self) -> u64 {
        ahead::worked_ns()
    }

    fn park(&mut self, how: Sleep, deadline_ns: Option<u64>, start: Option<Start>) -> Parked {
        const NOTHING: Parked = Parked {
            ready: false,
            posted_after_ns: None,
        };
        let Some(mut poller) = self.guard.take() else {
            return NOTHING;
        };
        let how = match how {
            Sleep::Notify if crate::arrivals::is_active() => word::DESCRIPTOR,
            // Without a handler no signal would end the sleep.
            Sleep::Notify | Sleep::Block => word::ASLEEP,
        };
        let notified = crate::arrivals::epoch();
        let handed = self.port.handed.count();
        super::waits::note_calls(self.port, &poller);
        if in_turn::take_copying(&mut poller) || !idle::prepare_to_wait(&mut poller, how) {
            self.guard = Some(poller);
            return Parked {
                ready: self.look(),
                posted_after_ns: None,
            };
        }
        let groups = bells::groups(&poller);
        let due_ns = waiting::sleep_ns_max(&poller).map(|sleep_ns| clock::now_ns() + sleep_ns);
        drop(poller);
        let until_ns = due_ns.into_iter().chain(deadline_ns).min();
        let start_ns = start.map(Start::now_ns);
        let by_notify = u32::from(how == word::DESCRIPTOR);
        self.port.notified.fetch_add(by_notify, Ordering::Relaxed);
        // E7 hand-over: an announced sleeper counts as a follower from here on. Release: and as one
        // that sleeps by notify, see `hand_over`.
        self.port.followers.fetch_add(1, Ordering::Release);
        let is_late = deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns);
        let ended = match is_late {
            true => None,
            false => self.port.sleep(&groups, how, (handed, notified), until_ns),
        };
        self.port.pause_if_futile(deadline_ns);
        self.parks += u64::from(matches!(ended, Some(Wait::Woken | Wait::TimedOut)));
        self.port.followers.fetch_sub(1, Ordering::Relaxed);
        self.port.notified.fetch_sub(by_notify, Ordering::Relaxed);
        self.guard = try_lock(self.port);
        // Another thread was faster, if not, and there was something.
        let is_alone = self.guard.is_some();
        if !is_alone {
            self.guard = follow(self.port, deadline_ns);
        }
        let Some(poller) = self.guard.as_mut() else {
            return NOTHING;
        };
        idle::withdraw(poller);
        clearing::refresh(poller);
        let ready = self.look();
        let is_copying = self.guard.as_deref().is_some_and(in_turn::is_copying);
        self.port.slept(match ended {
            Some(Wait::TimedOut) => 0,
            _ if ready || is_copying || !is_alone => FUTILE_PER_USEFUL,
            _ => -1,
        });
        Parked {
            ready,
            posted_after_ns: start_ns
                .and_then(|start_ns| self.port.posted_after(&groups, start_ns)),
        }
    }
}
