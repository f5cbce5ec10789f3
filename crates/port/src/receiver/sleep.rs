//! How a receiver sleeps.

use super::{FUTILE_MAX, FUTILE_PER_USEFUL, PAUSE_NS, Receiver};
use crate::link::group;
use crate::link::group::Group;
use crate::poller::Poller;
use crate::rank;
use crate::request::Request;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use handfast_channel::stamped_after;
use handfast_layout::bell as bell_layout;
use handfast_layout::counters;
use handfast_region::{Memory, Region, Wait, park_any};
use handfast_sys::lock::OwnedGuard as Guard;
use handfast_sys::{clock, futex};
use handfast_wait::waiter::{Parked, Place, Sleep, Start};
use handfast_wait::word;
use std::sync::Arc;

impl Receiver {
    /// A sleep has ended: with nothing (-1), by itself (0), or because of so much that is useful.
    fn slept(&self, useful: i32) {
        // Relaxed, both: a count; threads may miss one another's.
        let futile = self.futile.load(Ordering::Relaxed).cast_signed();
        let futile = match useful {
            0 => 0,
            useful => (futile - useful).clamp(0, FUTILE_MAX.cast_signed()),
        };
        self.futile.store(futile.cast_unsigned(), Ordering::Relaxed);
    }

    /// After a sleep, without the poller: if a peer wakes this port's receivers all the time and for nothing, pauses
    /// uninterruptibly, so that the wake-ups cost little.
    fn pause_if_futile(&self, deadline_ns: Option<u64>) {
        // Relaxed: a count.
        if self.futile.load(Ordering::Relaxed) < FUTILE_MAX {
            return;
        }
        let left_ns = deadline_ns.map_or(PAUSE_NS, |deadline_ns| {
            deadline_ns.saturating_sub(clock::now_ns())
        });
        let pause = Duration::from_nanos(left_ns.min(PAUSE_NS));
        self.count(counters::MUTED, 1);
        clock::sleep(pause);
    }

    /// How followers are to be woken.
    pub(super) fn how_to_sleep(&self) -> u32 {
        // Acquire: a thread that counts as a follower has counted as one that sleeps by notify before.
        fence(Ordering::Acquire);
        match self.notified.load(Ordering::Relaxed) {
            0 => word::ASLEEP,
            _ => word::DESCRIPTOR,
        }
    }

    /// Whether no thread has taken the announcement back since this thread gave the poller up, for a sleeper
    /// whose sleep no word ends. A thread that takes it back from here on finds a follower.
    fn is_announced(&self, groups: &[Arc<Group>], how: u32) -> bool {
        // E7 hand-over, notified. Fence of all threads of this process. Pairs with the compiler fence in
        // `leave`: either the announcement that was taken back is seen to be so here, or the thread that has
        // taken it back sees the follower.
        futex::fence_own_threads();
        let sleep = Group::sleep(self.index);
        // Relaxed: ordered by the fence.
        let is = |group: &Arc<Group>| group.bells.load(sleep, Ordering::Relaxed) == how;
        groups.iter().all(is)
    }

    /// Sleeps as was announced in the bells of `groups`, with the counts that were read before that. `None`: the announcement
    /// has been taken back.
    fn sleep(
        &self,
        groups: &[Arc<Group>],
        how: u32,
        (handed, notified): (u32, u32),
        until_ns: Option<u64>,
    ) -> Option<Wait> {
        if how == word::ASLEEP {
            let bells = groups.iter();
            let bells = bells.filter_map(|group| group.sleeps_in(self.index));
            let bells = bells.map(|(bells, sleep)| (bells, sleep, how));
            // And in a word of this process alone: other processes of a user may meddle with the sleepers in its
            // bells.
            return Some(park(bells.chain([self.nudged(handed)]), until_ns));
        }
        (self.is_announced(groups, how)).then(|| crate::arrivals::wait(notified, until_ns))
    }

    /// How long after `start_ns` a peer posted what ended a sleep, if one has said so.
    fn posted_after(&self, groups: &[Arc<Group>], start_ns: u64) -> Option<u64> {
        let stamp = bell_layout::bell(self.index) + bell_layout::STAMP;
        let after_ns = groups
            .iter()
            .map(|group| stamped_after(&group.bells, stamp, start_ns));
        after_ns.filter(|after_ns| *after_ns > 0).min()
    }

    /// Waits until no other thread polls, asleep in the bells meanwhile; then polls.
    pub(super) fn follow(
        &self,
        deadline_ns: Option<u64>,
    ) -> Option<Guard<'_, Poller, rank::Poller>> {
        // Relaxed: ordered by the fence below.
        self.followers.fetch_add(1, Ordering::Relaxed);
        let got = loop {
            let groups = group::of(&self.process).all();
            // Acquire, and before the bells: a count seen brings the announcement before it, and
            // the free lock.
            let handed = self.handed.load(0, Ordering::Acquire);
            // Acquire: pairs with the exchange of a waker.
            let mut words: Vec<_> = groups
                .iter()
                .filter_map(|group| group.sleeps_in(self.index))
                .map(|(bells, sleep)| (bells, sleep, bells.load(sleep, Ordering::Acquire)))
                .collect();
            words.push((&self.handed, 0, handed));
            // E7 hand-over. Fence of all threads of this process. Pairs with the compiler fence in
            // `leave`, which every message passes and which therefore must cost nothing.
            futex::fence_own_threads();
            if let Some(mut guard) = self.try_lock() {
                guard.withdraw();
                break Some(guard);
            }
            if deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns) {
                break None;
            }
            park(words.iter().copied(), deadline_ns);
        };
        // Relaxed: a thread that leaves wrongly seen as a follower costs one arming.
        self.followers.fetch_sub(1, Ordering::Relaxed);
        got
    }
}

/// How long to sleep in one word where another may be the one that ends the sleep.
const ALONE: Duration = Duration::from_millis(1);

/// Sleeps in all words. One system call.
pub(crate) fn park<'a>(
    words: impl Iterator<Item = (&'a Region, usize, u32)> + Clone,
    deadline_ns: Option<u64>,
) -> Wait {
    park_any(words.clone(), deadline_ns).unwrap_or_else(|_| {
        // Before kernel 5.16 no thread sleeps in several words at once.
        let soon_ns = clock::deadline_ns(ALONE);
        let soon_ns = deadline_ns.map_or(soon_ns, |deadline_ns| deadline_ns.min(soon_ns));
        park_any(words.take(1), Some(soon_ns)).unwrap_or(Wait::TimedOut)
    })
}

/// The places where a receiving thread waits: the poller while it looks, the bells while it sleeps.
pub(super) struct Receiving<'a> {
    pub(super) port: &'a Receiver,
    pub(super) guard: Option<Guard<'a, Poller, rank::Poller>>,
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
        let handed = self.port.handed();
        super::waits::note_calls(self.port, &poller);
        if !poller.prepare_to_wait(how) {
            self.guard = Some(poller);
            return Parked {
                ready: self.look(),
                posted_after_ns: None,
            };
        }
        let groups = poller.groups();
        let due_ns = poller
            .sleep_ns_max()
            .map(|sleep_ns| clock::now_ns() + sleep_ns);
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
        self.guard = self.port.try_lock();
        // Another thread was faster, if not, and there was something.
        let is_alone = self.guard.is_some();
        if !is_alone {
            self.guard = self.port.follow(deadline_ns);
        }
        let Some(poller) = self.guard.as_mut() else {
            return NOTHING;
        };
        poller.withdraw();
        poller.refresh();
        let ready = self.look();
        self.port.slept(match ended {
            Some(Wait::TimedOut) => 0,
            _ if ready || !is_alone => FUTILE_PER_USEFUL,
            _ => -1,
        });
        Parked {
            ready,
            posted_after_ns: start_ns
                .and_then(|start_ns| self.port.posted_after(&groups, start_ns)),
        }
    }
}
