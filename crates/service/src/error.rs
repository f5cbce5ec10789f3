//! Errors of a typed call, and what to do about them.

use crate::method::Method;
use handfast_port::error::SendError;
use handfast_port::{LONG_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Why a typed call has no result.
///
/// A service returns its own errors in its result (`Result<T, E>` as a method's return
/// type); these are errors of the call around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The request was not sent, or has no reply, as for [`SendRight::call`](handfast_port::SendRight::call).
    /// [`Gone::Reply`](handfast_port::error::Gone::Reply) when the method panicked, or returned a
    /// right that cannot be sent, or more than 64 KiB while earlier replies take all memory for them.
    #[error(transparent)]
    Send(SendError),
    /// The arguments do not make a message. Nothing was sent.
    #[error("the arguments of {method} cannot be sent: {why}")]
    Arguments {
        /// The method.
        method: &'static Method,
        /// Why not.
        why: Unencodable,
    },
    /// The server refused the request, or its result did not make a message.
    #[error("{method} was refused: {why}")]
    Refused {
        /// The method.
        method: &'static Method,
        /// Why.
        why: Refusal,
    },
    /// The server's reply is not what the method returns. The method was called or was not: the
    /// server is not made from this trait.
    #[error(
        "the reply to {method} is not a result of that method: {why}; build client and server from one \
         trait and the same types"
    )]
    Reply {
        /// The method.
        method: &'static Method,
        /// The defect.
        why: Malformed,
    },
}

/// Why a server refused a request. Its method ran only with [`Refusal::Result`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The server is made from another trait than the client, or from another version of it.
    #[error(
        "the server serves another service, or another version of this one (fingerprint {serves:012x}); \
         build client and server from one trait"
    )]
    OtherService {
        /// The fingerprint of the server's trait.
        serves: u64,
    },
    /// The service has no method of this number.
    #[error("the service has no method of this number; build client and server from one trait")]
    Method,
    /// The request was a call of a one-way method, or one-way where the method has a result.
    #[error(
        "a one-way method was called, or another method was sent one-way; build client and server from one trait"
    )]
    Form,
    /// The arguments do not fit the method.
    #[error(
        "the arguments are not those of the method: {0}; build client and server from one trait and the \
         same types"
    )]
    Arguments(Malformed),
    /// The method has run, and its result does not make a message.
    #[error("the method has run, and its result cannot be sent: {0}")]
    Result(Unencodable),
}

/// The defect of values that were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A value ends early, is no value of its type, or nests too deep.
    #[error("a value ends early, is not of its type, or nests too deep")]
    Value,
    /// Bytes are left over.
    #[error("bytes are left over after the last value")]
    Left,
    /// The rights are not as many as they should be, or one is of another kind.
    #[error("the rights are too many, too few, or of another kind")]
    Rights,
}

/// Why values do not make a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unencodable {
    /// Together they are longer than [`LONG_BYTES_MAX`], or are a result for another user, or of a domain, and longer than
    /// [`MESSAGE_BYTES_MAX`].
    #[error(
        "the values are longer than {LONG_BYTES_MAX} bytes together, or, as a result for another user or of a domain, than \
         {MESSAGE_BYTES_MAX}; send them in several messages"
    )]
    TooLong,
    /// A type's `Serialize` failed, or wants what the format does not have, as sequences of unknown
    /// length.
    #[error(
        "a value's Serialize failed, or needs a form that the format lacks, as a sequence of unknown length"
    )]
    Value,
}

impl From<SendError> for CallError {
    fn from(error: SendError) -> Self {
        Self::Send(error)
    }
}

impl From<Malformed> for Refusal {
    fn from(why: Malformed) -> Self {
        Self::Arguments(why)
    }
}

/// The last byte of a reply when all is well. At the end, so that the values before it lie where copies
/// in words of eight bytes put them in one piece: reading them is a wait for the copy otherwise.
pub(crate) const ANSWERED: u8 = 0;

impl Refusal {
    /// The reply that says so.
    #[cold]
    pub(crate) fn write(self, reply: &mut Vec<u8>) {
        reply.clear();
        match self {
            Self::OtherService { serves } => {
                reply.extend(serves.to_le_bytes());
                reply.push(1);
            }
            Self::Method => reply.push(2),
            Self::Form => reply.push(3),
            Self::Arguments(why) => {
                let why = match why {
                    Malformed::Value => 1,
                    Malformed::Left => 2,
                    Malformed::Rights => 3,
                };
                reply.extend([why, 4]);
            }
            Self::Result(why) => {
                let why = match why {
                    Unencodable::TooLong => 1,
                    Unencodable::Value => 2,
                };
                reply.extend([why, 5]);
            }
        }
    }

    /// The error of a reply that does not end with [`ANSWERED`].
    #[cold]
    pub(crate) fn read(reply: &[u8]) -> Result<Self, Malformed> {
        Ok(match *reply {
            [ref serves @ .., 1] => Self::OtherService {
                serves: u64::from_le_bytes(serves.try_into().map_err(|_| Malformed::Value)?),
            },
            [2] => Self::Method,
            [3] => Self::Form,
            [1, 4] => Self::Arguments(Malformed::Value),
            [2, 4] => Self::Arguments(Malformed::Left),
            [3, 4] => Self::Arguments(Malformed::Rights),
            [1, 5] => Self::Result(Unencodable::TooLong),
            [2, 5] => Self::Result(Unencodable::Value),
            _ => return Err(Malformed::Value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_read_as_it_was_written_and_nothing_else_is_one() {
        let all = [
            Refusal::OtherService { serves: 7 << 40 },
            Refusal::Method,
            Refusal::Form,
            Refusal::Arguments(Malformed::Value),
            Refusal::Arguments(Malformed::Left),
            Refusal::Arguments(Malformed::Rights),
            Refusal::Result(Unencodable::TooLong),
            Refusal::Result(Unencodable::Value),
        ];
        let mut reply = Vec::new();
        for refusal in all {
            refusal.write(&mut reply);
            assert_eq!(Refusal::read(&reply), Ok(refusal));
            reply.insert(0, 1);
            assert_eq!(Refusal::read(&reply), Err(Malformed::Value));
            reply.push(9);
            assert_eq!(Refusal::read(&reply), Err(Malformed::Value));
        }
    }
}
