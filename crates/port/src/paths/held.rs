//! A use of a link.

use crate::link::Link;
use crate::process::Process;
use crate::unused;
use std::sync::Arc;

/// A use of a link, as a right to a port of the peer is one: the link stays for it.
pub(crate) struct Held {
    pub(super) process: Arc<Process>,
    link: Arc<Link>,
}

impl Held {
    pub(crate) fn new(process: &Arc<Process>, link: &Arc<Link>) -> Self {
        link.usage.add();
        Self {
            process: process.clone(),
            link: link.clone(),
        }
    }
}

impl core::ops::Deref for Held {
    type Target = Arc<Link>;

    fn deref(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A forked child has nothing to do with its parent's links.
        if self.process.epoch == handfast_sys::process::fork_epoch() {
            unused::release(&self.process, &self.link);
        }
    }
}
