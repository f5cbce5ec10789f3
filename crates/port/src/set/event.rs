//! Events of a wait set.

use crate::error::SendError;
use crate::message::Message;
use crate::request::Request;

/// Names a member of one set. Used again for another member once its own has been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub(super) u32);

/// An event: a message at a port, the end of a call, a ready descriptor, a timer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message for the port with this token.
    Message(Token, Request),
    /// The descriptor with this token is ready; it is reported again as long as it is.
    Descriptor(Token, Readiness),
    /// The call with this token has ended: as [`Call::wait`](crate::Call::wait). It is no member any more.
    Reply(Token, Result<Message, SendError>),
    /// The time of the timer with this token has come. It is no member any more.
    Timer(Token),
}

/// The operations a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Something can be read, or a connection accepted.
    pub readable: bool,
    /// Something can be written.
    pub writable: bool,
    /// The other end has gone, or the descriptor has failed.
    pub hung_up: bool,
}

impl Event {
    /// The member it came from.
    #[must_use]
    pub const fn token(&self) -> Token {
        match self {
            Self::Message(token, _)
            | Self::Descriptor(token, _)
            | Self::Reply(token, _)
            | Self::Timer(token) => *token,
        }
    }
}
