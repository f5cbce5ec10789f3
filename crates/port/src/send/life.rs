//! How long the exporter has to know a right: until its last copy is dropped, and what was sent with it has been taken.

use super::{Origin, SendRight, aside, route};
use crate::link::{Link, releases};
use core::sync::atomic::Ordering;
use handfast_sys::deadline;
use std::sync::Arc;

/// Notes that a message with the handle goes through `lane`; the lane's lock is held.
#[inline(always)]
pub(crate) fn uses(right: &SendRight, lane: u32) {
    // Relaxed, both: read when no thread uses the right any more.
    if right.used.load(Ordering::Relaxed) & 1 << lane == 0 {
        right.used.fetch_or(1 << lane, Ordering::Relaxed);
    }
}

/// Notes that a message with the handle has gone through the lanes of `other`.
pub(crate) fn uses_as(right: &SendRight, other: &SendRight) {
    // Relaxed: as in `uses`.
    let lanes = other.used.load(Ordering::Relaxed);
    right.used.fetch_or(lanes, Ordering::Relaxed);
}

/// Notes that the right has been named in a message through a lane of `link`, itself or as its successor.
pub(crate) fn used_at(this: &SendRight, link: &Arc<Link>, lane: Option<u32>) {
    if let Origin::Home(going) = &this.origin {
        return going.told();
    }
    let (mut named, lane) = match lane {
        Some(lane) => (Some(this), lane),
        None => return,
    };
    // As often as its port has moved: see `best`.
    while let Some(right) = named {
        if Arc::ptr_eq(&right.link, link) {
            uses(right, lane);
        }
        named = route::next(right).map(|next| &**next);
    }
}

impl Drop for SendRight {
    #[inline]
    fn drop(&mut self) {
        if self.epoch != handfast_sys::process::fork_epoch() {
            return;
        }
        // Dropping takes locks of the link, and may take locks of the process.
        let _shield = deadline::shield();
        if let Some(aside) = self.aside.get_mut() {
            aside.drop_moved();
        }
        // Relaxed: threads that used it have let go of it.
        let lanes = self.used.load(Ordering::Relaxed);
        releases::dropped(&self.link, self.handle, self.port, lanes);
    }
}

/// Another right to the same port, with its own options: as this one's are.
impl Clone for SendRight {
    fn clone(&self) -> Self {
        let _shield = deadline::shield();
        let again = super::again(self, aside::waiting(self));
        route::with_shortcut(again, self.shortcut.as_ref().map(|by| by.again()))
    }
}

impl core::fmt::Debug for SendRight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SendRight")
            .field("peer", &self.link.peer)
            .finish_non_exhaustive()
    }
}
