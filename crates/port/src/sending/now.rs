//! Messages with one right that is named in one step: to a port of this process, a block, or what the peer has already.

use super::fast;
use crate::link::doorbell;
use crate::options::Waiting;
use crate::port::exported;
use crate::port::own::OwnRight;
use crate::right::Right;
use crate::send::{self, Origin, Posted, SendRight, life, moved};
use crate::slots::Ticket;
use crate::{again, give_back, lending};
use core::sync::atomic::Ordering;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::Kind;
use handfast_layout::part::Part;
use handfast_ring::lane::Unit;
use std::sync::Arc;

/// A message for a lane: bytes, kind, two words, and the link's count of troubles before the right beside it was named.
type ToPost<'a> = (&'a [u8], Kind, (u32, u32), u32);

/// As `post::post_loaded`, with one right, if nothing at all stands in the way. A right that was sent is left in
/// `rights`, to be dropped.
#[inline(always)]
pub(crate) fn give_now<'a>(
    this: &'a SendRight,
    (bytes, kind): (&[u8], Kind),
    rights: &mut Vec<Right>,
    waiting: Waiting,
) -> Option<Posted<'a>> {
    let [given] = &rights[..] else {
        return None;
    };
    let right = moved::best(this);
    if bytes.len() > MESSAGE_BYTES_MAX || send::is_forked(right) {
        return None;
    }
    let words = match kind {
        Kind::Call => waiting.words(),
        _ => (0, 0),
    };
    // Acquire: pairs with the addition in `disturb`. A name read after that may be another by then.
    let trouble = right.link().trouble.load(Ordering::Acquire);
    let message = (bytes, kind, words, trouble);
    let mut lent = 0;
    let (lane, ticket) = match given {
        Right::Own(own) => give_own(right, message, own)?,
        Right::Send(sent) => give_known(right, message, sent)?,
        Right::Block(block) if !matches!(right.origin(), Origin::Vine(_)) => {
            let described = lending::lend_now(right.link(), block)?;
            lent = described.loan;
            let (units, count) = Part::Loan(described).to_units();
            let posted = post_named(right, message, &units[..count]);
            posted.or_else(|| {
                lending::lends_not(right.link(), lent);
                None
            })?
        }
        _ => return None,
    };
    let woke_peer = doorbell::ring(right.link(), lane, right.receiver());
    match given {
        Right::Send(sent) => life::used_at(sent, right.link(), Some(lane)),
        Right::Block(_) => {
            if let Some(Right::Block(block)) = rights.pop() {
                lending::has_lent(right.link(), lent, block);
            }
        }
        _ => {}
    }
    Some((right, (ticket, trouble, woke_peer)))
}

/// With a right to a port that is here.
#[inline(always)]
fn give_own(right: &SendRight, message: ToPost<'_>, own: &OwnRight) -> Option<(u32, Ticket)> {
    let port = own.port();
    let is_other = !Arc::ptr_eq(&port.process, right.process());
    if port.home.get().is_some() || own.is_over() || is_other {
        return None;
    }
    let handle = exported::export_own(right.link(), own)?.ok()?;
    let unit = Part::unit_of_sender(handle, own.port().id);
    let posted = post_units(right, message, &[unit]);
    posted.or_else(|| {
        give_back::retract(right.link(), right.process(), handle);
        None
    })
}

/// With a right of the peer's own, or one of a third process's that the peer keeps.
#[inline]
fn give_known(right: &SendRight, message: ToPost<'_>, sent: &SendRight) -> Option<(u32, Ticket)> {
    if matches!(sent.origin(), Origin::Home(_)) {
        return None;
    }
    let sent = moved::best(sent);
    if send::is_forked(sent) || moved::is_down(sent) || moved::is_revoked(sent) {
        return None;
    }
    if Arc::ptr_eq(sent.link(), right.link()) {
        let handle = sent.handle();
        let (units, count) = Part::OfReceiver { handle }.to_units();
        return matches!(sent.origin(), Origin::Exporter)
            .then(|| post_named(right, message, &units[..count]))
            .flatten();
    }
    if !Arc::ptr_eq(sent.process(), right.process()) {
        return None;
    }
    let number = again::give_again(right.link(), sent)?;
    let (units, count) = Part::Again { number }.to_units();
    let posted = post_named(right, message, &units[..count]);
    posted.or_else(|| {
        again::unsent_again(right.link(), number);
        None
    })
}

/// Posts on this thread's lane, if there has been no trouble since. Its lane and ticket.
#[inline(never)]
fn post_named(right: &SendRight, message: ToPost<'_>, units: &[Unit]) -> Option<(u32, Ticket)> {
    post_units(right, message, units)
}

/// As [`post_named`], in line: for the messages that carry most rights.
#[inline(always)]
fn post_units(
    right: &SendRight,
    (bytes, kind, words, before): ToPost<'_>,
    units: &[Unit],
) -> Option<(u32, Ticket)> {
    let (lane, mut outgoing, trouble) = send::lane_now(right)?;
    if trouble != before {
        return None;
    }
    let posted = fast::post_described(right, &mut outgoing, lane, (bytes, kind, words), units);
    Some((lane, posted.ok()?))
}
