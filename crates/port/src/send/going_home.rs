//! A right that goes home in an answer which is only passed on (`home`).

use super::{Origin, SendRight};
use crate::link::{Link, introductions};
use crate::process::Process;
use core::sync::atomic::{AtomicBool, Ordering};
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

/// A right that an introducer, the peer of `link`, has given to this process, which has it on the way home only.
pub(crate) fn going(
    process: &Arc<Process>,
    link: &Arc<Link>,
    vine: SendRight,
    (exporter, number, port): (Name, u64, u32),
) -> SendRight {
    super::with_origin(
        vine,
        Origin::Home(Arc::new(GoingHome {
            process: process.clone(),
            introducer: link.clone(),
            exporter,
            number,
            port,
            is_told: AtomicBool::new(false),
        })),
    )
}

impl GoingHome {
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

/// The part that announces the right to the peer of `to`, if the right is on its way home there.
pub(crate) fn home(right: &SendRight, to: &Link) -> Option<Part> {
    match right.origin() {
        Origin::Home(going) => going.part(to),
        _ => None,
    }
}
