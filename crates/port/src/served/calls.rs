//! Calls of a served port by threads of its own process, which serve themselves.

use super::beside::{self, Inside, Next};
use super::room::Room;
use super::{HOPS_MAX, Incoming};
use crate::error::{DomainError, Gone, Misuse, SendError};
use crate::message::Message;
use crate::port::local::Shortcut;
use crate::right::Right;
use crate::send::{self, SendRight, ended, route};
use core::sync::atomic::Ordering;
use handfast_layout::MESSAGE_BYTES_MAX;

/// Calls what serves the port here, on this thread.
#[inline(never)]
pub(crate) fn call_here(
    right: &SendRight,
    by: &Shortcut,
    bytes: &[u8],
) -> Result<Message, SendError> {
    is_good_here(right, by, bytes)?;
    cross(right, by, (bytes, Vec::new()), None, 0)
}

/// As [`call_here`], until the deadline.
#[cold]
pub(crate) fn call_here_until(
    right: &SendRight,
    by: &Shortcut,
    bytes: &[u8],
    deadline_ns: u64,
) -> Result<Message, SendError> {
    is_good_here(right, by, bytes)?;
    cross(right, by, (bytes, Vec::new()), Some(deadline_ns), 0)
}

/// As [`call_here`], with rights. `None`: they are of a kind that takes the way of messages.
pub(crate) fn call_here_with(
    this: &SendRight,
    by: &Shortcut,
    bytes: &[u8],
    rights: &mut Vec<Right>,
    deadline_ns: Option<u64>,
) -> Option<Result<Message, SendError>> {
    if !beside::may_pass(rights) {
        return None;
    }
    if let Err(error) = is_good_here(this, by, bytes) {
        return Some(Err(error));
    }
    let port = by.own.port();
    let rights = core::mem::take(rights).into_iter();
    let rights = rights.map(|right| beside::incoming(this.process(), port, right));
    Some(cross(this, by, (bytes, rights.collect()), deadline_ns, 0))
}

/// In each of its callers for itself: those without a deadline do not look for one.
#[inline(always)]
fn cross(
    right: &SendRight,
    by: &Shortcut,
    (bytes, rights): (&[u8], Vec<Right>),
    deadline_ns: Option<u64>,
    hops: u32,
) -> Result<Message, SendError> {
    let mut room = Room::take();
    let inside = Inside::enter(rights);
    let len_bytes = serve_here(right, by, bytes, &mut room.0, deadline_ns)?;
    let reply = room.0.get(..len_bytes).unwrap_or_default();
    let (rights, on) = (inside.reply_rights(), inside.next());
    if let Some(on) = on {
        drop(inside);
        return on.goes_on(deadline_ns, hops + 1);
    }
    let mut message = Message::of(reply);
    if !rights.is_empty()
        && let Some(place) = message.rights_mut()
    {
        place.extend(rights.into_iter().map(beside::outgoing));
    }
    Ok(message)
}

/// As [`call_here`], with the reply in the caller's own buffer.
#[inline(never)]
pub(crate) fn call_here_into(
    right: &SendRight,
    by: &Shortcut,
    bytes: &[u8],
    reply: &mut [u8],
) -> Result<usize, SendError> {
    is_good_here(right, by, bytes)?;
    let inside = Inside::enter(Vec::new());
    let len_bytes = serve_here(right, by, bytes, reply, None)?;
    let Some(on) = inside.next() else {
        return Ok(len_bytes);
    };
    drop(inside);
    copy_into(&on.goes_on(None, 1)?, reply)
}

/// Whether a message may be served.
#[inline]
fn is_good_here(right: &SendRight, by: &Shortcut, bytes: &[u8]) -> Result<(), SendError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(SendError::TooLong {
            len_bytes: bytes.len(),
        });
    }
    if send::is_forked(right) {
        return Err(SendError::Misuse(Misuse::Forked));
    }
    // This process knows that itself, without waiting for the control thread.
    if !by.own.is_good() {
        return Err(SendError::Gone(Gone::Right));
    }
    // Acquire: pairs with the Release in `tell_closing`.
    if by.own.port().is_closing.load(Ordering::Acquire) {
        return Err(SendError::Gone(Gone::Port));
    }
    ended::is_as_before(right)
}

#[inline]
fn serve_here(
    right: &SendRight,
    by: &Shortcut,
    bytes: &[u8],
    reply: &mut [u8],
    deadline_ns: Option<u64>,
) -> Result<usize, SendError> {
    by.local.count(right.process());
    let target = by.own.target();
    let message = Incoming {
        bytes,
        badge: target.badge,
        permissions: target.permissions,
        is_call: true,
    };
    match deadline_ns {
        None => by.local.by.serve(message, reply),
        Some(deadline_ns) => by.local.by.serve_until(message, reply, deadline_ns),
    }
}

impl Next {
    /// The reply of a call that a domain has passed on.
    #[cold]
    fn goes_on(mut self, deadline_ns: Option<u64>, hops: u32) -> Result<Message, SendError> {
        if hops > HOPS_MAX {
            return Err(SendError::Domain(DomainError::TooDeep));
        }
        let rights = core::mem::take(&mut self.rights);
        let (to, bytes) = (&self.to, self.bytes());
        let Some(by) = route::shortcut(to) else {
            let called = to.with(rights).call_by(bytes, deadline_ns);
            return called.map_err(|failed| failed.error);
        };
        is_good_here(to, by, bytes)?;
        let come = |right| beside::incoming(to.process(), by.own.port(), right);
        let rights = rights.into_iter().map(come).collect();
        cross(to, by, (bytes, rights), deadline_ns, hops)
    }
}

/// The message in the caller's own buffer, as [`SendRight::call_into`] has it.
pub(crate) fn copy_into(message: &[u8], reply: &mut [u8]) -> Result<usize, SendError> {
    let (len_bytes, room_bytes) = (message.len(), reply.len());
    let place = reply.get_mut(..len_bytes).ok_or(SendError::ReplyTooLong {
        len_bytes,
        room_bytes,
    })?;
    place.copy_from_slice(message);
    Ok(len_bytes)
}
