//! Arrivals by signal: what wakes threads that sleep by the *notify* strategy (paper 001, section 3.3).
//!
//! A sleeper announces that it sleeps in a descriptor. The poster then sends one byte through the
//! link's socket; the socket is owned by this process with a real-time signal set on it, so the
//! kernel raises the signal here. The handler counts the arrival, wakes the sleepers of `wait`
//! with a futex call, and runs the application's handler: all of it async-signal-safe.

use core::sync::atomic::{AtomicU32, Ordering};
use handfast_sys::Errno;
use handfast_sys::futex::{PrivateWord, Wait};
use handfast_sys::signal::{self, Handler};
use std::sync::OnceLock;

/// Arrivals so far; sleepers wait for it to change.
static ARRIVALS: PrivateWord = PrivateWord::new();
/// Whether sockets of links raise the signal.
static ACTIVE: AtomicU32 = AtomicU32::new(0);
static APPLICATION: OnceLock<Handler> = OnceLock::new();

fn arrived() {
    ARRIVALS.add_and_wake();
    if let Some(handler) = APPLICATION.get() {
        handler();
    }
}

/// Has a handler for the signal from now on, and the links that are made raise it; those that there are do not yet.
pub(crate) fn activate() -> Result<(), Errno> {
    signal::install(arrived)?;
    // SeqCst: rare, and read by threads that add links before they do.
    ACTIVE.store(1, Ordering::SeqCst);
    Ok(())
}

/// Sets the handler of the application, if it has none.
pub(crate) fn set_application(handler: Handler) {
    let _ = APPLICATION.set(handler);
}

/// Ends the sleep of every thread in [`wait`], without running the application's handler.
pub(crate) fn rouse() {
    if is_active() {
        ARRIVALS.add_and_wake();
    }
}

/// Whether new links shall raise the signal.
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Ordering::SeqCst) != 0
}

/// The count to give to [`wait`], read before the sleep is announced.
pub(crate) fn epoch() -> u32 {
    ARRIVALS.load()
}

/// Sleeps until a notification has arrived after `epoch`, or the deadline.
pub(crate) fn wait(epoch: u32, deadline_ns: Option<u64>) -> Wait {
    ARRIVALS.wait(epoch, deadline_ns)
}
