//! A domain's own state, at the front of its memory: only code with its rights can touch it.

use crate::error::Status;
use crate::flags::{self, Flags, state};
use crate::stack::{Descriptor, phase};
use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicUsize};
use handfast_sys::private;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The memory of a domain in which its value is made, protected by the domain's key. The heap gives it out from front to
/// back, and takes all of it back when the domain is reset.
pub struct Heap {
    base: NonNull<u8>,
    len_bytes: usize,
    used: AtomicUsize,
}

// SAFETY: the base is only handed out in parts that no two callers get.
unsafe impl Sync for Heap {}

impl Heap {
    /// A heap in this memory.
    ///
    /// # Safety
    /// So many bytes lie there, all of them zero, and are the heap's for as long as it is used.
    pub(crate) const unsafe fn new(base: NonNull<u8>, len_bytes: usize) -> Self {
        Self {
            base,
            len_bytes,
            used: AtomicUsize::new(0),
        }
    }

    /// Memory for `layout`, zeros; `None` when the heap is used up. The memory is the caller's until the domain is reset or
    /// unloaded. Takes no lock, makes no system call; pages are faulted in when they are first touched.
    #[must_use]
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let base = self.base.addr().get();
        // Relaxed: the count gives out disjoint parts; the thread that publishes the pointer publishes their contents.
        let mut used = self.used.load(Relaxed);
        loop {
            let start = base
                .checked_add(used)?
                .checked_next_multiple_of(layout.align())?
                - base;
            let end = start.checked_add(layout.size())?;
            if end > self.len_bytes {
                return None;
            }
            match self.used.compare_exchange_weak(used, end, Relaxed, Relaxed) {
                // SAFETY: `start` is at most the heap's length, which is one mapping.
                Ok(_) => return Some(unsafe { self.base.add(start) }),
                Err(now) => used = now,
            }
        }
    }

    /// The bytes that are left, at most.
    #[must_use]
    pub fn left_bytes(&self) -> usize {
        // Relaxed: a number.
        self.len_bytes - self.used.load(Relaxed).min(self.len_bytes)
    }
}

/// Makes the value: the function it is given, with its type erased.
pub(crate) type Make = unsafe fn(*const (), &Heap) -> Option<NonNull<()>>;

/// See the module text.
pub(crate) struct Server {
    pub(crate) state: AtomicU32,
    /// Whether a fault is the end.
    dies: bool,
    /// The value, in the heap.
    value: AtomicPtr<()>,
    init: *const (),
    make: Make,
    heap: Heap,
    /// Random, and known to nobody else: what the tickets of its calls to other domains are made with (`gate::protected`).
    pub(crate) secrets: [u64; 2],
    /// All of the domain's memory: first byte, and the one behind the last.
    range: (usize, usize),
}

impl Server {
    /// One whose value is not made yet. `range` is all of the domain's memory, and `make` can be called with `init`.
    pub(crate) const fn new(
        range: (usize, usize),
        heap: Heap,
        dies: bool,
        (init, make): (*const (), Make),
        secrets: [u64; 2],
    ) -> Self {
        Self {
            state: AtomicU32::new(state::NEW),
            dies,
            value: AtomicPtr::new(core::ptr::null_mut()),
            init,
            make,
            heap,
            secrets,
            range,
        }
    }

    /// The value. Null before it is made.
    #[inline]
    pub(crate) fn value(&self) -> *const () {
        // Relaxed: published by the state (P2).
        self.value.load(Relaxed)
    }

    pub(crate) const fn range(&self) -> (usize, usize) {
        self.range
    }

    /// The first call: makes the value. Later ones do nothing.
    pub(crate) fn init(&self, descriptor: &mut Descriptor) -> Status {
        use flags::Word;
        if !self.state.exchange(state::NEW, state::RESETTING) {
            return Status::new(Status::DONE, 0);
        }
        self.make(descriptor)
    }

    /// The domain went wrong in the call of `descriptor`, which touches it no more.
    pub(crate) fn has_faulted(&self, descriptor: &mut Descriptor, stacks: Flags<'_>) {
        use flags::Word;
        if descriptor.phase == phase::INIT {
            descriptor.set_phase(phase::RUN);
            self.state.publish(state::DEAD);
        } else if self.dies {
            // Not over a reset or an end that is there already.
            self.state.exchange(state::LIVE, state::DEAD);
        } else {
            flags::start_draining(&self.state);
            self.settle(descriptor, stacks);
        }
    }

    /// A call that does not touch the domain's memory any more, or not yet, finds that it is not live: resets it when
    /// no other call is in it, which is `DONE`. Says what a caller is told otherwise.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&self, descriptor: &mut Descriptor, stacks: Flags<'_>) -> Status {
        use flags::Word;
        let now = self.state.look();
        if now == state::DEAD {
            return Status::new(Status::DEAD, 0);
        }
        if now != state::DRAINING
            || !flags::drain(
                own_flag(descriptor),
                stacks.all.iter(),
                stacks.tag,
                &self.state,
            )
        {
            return Status::new(Status::RESETTING, 0);
        }
        match self.make(descriptor) {
            made if made.code() == Status::DONE => made,
            _ => Status::new(Status::DEAD, 0),
        }
    }

    /// The call that has made the value anew is in the domain again: whether it may be.
    #[cold]
    pub(crate) fn enter_again(&self, descriptor: &Descriptor, tag: u16) -> bool {
        flags::claim_again(own_flag(descriptor), tag);
        flags::may_enter(&self.state)
    }

    /// Makes the value, in a heap of zeros. Only the thread that moved the state to `RESETTING` may.
    fn make(&self, descriptor: &mut Descriptor) -> Status {
        descriptor.set_phase(phase::INIT);
        // SAFETY: the heap is part of the domain's mapping, and no call is in the domain.
        unsafe { private::clear(self.heap.base, self.heap.len_bytes) };
        // Relaxed: published by the state below.
        self.heap.used.store(0, Relaxed);
        // SAFETY: `init` is the function that `make` was erased with ([`Self::new`]).
        let make = || unsafe { (self.make)(self.init, &self.heap) };
        let made = catch_unwind(AssertUnwindSafe(make));
        descriptor.set_phase(phase::RUN);
        if let Ok(Some(value)) = made {
            self.value.store(value.as_ptr(), Relaxed);
            flags::open(&self.state);
            return Status::new(Status::DONE, 0);
        }
        flags::Word::publish(&self.state, state::DEAD);
        core::mem::forget(made);
        Status::new(Status::PANIC, 0)
    }
}

/// The flag of the stack that a call is on.
fn own_flag(descriptor: &Descriptor) -> &AtomicU16 {
    // SAFETY: the flag of the call's own stack, in the group's memory, which outlives the call.
    unsafe { &*descriptor.flag }
}
