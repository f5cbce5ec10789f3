//! How a receiver's threads sleep.

use super::{FUTILE_MAX, PAUSE_NS, Receiver};
use crate::link::Link;
use crate::link::group::Group;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use handfast_channel::stamped_after;
use handfast_layout::bell as bell_layout;
use handfast_layout::counters;
use handfast_region::{Memory, Region, Wait, park_any};
use handfast_sys::{clock, futex};
use handfast_wait::word;
use std::sync::Arc;

impl Receiver {
    /// A sleep has ended: with nothing (-1), by itself (0), or because of so much that is useful.
    pub(crate) fn slept(&self, useful: i32) {
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
    pub(crate) fn pause_if_futile(&self, deadline_ns: Option<u64>) {
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
    pub(crate) fn how_to_sleep(&self) -> u32 {
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
    pub(crate) fn sleep(
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
            return Some(park(bells.chain([self.handed.word(handed)]), until_ns));
        }
        (self.is_announced(groups, how)).then(|| crate::arrivals::wait(notified, until_ns))
    }

    /// How long after `start_ns` a peer posted what ended a sleep, if one has said so.
    pub(crate) fn posted_after(&self, groups: &[Arc<Group>], start_ns: u64) -> Option<u64> {
        let stamp = bell_layout::bell(self.index) + bell_layout::STAMP;
        let after_ns = groups
            .iter()
            .map(|group| stamped_after(&group.bells, stamp, start_ns));
        after_ns.filter(|after_ns| *after_ns > 0).min()
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

/// How long a thread sleeps in a word of a link alone: most sleeps are shorter, and a second word takes up to 1 us.
const BRIEFLY: Duration = Duration::from_millis(20);

/// Sleeps in the word of `link` at `at`. The peer can move the sleeper to a word of its own, where no wake-up finds it. So a sleep that
/// lasts is in a word of this process, too: [`Waiters::roused`](crate::link::rouse::Waiters::roused), for the count that was read before the
/// last look. One system call, or two.
pub(crate) fn park_at((link, at): (&Link, usize), roused: u32, deadline_ns: Option<u64>) {
    let soon_ns = clock::deadline_ns(BRIEFLY);
    let until_ns = deadline_ns.map_or(soon_ns, |deadline_ns| deadline_ns.min(soon_ns));
    let brief = link.region.park(at, word::ASLEEP, Some(until_ns));
    if brief == Wait::TimedOut && deadline_ns != Some(until_ns) {
        let words = [
            (&link.region, at, word::ASLEEP),
            link.waiters.roused.word(roused),
        ];
        park(words.into_iter(), deadline_ns);
    }
}
