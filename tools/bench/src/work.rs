//! A server's work for clients that ask for work.

use crate::laws::Law;
use handfast_sys::clock;

/// Busy work of the lengths a law draws.
pub(crate) struct Work {
    delays_ns: Vec<u64>,
    /// The delay it begins with.
    first: usize,
    pub(crate) done: u64,
    pub(crate) busy_ns: u64,
}

impl Work {
    pub(crate) fn new(law: Law) -> Self {
        Self {
            delays_ns: law.delays_ns(),
            first: 0,
            done: 0,
            busy_ns: 0,
        }
    }

    /// As [`Self::new`], for the other side: it begins in the middle of the delays, so that both sides' differ.
    pub(crate) fn other(law: Law) -> Self {
        let mut work = Self::new(law);
        work.first = work.delays_ns.len() / 2;
        work
    }

    /// Works for the next delay and says how long it took. Time this process did not run does
    /// not count: a jump of the clock above [`JUMP_NS`] was another process's.
    pub(crate) fn next_ns(&mut self) -> u64 {
        let asked = self.delays_ns[(self.first + self.done as usize) % self.delays_ns.len()];
        self.done += 1;
        if asked == 0 {
            return 0;
        }
        let start = clock::ticks_ns();
        let (mut last, mut spent) = (start, 0);
        while spent < asked {
            core::hint::spin_loop();
            let now = clock::ticks_ns();
            let step = now.saturating_sub(last);
            spent += if step < JUMP_NS { step } else { 0 };
            last = now;
        }
        self.busy_ns += spent;
        last - start
    }
}

const JUMP_NS: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_as_long_as_asked() {
        // As every child does: the clock jumps when another test calibrates it.
        clock::calibrate();
        let mut work = Work::new(Law::Constant(20));
        let spent = work.next_ns();
        assert!((20_000..2_000_000_000).contains(&spent));
        assert_eq!((work.done, work.busy_ns >= 20_000), (1, true));
        assert_eq!(Work::new(Law::Constant(0)).next_ns(), 0);
    }

    #[test]
    fn both_sides_draw_their_delays_from_one_law_and_not_the_same_ones_at_once() {
        let drawn = |work: &Work| work.delays_ns[work.first];
        let law = Law::Uniform(300);
        assert_ne!(drawn(&Work::new(law)), drawn(&Work::other(law)));
        assert_eq!(Work::new(law).delays_ns, Work::other(law).delays_ns);
    }
}
