//! Boxes that a thread reuses, so that a message needs no allocation.

use core::cell::Cell;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::compiler_fence;

/// Boxes a thread keeps of one kind.
const KEPT: u32 = 8;

/// A thread's boxes of one kind: a list through themselves, and its length.
pub(crate) struct Pool<T> {
    first: Cell<Option<Box<T>>>,
    len: Cell<u32>,
}

/// A type whose boxes can lie in a pool.
pub(crate) trait Pooled: Sized {
    /// The next one there.
    fn next(&mut self) -> &mut Option<Box<Self>>;
}

impl<T: Pooled> Pool<T> {
    pub(crate) const fn new() -> Self {
        Self {
            first: Cell::new(None),
            len: Cell::new(0),
        }
    }

    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Box<T>> {
        let Some(mut taken) = self.first.take() else {
            // An operation ended midway may have counted boxes that were lost.
            self.len.set(0);
            return None;
        };
        self.first.set(taken.next().take());
        compiler_fence(SeqCst);
        self.len.set(self.len.get() - 1);
        Some(taken)
    }

    #[inline(always)]
    pub(crate) fn give(&self, mut given: Box<T>) {
        if self.len.get() < KEPT {
            // Counted before it is there, also for a function that is ended in the middle: never more than are counted.
            self.len.set(self.len.get() + 1);
            compiler_fence(SeqCst);
            // Neither has an old value to drop, which the compiler cannot know.
            core::mem::forget(core::mem::replace(given.next(), self.first.take()));
            core::mem::forget(self.first.replace(Some(given)));
        }
    }
}
