//! The *notify* strategy: a signal handler ends the sleep (paper 001, section 3.3).
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

/// Switches notification on for this process: `handler` runs, in signal context on any thread, whenever a peer rings for a
/// receiver, or answers a caller, that sleeps by a notify strategy. The handler may only do what is async-signal-safe. The first
/// handler stays. Two system calls, and some for each present and future link.
///
/// ```
/// use handfast_port::{Options, Strategy, notify};
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// static RINGS: AtomicU32 = AtomicU32::new(0);
/// notify::notify(|| {
///     RINGS.fetch_add(1, Ordering::Relaxed);
/// })?;
/// let options = Options::new().strategy(Strategy::Notify);
/// let port = handfast_port::anonymous_with(options)?;
/// # drop(port);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `EBUSY` when the process uses handfast's real-time signal (`SIGRTMIN + 7`) in another way.
pub fn notify(handler: Handler) -> Result<(), Errno> {
    activate()?;
    let _ = APPLICATION.set(handler);
    Ok(())
}

/// Installs the handler once.
pub(crate) fn activate() -> Result<(), Errno> {
    signal::install(arrived)?;
    // SeqCst: rare, and read by the keeper before it adds links.
    ACTIVE.store(1, Ordering::SeqCst);
    if let Ok(process) = crate::process::current() {
        let links = process.links.lock();
        for link in links.iter().flatten() {
            signal::raise_on_arrival(&link.socket, true)?;
        }
    }
    Ok(())
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
