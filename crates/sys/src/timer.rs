//! A timer that raises a signal in the thread that made it.

use crate::last_errno;
use rustix::io::Errno;

/// A timer of this thread's, of the monotonic clock; it goes with this. Takes no descriptor, and counts as one of the user's pending
/// signals (`RLIMIT_SIGPENDING`).
#[derive(Debug)]
pub struct Timer(libc::timer_t);

impl Timer {
    /// One that raises `signal` in the calling thread; it is not set yet. `timer_create`.
    ///
    /// # Errors
    /// `EAGAIN` when the user has as many pending signals and timers as it may.
    pub fn new(signal: i32) -> Result<Self, Errno> {
        // SAFETY: all-zero bytes are a valid sigevent.
        let mut event: libc::sigevent = unsafe { core::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer: libc::timer_t = core::ptr::null_mut();
        // SAFETY: both pointers are valid.
        let result =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        if result == 0 {
            Ok(Self(timer))
        } else {
            Err(last_errno())
        }
    }

    /// Raises the signal at `deadline_ns`, at once if that is past, and again after each `again_ns`. `timer_settime`.
    pub fn set(&self, deadline_ns: u64, again_ns: u64) {
        // Zero would stop it.
        self.set_to(span(deadline_ns.max(1)), span(again_ns));
    }

    /// Raises it no more: none is under way when this returns, unless the thread blocks the signal. `timer_settime`.
    pub fn stop(&self) {
        self.set_to(span(0), span(0));
    }

    fn set_to(&self, it_value: libc::timespec, it_interval: libc::timespec) {
        let value = libc::itimerspec {
            it_interval,
            it_value,
        };
        let none = core::ptr::null_mut();
        // SAFETY: the timer is this value's; the pointer is valid. In a forked child there is no such timer, or another of this
        // crate's, which is set before it is relied on.
        unsafe { libc::timer_settime(self.0, libc::TIMER_ABSTIME, &raw const value, none) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is this value's.
        unsafe { libc::timer_delete(self.0) };
    }
}

fn span(nanos: u64) -> libc::timespec {
    const SECOND: u64 = 1_000_000_000;
    libc::timespec {
        tv_sec: (nanos / SECOND).cast_signed(),
        tv_nsec: (nanos % SECOND).cast_signed(),
    }
}
