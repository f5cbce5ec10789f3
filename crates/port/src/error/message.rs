//! Errors of messages: sending, calling, receiving, replying.

use super::{DomainError, Exhausted, Gone, Misuse, PeerFault, RightError};
use handfast_layout::{LONG_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Why a message was not sent, or a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message is longer than [`LONG_BYTES_MAX`](handfast_layout::LONG_BYTES_MAX), or goes to another user or a domain and is longer than
    /// [`MESSAGE_BYTES_MAX`](handfast_layout::MESSAGE_BYTES_MAX).
    #[error("{}", too_long(*.len_bytes))]
    TooLong {
        /// Its length.
        len_bytes: usize,
    },
    /// The reply is longer than the buffer it was to be copied into. The call was served.
    #[error(
        "the reply is {len_bytes} bytes long and the buffer has {room_bytes}; give a longer one"
    )]
    ReplyTooLong {
        /// Its length.
        len_bytes: usize,
        /// Length of the buffer.
        room_bytes: usize,
    },
    /// The operation may not wait, and the queue is full, or calls whose reply has not been taken hold all 16
    /// reply slots of this thread's lane. Waiting helps if another thread takes the replies; a thread that
    /// keeps 16 calls itself has to take one first.
    #[error(
        "the queue is full, or 16 calls of this thread are under way or their replies not taken; take \
         those replies, or wait for room and try again"
    )]
    Full,
    /// The deadline passed. A call may have been served, and a late reply is dropped; a one-way message was not sent.
    #[error(
        "the deadline passed; see whether the server is stopped or overloaded, or allow more time"
    )]
    TimedOut,
    /// Cancelled: the original caller gave up ([`Request::call_through`](crate::Request::call_through)).
    #[error("the caller on whose behalf this was called has given up; drop its request")]
    Cancelled,
    /// The process shows this only to processes of its own user, and of root.
    #[error("the peer shows its counters to processes of its own user and of root only")]
    NotShown,
    /// The peer is gone. A call in flight may or may not have been served.
    #[error("{}", how_gone(*.0))]
    Gone(Gone),
    /// The peer broke a rule.
    #[error(transparent)]
    Fault(PeerFault),
    /// The domain behind the port did not serve the call.
    #[error(transparent)]
    Domain(DomainError),
    /// A limit of the link was reached.
    #[error(transparent)]
    Exhausted(Exhausted),
    /// The message's rights cannot be sent.
    #[error(transparent)]
    Right(RightError),
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
}

/// Not all of many messages were sent. The first [`sent`](Self::sent) of them were, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("after {sent} messages were sent: {error}")]
pub struct Unsent {
    /// How many messages were sent.
    pub sent: usize,
    /// Why the next message was not sent.
    pub error: SendError,
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Nothing waits, and the operation may not wait either.
    #[error("no message waits, or another thread is receiving; try again later")]
    Empty,
    /// The deadline passed.
    #[error("no message came before the deadline; try again")]
    TimedOut,
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
}

/// Why a reply went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The message is longer than [`LONG_BYTES_MAX`](handfast_layout::LONG_BYTES_MAX), or goes to another user and is longer than
    /// [`MESSAGE_BYTES_MAX`](handfast_layout::MESSAGE_BYTES_MAX). The call ends as [`Gone::Reply`].
    #[error("{}", too_long(*.len_bytes))]
    TooLong {
        /// Its length.
        len_bytes: usize,
    },
    /// The caller's process is gone.
    #[error("the caller's process is gone and reads no reply; go on with the next request")]
    Gone,
    /// The message was one-way: no caller waits for a reply.
    #[error("the message was one-way and takes no reply; ask Request::is_call before")]
    NotACall,
    /// The reply's rights cannot be sent. The call ends as [`Gone::Reply`].
    #[error(transparent)]
    Right(RightError),
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
}

fn too_long(len_bytes: usize) -> String {
    format!(
        "the message is {len_bytes} bytes long and the limit is {LONG_BYTES_MAX}, and {MESSAGE_BYTES_MAX} between processes of two users and for \
         domains; split it, or send it as memory"
    )
}

const fn how_gone(gone: Gone) -> &'static str {
    match gone {
        Gone::Process => "the peer's process is gone; connect again when there is another",
        Gone::Port => {
            "the port is gone: its receiver was dropped; connect again when there is another"
        }
        Gone::Right => {
            "the right was revoked by the port's receiver, or is one more than this process may have there; drop it"
        }
        Gone::Reply => {
            "the server dropped the call without a reply; see there whether it panicked, or could not send its reply"
        }
    }
}

impl From<Misuse> for ReceiveError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}
