//! Processors: which one this thread runs on, which it may run on, and how to leave one.

#[cfg(target_arch = "x86_64")]
use crate::last_errno;
use core::cell::Cell;
#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicIsize, Ordering};
use rustix::io::Errno;
use rustix::thread::CpuSet;

thread_local! {
    static RECENT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// The CPU this thread runs on now; stale as soon as it is read. No system call (vDSO, or the
/// thread's rseq area where the C library registers one: about 4 ns).
#[must_use]
#[inline]
pub fn current() -> u32 {
    #[cfg(feature = "simulation")]
    if let Some(cpu) = crate::simulation::cpu() {
        RECENT.set(cpu);
        return cpu;
    }
    // The C library's form reads the rseq area; the vDSO's costs three times as much.
    // SAFETY: the call takes no arguments.
    let cpu = unsafe { libc::sched_getcpu() }.cast_unsigned();
    RECENT.set(cpu);
    cpu
}

/// The answer of [`current`] when this thread last asked; a hint at the price of one load.
#[must_use]
#[inline(always)]
pub fn recent() -> u32 {
    match RECENT.get() {
        u32::MAX => current(),
        cpu => cpu,
    }
}

/// As [`current`], at the price of two loads where the C library registers an rseq area and says
/// where it is (glibc from 2.35 on); elsewhere what [`current`] said at most 64 such questions ago. Any number may
/// come out: a hint.
#[must_use]
#[inline(always)]
pub fn hint() -> u32 {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_active() {
        return recent();
    }
    #[cfg(target_arch = "x86_64")]
    {
        // Relaxed: one number, the same on every thread that computes it.
        let offset = RSEQ_OFFSET.load(Ordering::Relaxed);
        // Neither of the two that are none.
        if offset.cast_unsigned() > NO_RSEQ.cast_unsigned() {
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
    otherwise()
}

/// As [`hint`], where no rseq area is known.
#[inline(never)]
fn otherwise() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        // Relaxed: as there.
        if RSEQ_OFFSET.load(Ordering::Relaxed) == NO_RSEQ {
            return aged();
        }
        find_rseq();
    }
    current()
}

/// The answer of [`current`] some questions ago.
#[cfg(target_arch = "x86_64")]
fn aged() -> u32 {
    /// Threads move far less often than that: a turn of the scheduler is thousands of calls.
    const QUESTIONS: u32 = 64;
    thread_local! {
        static LEFT: Cell<u32> = const { Cell::new(0) };
    }
    match LEFT.get() {
        0 => {
            LEFT.set(QUESTIONS);
            current()
        }
        left => {
            LEFT.set(left - 1);
            RECENT.get()
        }
    }
}

/// Takes this thread's rseq area away from the kernel, for good: it no longer looks into the thread's memory for
/// where to let it go on. Threads that this one makes get none either (glibc passes that on). Up to four system calls.
///
/// # Errors
/// The kernel's error when the area cannot be given up: another than the C library's, above all (`EBUSY`).
#[cfg(target_arch = "x86_64")]
pub fn give_up_rseq() -> Result<(), Errno> {
    const UNREGISTER: libc::c_long = 1;
    /// The C library's on x86-64.
    const SIGNATURE: u32 = 0x5305_3053;
    #[repr(C, align(32))]
    struct Area([u32; 8]);
    let call = |at: usize, len_bytes: usize, flags: libc::c_long| {
        // SAFETY: an area of ours, or the C library's, which is given up.
        let result = unsafe { libc::syscall(libc::SYS_rseq, at, len_bytes, flags, SIGNATURE) };
        if result == 0 {
            Ok(())
        } else {
            Err(last_errno())
        }
    };
    // Relaxed: as in `hint`.
    if RSEQ_OFFSET.load(Ordering::Relaxed) == 0 {
        find_rseq();
    }
    let offset = RSEQ_OFFSET.load(Ordering::Relaxed);
    if offset != NO_RSEQ {
        let pointer: usize;
        // SAFETY: reads the thread pointer, which the C library keeps there.
        unsafe {
            core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
        }
        let at = pointer.wrapping_add_signed(offset);
        // The kernel wants the length that was registered: the first version's, or the length it has said itself since.
        // SAFETY: takes an integer.
        let feature_bytes = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) } as usize;
        let lengths = [32, feature_bytes.next_multiple_of(32), feature_bytes];
        let _ = lengths
            .into_iter()
            .try_for_each(|len| match call(at, len, UNREGISTER) {
                Ok(()) => Err(()),
                Err(_) => Ok(()),
            });
        // Relaxed: as in `find_rseq`.
        RSEQ_OFFSET.store(NO_RSEQ, Ordering::Relaxed);
    }
    // Is there none now? Then one can be registered.
    let mut area = Area([0; 8]);
    let at = (&raw mut area) as usize;
    match call(at, size_of::<Area>(), 0) {
        Ok(()) => call(at, size_of::<Area>(), UNREGISTER),
        // A kernel without.
        Err(Errno::NOSYS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(target_arch = "x86_64")]
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;

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
    #[cfg(feature = "simulation")]
    if let Some(cpus) = crate::simulation::cpus() {
        return cpus;
    }
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
    #[cfg(feature = "simulation")]
    if let Some(cpus) = crate::simulation::cpus() {
        return (0..cpus).collect();
    }
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU as u32)
        .filter(|cpu| set.is_set(*cpu as usize))
        .collect()
}

/// Restricts this thread to `cpus`. `sched_setaffinity`.
///
/// # Errors
/// `EINVAL` when none of them exists or is allowed.
pub fn pin(cpus: &[u32]) -> Result<(), Errno> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_active() {
        return Ok(());
    }
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
    #[cfg(feature = "simulation")]
    if let Some(cpus) = crate::simulation::cpus() {
        crate::simulation::pause();
        return cpus > 1;
    }
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
    #[cfg(feature = "simulation")]
    crate::simulation::pause();
    rustix::thread::sched_yield();
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no rseq")]
    fn a_thread_that_gives_up_rseq_still_gets_hints_that_age() {
        let thread = std::thread::spawn(|| {
            give_up_rseq().unwrap();
            // There is none to give up any more.
            give_up_rseq().unwrap();
            for cpu in allowed() {
                pin(&[cpu]).unwrap();
                for _ in 0..=64 {
                    assert!(hint() < configured());
                }
                assert_eq!(hint(), cpu);
            }
        });
        thread.join().unwrap();
    }
}
