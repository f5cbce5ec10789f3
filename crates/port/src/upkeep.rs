//! When the control thread does the work that threads of this process have put off: a time for each kind of work
//! ([`Timer`]), and one alarm for the earliest.

use core::sync::atomic::{AtomicU64, Ordering};
use handfast_proto::timers::Timer;
use handfast_sys::{Errno, clock, deadline, poll};

/// In the place of a time: there is nothing to do.
const NEVER_NS: u64 = u64::MAX;

/// The work that a node has put off, by [`clock::ticks_ns`].
pub(crate) struct Upkeep {
    due_ns: [AtomicU64; Timer::COUNT],
    /// When the alarm goes off, at the latest.
    alarm_ns: AtomicU64,
    alarm: poll::Timer,
}

impl Upkeep {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            due_ns: [const { AtomicU64::new(NEVER_NS) }; Timer::COUNT],
            alarm_ns: AtomicU64::new(NEVER_NS),
            alarm: poll::Timer::new()?,
        })
    }

    /// The descriptor that is readable when something is due.
    pub(crate) const fn alarm(&self) -> &poll::Timer {
        &self.alarm
    }

    /// There is work for `timer`, to be done in `from_now_ns`. One atomic operation where that timer is due by then; a
    /// system call where nothing is due earlier.
    pub(crate) fn schedule(&self, timer: Timer, from_now_ns: u64) {
        let due_ns = clock::ticks_ns() + from_now_ns;
        // E20 work, store half: the work comes before this.
        let before_ns = self.due_ns[timer.index()].fetch_min(due_ns, Ordering::Release);
        if before_ns > due_ns {
            self.alarm_at(due_ns);
        }
    }

    /// Whether work for `timer` is due after this moment, and within `from_now_ns`.
    #[inline]
    pub(crate) fn is_due_within(&self, timer: Timer, from_now_ns: u64) -> bool {
        // Relaxed: a time to come is taken away after this moment, and a time that has passed does not count.
        let due_ns = self.due_ns[timer.index()].load(Ordering::Relaxed);
        due_ns.wrapping_sub(clock::ticks_ns()) <= from_now_ns
    }

    #[cold]
    fn alarm_at(&self, due_ns: u64) {
        // A function of a domain that is ended in between would leave the others without an alarm.
        let _shield = deadline::shield();
        // E21 alarm, store half: the timer's own time comes before this.
        if self.alarm_ns.fetch_min(due_ns, Ordering::Release) > due_ns {
            self.set_alarm(due_ns);
        }
    }

    fn set_alarm(&self, mut due_ns: u64) {
        loop {
            self.alarm.set(due_ns.saturating_sub(clock::ticks_ns()));
            // A thread that needs an earlier time may have set the alarm before this thread has. At most once for each such
            // thread. Relaxed: a thread that sets an earlier time after this sets the alarm after this.
            let earlier_ns = self.alarm_ns.load(Ordering::Relaxed);
            if earlier_ns >= due_ns {
                return;
            }
            due_ns = earlier_ns;
        }
    }

    /// Control thread: the alarm went off. Timers that are set from now on set it again.
    pub(crate) fn begin(&self) {
        self.alarm.clear();
        // E21 alarm, load half: an exchange, so that it comes behind threads that found the alarm early enough. Their times
        // are seen by `take` and `end`.
        self.alarm_ns.swap(NEVER_NS, Ordering::Acquire);
    }

    /// Control thread: whether there is work for `timer`, which this thread does now.
    pub(crate) fn take(&self, timer: Timer, now_ns: u64) -> bool {
        let due_ns = &self.due_ns[timer.index()];
        // Relaxed: a timer that is not due yet stays.
        due_ns.load(Ordering::Relaxed) <= now_ns
            // E20 work, load half: an exchange, so that it comes behind threads that found the time early enough.
            && due_ns.swap(NEVER_NS, Ordering::Acquire) <= now_ns
    }

    /// Control thread, between [`Self::begin`] and [`Self::end`]: as [`Self::schedule`], without a system call.
    pub(crate) fn put_off(&self, timer: Timer, from_now_ns: u64) {
        let due_ns = clock::ticks_ns() + from_now_ns;
        // Relaxed: the work is this thread's own. `end` sets the alarm, also for threads that find this time early enough.
        self.due_ns[timer.index()].fetch_min(due_ns, Ordering::Relaxed);
    }

    /// Control thread: sets the alarm for what is due next.
    pub(crate) fn end(&self) {
        // Relaxed: behind the exchange in `begin` (E21).
        let due_ns = |due_ns: &AtomicU64| due_ns.load(Ordering::Relaxed);
        let next_ns = self.due_ns.iter().map(due_ns).min();
        if let Some(next_ns) = next_ns.filter(|next_ns| *next_ns != NEVER_NS) {
            // A thread that has to set the alarm may wait for a processor: this one does not rely on that.
            self.alarm_ns.fetch_min(next_ns, Ordering::Release);
            self.set_alarm(next_ns);
        }
    }
}

#[cfg(test)]
mod model;
