//! Signals in a child: its last word is how the domain went wrong.

use crate::error::Status;
use crate::parent::message;
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::Relaxed;
use handfast_sys::{AsRawFd, Errno, OwnedFd, child};

/// The socket to the parent.
static CONTROL: AtomicI32 = AtomicI32::new(-1);

/// Has the signals of faults end this process, after a word to its parent. Four times `sigaction`.
pub(super) fn install(control: &OwnedFd) -> Result<(), Errno> {
    // Relaxed: before any handler is installed.
    CONTROL.store(control.as_raw_fd(), Relaxed);
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
        // SAFETY: all-zero bytes are a valid sigaction.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction =
            report as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
        // SAFETY: the mask is valid for a write.
        unsafe { libc::sigfillset(&raw mut action.sa_mask) };
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        // SAFETY: the action is initialised; its handler is async-signal-safe.
        if unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) } != 0 {
            return Err(Errno::INVAL);
        }
    }
    Ok(())
}

extern "C" fn report(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo.
    let about = unsafe { &*info };
    if about.si_code <= 0 {
        // Sent by somebody: it has its usual effect.
        // SAFETY: takes an integer; the signal is blocked until this handler returns.
        unsafe { libc::raise(signal) };
        return;
    }
    // SAFETY: reading a field that the kernel sets for these signals.
    let address = unsafe { about.si_addr() }.addr();
    // SAFETY: the kernel passes the context that it has saved.
    let machine = unsafe { &*context.cast::<libc::ucontext_t>() };
    let code = match signal {
        libc::SIGFPE => Status::ARITHMETIC,
        libc::SIGILL => Status::ILLEGAL,
        libc::SIGBUS => Status::BUS,
        _ if is_beside_stack(address, machine) => Status::OVERFLOW,
        _ => Status::ACCESS,
    };
    let status = Status::new(code, address as u64 & ((1 << 56) - 1));
    let word = message::of_status(message::FAULT, status.0);
    // SAFETY: as many bytes lie there; the call is async-signal-safe.
    unsafe {
        libc::send(
            CONTROL.load(Relaxed),
            word.as_ptr().cast(),
            word.len(),
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    child::exit(128 + signal);
}

/// Whether this is where a stack goes on: memory there that cannot be touched is its guard.
fn is_beside_stack(address: usize, machine: &libc::ucontext_t) -> bool {
    /// Frames are built page by page, and their parts are written behind the stack pointer.
    const NEAR_BYTES: usize = 64 << 10;
    #[cfg(target_arch = "x86_64")]
    let stack = machine.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let stack = machine.uc_mcontext.sp as usize;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let stack = {
        let _ = machine;
        0
    };
    address.abs_diff(stack) < NEAR_BYTES
}
