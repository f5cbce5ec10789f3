//! Futex calls on words that other processes may map.
//!
//! The word is given by address, not by reference: a futex call looks at the word in the kernel
//! and needs no claim about it in the language. Shared (not private) futexes throughout.

use crate::last_errno;
use core::ptr::NonNull;
use rustix::io::Errno;

/// How a wait ended. Spurious returns are possible and look like [`Woken`](Wait::Woken).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A wake-up arrived, or a signal handler ran, or nothing in particular.
    Woken,
    /// The word did not hold the expected value.
    Changed,
    /// The deadline passed.
    TimedOut,
}

/// Sleeps while the word at `word` holds `expected`, at the longest until `deadline_ns` on
/// `CLOCK_MONOTONIC`. One system call, blocks. `FUTEX_WAIT_BITSET`.
///
/// # Safety
/// `word` must point to four mapped, aligned bytes for the duration of the call.
#[must_use]
pub unsafe fn wait(word: NonNull<u32>, expected: u32, deadline_ns: Option<u64>) -> Wait {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_active() {
        // SAFETY: the caller vouches for the word.
        return unsafe { wait_in_simulation(&[(word, expected)], deadline_ns) };
    }
    let timeout = deadline_ns.map(timespec);
    let timeout = timeout
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the caller vouches for `word`; `timeout` is null or points to a live timespec. The
    // bitset form takes an absolute CLOCK_MONOTONIC time.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            expected,
            timeout,
            core::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    outcome(result)
}

/// Wakes at most `count` sleepers of the word and says how many there were. One system call,
/// never blocks. Works on a read-only mapping.
///
/// # Safety
/// `word` must point to four mapped, aligned bytes for the duration of the call.
pub unsafe fn wake(word: NonNull<u32>, count: u32) -> u32 {
    #[cfg(feature = "simulation")]
    if let Some(woken) = crate::simulation::wake(word, count) {
        return woken;
    }
    let count = count.min(i32::MAX as u32);
    // SAFETY: the caller vouches for `word`.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
    u32::try_from(woken).unwrap_or(0)
}

/// Most words one [`wait_any`] takes; the kernel's limit.
pub const WORDS_MAX: usize = 128;

/// Sleeps while every word holds its expected value. One system call, blocks. `futex_waitv`.
///
/// # Errors
/// `ENOSYS` on kernels before 5.16, `EINVAL` for no words or more than [`WORDS_MAX`].
///
/// # Safety
/// Every word must point to four mapped, aligned bytes for the duration of the call.
pub unsafe fn wait_any(
    words: &[(NonNull<u32>, u32)],
    deadline_ns: Option<u64>,
) -> Result<Wait, Errno> {
    if words.is_empty() || words.len() > WORDS_MAX {
        return Err(Errno::INVAL);
    }
    #[cfg(feature = "simulation")]
    if crate::simulation::is_active() {
        // SAFETY: the caller vouches for the words.
        return Ok(unsafe { wait_in_simulation(words, deadline_ns) });
    }
    let mut waiters = [Waiter::default(); WORDS_MAX];
    for (waiter, (word, expected)) in waiters.iter_mut().zip(words) {
        waiter.value = u64::from(*expected);
        waiter.address = word.as_ptr() as u64;
        waiter.flags = FUTEX2_SIZE_U32;
    }
    let timeout = deadline_ns.map(timespec);
    let timeout = timeout
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the caller vouches for the words; `waiters` has at least `words.len()` entries and
    // outlives the call; `timeout` is null or points to a live timespec.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            words.len(),
            0,
            timeout,
            libc::CLOCK_MONOTONIC,
        )
    };
    if result < 0 && matches!(last_errno(), Errno::NOSYS | Errno::INVAL | Errno::PERM) {
        return Err(last_errno());
    }
    Ok(outcome(result))
}

/// As [`wait_any`], on a simulated machine.
///
/// # Safety
/// As there.
#[cfg(feature = "simulation")]
unsafe fn wait_in_simulation(words: &[(NonNull<u32>, u32)], deadline_ns: Option<u64>) -> Wait {
    use core::sync::atomic::{AtomicU32, Ordering};
    // SAFETY: the caller vouches for the words. SeqCst: as the kernel.
    let load =
        |word: NonNull<u32>| unsafe { AtomicU32::from_ptr(word.as_ptr()) }.load(Ordering::SeqCst);
    if words
        .iter()
        .any(|(word, expected)| load(*word) != *expected)
    {
        crate::simulation::pause();
        return Wait::Changed;
    }
    match crate::simulation::sleep_on(words.iter().map(|(word, _)| *word), deadline_ns) {
        Some(true) => Wait::TimedOut,
        _ => Wait::Woken,
    }
}

/// `struct futex_waitv` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

const FUTEX2_SIZE_U32: u32 = 2;

fn outcome(result: libc::c_long) -> Wait {
    if result >= 0 {
        return Wait::Woken;
    }
    match last_errno() {
        Errno::TIMEDOUT => Wait::TimedOut,
        Errno::AGAIN => Wait::Changed,
        _ => Wait::Woken,
    }
}

fn timespec(deadline_ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (deadline_ns % 1_000_000_000).cast_signed(),
    }
}

/// `membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)`: this process agrees to be interrupted
/// by [`fence_others`] of any process. Returns whether the kernel knows it.
#[must_use]
pub fn register_fence() -> bool {
    fences(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
}

/// `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)`: every running thread of every registered process
/// passes a full fence before this returns. About 1 to 4 us. `false` where the kernel or a sandbox
/// refuses.
#[must_use]
pub fn fence_others() -> bool {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_active() {
        // One thread runs at a time, and those that do not have passed a fence.
        return true;
    }
    fences(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
}

/// The other half of [`fence_own_threads`], in the threads that shall not pay: keeps the compiler
/// from moving accesses across it, and costs nothing. miri, which knows no such thing, gets a full
/// fence.
#[inline(always)]
pub fn fence_light() {
    if cfg!(miri) {
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    } else {
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    }
}

/// `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)`: every running thread of this process passes a
/// full fence before this returns, so that those threads need none of their own. About 1 to 4 us.
/// Where the kernel does not know the call (before Linux 4.14; a sandbox), sleeps for a millisecond instead: no fence by any
/// document, but longer than processors keep a store to themselves.
pub fn fence_own_threads() {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_active() {
        return;
    }
    if cfg!(miri) {
        // See `fence_light`.
        return core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    }
    if !(prepare_fence() && fences(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
        std::thread::sleep(core::time::Duration::from_millis(1));
    }
}

/// Announces to the kernel that this process makes such fences, which the first fence does otherwise
/// (`MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`). Some 3 us in a process with one thread, 10 to 20 ms in one with several, and up to a second on
/// a busy machine; nothing after the first time. Returns whether the kernel knows them.
pub fn prepare_fence() -> bool {
    static REGISTERED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let register = || fences(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    !cfg!(miri) && *REGISTERED.get_or_init(register)
}

fn fences(command: libc::c_int) -> bool {
    // SAFETY: the call takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// A counting word of this process alone, safe to use from a signal handler.
#[derive(Debug)]
pub struct PrivateWord(core::sync::atomic::AtomicU32);

impl Default for PrivateWord {
    fn default() -> Self {
        Self::new()
    }
}

impl PrivateWord {
    /// A word at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(core::sync::atomic::AtomicU32::new(0))
    }

    /// The count.
    #[must_use]
    pub fn load(&self) -> u32 {
        // SeqCst: rare; orders the count before the announcement that follows it.
        self.0.load(core::sync::atomic::Ordering::SeqCst)
    }

    /// Counts one and wakes every sleeper. One system call, async-signal-safe.
    pub fn add_and_wake(&self) {
        self.0.fetch_add(1, core::sync::atomic::Ordering::SeqCst);
        // SAFETY: the word lives as long as `self`.
        unsafe { wake(NonNull::from(&self.0).cast(), u32::MAX) };
    }

    /// Counts one and wakes one sleeper. One system call.
    pub fn add_and_wake_one(&self) {
        self.0.fetch_add(1, core::sync::atomic::Ordering::SeqCst);
        // SAFETY: the word lives as long as `self`.
        unsafe { wake(NonNull::from(&self.0).cast(), 1) };
    }

    /// Sleeps until the count differs from `seen`, or the deadline. May return early.
    pub fn wait(&self, seen: u32, deadline_ns: Option<u64>) -> Wait {
        // SAFETY: the word lives as long as `self`, which outlives the call.
        unsafe { wait(NonNull::from(&self.0).cast(), seen, deadline_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    extern "C" fn on_signal(_: libc::c_int) {}

    /// Sleeps on `words` for ever, but for signals without `SA_RESTART`; how that ended.
    fn interrupted(words: &[AtomicU32]) -> Wait {
        // SAFETY: all-zero bytes are a valid sigaction: no flags, so no SA_RESTART.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler does nothing and lives for ever.
        let installed =
            unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, core::ptr::null_mut()) };
        assert_eq!(installed, 0);
        let far = Some(crate::clock::deadline_ns(core::time::Duration::from_secs(
            3600,
        )));
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (sender, thread) = std::sync::mpsc::channel();
            let ended = &ended;
            let sleeper = scope.spawn(move || {
                // SAFETY: the call takes nothing.
                sender.send(unsafe { libc::pthread_self() }).unwrap();
                let words: Vec<_> = words
                    .iter()
                    .map(|word| (NonNull::from(word).cast(), 0))
                    .collect();
                let outcome = match *words.as_slice() {
                    // SAFETY: the word outlives the call.
                    [(word, expected)] => unsafe { wait(word, expected, far) },
                    // SAFETY: the words outlive the call.
                    _ => unsafe { wait_any(&words, far) }.unwrap(),
                };
                ended.store(true, Ordering::Release);
                outcome
            });
            let thread = thread.recv().unwrap();
            // One that comes before the sleep interrupts nothing: until one has.
            while !ended.load(Ordering::Acquire) {
                // SAFETY: the thread has not been joined.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
                crate::clock::nap();
            }
            sleeper.join().unwrap()
        })
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no signals")]
    fn a_signal_is_no_timeout() {
        let words = [const { AtomicU32::new(0) }; 2];
        assert_eq!(interrupted(&words[..1]), Wait::Woken);
        assert_eq!(interrupted(&words), Wait::Woken);
    }
}
