//! The right of an old home, by which it asks for those of the senders there.

use super::target::Target;
use alloc::collections::BTreeSet;

/// Badges that are kept for one old home. Beyond that all of its rights are refused.
pub const REFUSED_MAX: usize = 1 << 14;

/// The right of an old home.
#[derive(Debug)]
pub(super) struct Trail {
    pub(super) place: u32,
    pub(super) port: u32,
    /// Badges that have been revoked since; `None`: too many.
    pub(super) refused: Option<BTreeSet<u64>>,
    /// Badges of which it is told when this right ends.
    pub(super) watched: BTreeSet<u64>,
}

impl Trail {
    /// The targets it stands for whose ends are told: of none from now on.
    pub(super) fn take_watched(&mut self) -> impl Iterator<Item = Target> {
        let (port, watched) = (self.port, core::mem::take(&mut self.watched));
        watched
            .into_iter()
            .map(move |badge| Target::full(port, badge))
    }

    pub(super) fn refuses(&self, badge: u64) -> bool {
        (self.refused.as_ref()).is_none_or(|refused| refused.contains(&badge))
    }
}
