//! A use of a link.

use super::usage;
use crate::link::Link;
use std::sync::Arc;

/// A use of a link, as a right to a port of the peer is one: the link stays for it.
pub(crate) struct Held(Arc<Link>);

impl Held {
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        link.life.usage.add();
        Self(link.clone())
    }
}

impl core::ops::Deref for Held {
    type Target = Arc<Link>;

    fn deref(&self) -> &Arc<Link> {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A forked child has nothing to do with its parent's links.
        if !self.0.is_forked() {
            usage::release_use(&self.0);
        }
    }
}
