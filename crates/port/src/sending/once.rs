//! Sending by a send-once right.

use crate::error::SendError;
use crate::right::{Returned, Right};
use crate::send::SendRight;
use crate::send_once::{SendOnceRight, Way};

/// A message that was not sent by a [`SendOnceRight`], and the unused right.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotSent {
    /// Why.
    pub error: SendError,
    /// The right.
    pub right: SendOnceRight,
    /// The rights that were to go with the message.
    pub rights: Vec<Right>,
}

impl SendOnceRight {
    /// Sends the right's message. Waits for room as [`SendRight::send`] does, and costs as much, plus a control message that gives the right back.
    ///
    /// # Errors
    /// [`NotSent`], with the errors of [`SendRight::send`], and the right: [`SendError::Gone`] when the port has ended.
    pub fn send(self, bytes: &[u8]) -> Result<(), NotSent> {
        self.send_with(bytes, [])
    }

    /// Like [`Self::send`], with up to four rights beside the bytes.
    ///
    /// # Errors
    /// The errors of [`Self::send`], and [`SendError::Right`].
    pub fn send_with(
        self,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<(), NotSent> {
        self.send_by(rights, |right, rights| right.with(rights).send(bytes))
    }

    /// Like [`Self::send_with`], without waiting for room. May wait for the process of a right among `rights`, as
    /// [`Sending::try_send`](crate::Sending::try_send) does. The first such message to a port of this process may make a link
    /// ([`OwnRight::connect`](crate::OwnRight::connect)).
    ///
    /// # Errors
    /// The errors of [`Self::send_with`], and [`SendError::Full`] without room.
    pub fn try_send_with(
        self,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<(), NotSent> {
        self.send_by(rights, |right, rights| right.with(rights).try_send(bytes))
    }

    fn send_by(
        self,
        rights: impl IntoIterator<Item = Right>,
        send: impl FnOnce(&SendRight, Vec<Right>) -> Result<(), Returned<SendError>>,
    ) -> Result<(), NotSent> {
        let rights: Vec<_> = rights.into_iter().collect();
        let sent = match self.way() {
            Way::There(right) => send(right, rights),
            Way::Here(own) => match own.reach() {
                Ok(right) => send(&right, rights),
                Err(error) => Err(Returned { error, rights }),
            },
        };
        sent.map_err(|Returned { error, rights }| NotSent {
            error,
            right: self,
            rights,
        })
    }
}
