//! Notification by signal: a descriptor whose readiness runs a user-level handler.

use crate::last_errno;
use core::sync::atomic::{AtomicPtr, Ordering};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;

/// The function that runs when a notification arrives. It runs in a signal handler on any thread: it may only
/// do what is async-signal-safe (atomics, `write`, futex wake).
pub type Handler = fn();

static HANDLER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn run(_: libc::c_int) {
    // SAFETY: `__errno_location` always returns this thread's valid errno slot.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; the interrupted code must find its errno unchanged.
    let saved = unsafe { *errno };
    // Acquire: pairs with the Release in `install`, so the function is the one stored.
    let handler = HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: only `install` stores here, and it stores a `Handler`.
        let handler: Handler = unsafe { core::mem::transmute::<*mut (), Handler>(handler) };
        handler();
    }
    // SAFETY: as the load above.
    unsafe { *errno = saved };
}

/// Blocks every signal in the calling thread, so that the application's handlers never run on
/// it. `pthread_sigmask`.
pub fn block_all() {
    let mut set = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is valid for the write that initialises it.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: `set` was just initialised; no old mask is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), core::ptr::null_mut()) };
}

/// Which signals a thread blocks.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

/// The signals that the calling thread blocks. `pthread_sigmask`.
#[must_use]
pub fn mask() -> Mask {
    let mut set = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is valid for the write that initialises it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: no new mask is given; `set` is valid for the write.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, core::ptr::null(), set.as_mut_ptr()) };
    // SAFETY: `sigemptyset` has initialised it, and does not fail.
    Mask(unsafe { set.assume_init() })
}

/// Makes the calling thread block these and no others. `pthread_sigmask`.
pub fn set_mask(mask: &Mask) {
    // SAFETY: the mask is initialised; no old mask is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask.0, core::ptr::null_mut()) };
}

/// The real-time signal handfast raises at itself.
#[must_use]
pub fn number() -> i32 {
    libc::SIGRTMIN() + 7
}

/// The real-time signal that ends a thread's call at its deadline.
#[must_use]
pub fn deadline_number() -> i32 {
    libc::SIGRTMIN() + 6
}

/// Has the calling thread take `signal`. `pthread_sigmask`.
pub fn unblock(signal: i32) {
    let mut set = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is valid for the write that initialises it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: `set` was just initialised.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: as above; no old mask is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), core::ptr::null_mut()) };
}

/// Installs `handler` for [`number`], and for `SIGIO` unless the process has changed what that does:
/// the kernel raises it instead when it cannot queue the other, and by default it ends the process.
/// `sigaction` with `SA_RESTART`, four times.
///
/// # Errors
/// `EBUSY` when the process already handles [`number`] in another way.
pub fn install(handler: Handler) -> Result<(), Errno> {
    let ours = run as extern "C" fn(libc::c_int) as usize;
    let is_free =
        |signal| action_of(signal).map(|action| action == libc::SIG_DFL || action == ours);
    if !is_free(number())? {
        return Err(Errno::BUSY);
    }
    // Release: pairs with the Acquire in `run`.
    HANDLER.store(handler as *mut (), Ordering::Release);
    run_on(number())?;
    if is_free(libc::SIGIO)? {
        run_on(libc::SIGIO)?;
    }
    Ok(())
}

/// Whether a function runs on `signal`: one of the program's, or of the C library's, which does not speak of its own
/// (`sigaction` refuses their numbers). `rt_sigaction`.
///
/// # Errors
/// `EINVAL` for a number that is no signal's.
pub fn has_handler(signal: i32) -> Result<bool, Errno> {
    let mut now = KernelAction::default();
    kernel_action(signal, core::ptr::null(), &raw mut now)?;
    Ok(now.handler != libc::SIG_DFL && now.handler != libc::SIG_IGN)
}

/// The kernel's own action for `signal`, from now on. `rt_sigaction`.
///
/// # Errors
/// As [`has_handler`]; `EPERM` in a confined process.
pub fn set_default(signal: i32) -> Result<(), Errno> {
    let action = KernelAction::default();
    kernel_action(signal, &raw const action, core::ptr::null_mut())
}

/// An action as the kernel sees it; all zeros is its own.
#[repr(C)]
#[derive(Default)]
struct KernelAction {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

fn kernel_action(
    signal: i32,
    new: *const KernelAction,
    old: *mut KernelAction,
) -> Result<(), Errno> {
    // SAFETY: reads and writes structures of the kernel's layout, where they are given; no handler is set.
    let result =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, size_of::<u64>()) };
    if result == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// The process's action on `signal`.
fn action_of(signal: libc::c_int) -> Result<usize, Errno> {
    // SAFETY: all-zero bytes are a valid sigaction (no handler, empty mask).
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: reading the present action; both pointers are valid.
    if unsafe { libc::sigaction(signal, core::ptr::null(), &raw mut action) } != 0 {
        return Err(last_errno());
    }
    Ok(action.sa_sigaction)
}

/// Makes [`run`] the action of `signal`.
fn run_on(signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: all-zero bytes are a valid sigaction (no handler, empty mask).
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = run as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` is initialised and `run` is async-signal-safe as far as its handler is.
    if unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) } != 0 {
        return Err(last_errno());
    }
    Ok(())
}

/// Makes `socket` raise [`number`] at this process whenever something arrives on it, or stops it.
/// The kernel raises the signal: the peer needs no right to signal us. `F_SETOWN`, `F_SETSIG`,
/// `O_ASYNC`.
///
/// # Errors
/// `EINVAL` for a descriptor that cannot raise signals.
pub fn raise_on_arrival(socket: impl AsFd, on: bool) -> Result<(), Errno> {
    let fd = socket.as_fd().as_raw_fd();
    let command = |command: libc::c_int, argument: libc::c_int| {
        // SAFETY: these commands take an integer and touch no memory of ours.
        let result = unsafe { libc::fcntl(fd, command, argument) };
        if result < 0 {
            Err(last_errno())
        } else {
            Ok(result)
        }
    };
    command(libc::F_SETOWN, std::process::id().cast_signed())?;
    command(F_SETSIG, number())?;
    let flags = command(libc::F_GETFL, 0)?;
    let flags = if on {
        flags | libc::O_ASYNC
    } else {
        flags & !libc::O_ASYNC
    };
    command(libc::F_SETFL, flags).map(|_| ())
}

const F_SETSIG: libc::c_int = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    static SEEN: AtomicU32 = AtomicU32::new(0);

    #[test]
    #[cfg_attr(miri, ignore = "miri delivers no signals")]
    fn arrival_on_an_owned_socket_runs_the_handler() {
        install(|| {
            SEEN.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
        let (a, b) = crate::socket::pair().unwrap();
        raise_on_arrival(&b, true).unwrap();
        crate::socket::send(&a, b"x", &[]).unwrap();
        while SEEN.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        raise_on_arrival(&b, false).unwrap();
        let seen = SEEN.load(Ordering::SeqCst);
        crate::socket::send(&a, b"x", &[]).unwrap();
        assert_eq!(SEEN.load(Ordering::SeqCst), seen);
    }
}
