//! Whether two rights are the same, however they have come.

use crate::introduce::Origin;
use crate::send::SendRight;
use std::sync::Arc;

/// Whether two rights are to the same port with the same badge and permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// They are.
    Same,
    /// They are not.
    Different,
    /// Nobody knows yet: one of them came from a third process, and the port's process has not said
    /// so far which of its rights that is. It does when it next receives at that port; of a right that goes
    /// through another process, never.
    Unknown,
}

impl SendRight {
    /// Whether this right and `other` are to the same port with the same badge and permissions, by
    /// whatever way they have come. No system call; does not block.
    #[must_use]
    pub fn identity(&self, other: &Self) -> Identity {
        let (this, other) = (self.best(), other.best());
        this.compare(other)
    }

    fn compare(&self, other: &Self) -> Identity {
        let is_same_link = Arc::ptr_eq(self.link(), other.link());
        if is_same_link && self.handle() == other.handle() {
            return Identity::Same;
        }
        let of = |right: &Self| match right.origin() {
            Origin::Exporter => Some(right.handle()),
            Origin::Claimed(claimed) => claimed.handle(),
            Origin::Vine(_) => None,
        };
        let is_vine = |right: &Self| matches!(right.origin(), Origin::Vine(_));
        match (of(self), of(other)) {
            (Some(one), Some(other)) if is_same_link && one == other => Identity::Same,
            (Some(_), Some(_)) => Identity::Different,
            _ if is_same_link || is_vine(self) || is_vine(other) => Identity::Unknown,
            // A port is in one process only.
            _ => Identity::Different,
        }
    }
}
