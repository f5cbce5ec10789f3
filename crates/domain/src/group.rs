//! Trust groups: the memory of their stacks, a pool for each CPU, shared by the group's domains.
//!
//! A stack belongs to its place in a pool for ever; claiming it is one exchange of its flag, giving it back one store.
//! The lowest free place is taken, so the stack that is used next is the one used last: still in the cache. There is no list,
//! so nothing can be lost from one, and a call that ends gives back exactly the stack it took.

use crate::confined::is_confined;
use crate::error::LoadError;
use crate::flags::{FREE, UNBUILT};
use crate::isolation::Isolation;
use crate::pool::{BUILT_FIRST, CPUS_MAX, HELD, PER_CPU, Pool};
use crate::row::Row;
use crate::stack::{GUARD_BYTES, STRIDE, descriptor_at};
use crate::way::are_possible;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicUsize};
use handfast_sys::keys::{self, Key};
use handfast_sys::{Errno, cpu, private};
use std::sync::Arc;

/// A trust group: domains that share stacks, and so can read bytes that other domains of the group left there. A domain
/// without one has a group of its own.
#[derive(Clone, Debug)]
pub struct Group(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    /// Before the key: it must not be another's while pages have it.
    memory: private::Private,
    key: Option<Key>,
    cpus: usize,
    /// Tells groups apart, for the colour of their descriptors.
    number: usize,
    /// A bit for each tag in use.
    tags: AtomicU32,
    /// A bit for each held stack.
    held: AtomicU32,
}

impl Group {
    /// A group for domains that are kept apart as [`Isolation::Automatic`](crate::Isolation::Automatic) says: takes one memory
    /// key where there are keys; domains that are processes share nothing. Some forty system calls and two for each CPU; reserves
    /// 512 MiB of addresses and 16 MiB for each CPU; only used pages take memory.
    ///
    /// # Errors
    /// [`LoadError::NoKeys`] where domains cannot be processes either, [`LoadError::KeysTaken`], [`LoadError::Os`].
    pub fn new() -> Result<Self, LoadError> {
        match Isolation::here().0 {
            Isolation::Process if are_possible() => Self::unprotected(),
            _ => Self::with_key(),
        }
    }

    /// One for domains with keys.
    pub(crate) fn with_key() -> Result<Self, LoadError> {
        Self::with(Some(allocate()?))
    }

    /// A group for domains without protection: shares nothing but stacks' argument areas.
    ///
    /// # Errors
    /// [`LoadError::Os`].
    pub fn unprotected() -> Result<Self, LoadError> {
        Self::with(None)
    }

    fn with(key: Option<Key>) -> Result<Self, LoadError> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let cpus = (cpu::configured() as usize).min(CPUS_MAX);
        let memory = private::Private::new(control_bytes(cpus) + (cpus + HELD) * PER_CPU * STRIDE)
            .map_err(|errno| LoadError::Os {
                call: "mmap of the stacks",
                errno: errno.into(),
            })?;
        let inner = Inner {
            memory,
            key,
            cpus,
            // Relaxed: a number.
            number: NUMBER.fetch_add(1, Relaxed),
            tags: AtomicU32::new(0),
            held: AtomicU32::new(0),
        };
        inner.lay_out().map_err(|errno| LoadError::Os {
            call: "mprotect of the stacks",
            errno: errno.into(),
        })?;
        Ok(Self(Arc::new(inner)))
    }

    /// The number of stacks that the group has for calls, the held ones left out.
    #[must_use]
    pub fn stacks(&self) -> u32 {
        (self.0.cpus * PER_CPU) as u32
    }

    /// The number of pages of the group's stacks and their argument areas that exist. For tests and reports: one system call.
    ///
    /// # Errors
    /// The error of `mincore`.
    pub fn resident_pages(&self) -> Result<usize, handfast_sys::error::Errno> {
        let start = control_bytes(self.0.cpus);
        // SAFETY: inside the mapping.
        let first = unsafe { self.0.memory.base().add(start) };
        let pages = private::resident_pages(first, self.0.memory.len_bytes() - start)?;
        Ok(pages)
    }
}

/// A key, or what a user has to know.
pub(crate) fn allocate() -> Result<Key, LoadError> {
    if is_confined() {
        return Err(LoadError::Confined);
    }
    if !keys::are_supported() || cfg!(miri) {
        return Err(LoadError::NoKeys);
    }
    Key::allocate().map_err(|errno| match errno {
        Errno::NOSPC => LoadError::KeysTaken { limit: keys::KEYS },
        errno => LoadError::Os {
            call: "pkey_alloc",
            errno: errno.into(),
        },
    })
}

/// Flags, then pools, up to a page boundary.
const fn control_bytes(cpus: usize) -> usize {
    (flags_bytes(cpus) + (cpus + HELD) * size_of::<Pool>()).next_multiple_of(GUARD_BYTES)
}

const fn flags_bytes(cpus: usize) -> usize {
    (cpus + HELD) * PER_CPU * size_of::<AtomicU16>()
}

impl Inner {
    /// Writes flags and pools, builds the first stacks, and puts all under the key.
    fn lay_out(&self) -> Result<(), Errno> {
        for pool in 0..self.cpus + HELD {
            let built = self.built_first(pool);
            for number in 0..PER_CPU {
                let value = if number < built { FREE } else { UNBUILT };
                // SAFETY: inside the flags.
                let flag = unsafe { self.flags().add(pool * PER_CPU + number) };
                // SAFETY: in memory that is new and nobody else's.
                unsafe { flag.write(AtomicU16::new(value)) };
            }
            let own = Pool::new(built as u32);
            // SAFETY: there is a line for each pool.
            let place = unsafe { self.pools().add(pool) };
            // SAFETY: in memory that is new and nobody else's.
            unsafe { place.write(own) };
        }
        if let Some(key) = &self.key {
            self.memory.protect(key)?;
        }
        // After that, which makes everything accessible to a thread that has the key.
        for pool in 0..self.cpus + HELD {
            for number in 0..self.built_first(pool) {
                self.close_guard(pool * PER_CPU + number)?;
            }
        }
        Ok(())
    }

    const fn built_first(&self, pool: usize) -> usize {
        if pool < self.cpus { BUILT_FIRST } else { 1 }
    }

    fn flags(&self) -> NonNull<AtomicU16> {
        self.memory.base().cast()
    }

    fn pools(&self) -> NonNull<Pool> {
        // SAFETY: inside the mapping, which has flags, pools and stacks.
        unsafe { self.memory.base().add(flags_bytes(self.cpus)) }.cast()
    }

    fn first_stack(&self) -> NonNull<u8> {
        // SAFETY: as above.
        unsafe { self.memory.base().add(control_bytes(self.cpus)) }
    }

    /// Makes the guard of a stack. The stack is not in use.
    fn close_guard(&self, number: usize) -> Result<(), Errno> {
        // SAFETY: callers give numbers of stacks of this group.
        let stack = unsafe { self.first_stack().add(number * STRIDE) };
        // SAFETY: the guard of a stack that nobody uses.
        unsafe { private::close(stack, GUARD_BYTES) }
    }

    pub(crate) const fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Where the held stacks begin.
    const fn held_first(&self) -> u32 {
        (self.cpus * PER_CPU) as u32
    }

    /// A number for one more domain of the group.
    pub(crate) fn take_tag(&self) -> Result<u32, LoadError> {
        // Relaxed: the bits are the whole value.
        let taken = self.tags.fetch_update(Relaxed, Relaxed, |tags| {
            let free = (!tags).trailing_zeros();
            (free < GROUP_MAX).then(|| tags | 1 << free)
        });
        match taken {
            Ok(before) => Ok((!before).trailing_zeros() + 1),
            Err(_) => Err(LoadError::GroupFull { limit: GROUP_MAX }),
        }
    }

    pub(crate) fn give_tag(&self, tag: u32) {
        // Relaxed: as above.
        self.tags.fetch_and(!(1 << (tag - 1)), Relaxed);
    }

    /// Fills in what a row says of its group.
    pub(crate) fn describe(&self, row: &Row, tag: u32) {
        // Relaxed, all of them: a thread that gets the domain gets it after this.
        row.tag.store(tag, Relaxed);
        row.stacks_all
            .store((self.cpus + HELD) as u32 * PER_CPU as u32, Relaxed);
        row.stack_key
            .store(self.key.as_ref().map_or(0, Key::number), Relaxed);
        row.flags.store(self.flags().as_ptr(), Relaxed);
        row.pools.store(self.pools().as_ptr(), Relaxed);
        row.first_stack.store(self.first_stack().as_ptr(), Relaxed);
        let descriptor = self
            .first_stack()
            .as_ptr()
            .wrapping_add(descriptor_at(self.number));
        row.first_descriptor.store(descriptor.cast(), Relaxed);
        row.stacks.store(self.held_first(), Relaxed);
    }

    /// Takes a held stack.
    pub(crate) fn hold(&self) -> Option<u32> {
        // Relaxed: the bits are the whole value; the stack itself is claimed by its flag, call by call.
        let taken = self.held.fetch_update(Relaxed, Relaxed, |held| {
            (held != u32::MAX).then(|| held | (held + 1))
        });
        let free = taken.ok()?.trailing_ones();
        Some((self.cpus as u32 + free) * PER_CPU as u32)
    }

    pub(crate) fn let_go(&self, number: u32) {
        let bit = number / PER_CPU as u32 - self.cpus as u32;
        // Relaxed: as above.
        self.held.fetch_and(!(1 << bit), Relaxed);
    }
}

/// Domains of one group: as many as there are keys.
pub(crate) const GROUP_MAX: u32 = keys::KEYS;

const _: () = assert!(HELD == u32::BITS as usize);
