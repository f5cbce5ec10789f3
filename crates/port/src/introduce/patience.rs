//! How long a receiver waits for the rights that a message names.

use handfast_sys::clock;

/// The part of the time between two looks that counts. Meanwhile a receiver takes a message from each lane that
/// has one, and works on it for however long; the awaited message may lie behind all that its lanes hold.
const LOOK_NS_MAX: u64 = 1_000_000;

/// A receiver's own clock, for its waits: it goes while lanes are looked at, and while the receiver sleeps.
pub(crate) struct Patience {
    now_ns: u64,
    seen_ns: u64,
}

impl Patience {
    pub(crate) fn new() -> Self {
        // As late as others began to wait for, at a port that was here before.
        let now_ns = clock::ticks_ns();
        Self {
            now_ns,
            seen_ns: now_ns,
        }
    }

    /// Lanes are looked at.
    pub(crate) fn look(&mut self) -> u64 {
        self.pass(LOOK_NS_MAX)
    }

    /// The receiver has slept: all its lanes were empty meanwhile, except the waiting ones.
    pub(crate) fn slept(&mut self) {
        self.pass(u64::MAX);
    }

    /// As [`Self::slept`], of one that was called at that time, or now, and looks only later.
    pub(crate) fn slept_until(&mut self, called_ns: Option<u64>) {
        let asleep_ns = called_ns.map_or(u64::MAX, |then_ns| then_ns.saturating_sub(self.seen_ns));
        self.pass(asleep_ns);
    }

    fn pass(&mut self, ns_max: u64) -> u64 {
        let now_ns = clock::ticks_ns();
        self.now_ns += now_ns.saturating_sub(self.seen_ns).min(ns_max);
        self.seen_ns = now_ns;
        self.now_ns
    }

    /// How long until that time, if the receiver sleeps from now on.
    pub(crate) const fn left_ns(&self, until_ns: u64) -> u64 {
        until_ns.saturating_sub(self.now_ns)
    }
}
