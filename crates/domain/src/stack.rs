//! One stack with its call descriptor and argument areas, and the control word of a call.
//!
//! ```text
//! +0          16 KiB   guard: no access
//! +16 KiB    108 KiB   stack, which grows down from the descriptor
//!                      descriptor (its place within its page differs from group to group, for the cache)
//! +128 KiB    64 KiB   bytes of the request, copied in
//! +192 KiB    64 KiB   bytes of the reply, copied out
//! ```
//! All of it lies in the group's memory; the pages that are not touched do not exist.

use crate::{DEPTH_MAX, Words};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU16, compiler_fence};

/// The most bytes a call carries, each way.
pub const BYTES_MAX: usize = 64 << 10;

/// The stack space of an entry, at least.
pub const STACK_BYTES: usize = DESCRIPTOR_PAGE - GUARD_BYTES;

/// From one stack to the next: a power of two, for the gate.
pub(crate) const STRIDE_BITS: u32 = 18;
pub(crate) const STRIDE: usize = 1 << STRIDE_BITS;
/// Larger than a frame that C makes without looking is likely to be.
pub(crate) const GUARD_BYTES: usize = 16 << 10;
const DESCRIPTOR_PAGE: usize = REQUEST_AT - 4096;
pub(crate) const REQUEST_AT: usize = 128 << 10;
pub(crate) const REPLY_AT: usize = REQUEST_AT + BYTES_MAX;
const _: () = assert!(REPLY_AT + BYTES_MAX == STRIDE);

/// Where the descriptors of a group's stacks lie: groups differ, so that the hot lines of several do not compete
/// for one set of the cache.
pub(crate) const fn descriptor_at(group: usize) -> usize {
    const STEP: usize = 256;
    REQUEST_AT - size_of::<Descriptor>() - group % COLOURS * STEP
}
const COLOURS: usize = 12;
const _: () = assert!(descriptor_at(COLOURS - 1) >= DESCRIPTOR_PAGE);

/// The state that one call needs to find its way back: written by the gate and by `run`, in the group's memory.
#[repr(C, align(64))]
pub(crate) struct Descriptor {
    /// The words of the call, and then of its result.
    pub(crate) words: Words,
    /// The caller's stack pointer.
    pub(crate) caller_stack: u64,
    /// The flag of this stack.
    pub(crate) flag: *const AtomicU16,
    /// The stack pointer with which this call called another domain; zero when it has not.
    pub(crate) call_out: u64,
    /// The caller's rights.
    pub(crate) caller_rights: u32,
    /// How many calls this one is nested in, its ticket ([`TICKET`]) and [`BOUNDED_DEPTH`]. Directly behind the rights: the gate
    /// stores and loads both at once.
    pub(crate) depth: u32,
    /// The step that `run` is in: one of [`phase`].
    pub(crate) phase: u32,
    /// Bytes of the request that were copied in; only with buffers.
    pub(crate) request_len: u32,
    /// Bytes of the reply that are to be copied out; only with buffers.
    pub(crate) reply_len: u32,
    /// While `call_out` is not zero: [`Self::depth`] of the call that may return there, without [`BOUNDED_DEPTH`].
    pub(crate) ticket: u32,
    /// Of a call with a deadline: what could be ended before its function began. In place of that, where the function is
    /// ended.
    pub(crate) outer: usize,
}

impl Descriptor {
    /// Notes the current step, for code that looks after a fault in the middle of it.
    #[inline(always)]
    pub(crate) fn set_phase(&mut self, phase: u32) {
        // Volatile, and a fence for the compiler: nobody else seems to read it before it is written again.
        compiler_fence(SeqCst);
        // SAFETY: a field of this value.
        unsafe { (&raw mut self.phase).write_volatile(phase) };
        compiler_fence(SeqCst);
    }
}

/// In the control word of a call, which has the caller's buffers (an address, or zero), this above them, and from bit [`ENTRY_SHIFT`]
/// the number of the entry: the call has a deadline.
pub(crate) const BOUNDED: u64 = 1 << (ENTRY_SHIFT - 1);
/// In [`Descriptor::depth`]: so have the calls that its function makes.
pub(crate) const BOUNDED_DEPTH: u32 = 1 << 31;
/// There, too: what only the call that a domain has made knows, beside that domain. Without it nobody returns in its place.
pub(crate) const TICKET: u32 = !(DEPTH | BOUNDED_DEPTH);
/// And the count itself.
pub(crate) const DEPTH: u32 = DEPTH_MAX - 1;
const _: () = assert!(DEPTH_MAX.is_power_of_two());

/// The content of a control word beside the entry, as a number: zero for a call with words, positive for one with
/// bytes, negative for any that has a deadline.
#[inline(always)]
pub(crate) const fn kind_of(control: u64) -> i64 {
    (control << (u64::BITS - ENTRY_SHIFT)).cast_signed()
}

/// The number of the entry in a control word.
#[inline(always)]
pub(crate) const fn entry_of(control: u64) -> u16 {
    (control >> ENTRY_SHIFT) as u16
}

/// Where the buffers are, in a control word, or zero.
#[inline(always)]
pub(crate) const fn buffers_of(control: u64) -> usize {
    (control & (BOUNDED - 1)) as usize
}

/// Addresses of programs have 47 bits; one more is [`BOUNDED`].
pub(crate) const ENTRY_SHIFT: u32 = 48;

/// The step in which something went wrong.
pub(crate) mod phase {
    /// Everything that is nothing else: the domain's own function above all.
    pub(crate) const RUN: u32 = 0;
    /// The caller's buffers are copied: what faults then is the caller's.
    pub(crate) const COPY: u32 = 1;
    /// The domain makes its value.
    pub(crate) const INIT: u32 = 2;
}

const _: () = assert!(size_of::<Descriptor>() == 128);
const _: () = assert!(
    core::mem::offset_of!(Descriptor, depth)
        == core::mem::offset_of!(Descriptor, caller_rights) + 4
);

/// The caller's buffers: in the caller's memory, copied before it is looked at.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Buffers {
    pub(crate) request: usize,
    pub(crate) request_len: usize,
    pub(crate) reply: usize,
    pub(crate) reply_room: usize,
    /// The sender's badge and its other attributes. Words, so that a thread that copies them does not wait for bytes just
    /// written in smaller pieces.
    badge: u64,
    about: u64,
}

impl Buffers {
    #[inline(always)]
    pub(crate) fn of((request, sender): (&[u8], Sender), reply: &mut [u8]) -> Self {
        Self {
            request: request.as_ptr().expose_provenance(),
            request_len: request.len(),
            reply: reply.as_mut_ptr().expose_provenance(),
            reply_room: reply.len(),
            badge: sender.badge,
            about: u64::from(sender.permissions) | u64::from(sender.is_one_way) << u16::BITS,
        }
    }

    #[inline(always)]
    pub(crate) const fn sender(&self) -> Sender {
        Sender {
            badge: self.badge,
            permissions: self.about as u16,
            is_one_way: (self.about >> u16::BITS) as u16,
        }
    }
}

/// A port's statement about a message that a domain serves; empty where a domain is called directly.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// The badge of the right that the message came through.
    pub badge: u64,
    /// The permissions of that right.
    pub permissions: u16,
    is_one_way: u16,
}

impl Sender {
    /// Nobody: the domain was called by itself.
    pub(crate) const NOBODY: Self = Self::of(0, 0, false);

    /// The statement for a right with this badge and these permissions, and for a message of which no sender waits for a reply if
    /// `is_one_way`.
    #[must_use]
    #[inline]
    pub const fn of(badge: u64, permissions: u16, is_one_way: bool) -> Self {
        Self {
            badge,
            permissions,
            is_one_way: is_one_way as u16,
        }
    }

    /// Whether no sender waits for a reply.
    #[must_use]
    pub const fn is_one_way(self) -> bool {
        self.is_one_way != 0
    }
}
