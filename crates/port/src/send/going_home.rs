//! A right that goes home in an answer which is only passed on (`home`).

use crate::link::{Link, introductions};
use crate::process::Process;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering;
use handfast_layout::hello::Process as Name;
use handfast_layout::part::Part;
use std::sync::Arc;

/// Relay: a right provided to this process that is for the process of its port.
pub(crate) struct GoingHome {
    process: Arc<Process>,
    introducer: Arc<Link>,
    exporter: Name,
    number: u64,
    port: u32,
    is_told: AtomicBool,
}

/// How long a right that goes home waits: at its sender for its exporter to say which it is, at home for another
/// thread that polls its port and takes what provides it.
pub(crate) const SETTLE_NS: u64 = 100_000_000;

impl GoingHome {
    pub(super) fn new(
        process: &Arc<Process>,
        introducer: &Arc<Link>,
        (exporter, number, port): (Name, u64, u32),
    ) -> Self {
        Self {
            process: process.clone(),
            introducer: introducer.clone(),
            exporter,
            number,
            port,
            is_told: AtomicBool::new(false),
        }
    }

    /// The part that announces the right to the peer of `to`; `None` when that is another process.
    pub(crate) fn part(&self, to: &Link) -> Option<Part> {
        let of = &self.introducer;
        to.is_with(self.exporter).then_some(Part::Home {
            port: self.port,
            introducer: of.incarnation,
            pid: of.peer.pid,
            number: self.number,
        })
    }

    /// The right has been announced.
    pub(crate) fn told(&self) {
        // Relaxed: looked at by the thread that drops it.
        self.is_told.store(true, Ordering::Relaxed);
    }
}

impl Drop for GoingHome {
    fn drop(&mut self) {
        let is_own = self.process.epoch == handfast_sys::process::fork_epoch();
        if is_own && !*self.is_told.get_mut() {
            let introducer = &self.introducer;
            introductions::decline(introducer, self.exporter, self.number);
        }
    }
}
