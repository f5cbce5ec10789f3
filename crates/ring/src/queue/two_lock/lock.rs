//! Locks that outlive their holder.
//!
//! A lock word names the process that holds it, so a waiter can ask whether that process
//! still lives. A lock is only ever taken over by a repair, with the head lock taken first: that
//! order keeps two repairs from waiting for each other, and no operation holds one lock while it
//! waits for the other.
//!
//! The word is also what waiters sleep on (after U. Drepper, "Futexes are tricky", 2011, section
//! 5, mutex 2): a waiter sets a bit in it before it sleeps, unlocking clears the word and wakes
//! one if the bit was set, and a waiter that has slept takes the lock with the bit set, as there may be
//! more of them. Since sleeps are short, a lost wake-up (its sender was killed) costs a
//! millisecond.

use super::TwoLock;
use crate::{Fault, Rule};
use core::sync::atomic::Ordering::{Relaxed, Release};
use handfast_layout::queue::two_lock::{BROKEN, INCARNATION_SHIFT, MEMBER, WAITERS};
use handfast_region::{Memory, Wait};
use handfast_sys::clock::now_ns;

/// Looks at a held lock before sleeping: a few times the length of the section it guards.
pub(super) const LOOKS: u32 = 200;
/// Longest sleep before the holder's life is looked at.
const STEP_NS: u64 = 1_000_000;

/// How a lock came to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nobody held it.
    Free,
    /// From a dead process, midway in something.
    FromDead,
}

impl<M: Memory> TwoLock<M> {
    /// Takes the lock at `lock`. One locked instruction when it is free.
    #[inline(always)]
    pub(super) fn lock(&self, lock: usize) -> Result<(), Fault> {
        // Q3 lock, take half. AcqRel in all exchanges of this file: what the last holder did is
        // visible. Release half: `unlock`.
        match self.memory.compare_exchange(self.at + lock, 0, self.own) {
            Ok(_) => Ok(()),
            Err(_) => self.lock_slowly(lock),
        }
    }

    #[cold]
    fn lock_slowly(&self, lock: usize) -> Result<(), Fault> {
        for _ in 0..self.looks {
            // Relaxed: the exchange decides.
            if self.memory.load(self.at + lock, Relaxed) == 0
                && self
                    .memory
                    .compare_exchange(self.at + lock, 0, self.own)
                    .is_ok()
            {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        loop {
            let free = self
                .memory
                .compare_exchange(self.at + lock, 0, self.own | WAITERS);
            let Err(word) = free else { return Ok(()) };
            if self.sleep(lock, word)? == Wait::TimedOut && self.is_dead(word) {
                self.repair()?;
            }
        }
    }

    /// As [`Self::lock`], but takes the lock over when its holder is dead. Only for repairs: the
    /// head lock first.
    pub(super) fn take_over(&self, lock: usize) -> Result<Taken, Fault> {
        let own = self.own | WAITERS;
        loop {
            let Err(word) = self.memory.compare_exchange(self.at + lock, 0, own) else {
                return Ok(Taken::Free);
            };
            self.check(lock, word)?;
            // Q4 death, use. The word names one incarnation of a number, so the exchange fails
            // when another process has got that number and the lock meanwhile.
            if self.is_dead(word) {
                if self
                    .memory
                    .compare_exchange(self.at + lock, word, own)
                    .is_ok()
                {
                    return Ok(Taken::FromDead);
                }
            } else {
                self.sleep(lock, word)?;
            }
        }
    }

    /// Sleeps a step, or until the holder that `word` names unlocks.
    fn sleep(&self, lock: usize, word: u32) -> Result<Wait, Fault> {
        self.check(lock, word)?;
        let announced = word | WAITERS;
        let exchanged = word == announced
            || self
                .memory
                .compare_exchange(self.at + lock, word, announced)
                .is_ok();
        if !exchanged {
            return Ok(Wait::Changed);
        }
        Ok(self
            .memory
            .park(self.at + lock, announced, Some(now_ns() + STEP_NS)))
    }

    /// Releases a lock that we hold. One locked instruction; one system call when somebody waits.
    #[inline(always)]
    pub(super) fn unlock(&self, lock: usize) {
        // Q3 lock, release half. Release: our changes are visible to the next holder. Take half:
        // `lock`. An exchange, since a waiter may announce itself until the last moment.
        if self.memory.swap(self.at + lock, 0, Release) & WAITERS != 0 {
            self.wake(lock);
        }
    }

    #[cold]
    fn wake(&self, lock: usize) {
        self.memory.wake(self.at + lock, 1);
    }

    /// Makes every later use of a lock that we hold a fault.
    pub(super) fn condemn(&self, lock: usize) {
        // Relaxed: nothing is published.
        self.memory.store(self.at + lock, BROKEN, Relaxed);
        self.memory.wake(self.at + lock, u32::MAX);
    }

    /// Whether the process that a lock word names has died. A word of our number and another
    /// incarnation belongs to a process before us.
    pub(super) fn is_dead(&self, word: u32) -> bool {
        if word & MEMBER == self.own & MEMBER {
            word >> INCARNATION_SHIFT != self.own >> INCARNATION_SHIFT
        } else {
            self.members.is_dead(word & MEMBER)
        }
    }

    fn check(&self, lock: usize, word: u32) -> Result<(), Fault> {
        if word & MEMBER == 0 || word & BROKEN != 0 {
            return Err(self.fault(Rule::QueueLock, lock));
        }
        Ok(())
    }
}
