//! Events of a wait set.

use crate::error::SendError;
use crate::message::Message;
use crate::request::Request;

/// Names a member of one set. Once the member has been removed, the token may name another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub(super) u32);

/// An event: a message at a port, the end of a call, a ready descriptor, a timer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message for the port with this token.
    Message(Token, Request),
    /// The descriptor with this token is ready; reported again as long as it stays ready.
    Descriptor(Token, Readiness),
    /// The call with this token has ended, with the result of [`Call::wait`](crate::Call::wait). The call is no member of the set any more.
    Reply(Token, Result<Message, SendError>),
    /// The time of the timer with this token has come. The timer is no member of the set any more.
    Timer(Token),
}

/// The operations that a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Data can be read, or a connection accepted.
    pub readable: bool,
    /// Data can be written.
    pub writable: bool,
    /// The other end has gone, or the descriptor has failed.
    pub hung_up: bool,
}

impl Event {
    /// The member that the event came from.
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
