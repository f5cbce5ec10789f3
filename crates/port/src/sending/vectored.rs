//! Sending bytes that lie in several pieces, without putting them together first.

use super::post;
use crate::body::Body;
use crate::call::{Call, CallState};
use crate::error::{ReplyError, SendError};
use crate::link::doorbell;
use crate::message::Message;
use crate::options::Waiting;
use crate::reply_right::ReplyRight;
use crate::request::Request;
use crate::right::Returned;
use crate::send::{SendRight, route};
use crate::sending::Sending;
use handfast_layout::LONG_BYTES_MAX;
use handfast_layout::link::Kind;
use handfast_region::Bytes;
use handfast_sys::deadline;
use handfast_wait::chain;
use std::io::IoSlice;

/// How long it waits: for ever, or, from a function of a domain that has a deadline, until then, with nothing left undone.
fn shielded<T>(run: impl FnOnce(Waiting, Option<u64>) -> T) -> T {
    if !deadline::may_end() {
        return run(Waiting::Always, None);
    }
    let _shield = deadline::shield();
    let until_ns = deadline::until_ns();
    run(Waiting::Until(until_ns), Some(until_ns))
}

/// The bytes in one piece, for a domain of this process.
fn together(body: Body<'_>) -> Result<Vec<u8>, SendError> {
    let len_bytes = body.len_bytes();
    if len_bytes > LONG_BYTES_MAX {
        return Err(SendError::TooLong { len_bytes });
    }
    let _shield = deadline::shield();
    Ok(body.to_vec())
}

impl SendRight {
    /// Like [`Self::send`], of bytes in several pieces, such as a header and a payload. The receiver gets them as one message, in
    /// this order. One copy, straight into the queue; some 100 ns more than [`Self::send`].
    ///
    /// # Errors
    /// The errors of [`Self::send`].
    pub fn send_vectored(&self, pieces: &[IoSlice<'_>]) -> Result<(), SendError> {
        shielded(|waiting, _| {
            let (right, (_, lane, _)) = post::post(self, Body::of(pieces), Kind::Message, waiting)?;
            chain::noted();
            doorbell::ring(right.link(), lane, right.receiver());
            Ok(())
        })
    }

    /// Like [`Self::call`], of bytes in several pieces: see [`Self::send_vectored`]. For a port that a domain of this process serves, the pieces
    /// are put together first.
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn call_vectored(&self, pieces: &[IoSlice<'_>]) -> Result<Message, SendError> {
        let body = Body::of(pieces);
        if route::shortcut(self).is_some() {
            return self.call(&together(body)?);
        }
        shielded(|waiting, deadline_ns| {
            let (right, (ticket, lane, trouble)) = post::post(self, body, Kind::Call, waiting)?;
            let woke_peer = doorbell::ring(right.link(), lane, right.receiver());
            let call = Call::of(right, CallState::new(ticket, trouble, woke_peer));
            call.message_by(deadline_ns)
        })
    }
}

impl Sending<'_> {
    /// Like [`Self::send`], of bytes in several pieces: see [`SendRight::send_vectored`].
    ///
    /// # Errors
    /// The errors of [`Self::send`].
    pub fn send_vectored(self, pieces: &[IoSlice<'_>]) -> Result<(), Returned<SendError>> {
        shielded(|waiting, _| {
            let posted = self.post_vectored((Body::of(pieces), Kind::Message), waiting);
            chain::noted();
            posted.map(drop)
        })
    }

    /// Like [`Self::call`], of bytes in several pieces: see [`SendRight::call_vectored`].
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn call_vectored(self, pieces: &[IoSlice<'_>]) -> Result<Message, Returned<SendError>> {
        let body = Body::of(pieces);
        if route::shortcut(self.right).is_some() {
            return match together(body) {
                Ok(bytes) => self.call(&bytes),
                Err(error) => Err(self.returned(error)),
            };
        }
        shielded(|waiting, deadline_ns| {
            let posted = self.post_vectored((body, Kind::Call), waiting)?;
            let (right, (ticket, trouble, woke_peer)) = posted;
            let call = Call::of(right, CallState::new(ticket, trouble, woke_peer));
            call.message_by(deadline_ns).map_err(|error| Returned {
                error,
                rights: Vec::new(),
            })
        })
    }
}

impl Request {
    /// Like [`Self::reply`], of bytes in several pieces: see [`SendRight::send_vectored`].
    ///
    /// # Errors
    /// The errors of [`Self::reply`].
    pub fn reply_vectored(mut self, pieces: &[IoSlice<'_>]) -> Result<(), ReplyError> {
        let right = self.take_reply().ok_or(ReplyError::NotACall)?;
        right.reply_vectored(pieces)
    }
}

impl ReplyRight {
    /// Like [`Request::reply_vectored`].
    ///
    /// # Errors
    /// The errors of [`Request::reply_vectored`].
    pub fn reply_vectored(self, pieces: &[IoSlice<'_>]) -> Result<(), ReplyError> {
        let body = Body::of(pieces);
        let replied = self.reply_by(body, [], |slot, body, units| {
            slot.answer_described(body, units);
        });
        replied.map_err(|returned| returned.error)
    }
}
