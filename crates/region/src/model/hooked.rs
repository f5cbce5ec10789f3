//! Memory with a hook before every operation: a death, a stop, a delay, a weaker order.

use crate::{Memory, Wait};
use core::ops::Deref;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{self, Relaxed};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// An operation on a memory; words by their offsets, and what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A load.
    Load(usize),
    /// A store.
    Store(usize, u32),
    /// An exchange.
    Swap(usize, u32),
    /// Bits set.
    Or(usize, u32),
    /// A compare-and-exchange, whose order cannot be chosen
    /// (but see [`super::ModelMemory::relaxed_exchange`]).
    CompareExchange,
    /// A fence, of this thread or of others.
    Fence,
    /// A piece of a copy ([`Hook::PIECE_BYTES`]). A copy of no bytes is no operation.
    Copy,
    /// A sleep.
    Park,
    /// A wake-up.
    Wake,
}

/// Additional actions of a [`Hooked`] memory. By default nothing.
pub trait Hook: Send + Sync {
    /// Copies are made in pieces of this length, each an operation.
    const PIECE_BYTES: usize = usize::MAX;
    /// Runs before every operation.
    fn before(&self, _operation: Operation) {}
    /// The order of an operation that the protocol gave `order`.
    fn order(&self, _operation: Operation, order: Ordering) -> Ordering {
        order
    }
    /// The deadline of a sleep that the protocol gave `deadline_ns`.
    fn deadline(&self, deadline_ns: Option<u64>) -> Option<u64> {
        deadline_ns
    }
    /// Whether a sleep (it has timed out), a wake-up (nobody slept) or a fence does not take place.
    fn leaves_out(&self, _operation: Operation) -> bool {
        false
    }
}

/// A memory and its hook.
pub struct Hooked<M, H> {
    inner: M,
    /// The hook.
    pub hook: H,
}

impl<M: Deref<Target: Memory> + Send + Sync, H: Hook> Hooked<M, H> {
    /// `inner`, with `hook` before its operations.
    pub const fn new(inner: M, hook: H) -> Self {
        Self { inner, hook }
    }

    fn ordered(&self, operation: Operation, order: Ordering) -> (&M::Target, Ordering) {
        (self.next(operation), self.hook.order(operation, order))
    }

    fn next(&self, operation: Operation) -> &M::Target {
        self.hook.before(operation);
        &self.inner
    }
}

impl<M: Deref<Target: Memory> + Send + Sync, H: Hook> Memory for Hooked<M, H> {
    fn load(&self, at: usize, order: Ordering) -> u32 {
        let (inner, order) = self.ordered(Operation::Load(at), order);
        inner.load(at, order)
    }

    fn store(&self, at: usize, value: u32, order: Ordering) {
        let (inner, order) = self.ordered(Operation::Store(at, value), order);
        inner.store(at, value, order);
    }

    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32 {
        let (inner, order) = self.ordered(Operation::Swap(at, value), order);
        inner.swap(at, value, order)
    }

    fn fetch_or(&self, at: usize, bits: u32, order: Ordering) -> u32 {
        let (inner, order) = self.ordered(Operation::Or(at, bits), order);
        inner.fetch_or(at, bits, order)
    }

    fn compare_exchange(&self, at: usize, current: u32, new: u32) -> Result<u32, u32> {
        let inner = self.next(Operation::CompareExchange);
        inner.compare_exchange(at, current, new)
    }

    fn fence(&self) {
        let inner = self.next(Operation::Fence);
        if !self.hook.leaves_out(Operation::Fence) {
            inner.fence();
        }
    }

    fn fence_others(&self) -> bool {
        self.next(Operation::Fence).fence_others()
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        for (index, piece) in bytes.chunks(H::PIECE_BYTES).enumerate() {
            let inner = self.next(Operation::Copy);
            inner.copy_in(at + index * H::PIECE_BYTES, piece);
        }
    }

    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        for (index, piece) in bytes.chunks_mut(H::PIECE_BYTES).enumerate() {
            let inner = self.next(Operation::Copy);
            inner.copy_out(at + index * H::PIECE_BYTES, piece);
        }
    }

    fn park(&self, at: usize, expected: u32, deadline_ns: Option<u64>) -> Wait {
        let inner = self.next(Operation::Park);
        if self.hook.leaves_out(Operation::Park) {
            return Wait::TimedOut;
        }
        inner.park(at, expected, self.hook.deadline(deadline_ns))
    }

    fn wake(&self, at: usize, count: u32) -> u32 {
        let inner = self.next(Operation::Wake);
        if self.hook.leaves_out(Operation::Wake) {
            return 0;
        }
        inner.wake(at, count)
    }
}

/// Ends its user, or something else, before the operation at which a count is used up.
pub struct Countdown<'a> {
    left: AtomicU32,
    end: Box<dyn Fn() + Send + Sync + 'a>,
}

/// No count.
const FOR_EVER: u32 = u32::MAX;

impl<'a> Countdown<'a> {
    /// Calls `end` when the count is used up; for a user that goes on, once. No count yet.
    pub fn new(end: impl Fn() + Send + Sync + 'a) -> Self {
        Self {
            left: FOR_EVER.into(),
            end: Box::new(end),
        }
    }

    /// Ends a user inside [`until_killed`]. No count yet.
    #[must_use]
    pub fn killing() -> Self {
        // Not a panic: nothing is printed, and the next operation would do the same.
        Self::new(|| resume_unwind(Box::new(Killed)))
    }

    /// So many operations from here on; without a number, any.
    pub fn set(&self, operations: Option<u32>) {
        // Relaxed, all: one thread.
        self.left.store(operations.unwrap_or(FOR_EVER), Relaxed);
    }
}

impl Hook for Countdown<'_> {
    /// A message of a queue is copied in halves.
    const PIECE_BYTES: usize = handfast_layout::queue::MESSAGE_BYTES / 2;

    fn before(&self, _: Operation) {
        match self.left.load(Relaxed) {
            FOR_EVER => {}
            0 => {
                (self.end)();
                self.set(None);
            }
            left => self.set(Some(left - 1)),
        }
    }
}

struct Killed;

/// The result of `act`; `None` when [`Countdown::killing`] ended it.
pub fn until_killed<T>(act: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(done) => Some(done),
        Err(reason) if reason.is::<Killed>() => None,
        Err(reason) => resume_unwind(reason),
    }
}
