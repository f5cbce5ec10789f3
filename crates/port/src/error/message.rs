//! Errors of messages: sending, calling, receiving, replying.

use super::{DomainError, Exhausted, Gone, Misuse, PeerFault, RightError};
use core::fmt;

/// Why a message was not sent, or a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The message is longer than [`MESSAGE_BYTES_MAX`](handfast_layout::MESSAGE_BYTES_MAX).
    TooLong {
        /// Its length.
        len_bytes: usize,
    },
    /// The reply is longer than the buffer it was to be copied into. The call was served.
    ReplyTooLong {
        /// Its length.
        len_bytes: usize,
        /// Length of the buffer.
        room_bytes: usize,
    },
    /// The operation may not wait, and the queue is full, or calls whose reply has not been taken hold all 16
    /// reply slots of this thread's lane. Waiting helps if another thread takes the replies; a thread that
    /// keeps 16 calls itself has to take one first.
    Full,
    /// The deadline passed. A call may have been served, and a late reply is dropped; a one-way message was not sent.
    TimedOut,
    /// Cancelled: the original caller gave up ([`Request::call_through`](crate::Request::call_through)).
    Cancelled,
    /// The process shows this only to processes of its own user, and of root.
    NotShown,
    /// The peer is gone. A call in flight may or may not have been served.
    Gone(Gone),
    /// The peer broke a rule.
    Fault(PeerFault),
    /// The domain behind the port did not serve the call.
    Domain(DomainError),
    /// A limit of the link was reached.
    Exhausted(Exhausted),
    /// The message's rights cannot be sent.
    Right(RightError),
    /// A mistake of the caller.
    Misuse(Misuse),
}

/// Not all of many messages were sent. The first [`sent`](Self::sent) of them were, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// How many messages were sent.
    pub sent: usize,
    /// Why the next message was not sent.
    pub error: SendError,
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Nothing waits, and the operation may not wait either.
    Empty,
    /// The deadline passed.
    TimedOut,
    /// A mistake of the caller.
    Misuse(Misuse),
}

/// Why a reply went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// The message is longer than [`MESSAGE_BYTES_MAX`](handfast_layout::MESSAGE_BYTES_MAX). The call ends as
    /// [`Gone::Reply`].
    TooLong {
        /// Its length.
        len_bytes: usize,
    },
    /// The caller's process is gone.
    Gone,
    /// The message was one-way: no caller waits for a reply.
    NotACall,
    /// The reply's rights cannot be sent. The call ends as [`Gone::Reply`].
    Right(RightError),
    /// A mistake of the caller.
    Misuse(Misuse),
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} messages were sent: {}", self.sent, self.error)
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len_bytes } => too_long(f, *len_bytes),
            Self::ReplyTooLong {
                len_bytes,
                room_bytes,
            } => write!(
                f,
                "the reply is {len_bytes} bytes long and the buffer has {room_bytes}; give a longer one"
            ),
            Self::Full => f.write_str(
                "the queue is full, or 16 calls of this thread are under way or their replies not \
                 taken; take those replies, or wait for room and try again",
            ),
            Self::TimedOut => f.write_str(
                "the deadline passed; see whether the server is stopped or overloaded, or allow more time",
            ),
            Self::NotShown => f.write_str(
                "the peer shows its counters to processes of its own user and of root only",
            ),
            Self::Cancelled => f.write_str(
                "the caller on whose behalf this was called has given up; drop its request",
            ),
            Self::Gone(Gone::Process) => {
                f.write_str("the peer's process is gone; connect again when there is another")
            }
            Self::Gone(Gone::Port) => f.write_str(
                "the port is gone: its receiver was dropped; connect again when there is another",
            ),
            Self::Gone(Gone::Right) => f.write_str(
                "the right was revoked by the port's receiver, or is one more than this process may \
                 have there; drop it",
            ),
            Self::Gone(Gone::Reply) => f.write_str(
                "the server dropped the call without a reply; see there whether it panicked, or could \
                 not send its reply",
            ),
            Self::Fault(fault) => fault.fmt(f),
            Self::Domain(error) => error.fmt(f),
            Self::Exhausted(exhausted) => exhausted.fmt(f),
            Self::Right(right) => right.fmt(f),
            Self::Misuse(misuse) => misuse.fmt(f),
        }
    }
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => {
                f.write_str("no message waits, or another thread is receiving; try again later")
            }
            Self::TimedOut => f.write_str("no message came before the deadline; try again"),
            Self::Misuse(misuse) => misuse.fmt(f),
        }
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len_bytes } => too_long(f, *len_bytes),
            Self::Gone => f.write_str(
                "the caller's process is gone and reads no reply; go on with the next request",
            ),
            Self::NotACall => f.write_str(
                "the message was one-way and takes no reply; ask Request::is_call before",
            ),
            Self::Right(right) => right.fmt(f),
            Self::Misuse(misuse) => misuse.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}
impl std::error::Error for Unsent {}
impl std::error::Error for ReceiveError {}
impl std::error::Error for ReplyError {}

fn too_long(f: &mut fmt::Formatter<'_>, len_bytes: usize) -> fmt::Result {
    let limit = handfast_layout::MESSAGE_BYTES_MAX;
    write!(
        f,
        "the message is {len_bytes} bytes long and the limit is {limit}; split it"
    )
}

impl From<Misuse> for ReceiveError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}
