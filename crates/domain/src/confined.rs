//! Whether this process is confined: [`crate::confine`] says so, and what it forbids asks.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether this process, or the one it was forked from, is confined, or has failed half-way.
#[must_use]
#[cfg_attr(
    not(feature = "confine"),
    allow(unreachable_pub, reason = "`confine` shows it")
)]
pub fn is_confined() -> bool {
    // Relaxed: stored by the only thread there was, which all others come from.
    BEGUN.load(Relaxed)
}

/// From now on it is. There is one thread.
#[cfg(all(target_arch = "x86_64", feature = "confine"))]
pub(crate) fn begin() {
    // Relaxed: as above.
    BEGUN.store(true, Relaxed);
}
