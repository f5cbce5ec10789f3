//! How long a receiver waits for the rights that a message names.

use handfast_sys::clock;

/// The part of the time between two looks that counts. Meanwhile a receiver takes a message from each lane that
/// has one, and works on it for however long; the awaited message may lie behind all that its lanes hold.
const LOOK_NS_MAX: u64 = 1_000_000;

/// So many looks come before the end of a wait, once something rang: a lane holds so many calls.
const LOOKS: u64 = 16;

/// How long a message waits for the claim of the right it names, which was posted before, to another
/// lane of the same receiver.
pub(super) const UNCLAIMED_NS: u64 = 200_000_000;

/// A receiver's own clock, for its waits: it goes while lanes are looked at, and while the receiver sleeps.
pub(super) struct Patience {
    now_ns: u64,
    seen_ns: u64,
    /// A thread, a task or a loop waits since the last look: see [`Self::rests`].
    is_resting: bool,
}

impl Patience {
    pub(super) fn new() -> Self {
        // As late as others began to wait for, at a port that was here before.
        let now_ns = clock::ticks_ns();
        Self {
            now_ns,
            seen_ns: now_ns,
            is_resting: false,
        }
    }

    /// Lanes are looked at.
    pub(super) fn look(&mut self) -> u64 {
        self.pass(LOOK_NS_MAX)
    }

    /// The receiver has slept: all its lanes were empty meanwhile, except the waiting ones.
    pub(super) fn slept(&mut self) -> u64 {
        self.pass(u64::MAX)
    }

    /// A thread, a task or a loop has found all lanes empty, except the waiting ones, and waits from now on. One that only looks now and
    /// then does not: what was sent meanwhile lies in its lanes, so the time between its looks is no wait.
    pub(super) const fn rests(&mut self) {
        self.is_resting = true;
    }

    /// Something rang, perhaps at that time: as [`Self::slept`], up to then, if no thread has looked since the wait began. The message
    /// that is waited for may lie in a lane that rang; where this process did not run for a while, no wait is over before some looks.
    pub(super) fn slept_until(&mut self, then_ns: Option<u64>, due_ns: Option<u64>) -> u64 {
        match (then_ns, due_ns) {
            (Some(then_ns), Some(due_ns)) if self.is_resting => {
                let before_due_ns = self.left_ns(due_ns).saturating_sub(LOOKS * LOOK_NS_MAX);
                let slept_ns = then_ns.saturating_sub(self.seen_ns);
                self.pass(slept_ns.min(before_due_ns).max(LOOK_NS_MAX))
            }
            _ => self.look(),
        }
    }

    fn pass(&mut self, ns_max: u64) -> u64 {
        let now_ns = clock::ticks_ns();
        self.now_ns += now_ns.saturating_sub(self.seen_ns).min(ns_max);
        self.seen_ns = now_ns;
        self.is_resting = false;
        self.now_ns
    }

    /// The last look was so much earlier; the time that it told.
    #[cfg(test)]
    pub(super) const fn after(&mut self, ns: u64) -> u64 {
        self.seen_ns -= ns;
        self.now_ns
    }

    /// How long until that time, if the receiver sleeps from now on.
    pub(super) const fn left_ns(&self, until_ns: u64) -> u64 {
        until_ns.saturating_sub(self.now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// The time until a waiter was called is counted as one of waiting, and not if another thread has looked meanwhile: what is
    /// waited for may lie in a lane then.
    #[test]
    fn time_between_looks_is_no_wait_unless_the_receiver_waited() {
        let mut patience = Patience::new();
        let passed_ns = |patience: &mut Patience, is_called: bool| {
            let before_ns = patience.after(SECOND_NS);
            patience.slept_until(is_called.then(clock::ticks_ns), Some(u64::MAX));
            patience.now_ns - before_ns
        };
        assert!(passed_ns(&mut patience, true) <= LOOK_NS_MAX);
        patience.rests();
        assert!(passed_ns(&mut patience, true) >= SECOND_NS);
        assert!(
            passed_ns(&mut patience, true) <= LOOK_NS_MAX,
            "it has looked since"
        );
        patience.rests();
        assert!(passed_ns(&mut patience, false) <= LOOK_NS_MAX, "not called");
        patience.rests();
        patience.look();
        assert!(
            passed_ns(&mut patience, true) <= LOOK_NS_MAX,
            "another thread has looked since"
        );
    }
}
