//! The two-lock queue of Michael and Scott ("Simple, fast, and practical non-blocking and
//! blocking concurrent queue algorithms", PODC 1996, section 2, figure 2), as paper 000 uses it,
//! between processes that may be killed.
//!
//! A chain of nodes with a dummy in front; one lock for the head, one for the tail. The free
//! nodes are a second chain of the same kind with its ends exchanged: a push takes its node from
//! the pool's head under the tail lock, a pop returns one to the pool's tail under the head lock.
//! So there is no third lock that both would need, and each operation takes one lock. The price
//! is that free nodes are used in turn, not the warmest first.
//!
//! *The truth* is the head and the chain of links from it. Each operation has one store that
//! commits it: a push its link, a pop its head. All else (tail, pool) follows from the truth and
//! is made anew from it when a lock's holder has died (`repair.rs`), so no member has to leave
//! anything in order. Messages that a dead member had pushed and committed are delivered; messages it had
//! popped and committed are gone with it.
//!
//! Nothing here is private to one member: all values are shared and checked where they are read.
//! A member that is stopped (not dead) while it holds a lock blocks the others.
//!
//! Edges (`spec/memory-model.md`): Q1 link, Q2 pool, Q3 lock, Q4 death, Q5 format.

mod lock;
#[cfg(test)]
mod model;
mod repair;
#[cfg(test)]
mod tests;

use super::{Members, Message, Pop, Push, Queue};
use crate::{Fault, Rule};
use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use handfast_layout::queue::MESSAGE_BYTES;
use handfast_layout::queue::two_lock::{
    CAPACITY, END, EXTRA_NODES, FORMAT, HEAD, HEAD_LOCK, INCARNATION_SHIFT, MAGIC, MEMBER, MESSAGE,
    NEXT, NODE_BYTES, NODES, POOL_HEAD, POOL_TAIL, TAIL, TAIL_LOCK, queue_bytes,
};
use handfast_region::Memory;
use std::sync::Arc;

/// One process's handle to a queue. Threads share it, or have handles with the same `members`.
///
/// Useless in a forked child: a `Region`'s mapping is not inherited, so any use of it there
/// faults, and a new handle is refused until the child is a member of its own.
///
/// ```
/// use handfast_layout::{page_align, queue::two_lock::queue_bytes};
/// use handfast_region::Region;
/// use handfast_ring::queue::{Pop, Push, Queue, two_lock::TwoLock};
/// use handfast_sys::memory::{Access, Mapping, create_sealed};
/// use handfast_sys::members;
/// use std::sync::Arc;
///
/// // Both files go to the other processes, which join and attach.
/// let len_bytes = page_align(queue_bytes(2));
/// let file = create_sealed("queue", len_bytes)?;
/// let member = members::join(members::create("members")?)?;
///
/// let region = Arc::new(Region::mapped(Mapping::new(&file, len_bytes, Access::ReadWrite)?));
/// let queue = TwoLock::create(region, 0, 2, member).unwrap();
/// queue.try_push(&[1; 24]).unwrap();
/// queue.try_push(&[2; 24]).unwrap();
/// assert_eq!(queue.try_push(&[3; 24]), Err(Push::Full));
/// assert_eq!(queue.try_pop(), Ok([1; 24]));
/// assert_eq!(queue.try_pop(), Ok([2; 24]));
/// assert_eq!(queue.try_pop(), Err(Pop::Empty));
/// # Ok::<(), handfast_sys::Errno>(())
/// ```
pub struct TwoLock<M> {
    memory: Arc<M>,
    members: Arc<dyn Members>,
    /// Offset of the queue in its memory.
    at: usize,
    /// Nodes, numbered from 1. Given by the user, never read from memory.
    nodes: u32,
    /// The value of a lock word while this process holds the lock.
    own: u32,
    /// Looks at a held lock before sleeping on it.
    looks: u32,
}

/// Why there is no handle to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoQueue {
    /// This process has no member number: it is a forked child, or the number is out of range.
    NotAMember,
    /// The memory does not hold such a queue, or a member broke a rule.
    Fault(Fault),
}

impl<M: Memory> TwoLock<M> {
    /// Makes an empty queue of at most `capacity` messages at offset `at`, over whatever is there.
    /// Takes [`queue_bytes`] bytes of `memory`. Nobody else may use the place before this returns.
    ///
    /// # Errors
    /// [`NoQueue::NotAMember`].
    ///
    /// # Panics
    /// If the place is not aligned to eight bytes, not in the memory, or the capacity is zero or
    /// above the layout's limit.
    pub fn create(
        memory: Arc<M>,
        at: usize,
        capacity: u32,
        members: Arc<dyn Members>,
    ) -> Result<Self, NoQueue> {
        let queue = Self::handle(memory, at, capacity, members)?;
        for word in [HEAD_LOCK, TAIL_LOCK, FORMAT] {
            // Relaxed: published by the format word.
            queue.memory.store(at + word, 0, Relaxed);
        }
        queue.memory.store(at + CAPACITY, capacity, Relaxed);
        queue.memory.store(at + HEAD, 1, Relaxed);
        queue.memory.store(at + TAIL, 1, Relaxed);
        queue.memory.store(queue.next(1), END, Relaxed);
        queue.link_pool(2..=queue.nodes);
        // Q5 format, store half. Release: the empty queue is visible to a process that finds it
        // formatted. Load half: `attach`.
        queue.memory.store(at + FORMAT, MAGIC, Release);
        Ok(queue)
    }

    /// A handle to the queue of at most `capacity` messages at offset `at`. The leftovers of an earlier
    /// process under this one's member number are repaired first, which may wait for locks:
    /// attach to all queues of a group as soon as the number is claimed.
    ///
    /// # Errors
    /// [`NoQueue::NotAMember`]; [`NoQueue::Fault`] when there is no such queue or it is broken.
    ///
    /// # Panics
    /// As [`Self::create`].
    pub fn attach(
        memory: Arc<M>,
        at: usize,
        capacity: u32,
        members: Arc<dyn Members>,
    ) -> Result<Self, NoQueue> {
        let queue = Self::handle(memory, at, capacity, members)?;
        // Q5 format, load half. Acquire: the empty queue is visible. Store half: `create`.
        let is_formatted = queue.memory.load(at + FORMAT, Acquire) == MAGIC;
        // Relaxed: published by the format word.
        for (is_right, word) in [
            (is_formatted, FORMAT),
            (
                is_formatted && queue.memory.load(at + CAPACITY, Relaxed) == capacity,
                CAPACITY,
            ),
        ] {
            if !is_right {
                return Err(NoQueue::Fault(queue.fault(Rule::QueueFormat, word)));
            }
        }
        queue.adopt().map_err(NoQueue::Fault)?;
        Ok(queue)
    }

    /// Most messages the queue holds.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.nodes - EXTRA_NODES
    }

    /// Whether the queue looks empty. Two loads and no lock, so others may have changed that before
    /// this returns: a hint for waiters (paper 000, section 4.2).
    #[must_use]
    pub fn looks_empty(&self) -> bool {
        // Relaxed, both: code that acts on it looks again under the lock (Q3).
        let dummy = self.memory.load(self.at + HEAD, Relaxed);
        dummy == END || dummy > self.nodes || self.memory.load(self.next(dummy), Relaxed) == END
    }

    /// Repairs the queue if a lock word names a dead process that had this one's number. Part of
    /// [`Self::attach`]. Two loads when there is nothing to do.
    ///
    /// # Errors
    /// As [`Queue::try_push`]'s fault.
    pub fn adopt(&self) -> Result<(), Fault> {
        for lock in [HEAD_LOCK, TAIL_LOCK] {
            // Relaxed: only compared; the repair looks again.
            let word = self.memory.load(self.at + lock, Relaxed);
            if word & MEMBER == self.own & MEMBER && self.is_dead(word) {
                self.repair()?;
            }
        }
        Ok(())
    }

    fn handle(
        memory: Arc<M>,
        at: usize,
        capacity: u32,
        members: Arc<dyn Members>,
    ) -> Result<Self, NoQueue> {
        let (number, incarnation) = (members.me(), members.incarnation());
        // Checks the capacity.
        let _ = queue_bytes(capacity);
        assert!(at.is_multiple_of(8), "a queue is aligned to eight bytes");
        if number == 0 || number > MEMBER {
            return Err(NoQueue::NotAMember);
        }
        let queue = Self {
            memory,
            members,
            at,
            nodes: capacity + EXTRA_NODES,
            own: number | incarnation << INCARNATION_SHIFT,
            looks: lock::LOOKS,
        };
        // Relaxed: the value is of no interest; the place must be in the memory.
        queue.memory.load(queue.next(queue.nodes), Relaxed);
        Ok(queue)
    }

    /// Under the tail lock.
    fn push_locked(&self, message: &Message) -> Result<(), Push> {
        let node = self.node(POOL_HEAD).map_err(Push::Fault)?;
        // Q2 pool, load half. Acquire: the last copy out of `node` is done, since the pop that
        // linked its successor came after. Store half: `pop_locked`.
        let rest = self.link(node, Acquire).map_err(Push::Fault)?;
        let Some(rest) = rest else {
            return Err(Push::Full);
        };
        let tail = self.node(TAIL).map_err(Push::Fault)?;
        if node == tail || node == rest {
            return Err(Push::Fault(self.fault(Rule::QueueChain, POOL_HEAD)));
        }
        // Everything is checked; from here on nothing fails.
        // Relaxed, here and below: under the tail lock (Q3), and made anew by a repair.
        self.memory.store(self.at + POOL_HEAD, rest, Relaxed);
        self.memory.copy_in(self.message(node), message);
        // Relaxed: published by the link.
        self.memory.store(self.next(node), END, Relaxed);
        // Q1 link, store half: the commit point. Release: message and end are visible to a member that
        // finds the node. Load halves: `pop_locked`, `rebuild`.
        self.memory.store(self.next(tail), node, Release);
        self.memory.store(self.at + TAIL, node, Relaxed);
        Ok(())
    }

    /// Under the head lock.
    fn pop_locked(&self) -> Result<Message, Pop> {
        let dummy = self.node(HEAD).map_err(Pop::Fault)?;
        // Q1 link, load half. Acquire: the message is visible. Store half: `push_locked`.
        let first = self.link(dummy, Acquire).map_err(Pop::Fault)?;
        let Some(first) = first else {
            return Err(Pop::Empty);
        };
        let pool_tail = self.node(POOL_TAIL).map_err(Pop::Fault)?;
        if dummy == first || dummy == pool_tail {
            return Err(Pop::Fault(self.fault(Rule::QueueChain, HEAD)));
        }
        // Everything is checked; from here on nothing fails.
        let mut message = [0; MESSAGE_BYTES];
        self.memory.copy_out(self.message(first), &mut message);
        // The commit point. Relaxed: under the head lock (Q3).
        self.memory.store(self.at + HEAD, first, Relaxed);
        // Q4 death, compiler half. Release: the cut is never stored before the commit, or a kill
        // between the two would lose the queue. Load half: `rebuild`, of head before links.
        self.memory.store(self.next(dummy), END, Release);
        // Q2 pool, store half. Release: our copy out, and those before it, are done, and the end
        // is visible. Load half: `push_locked`.
        self.memory.store(self.next(pool_tail), dummy, Release);
        // Relaxed: under the head lock (Q3), and made anew by a repair.
        self.memory.store(self.at + POOL_TAIL, dummy, Relaxed);
        Ok(message)
    }

    /// The node a word names.
    fn node(&self, word: usize) -> Result<u32, Fault> {
        // Relaxed: written under the lock we hold (Q3).
        let node = self.memory.load(self.at + word, Relaxed);
        if node == END || node > self.nodes {
            return Err(self.fault(Rule::QueueNode, word));
        }
        Ok(node)
    }

    /// The node that follows `node`, if any. `node` is in range.
    fn link(&self, node: u32, order: Ordering) -> Result<Option<u32>, Fault> {
        let next = self.memory.load(self.next(node), order);
        if next > self.nodes {
            return Err(self.fault(Rule::QueueNode, self.next(node) - self.at));
        }
        Ok((next != END).then_some(next))
    }

    /// Makes the pool of `free` nodes, of which there is at least one. Under both locks, or before
    /// anybody else is there: hence Relaxed.
    fn link_pool(&self, free: impl Iterator<Item = u32>) {
        let mut last = END;
        for node in free {
            let from = if last == END {
                self.at + POOL_HEAD
            } else {
                self.next(last)
            };
            self.memory.store(from, node, Relaxed);
            last = node;
        }
        self.memory.store(self.next(last), END, Relaxed);
        self.memory.store(self.at + POOL_TAIL, last, Relaxed);
    }

    const fn next(&self, node: u32) -> usize {
        self.at + NODES + (node as usize - 1) * NODE_BYTES + NEXT
    }

    const fn message(&self, node: u32) -> usize {
        self.at + NODES + (node as usize - 1) * NODE_BYTES + MESSAGE
    }

    #[cold]
    const fn fault(&self, rule: Rule, word: usize) -> Fault {
        Fault {
            rule,
            offset: self.at + word,
        }
    }
}

/// Uncontended, an operation is two locked instructions and no system call. It blocks while
/// another thread or process is inside the same end: first spinning, then asleep. When that
/// process dies it is noticed within about a millisecond, and the queue repaired: a walk over all
/// nodes, an allocation, and time in proportion to the capacity.
impl<M: Memory> Queue for TwoLock<M> {
    fn try_push(&self, message: &Message) -> Result<(), Push> {
        self.lock(TAIL_LOCK).map_err(Push::Fault)?;
        let result = self.push_locked(message);
        self.unlock(TAIL_LOCK);
        result
    }

    fn try_pop(&self) -> Result<Message, Pop> {
        self.lock(HEAD_LOCK).map_err(Pop::Fault)?;
        let result = self.pop_locked();
        self.unlock(HEAD_LOCK);
        result
    }
}
