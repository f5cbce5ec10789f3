//! Sending and calling with bytes alone.
//!
//! A call to a server that is awake passes on this side through [`SendRight::call`], `start`, `fast::post_now`, `Producer::post_described`,
//! `doorbell::ring` and `Call::wait_by`; `ARCHITECTURE.md` follows one. `post::post` is the slow path of a post. A caller that may
//! sleep waits at an `Answer` (`call/sleep.rs`).

use super::{fast, post};
use crate::body::Body;
use crate::call::{Call, CallState};
use crate::error::SendError;
use crate::giving_up::Watch;
use crate::link::doorbell;
use crate::message::{Buffer, Message};
use crate::options::Waiting;
use crate::send::{self, SendRight, route};
use crate::served::{calls, copy_into};
use core::time::Duration;
use handfast_layout::link::INLINE_BYTES;
use handfast_layout::link::Kind;
use handfast_sys::clock;
use handfast_sys::deadline;
use handfast_wait::chain;
use std::time::Instant;

impl SendRight {
    /// Sends a one-way message; waits by the strategy while the queue is full: 64 messages of one thread, 20 of
    /// more than 1 KiB, 4 of more than 8 KiB. One copy; one system call if the receiver sleeps, none otherwise.
    ///
    /// A message of more than 64 KiB ([`MESSAGE_BYTES_MAX`](crate::MESSAGE_BYTES_MAX)) goes in memory that is lent to the receiver's process, and copied
    /// there before it is received. The first such messages make that memory, some ten system calls and a millisecond for each MiB; it is kept for
    /// the next ones, until 10 s after the last. At most 15 such messages, and 128 MiB of them, are under way to one process.
    ///
    /// Delivery is not confirmed: a message that was sent and not received is lost when the port is dropped or its process
    /// ends. Use [`call`](Self::call) when it must not be lost.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then. When the peer dies while this waits, [`SendError::Gone`] within milliseconds.
    /// [`SendError::Exhausted`] after a second in which all 16 lanes to the port's process were in use for other ports of that process: with
    /// messages that have not been received, or calls that have not been answered.
    pub fn send(&self, bytes: &[u8]) -> Result<(), SendError> {
        send_by(self, bytes, Waiting::Always)
    }

    /// Like [`Self::send`], waiting for room for at most `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] then.
    pub fn send_timeout(&self, bytes: &[u8], timeout: Duration) -> Result<(), SendError> {
        send_by(self, bytes, Waiting::Until(clock::deadline_ns(timeout)))
    }

    /// Like [`Self::send_timeout`], until `deadline`.
    ///
    /// # Errors
    /// The errors of [`Self::send_timeout`].
    pub fn send_deadline(&self, bytes: &[u8], deadline: Instant) -> Result<(), SendError> {
        send_by(self, bytes, Waiting::Until(clock::instant_ns(deadline)))
    }

    /// Like [`Self::send`], without waiting: a full queue is [`SendError::Full`].
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub fn try_send(&self, bytes: &[u8]) -> Result<(), SendError> {
        send_by(self, bytes, Waiting::Never)
    }

    /// Sends `bytes` as a call and waits for the reply by the strategy. This process copies the bytes in
    /// and the reply out, and the receiver's process the bytes out and the reply in; no system call while both sides are awake.
    ///
    /// A thread that keeps so many calls of its own, started with [`Self::try_call`] and neither taken nor
    /// dropped, that no lane to the port has room (16 in each), waits here until another thread takes one, mostly forever.
    ///
    /// By a right of [`OwnRight::connect`](crate::OwnRight::connect) to a port that a domain serves, this thread runs the domain's
    /// function; [`SendError::Domain`] says, there and elsewhere, how the function failed.
    ///
    /// # Errors
    /// [`SendError`]. When the peer dies meanwhile, [`SendError::Gone`] within milliseconds; the
    /// call may or may not have been served. [`SendError::Exhausted`] as for [`Self::send`]; the call was not made then.
    #[inline]
    pub fn call(&self, bytes: &[u8]) -> Result<Message, SendError> {
        if let Some(by) = route::shortcut(self) {
            return calls::call_here(self, by, bytes);
        }
        if deadline::may_end() {
            return call_shielded(self, bytes);
        }
        start(self, bytes, Waiting::Always)?.message_by(None)
    }

    /// Like [`Self::call`], with the reply copied straight into `reply`. Returns its length. Rights in
    /// the reply are dropped.
    ///
    /// # Errors
    /// The errors of [`Self::call`]; [`SendError::ReplyTooLong`] when the reply is longer than `reply`, which
    /// then keeps its old content.
    #[inline]
    pub fn call_into(&self, bytes: &[u8], reply: &mut [u8]) -> Result<usize, SendError> {
        if let Some(by) = route::shortcut(self) {
            return calls::call_here_into(self, by, bytes, reply);
        }
        if deadline::may_end() {
            return call_into_shielded(self, bytes, reply);
        }
        let call = start(self, bytes, Waiting::Always)?;
        let right = call.right();
        let len_bytes = call.wait_by(None, &mut Buffer(reply, Message::default()), None)?;
        send::arrived(right);
        let room_bytes = reply.len();
        if len_bytes > room_bytes {
            return Err(SendError::ReplyTooLong {
                len_bytes,
                room_bytes,
            });
        }
        Ok(len_bytes)
    }

    /// Like [`Self::call`], for at most `timeout` in all. A function of a domain that this thread runs is ended then, and
    /// its domain reset or dead by its policy.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] then; a later reply is dropped. [`SendError::Domain`] with [`DomainError::Deadline`] if the
    /// function was ended, with [`DomainError::NoDeadline`] if it cannot be ended.
    ///
    /// [`DomainError::Deadline`]: crate::error::DomainError::Deadline
    /// [`DomainError::NoDeadline`]: crate::error::DomainError::NoDeadline
    pub fn call_timeout(&self, bytes: &[u8], timeout: Duration) -> Result<Message, SendError> {
        call_until(self, bytes, clock::deadline_ns(timeout))
    }

    /// Like [`Self::call_timeout`], until `deadline`: for calls that share one.
    ///
    /// # Errors
    /// The errors of [`Self::call_timeout`].
    pub fn call_deadline(&self, bytes: &[u8], deadline: Instant) -> Result<Message, SendError> {
        call_until(self, bytes, clock::instant_ns(deadline))
    }

    /// Starts a call without waiting for anything: neither for room nor for the reply. One copy; one system call if the
    /// receiver sleeps, none otherwise.
    ///
    /// The call holds its reply slot, one of 16 of the thread's lane, until its reply has been taken, even if the
    /// reply is there already; a dropped call, until the reply comes. A thread can keep 16 calls, and as many in each lane that is free or has room, up to
    /// 192: then it has to take a reply before it calls again.
    ///
    /// # Errors
    /// [`SendError::Full`] without room in the queue or a free reply slot; other errors as of [`Self::send`].
    pub fn try_call(&self, bytes: &[u8]) -> Result<Call<'_>, SendError> {
        start(self, bytes, Waiting::Never)
    }
}

fn call_until(right: &SendRight, bytes: &[u8], deadline_ns: u64) -> Result<Message, SendError> {
    if let Some(by) = route::shortcut(right) {
        return calls::call_here_until(right, by, bytes, deadline_ns);
    }
    call_by(right, bytes, deadline_ns)
}

fn call_by(right: &SendRight, bytes: &[u8], deadline_ns: u64) -> Result<Message, SendError> {
    // In a function of a domain that has a deadline: its calls share the deadline, and none of them is left undone.
    let _shield = deadline::shield();
    let deadline_ns = deadline_ns.min(deadline::until_ns());
    start(right, bytes, Waiting::Until(deadline_ns))?.message_by(Some(deadline_ns))
}

/// As [`SendRight::call`], from a function of a domain that has a deadline.
#[cold]
fn call_shielded(right: &SendRight, bytes: &[u8]) -> Result<Message, SendError> {
    call_by(right, bytes, deadline::NEVER_NS)
}

#[cold]
fn call_into_shielded(
    right: &SendRight,
    bytes: &[u8],
    reply: &mut [u8],
) -> Result<usize, SendError> {
    copy_into(&call_shielded(right, bytes)?, reply)
}

/// Calls on behalf of another's caller, as long as `outer` does not say that this caller has given up.
pub(crate) fn call_for(
    right: &SendRight,
    bytes: &[u8],
    deadline_ns: Option<u64>,
    outer: &mut Watch<'_>,
) -> Result<Message, SendError> {
    let waiting = deadline_ns.map_or(Waiting::Always, Waiting::Until);
    start(right, bytes, waiting)?.message_for(deadline_ns, outer)
}

/// Starts a call, waiting for room if there is none, and returns without its reply.
#[inline(always)]
pub(crate) fn start<'a>(
    this: &'a SendRight,
    bytes: &[u8],
    waiting: Waiting,
) -> Result<Call<'a>, SendError> {
    let until = waiting.words();
    let (right, (ticket, lane, trouble)) = match fast::post_now(this, bytes, Kind::Call, until) {
        Some(posted) => (this, posted),
        None => post::post(this, Body::One(bytes), Kind::Call, waiting)?,
    };
    let woke_peer = doorbell::ring(right.link(), lane, right.receiver());
    if bytes.len() > INLINE_BYTES {
        // The peer is at work now.
        fast::fetch_next(right, lane, bytes.len(), false);
    }
    Ok(Call::of(right, CallState::new(ticket, trouble, woke_peer)))
}

pub(crate) fn send_by(this: &SendRight, bytes: &[u8], waiting: Waiting) -> Result<(), SendError> {
    if deadline::may_end() {
        return send_shielded(this, bytes, waiting);
    }
    let (right, (_, lane, _)) = match fast::post_now(this, bytes, Kind::Message, (0, 0)) {
        Some(posted) => (this, posted),
        None => post::post(this, Body::One(bytes), Kind::Message, waiting)?,
    };
    // Where this thread waits for the answer of another process, or for the next message, several processes may take turns.
    chain::noted();
    doorbell::ring(right.link(), lane, right.receiver());
    Ok(())
}

#[cold]
fn send_shielded(right: &SendRight, bytes: &[u8], waiting: Waiting) -> Result<(), SendError> {
    let _shield = deadline::shield();
    send_by(right, bytes, waiting.until(deadline::until_ns()))
}
