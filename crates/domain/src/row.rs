//! The row by which the gate finds a domain, and the functions that it finds there.

use crate::flags::{FREE, Flags, UNBUILT};
use crate::pool::{PER_CPU, Pool};
use crate::server::Server;
use crate::stack::{Descriptor, STRIDE};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32};

/// A domain as the gate sees it. Rows of protected domains lie in a table that is read-only.
#[repr(C, align(128))]
pub(crate) struct Row {
    /// The rights of the domain (PKRU).
    pub(crate) rights: AtomicU32,
    /// The value it writes into the flag of a stack it has claimed.
    pub(crate) tag: AtomicU32,
    /// Stacks that anybody's call may be given.
    pub(crate) stacks: AtomicU32,
    /// The pooled and the held ones.
    pub(crate) stacks_all: AtomicU32,
    /// The key of the stacks.
    pub(crate) stack_key: AtomicU32,
    /// How many entries there are.
    pub(crate) entries_len: AtomicU32,
    /// The entries, in the domain's memory.
    pub(crate) entries: AtomicPtr<Entry>,
    /// The flags of all stacks, [`PER_CPU`] for each CPU, then the flags of held ones.
    pub(crate) flags: AtomicPtr<AtomicU16>,
    /// The first stack, at its guard.
    pub(crate) first_stack: AtomicPtr<u8>,
    /// The first stack's descriptor.
    pub(crate) first_descriptor: AtomicPtr<Descriptor>,
    /// The pools' own lines, one for each CPU.
    pub(crate) pools: AtomicPtr<Pool>,
    /// The domain's own state.
    pub(crate) server: AtomicPtr<Server>,
}

impl Row {
    /// The entry of that number.
    #[inline(always)]
    pub(crate) fn entry(&self, number: u16) -> Option<Entry> {
        // Relaxed: a row is filled in before the domain is anybody's.
        if u32::from(number) >= self.entries_len.load(Relaxed) {
            return None;
        }
        // SAFETY: below the number of entries laid out.
        let entry = unsafe { self.entries.load(Relaxed).add(number.into()) };
        // SAFETY: laid out with the server, never written again.
        Some(unsafe { entry.read() })
    }

    /// The flag of a stack.
    pub(crate) fn flag(&self, number: usize) -> &AtomicU16 {
        // SAFETY: callers give numbers of stacks of the group.
        let flag = unsafe { self.flags.load(Relaxed).add(number) };
        // SAFETY: laid out with the group, which outlives the row.
        unsafe { &*flag }
    }

    /// The flags of all stacks of the group, as calls in this domain see them.
    pub(crate) fn all_flags(&self) -> Flags<'_> {
        let count = self.stacks_all.load(Relaxed) as usize;
        let flags: *const AtomicU16 = self.flags.load(Relaxed);
        Flags {
            // SAFETY: as many flags lie there, and outlive the row.
            all: unsafe { core::slice::from_raw_parts(flags, count) },
            tag: self.tag.load(Relaxed) as u16,
        }
    }

    /// The pool of a stack.
    #[inline(always)]
    pub(crate) fn pool_of(&self, number: u32) -> &Pool {
        // SAFETY: callers give numbers of stacks of the group; there is a pool for each so many.
        let pool = unsafe { self.pools.load(Relaxed).add(number as usize / PER_CPU) };
        // SAFETY: laid out with the group, which outlives the row.
        unsafe { &*pool }
    }

    /// The memory of the row's group: first byte, and the one behind the last.
    pub(crate) fn group_range(&self) -> (usize, usize) {
        let start = self.flags.load(Relaxed) as usize;
        let stacks = self.first_stack.load(Relaxed) as usize;
        let count = self.stacks_all.load(Relaxed) as usize;
        (start, stacks + count * STRIDE)
    }

    /// How many stacks somebody has claimed.
    pub(crate) fn in_use(&self) -> usize {
        let stacks = self.stacks_all.load(Relaxed) as usize;
        // Relaxed: a number.
        let flags = (0..stacks).map(|number| self.flag(number).load(Relaxed));
        flags.filter(|flag| ![FREE, UNBUILT].contains(flag)).count()
    }

    /// No domain: nobody's rights, and no stack.
    pub(crate) const fn unused(rights: u32) -> Self {
        Self {
            rights: AtomicU32::new(rights),
            tag: AtomicU32::new(0),
            stacks: AtomicU32::new(0),
            stacks_all: AtomicU32::new(0),
            stack_key: AtomicU32::new(0),
            entries_len: AtomicU32::new(0),
            entries: AtomicPtr::new(core::ptr::null_mut()),
            flags: AtomicPtr::new(core::ptr::null_mut()),
            first_stack: AtomicPtr::new(core::ptr::null_mut()),
            first_descriptor: AtomicPtr::new(core::ptr::null_mut()),
            pools: AtomicPtr::new(core::ptr::null_mut()),
            server: AtomicPtr::new(core::ptr::null_mut()),
        }
    }
}

/// A function of a domain as the gate calls it: `run::run` for that function. In the order in which the gate has what is passed in
/// registers already.
pub(crate) type Entry = unsafe extern "C" fn(u64, u32, *const Row, *mut Descriptor) -> u64;
