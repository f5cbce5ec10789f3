//! How long a stream's reads and writes wait.

use handfast_sys::clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Which of the two.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Read,
    Write,
}

/// In nanoseconds; [`FOR_EVER`] is none.
#[derive(Debug)]
pub(crate) struct Timeouts {
    read_ns: AtomicU64,
    write_ns: AtomicU64,
    is_nonblocking: AtomicBool,
}

const FOR_EVER: u64 = u64::MAX;

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            read_ns: AtomicU64::new(FOR_EVER),
            write_ns: AtomicU64::new(FOR_EVER),
            is_nonblocking: AtomicBool::new(false),
        }
    }
}

// Relaxed, all: nothing else is published with them.
impl Timeouts {
    const fn of(&self, operation: Operation) -> &AtomicU64 {
        match operation {
            Operation::Read => &self.read_ns,
            Operation::Write => &self.write_ns,
        }
    }

    pub(crate) fn set(&self, operation: Operation, timeout: Option<Duration>) {
        let ns = timeout.map_or(FOR_EVER, |timeout| {
            u64::try_from(timeout.as_nanos()).unwrap_or(FOR_EVER)
        });
        self.of(operation).store(ns, Ordering::Relaxed);
    }

    pub(crate) fn set_nonblocking(&self, is_nonblocking: bool) {
        self.is_nonblocking.store(is_nonblocking, Ordering::Relaxed);
    }

    /// Until when a read or write that begins now may wait; 0: not at all.
    pub(crate) fn deadline_ns(&self, operation: Operation) -> Option<u64> {
        if self.is_nonblocking.load(Ordering::Relaxed) {
            return Some(0);
        }
        match self.of(operation).load(Ordering::Relaxed) {
            FOR_EVER => None,
            ns => Some(clock::now_ns().saturating_add(ns)),
        }
    }
}
