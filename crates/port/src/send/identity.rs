//! Whether two rights are one.

use super::{Origin, SendRight, route};
use std::sync::Arc;

/// Whether two rights are to the same port with the same badge and permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identity {
    /// They are.
    Same,
    /// They are not.
    Different,
    /// Not known yet: one of them came from a third process, and the port's process has not yet identified it
    /// among its rights. That process does so when it next receives at that port; for a right that goes through
    /// another process, never.
    Unknown,
}

impl SendRight {
    /// Whether this right and `other` are to the same port with the same badge and permissions, by whatever way they
    /// have come. No system call; does not block.
    #[must_use]
    pub fn identity(&self, other: &Self) -> Identity {
        let (this, other) = (route::best(self), route::best(other));
        compare(this, other)
    }
}

pub(super) fn compare(this: &SendRight, other: &SendRight) -> Identity {
    let is_same_link = Arc::ptr_eq(this.link(), other.link());
    if is_same_link && this.handle() == other.handle() {
        return Identity::Same;
    }
    let of = |right: &SendRight| match right.origin() {
        Origin::Exporter => Some(right.handle()),
        Origin::Claimed(claimed) => claimed.handle(),
        Origin::Vine(_) | Origin::Home(_) => None,
    };
    let is_vine = |right: &SendRight| matches!(right.origin(), Origin::Vine(_));
    match (of(this), of(other)) {
        (Some(one), Some(other)) if is_same_link && one == other => Identity::Same,
        (Some(_), Some(_)) => Identity::Different,
        _ if is_same_link || is_vine(this) || is_vine(other) => Identity::Unknown,
        // A port is in one process only.
        _ => Identity::Different,
    }
}
