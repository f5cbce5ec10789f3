//! The holders that may still take messages from the lanes of a link. A right that its peer passes on has a
//! meaning as long as such a holder exists, even after the peer has died: a dead peer's messages are received
//! like others. After that the peer's parties end, even if its requests are still held: a caller whose call was
//! lost on the way here learns of that when its path is over.
//!
//! Nor does the link need its own descriptors after that.

use super::passing;
use crate::link::{Link, connection};
use core::ops::Deref;
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// A link that is heard: an entry of its trust group, a lane of a poller's, a link that is kept for a
/// port until its receiver looks.
pub(crate) struct Hearing(Arc<Link>);

impl Hearing {
    /// Only while there is one of this link already, or no other thread has seen the link yet.
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        // Relaxed: as in `Arc::clone`.
        link.life.hearers.fetch_add(1, Ordering::Relaxed);
        Self(link.clone())
    }
}

impl Clone for Hearing {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Deref for Hearing {
    type Target = Arc<Link>;

    #[inline(always)]
    fn deref(&self) -> &Arc<Link> {
        &self.0
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        // AcqRel: the last one comes after what the others have taken.
        if self.0.life.hearers.fetch_sub(1, Ordering::AcqRel) == 1 {
            passing::end_parties(&self.0);
            connection::disconnect(&self.0);
        }
    }
}
