//! What one peer may have of this process, and make it do.

use crate::error::BindError;
use crate::link::Link;
use crate::process::{self, Process};
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_layout::counters;
use handfast_proto::rights::EXPORTS_MAX;
use handfast_sys::clock;
use std::sync::PoisonError;

/// What each peer of this process may cost it. For all links, from now on; what a peer has already, it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quotas {
    /// Rights to ports of this process that a peer may have at once, some 35 bytes each; revoked ones count until it has
    /// given them back. Beyond that, giving it one fails ([`RightError::Exhausted`](crate::error::RightError::Exhausted)),
    /// a connection of its is refused, and what it claims or attenuates is dead
    /// ([`Gone::Right`](crate::error::Gone::Right)). 1,048,576 at most, and unless it is set.
    pub rights: u32,
    /// Control messages of a peer, most of them wake-ups, that this process takes in a second; others wait for the next
    /// tenth of it, and the peer's wake-ups come as late. 50,000 unless it is set, which takes a tenth of a processor
    /// or so; 10 at least.
    pub control_messages_per_s: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            rights: EXPORTS_MAX,
            control_messages_per_s: 50_000,
        }
    }
}

impl Quotas {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`Self::rights`].
    #[must_use]
    pub const fn rights(mut self, rights: u32) -> Self {
        self.rights = rights;
        self
    }

    /// Sets [`Self::control_messages_per_s`].
    #[must_use]
    pub const fn control_messages_per_s(mut self, count: u32) -> Self {
        self.control_messages_per_s = count;
        self
    }
}

/// Sets what each peer of this process may cost it. Two stores.
///
/// # Errors
/// As [`anonymous`](crate::anonymous), of the first use of the library in a process.
pub fn set_quotas(quotas: Quotas) -> Result<(), BindError> {
    let process = process::current()?;
    let in_force = &process.quotas;
    let rights = quotas.rights.min(EXPORTS_MAX);
    let per_window = quotas.control_messages_per_s / WINDOWS_PER_S;
    // Relaxed, both: numbers.
    in_force.rights.store(rights, Ordering::Relaxed);
    let per_window = per_window.max(1);
    in_force.per_window.store(per_window, Ordering::Relaxed);
    Ok(())
}

/// Those in force.
pub(crate) struct InForce {
    rights: AtomicU32,
    /// Control messages.
    per_window: AtomicU32,
}

impl Default for InForce {
    fn default() -> Self {
        let quotas = Quotas::new();
        Self {
            rights: AtomicU32::new(quotas.rights),
            per_window: AtomicU32::new(quotas.control_messages_per_s / WINDOWS_PER_S),
        }
    }
}

impl InForce {
    pub(crate) fn rights(&self) -> u32 {
        // Relaxed: a number.
        self.rights.load(Ordering::Relaxed)
    }
}

/// Control messages that have come through a link lately. The keeper's.
#[derive(Default)]
pub(crate) struct Heard {
    since_ns: u64,
    count: u32,
}

impl Link {
    /// Keeper: so many control messages have come. Until when no more are taken, if that is so.
    pub(crate) fn heard_enough(&self, process: &Process, count: u32) -> Option<u64> {
        let now_ns = clock::now_ns();
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ns.saturating_sub(heard.since_ns) >= WINDOW_NS {
            (heard.since_ns, heard.count) = (now_ns, 0);
        }
        heard.count = heard.count.saturating_add(count);
        // Relaxed: a number.
        if heard.count < process.quotas.per_window.load(Ordering::Relaxed) {
            return None;
        }
        let muted = counters::link_word(self.index, counters::MUTED);
        process.tally.add(muted, 1);
        Some(heard.since_ns + WINDOW_NS)
    }
}

const WINDOWS_PER_S: u32 = 10;
const WINDOW_NS: u64 = 1_000_000_000 / WINDOWS_PER_S as u64;
