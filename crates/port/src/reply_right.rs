//! The right to answer a call, as a value.

use crate::error::DomainError;
use crate::link::Link;
use crate::reply_slot::ReplySlot;
use std::sync::Arc;

/// The right to answer a call, once. It may be kept, moved to other threads, sent to other processes
/// ([`Right::Reply`](crate::Right::Reply)) and called on.
///
/// Dropping the right unused, or the end of the process that holds it, ends the call at its caller as
/// [`Gone::Reply`](crate::error::Gone::Reply) or
/// [`Gone::Process`](crate::error::Gone::Process).
///
/// A reply right cannot be used twice, nor copied:
///
/// ```compile_fail,E0382
/// # fn twice(right: handfast_port::ReplyRight) {
/// let _ = right.reply(b"once");
/// let _ = right.reply(b"and again");
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # fn copied(right: handfast_port::ReplyRight) {
/// let copy = right.clone();
/// # }
/// ```
pub struct ReplyRight {
    /// Present, except in one that has been used or is being dropped.
    slot: Option<ReplySlot>,
}

impl ReplyRight {
    pub(crate) const fn new(slot: ReplySlot) -> Self {
        Self { slot: Some(slot) }
    }

    pub(crate) fn slot(&self) -> &ReplySlot {
        match &self.slot {
            Some(slot) => slot,
            None => unreachable!("what takes it out has the right by value"),
        }
    }

    pub(crate) fn into_slot(mut self) -> Option<ReplySlot> {
        self.slot.take()
    }

    /// The link through which its outcome goes.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.slot().link
    }

    /// Ends the call as one that a domain has not served.
    pub(crate) fn fail(self, error: DomainError) {
        if !self.link().is_over() {
            self.slot().fail(error);
            self.used();
        }
    }

    /// The call has been answered, or moved: nothing is left to do here.
    pub(crate) fn used(self) {
        drop(self.into_slot());
    }

    /// Like [`Request::is_cancelled`](crate::Request::is_cancelled).
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.slot().is_cancelled()
    }
}

impl Drop for ReplyRight {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.dropped();
        }
    }
}

impl core::fmt::Debug for ReplyRight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ReplyRight")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
