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
        "the reply is {len_bytes} bytes long and the buffer has {room_bytes}; call again with a longer buffer"
    )]
    ReplyTooLong {
        /// Its length.
        len_bytes: usize,
        /// Length of the buffer.
        room_bytes: usize,
    },
    /// The operation may not wait, and the queue is full, or calls whose reply has not been taken hold all 16
    /// reply slots of this thread's lane, and there is no other lane with room. Waiting helps if another thread takes the replies; a thread that
    /// keeps them itself has to take one first.
    #[error(
        "the queue to the port is full, or the lanes to it have room for no more calls without a reply taken, 16 in each; \
         take replies, or try again later"
    )]
    Full,
    /// The deadline passed. A call may have been served, and a late reply is dropped; a one-way message was not sent.
    #[error(
        "the deadline passed before the peer answered or made room; see whether the server is stopped or \
         overloaded, or allow more time"
    )]
    TimedOut,
    /// Cancelled: the original caller gave up ([`Request::call_through`](crate::Request::call_through)).
    #[error("cancelled: the original caller gave up; drop its request")]
    Cancelled,
    /// The process shows this only to processes of its own user, and of root.
    #[error(
        "counters of a link are shown only to processes of the peer's own user, and of root; read them as that user"
    )]
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
    /// A limit was reached. Before anything was sent: all 16 lanes to the process have been in use for a second, with messages that it has not
    /// received or calls that it has not answered; or no return slot of the link is free ([`ReplyRight`](crate::ReplyRight)). After a call was
    /// served: this process had no memory or descriptor for a long reply.
    #[error(transparent)]
    Exhausted(Exhausted),
    /// The message's rights cannot be sent.
    #[error(transparent)]
    Right(RightError),
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
}

/// Only the first [`sent`](Self::sent) of several messages were sent, in order.
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
    /// No message waits, and the operation does not block.
    #[error("no message waits, or another thread is receiving; try again later")]
    Empty,
    /// The deadline passed.
    #[error("no message came before the deadline; try again")]
    TimedOut,
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
}

/// Why a reply was not sent.
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
    #[error(
        "the caller's process has ended, so the reply has no reader; go on with the next request"
    )]
    Gone,
    /// The message was one-way: no caller waits for a reply.
    #[error("the message was one-way and takes no reply; check Request::is_call before replying")]
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
        "the message is {len_bytes} bytes long and the limit is {LONG_BYTES_MAX}, or {MESSAGE_BYTES_MAX} between processes of two users and for \
         domains; split it, or send it as memory"
    )
}

const fn how_gone(gone: Gone) -> &'static str {
    match gone {
        Gone::Process => {
            "the peer's process has ended or closed the link; connect again once another serves the port"
        }
        Gone::Port => {
            "the port is gone: its receive right was dropped; connect again once another serves it"
        }
        Gone::Right => {
            "the right was revoked by the port's receiver, or exceeds the number of rights that this process may hold there; drop it"
        }
        Gone::Reply => {
            "the server dropped the call without a reply; see whether the server panicked, or failed to send its reply"
        }
    }
}

impl From<Misuse> for ReceiveError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}
