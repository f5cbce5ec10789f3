//! Processors: which one this thread runs on, which it may run on, and how to leave one.

use core::cell::Cell;
#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicIsize, Ordering};
use rustix::thread::CpuSet;

thread_local! {
    static RECENT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// The CPU this thread runs on now; stale as soon as it is read. No system call (vDSO, or the
/// thread's rseq area where the C library registers one: about 4 ns).
#[must_use]
#[inline]
pub fn current() -> u32 {
    // The C library's form reads the rseq area; the vDSO's costs three times as much.
    // SAFETY: the call takes no arguments.
    let cpu = unsafe { libc::sched_getcpu() }.cast_unsigned();
    RECENT.set(cpu);
    cpu
}

/// What [`current`] said when this thread last asked; a hint at the price of one load.
#[must_use]
#[inline(always)]
pub fn recent() -> u32 {
    match RECENT.get() {
        u32::MAX => current(),
        cpu => cpu,
    }
}

/// As [`current`], at the price of two loads where the C library registers an rseq area and says
/// where it is (glibc from 2.35 on), else by [`current`]. Any number may come out: a hint.
#[must_use]
#[inline(always)]
pub fn hint() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        // Relaxed: one number, the same whoever computes it.
        match RSEQ_OFFSET.load(Ordering::Relaxed) {
            0 => {}
            NO_RSEQ => return current(),
            offset => {
                let cpu: u32;
                // SAFETY: the C library said that its rseq area lies at this offset from the thread
                // pointer, in every thread for as long as it lives; the CPU is its second word, which
                // the kernel writes.
                unsafe {
                    core::arch::asm!(
                        "mov {cpu:e}, fs:[{offset} + 4]",
                        cpu = out(reg) cpu,
                        offset = in(reg) offset,
                        options(nostack, readonly, preserves_flags),
                    );
                }
                return cpu;
            }
        }
        find_rseq();
    }
    current()
}

/// Where the rseq area is from the thread pointer; 0: not looked up yet.
#[cfg(target_arch = "x86_64")]
static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);
/// There is none, or nobody says where.
#[cfg(target_arch = "x86_64")]
const NO_RSEQ: isize = 1;

#[cfg(target_arch = "x86_64")]
#[cold]
fn find_rseq() {
    let symbol = |name: &core::ffi::CStr| {
        // SAFETY: the name is a string that ends with a zero.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    };
    let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
    let found = if offset.is_null() || size.is_null() {
        NO_RSEQ
    } else {
        // SAFETY: glibc's constant of this type, set before `main`.
        let size = unsafe { size.cast::<u32>().read() };
        // SAFETY: as above.
        let offset = unsafe { offset.cast::<isize>().read() };
        // Size 0: registration failed, or was turned off.
        if size == 0 || offset == 0 {
            NO_RSEQ
        } else {
            offset
        }
    };
    // Relaxed: as the load in `hint`.
    RSEQ_OFFSET.store(found, Ordering::Relaxed);
}

/// How many CPUs this machine can have; their numbers are below that. `sysconf`.
#[must_use]
pub fn configured() -> u32 {
    // SAFETY: the call takes no pointers.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(configured).unwrap_or(1).max(1)
}

/// How many CPUs this thread may run on; at least 1. `sched_getaffinity`. CPU quotas of a
/// control group are not seen.
#[must_use]
pub fn available() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1))
}

/// How many CPUs are online on this machine; at least 1. A thread pinned to one of them still has
/// peers on the others. `sysconf`.
#[must_use]
pub fn online() -> u32 {
    // SAFETY: the call takes no pointers.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(online).unwrap_or(1).max(1)
}

/// How many CPUs this thread and its peers share, as far as one can tell: those it may run on (a
/// container's peers may use no others), or all where it is pinned to one, as servers are.
#[must_use]
pub fn shared() -> u32 {
    match available() {
        1 => online(),
        more => more,
    }
}

/// The CPUs this thread may run on.
#[must_use]
pub fn allowed() -> Vec<u32> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU as u32)
        .filter(|cpu| set.is_set(*cpu as usize))
        .collect()
}

/// Restricts this thread to `cpus`. `sched_setaffinity`.
///
/// # Errors
/// `EINVAL` when none of them exists or is allowed.
pub fn pin(cpus: &[u32]) -> Result<(), rustix::io::Errno> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if (*cpu as usize) < CpuSet::MAX_CPU {
            set.set(*cpu as usize);
        }
    }
    rustix::thread::sched_setaffinity(None, &set)
}

/// Moves this thread off `cpu` if it may run elsewhere, and gives it its own mask back. Three
/// system calls, no privilege. Returns whether it moved.
pub fn leave(cpu: u32) -> bool {
    let Ok(own) = rustix::thread::sched_getaffinity(None) else {
        return false;
    };
    let mut others = own;
    if cpu as usize >= CpuSet::MAX_CPU || !own.is_set(cpu as usize) || own.count() < 2 {
        return false;
    }
    others.unset(cpu as usize);
    let moved = rustix::thread::sched_setaffinity(None, &others).is_ok();
    let _ = rustix::thread::sched_setaffinity(None, &own);
    moved
}

/// Gives the rest of the time slice to another runnable thread. One system call.
pub fn yield_now() {
    rustix::thread::sched_yield();
}
