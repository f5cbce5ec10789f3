//! Revocations of rights to ports of a process, counted, so that a right on its way from table to table escapes none: see
//! `revoke`.

use crate::rank;
use core::sync::atomic::{AtomicU64, Ordering};
use handfast_sys::sync::{Mutex, MutexGuard};

/// See the module text.
#[derive(Default)]
pub(crate) struct Revocations {
    /// Twice those that have ended, one more while one is under way.
    count: AtomicU64,
    one: Mutex<(), rank::Revoking>,
}

impl Revocations {
    /// A number that changes when a revocation begins. Waits for one that is under way, which sends control messages
    /// without blocking.
    pub(crate) fn number(&self) -> u64 {
        self.one.check_order();
        loop {
            // Acquire: the changes of the last revocation are found.
            let number = self.count.load(Ordering::Acquire);
            if number.is_multiple_of(2) {
                return number;
            }
            drop(self.one.lock());
        }
    }

    /// Whether a revocation has begun since then. Under the lock of a table that a revocation looks at.
    pub(crate) fn have_begun_since(&self, number: u64) -> bool {
        // Acquire: pairs with the addition in `count`; the lock orders the rest.
        self.count.load(Ordering::Acquire) != number
    }

    /// Revocations run one after the other.
    pub(crate) fn one(&self) -> MutexGuard<'_, (), rank::Revoking> {
        self.one.lock()
    }

    /// A revocation begins, or ends: called by the thread that holds [`Self::one`].
    pub(crate) fn count(&self) {
        // AcqRel: see `number`.
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}
