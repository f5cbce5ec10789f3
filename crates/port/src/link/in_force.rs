//! The quotas that are in force for the peer of a link.

use super::Link;
use crate::quotas::Quotas;
use crate::rank;
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_layout::counters;
use handfast_proto::rights::{EXPORTS_MAX, Exports};
use handfast_sys::clock;
use handfast_sys::sync::Mutex;

/// The quotas in force for the peer of a link, and what it has done lately.
pub(crate) struct InForce {
    rights: AtomicU32,
    provisions: AtomicU32,
    /// Control messages.
    per_window: AtomicU32,
    heard: Mutex<Heard, rank::Heard>,
}

impl Default for InForce {
    fn default() -> Self {
        let force = Self {
            rights: AtomicU32::new(0),
            provisions: AtomicU32::new(0),
            per_window: AtomicU32::new(0),
            heard: Mutex::default(),
        };
        force.set(Quotas::new());
        force
    }
}

impl InForce {
    pub(crate) fn set(&self, quotas: Quotas) {
        // Relaxed, all of them: numbers.
        let rights = quotas.rights.min(EXPORTS_MAX);
        self.rights.store(rights, Ordering::Relaxed);
        self.provisions.store(quotas.provisions, Ordering::Relaxed);
        let per_window = quotas.control_messages_per_s / WINDOWS_PER_S;
        self.per_window.store(per_window.max(1), Ordering::Relaxed);
    }

    pub(crate) fn rights(&self) -> u32 {
        // Relaxed: a number.
        self.rights.load(Ordering::Relaxed)
    }

    pub(crate) fn provisions(&self) -> usize {
        // Relaxed: a number.
        self.provisions.load(Ordering::Relaxed) as usize
    }
}

/// Control messages that have come through a link lately. The control thread's.
#[derive(Default)]
struct Heard {
    since_ns: u64,
    count: u32,
}

/// The peer has so many rights now. Under the lock of their table.
pub(crate) fn count_rights(link: &Link, exports: &Exports) {
    // The row of a link that has ended may be another's by now.
    if !link.is_down() {
        link.row.set(counters::RIGHTS, exports.used() as u64);
    }
}

/// Control thread: counts control messages that have come. Returns until when no more are taken, if so.
pub(crate) fn heard_enough(link: &Link, count: u32) -> Option<u64> {
    let now_ns = clock::now_ns();
    let mut heard = link.quotas.heard.lock();
    if now_ns.saturating_sub(heard.since_ns) >= WINDOW_NS {
        (heard.since_ns, heard.count) = (now_ns, 0);
    }
    heard.count = heard.count.saturating_add(count);
    // Relaxed: a number.
    if heard.count < link.quotas.per_window.load(Ordering::Relaxed) {
        return None;
    }
    link.row.add(counters::MUTED, 1);
    Some(heard.since_ns + WINDOW_NS)
}

const WINDOWS_PER_S: u32 = 10;
const WINDOW_NS: u64 = 1_000_000_000 / WINDOWS_PER_S as u64;
