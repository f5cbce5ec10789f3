//! The *notify* strategy: a signal handler ends the sleep.

use crate::arrivals;
use crate::error::Os;
use crate::lifecycle;
use crate::links;
use handfast_sys::Errno;
use handfast_sys::signal::{self, Handler};

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
pub fn notify(handler: Handler) -> Result<(), Os> {
    let os = |call| {
        move |errno: Errno| Os {
            call,
            errno: errno.into(),
        }
    };
    arrivals::activate().map_err(os("rt_sigaction"))?;
    // Links made by now, of all nodes; others find the strategy active.
    for node in lifecycle::nodes() {
        for link in links::live(&node) {
            // A link that has ended meanwhile may have none.
            if let Ok(socket) = link.connection.socket() {
                signal::raise_on_arrival(&socket, true).map_err(os("fcntl"))?;
            }
        }
    }
    arrivals::set_application(handler);
    Ok(())
}
