//! Rights as parts of messages: minting them, sending them.

use crate::error::{Gone, ReplyError, SendError};
use crate::link::Link;
use crate::port::Port;
use crate::receive::ReceiveRight;
use crate::send::SendRight;
use core::sync::atomic::Ordering;
use handfast_layout::PARTS_MAX;
use handfast_layout::part::Part;
use handfast_proto::rights::{EXPORTS_MAX, Handle, Refused};
use handfast_ring::lane::Unit;
use std::sync::Arc;

/// A right that travels, or has come, in a message.
#[derive(Debug)]
#[non_exhaustive]
pub enum Right {
    /// To send to a port of another process.
    Send(SendRight),
    /// To send to a port of this process.
    Own(OwnRight),
    /// To a port of this process that is no more.
    Dead,
}

/// A right to send to a port of this very process, as [`ReceiveRight::mint`] makes it, to be sent
/// to others; and what becomes of such a right when it comes back. One atomic step to copy.
pub struct OwnRight {
    port: Arc<Port>,
    badge: u64,
}

/// Why rights were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RightError {
    /// A message has more rights than it can carry.
    TooMany {
        /// How many.
        count: usize,
    },
    /// The right is to a port of a third process.
    Third,
    /// The peer has as many rights as one process can have of another.
    Exhausted {
        /// How many.
        limit: u32,
    },
    /// The right is to a port that is no more.
    Dead,
    /// The peer's process is gone.
    Gone,
}

/// What could not be sent, and why.
#[derive(Debug)]
pub struct Returned<E> {
    /// Why.
    pub error: E,
    /// The rights; empty once they have been sent.
    pub rights: Vec<Right>,
}

impl ReceiveRight {
    /// Makes a right to send to this port, which may be sent to any process in a message. Its
    /// receiver is told the badge with each message that comes through it or a copy of it
    /// ([`Request::badge`](crate::Request::badge)); rights got by [`connect`](crate::connect) have
    /// badge zero. No system call, no descriptor.
    ///
    /// Rights to one port with one badge are one right to whoever gets them.
    #[must_use]
    pub fn mint(&self, badge: u64) -> OwnRight {
        OwnRight::new(self.port().clone(), badge)
    }
}

impl OwnRight {
    /// Chosen when it was minted.
    #[must_use]
    pub const fn badge(&self) -> u64 {
        self.badge
    }

    /// Whether it is to this port.
    #[must_use]
    pub fn is_to(&self, receive: &ReceiveRight) -> bool {
        Arc::ptr_eq(&self.port, receive.port())
    }

    pub(crate) fn new(port: Arc<Port>, badge: u64) -> Self {
        if !is_forked(&port) {
            port.notices.added();
        }
        Self { port, badge }
    }
}

impl Clone for OwnRight {
    fn clone(&self) -> Self {
        Self::new(self.port.clone(), self.badge)
    }
}

impl Drop for OwnRight {
    fn drop(&mut self) {
        // A forked child has its parent's rights by accident, and perhaps a lock nobody will free.
        if !is_forked(&self.port) {
            self.port.rights_ended(1);
        }
    }
}

/// Whether this process is a forked child of the port's.
fn is_forked(port: &Port) -> bool {
    port.process.epoch != handfast_sys::process::fork_epoch()
}

impl core::fmt::Debug for OwnRight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OwnRight")
            .field("port", &self.port.name)
            .field("badge", &self.badge)
            .finish()
    }
}

impl From<SendRight> for Right {
    fn from(right: SendRight) -> Self {
        Self::Send(right)
    }
}

impl From<OwnRight> for Right {
    fn from(right: OwnRight) -> Self {
        Self::Own(right)
    }
}

/// The units that describe the rights of one message.
pub(crate) struct Described {
    units: [Unit; PARTS_MAX],
    count: usize,
    /// Handles counted as sent, with the rights they are for.
    exported: [Option<(Handle, Arc<Port>)>; PARTS_MAX],
}

impl Described {
    pub(crate) fn units(&self) -> &[Unit] {
        &self.units[..self.count]
    }

    /// The message was not sent after all.
    pub(crate) fn take_back(&self, link: &Link) {
        for (handle, port) in self.exported.iter().flatten() {
            link.retract(&port.process, *handle);
        }
    }
}

/// Describes rights to the peer of `link`, and counts them as sent. The message must follow, or
/// [`Described::take_back`].
pub(crate) fn describe(link: &Arc<Link>, rights: &[Right]) -> Result<Described, RightError> {
    let mut described = Described {
        units: [Unit::default(); PARTS_MAX],
        count: 0,
        exported: [const { None }; PARTS_MAX],
    };
    if rights.len() > PARTS_MAX {
        return Err(RightError::TooMany {
            count: rights.len(),
        });
    }
    for right in rights {
        let part = part_of(link, right).inspect_err(|_| described.take_back(link))?;
        if let (Part::OfSender { handle, .. }, Right::Own(own)) = (part, right) {
            described.exported[described.count] = Some((handle, own.port.clone()));
        }
        described.units[described.count] = part.to_unit();
        described.count += 1;
    }
    Ok(described)
}

fn part_of(link: &Arc<Link>, right: &Right) -> Result<Part, RightError> {
    let own = match right {
        Right::Send(right) if Arc::ptr_eq(right.link(), link) => {
            let handle = right.handle();
            return Ok(Part::OfReceiver { handle });
        }
        Right::Send(_) => return Err(RightError::Third),
        Right::Dead => return Err(RightError::Dead),
        Right::Own(own) if is_forked(&own.port) => return Err(RightError::Dead),
        // Relaxed: its peers are told anyway.
        Right::Own(own) if own.port.is_closing.load(Ordering::Relaxed) => {
            return Err(RightError::Dead);
        }
        Right::Own(own) => own,
    };
    let limit = EXPORTS_MAX;
    let exported = link.export(&own.port, own.badge);
    let handle = exported.map_err(|refused| match refused {
        Refused::Over => RightError::Gone,
        _ => RightError::Exhausted { limit },
    })?;
    // From now on the link stays while the peer wants it. Release: as where it is accepted.
    link.granted.store(true, Ordering::Release);
    let port = own.port.id;
    Ok(Part::OfSender { handle, port })
}

/// The rights have been sent through a lane of their link: those of the peer's are in use there.
pub(crate) fn sent(rights: &[Right], lane: u32) {
    for right in rights {
        if let Right::Send(right) = right {
            right.uses(lane);
        }
    }
}

impl From<RightError> for SendError {
    fn from(error: RightError) -> Self {
        match error {
            RightError::Gone => Self::Gone(Gone::Process),
            error => Self::Right(error),
        }
    }
}

impl From<RightError> for ReplyError {
    fn from(error: RightError) -> Self {
        match error {
            RightError::Gone => Self::Gone,
            error => Self::Right(error),
        }
    }
}

impl core::fmt::Display for RightError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooMany { count } => write!(
                f,
                "the message has {count} rights and the limit is {PARTS_MAX}; send several messages"
            ),
            Self::Third => f.write_str(
                "a right to a port of a third process cannot be passed on yet; have the receiver \
                 connect to the port by its name",
            ),
            Self::Exhausted { limit } => write!(
                f,
                "the peer has {limit} rights to ports of this process, the limit; have it drop some"
            ),
            Self::Gone => f.write_str("the peer's process is gone"),
            Self::Dead => f.write_str("the right is to a port that is no more; drop it"),
        }
    }
}

impl std::error::Error for RightError {}

impl<E: core::fmt::Display> core::fmt::Display for Returned<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.error.fmt(f)
    }
}

impl<E: std::error::Error> std::error::Error for Returned<E> {}
