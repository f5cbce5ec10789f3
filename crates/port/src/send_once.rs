//! Send-once rights: one message, or a notice that there will be none (paper 004, section 2.5.4, as in Mach).
//!
//! Each is the only right to a port of its own, which shares the receiver of the port that made it, and takes one message
//! there (`port::Once`). Rights travel, die and are introduced as to any port; what is added is that the message ends the
//! port, and that the end of its last right without one is told of.

use crate::error::{BindError, Misuse};
use crate::port::Once;
use crate::port::notice;
use crate::port::own::OwnRight;
use crate::port::ports;
use crate::process::Process;
use crate::receive_right::ReceiveRight;
use crate::send::SendRight;
use handfast_proto::rights::ALL_PERMISSIONS;
use std::sync::Arc;

/// The right to send one message to a port: [`ReceiveRight::mint_once`].
///
/// The port's receiver gets exactly one message through the right ([`Request::is_send_once`](crate::Request::is_send_once)), or, once the right has
/// ended without one, exactly one notice ([`Notice::SendOnceUnused`](crate::Notice::SendOnceUnused)). The port's process keeps that
/// promise: further messages of a holder that sends twice, or keeps copies, are lost. The right travels in messages as others do
/// ([`Right::SendOnce`](crate::Right::SendOnce)), never merges with another, and does not count as a sender
/// ([`Notice::NoSenders`](crate::Notice::NoSenders)).
///
/// A send-once right cannot be cloned:
///
/// ```compile_fail,E0599
/// # fn copied(right: handfast_port::SendOnceRight) {
/// let other = right.clone();
/// # }
/// ```
#[derive(Debug)]
pub struct SendOnceRight(Way);

/// How it leads to its port.
#[derive(Debug)]
pub(crate) enum Way {
    /// The port is of this process.
    Here(OwnRight),
    /// It is not, or was not when the right came.
    There(Box<SendRight>),
}

impl ReceiveRight {
    /// Makes a right to send one message to this port, with a badge of its own; several may have the same badge. No system call; some 500
    /// bytes until the right has ended. Together with [members](Self::member), there may be 1,048,576 in one process.
    /// [Revoking](Self::revoke) its badge does not revoke it.
    ///
    /// ```
    /// # use handfast_port as handfast;
    /// use handfast::Notice;
    /// let port = handfast::anonymous()?;
    /// port.mint_once(7)?.send(b"done")?;
    /// let request = port.receive()?;
    /// assert!(request.is_send_once() && request.badge() == 7);
    /// drop(port.mint_once(8)?);
    /// assert_eq!(port.receive()?.notice(), Some(Notice::SendOnceUnused(8)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BindError::Exhausted`] beyond that number. [`BindError::Misuse`] in a forked child, or once the node was shut down.
    pub fn mint_once(&self, badge: u64) -> Result<SendOnceRight, BindError> {
        let port = self.port();
        port.process.check()?;
        if self.check().is_err() {
            return Err(BindError::Misuse(Misuse::Forked));
        }
        let once = ports::add_member(port, Some(Once::new(badge)))?;
        notice::ask_no_senders(&once);
        let own = OwnRight::to(&once, badge, ALL_PERMISSIONS);
        Ok(SendOnceRight::here(own))
    }
}

impl SendOnceRight {
    pub(crate) const fn here(own: OwnRight) -> Self {
        Self(Way::Here(own))
    }

    pub(crate) fn there(right: SendRight) -> Self {
        Self(Way::There(Box::new(right)))
    }

    pub(crate) const fn way(&self) -> &Way {
        &self.0
    }

    pub(crate) fn node(&self) -> &Arc<Process> {
        match &self.0 {
            Way::Here(own) => &own.port().process,
            Way::There(right) => right.process(),
        }
    }
}
