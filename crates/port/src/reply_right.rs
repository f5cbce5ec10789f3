//! The right to answer a call, as a value.

use crate::error::{DomainError, ReplyError};
use crate::link::Link;
use crate::message::Message;
use crate::reply_slot::ReplySlot;
use crate::request::Request;
use crate::right::{Returned, Right};
use std::sync::Arc;

/// The right to answer a call, once. It may be kept, moved to other threads, sent to other processes
/// ([`Right::Reply`]) and called on.
///
/// Dropping it unused, or the end of the process it has come to, ends the call at its caller as
/// [`Gone::Reply`](crate::error::Gone::Reply) or
/// [`Gone::Process`](crate::error::Gone::Process).
///
/// It cannot be used twice, nor copied:
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
pub struct ReplyRight(Request);

impl ReplyRight {
    pub(crate) fn new(slot: ReplySlot) -> Self {
        Self(Request::answering(slot))
    }

    /// Of a call.
    pub(crate) const fn of(call: Request) -> Self {
        Self(call)
    }

    pub(crate) fn into_request(self) -> Request {
        self.0
    }

    pub(crate) const fn request(&self) -> &Request {
        &self.0
    }

    /// Ends the call as one that a domain has not served.
    pub(crate) fn fail(self, error: DomainError) {
        if let Ok(slot) = self.slot()
            && !slot.link.is_over()
        {
            slot.fail(error);
            drop(self.0.answered());
        }
    }

    pub(crate) fn slot(&self) -> Result<&ReplySlot, ReplyError> {
        self.0.reply_right().ok_or(ReplyError::NotACall)
    }

    /// The link through which its outcome goes.
    pub(crate) fn link(&self) -> Option<&Arc<Link>> {
        self.0.reply_right().map(|slot| &slot.link)
    }

    /// The call has been answered, or moved: nothing is left to do here.
    pub(crate) fn used(self) {
        if let Some(received) = self.0.answered() {
            received.pool();
        }
    }

    /// As [`Request::reply`].
    ///
    /// # Errors
    /// As there.
    pub fn reply(self, bytes: &[u8]) -> Result<(), ReplyError> {
        self.0.reply(bytes)
    }

    /// As [`Request::reply_with`].
    ///
    /// # Errors
    /// As there.
    pub fn reply_with(
        self,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<(), Returned<ReplyError>> {
        self.0.reply_with(bytes, rights)
    }

    /// As [`Request::is_cancelled`].
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl Message {
    /// Takes the reply right of a message by which its sender waits for an answer
    /// ([`ReplyRight::call`]): the last of its rights.
    #[must_use]
    pub fn take_reply_right(&mut self) -> Option<ReplyRight> {
        match self
            .rights_mut()?
            .pop_if(|right| matches!(right, Right::Reply(_)))?
        {
            Right::Reply(right) => Some(right),
            _ => None,
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
