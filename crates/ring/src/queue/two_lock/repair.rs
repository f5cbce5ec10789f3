//! Repair: everything that follows from the truth, made anew.
//!
//! Under both locks, walk the chain from the head. Its last node is the tail; every node that is
//! not in it is the pool. So a node is in one place and none is lost, whatever a dead member had
//! or had not done. The head, and the links of the chain, are not written: a repair that is
//! killed at any instruction leaves the same truth, and its locks in a dead process's name again.

use super::TwoLock;
use super::lock::Taken;
use crate::{Fault, Rule};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use handfast_layout::queue::two_lock::{HEAD, HEAD_LOCK, TAIL, TAIL_LOCK};
use handfast_region::Memory;

impl<M: Memory> TwoLock<M> {
    /// Takes both locks, over from the dead where they hold them, puts right what those left, and
    /// releases the locks. Without a dead holder nothing happens in between: another repair came
    /// first.
    ///
    /// # Errors
    /// When the chain itself is nonsense, which no death leaves behind. Both locks are then
    /// condemned, so that every member learns of it.
    #[cold]
    pub(super) fn repair(&self) -> Result<(), Fault> {
        let head = self.take_over(HEAD_LOCK)?;
        let tail = self.take_over(TAIL_LOCK);
        let repaired = tail.and_then(|tail| {
            if head == Taken::FromDead || tail == Taken::FromDead {
                self.rebuild()?;
            }
            Ok(())
        });
        match repaired {
            Ok(()) => {
                self.unlock(TAIL_LOCK);
                self.unlock(HEAD_LOCK);
            }
            Err(_) => {
                self.condemn(TAIL_LOCK);
                self.condemn(HEAD_LOCK);
            }
        }
        repaired
    }

    /// Under both locks. At most as many steps as there are nodes; one allocation.
    fn rebuild(&self) -> Result<(), Fault> {
        let mut is_queued = vec![false; self.nodes as usize + 1];
        let mut last = self.node(HEAD)?;
        is_queued[last as usize] = true;
        // Q1 link, load half. Acquire: the chain behind the link. Store half: `push_locked`. The
        // head is loaded before the links (Q4: the cut behind it comes after it).
        while let Some(next) = self.link(last, Acquire)? {
            if is_queued[next as usize] {
                return Err(self.fault(Rule::QueueChain, HEAD));
            }
            is_queued[next as usize] = true;
            last = next;
        }
        let free = || (1..=self.nodes).filter(|node| !is_queued[*node as usize]);
        // A push takes a node only when the pool keeps one.
        if free().next().is_none() {
            return Err(self.fault(Rule::QueueChain, HEAD));
        }
        // Relaxed, all: both locks are held, and release what is written here (Q3).
        self.memory.store(self.at + TAIL, last, Relaxed);
        self.link_pool(free());
        Ok(())
    }
}
