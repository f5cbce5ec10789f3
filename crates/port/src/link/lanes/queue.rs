//! Turns: parties without a lane, first come first served.

use super::Party;
use handfast_layout::bell::RECEIVERS;
use std::collections::VecDeque;

/// See the module text. Lanes are free only while no party waits here.
pub(super) struct Queue {
    /// Parties, and when a lane for each was asked for last; each once.
    waiting: VecDeque<(Party, u64)>,
    /// How many threads of each wait for a lane, or for their turn to run since there is one.
    threads: [u32; PARTIES],
}

/// Each receiver, twice.
const PARTIES: usize = 2 * RECEIVERS as usize;

/// How long a party keeps its place without a waiting thread: tasks look again every millisecond or so, and a
/// thread that does not wait comes again or does not. Tests of one thread may be held up for longer than that.
const ASKED_NS: u64 = match cfg!(all(test, not(feature = "simulation"))) {
    true => 60_000_000_000,
    false => 100_000_000,
};

impl Default for Queue {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            threads: [0; PARTIES],
        }
    }
}

impl Queue {
    /// A lane for `party` is asked for, perhaps once more.
    pub(super) fn ask(&mut self, party: Party, now_ns: u64) {
        match self.waiting.iter_mut().find(|(of, _)| *of == party) {
            Some((_, asked_ns)) => *asked_ns = now_ns,
            None => self.waiting.push_back((party, now_ns)),
        }
    }

    /// The party whose turn it is; the turn has been its then.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Party> {
        while let Some((party, asked_ns)) = self.waiting.pop_front() {
            if self.has_threads(party) || now_ns.saturating_sub(asked_ns) < ASKED_NS {
                return Some(party);
            }
        }
        None
    }

    /// Whether a thread waits.
    pub(super) fn is_waited_in(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// One more thread of `party` waits.
    pub(super) const fn enter(&mut self, party: Party) {
        self.threads[party as usize] += 1;
    }

    pub(super) const fn leave(&mut self, party: Party) {
        self.threads[party as usize] -= 1;
    }

    pub(super) const fn has_threads(&self, party: Party) -> bool {
        self.threads[party as usize] > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_is_next_and_who_comes_no_more_is_passed_over() {
        let mut queue = Queue::default();
        [5, 3, 5, 9].iter().for_each(|party| queue.ask(*party, 1));
        queue.ask(3, ASKED_NS);
        assert_eq!(queue.next(ASKED_NS + 1), Some(3));
        assert_eq!(queue.next(ASKED_NS + 1), None);
        queue.enter(5);
        [5, 3].iter().for_each(|party| queue.ask(*party, 1));
        assert_eq!(queue.next(u64::MAX), Some(5));
        assert!(queue.is_waited_in() && queue.has_threads(5));
        queue.leave(5);
        assert_eq!(queue.next(u64::MAX), None);
        assert!(!queue.is_waited_in() && !queue.has_threads(5));
    }
}
