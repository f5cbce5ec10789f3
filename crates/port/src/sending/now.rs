//! Messages with one right that is named in one step: to a port of this process, a block, or what the peer has already. And with several
//! to ports of this process.

use super::fast;
use crate::describe::now::{own_now, part_now};
use crate::give_back;
use crate::link::doorbell;
use crate::options::Waiting;
use crate::right::Right;
use crate::send::{self, Origin, Posted, SendRight, route};
use crate::slots::Ticket;
use core::sync::atomic::Ordering;
use handfast_layout::link::Kind;
use handfast_layout::part::Part;
use handfast_layout::{MESSAGE_BYTES_MAX, PARTS_MAX};
use handfast_proto::rights::Handle;
use handfast_ring::lane::Unit;

/// A message for a lane: bytes, kind, two words, and the link's count of troubles before the right beside it was named.
type ToPost<'a> = (&'a [u8], Kind, (u32, u32), u32);

/// As `post::post_loaded`, with such rights, if nothing at all stands in the way. A right that was sent is left in
/// `rights`, to be dropped.
#[inline(always)]
pub(crate) fn give_now<'a>(
    this: &'a SendRight,
    (bytes, kind): (&[u8], Kind),
    rights: &mut [Right],
    waiting: Waiting,
) -> Option<Posted<'a>> {
    let right = route::best(this);
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
    let [given] = rights else {
        return give_several(right, message, rights);
    };
    let Right::Own(own) = given else {
        return give_other(right, message, given);
    };
    let (process, link) = (right.process(), right.link());
    let (handle, port) = own_now((process, link), own)?;
    let posted = post_units(right, message, &[Part::unit_of_sender(handle, port)]);
    let Some((lane, ticket)) = posted else {
        give_back::retract(link, process, handle);
        return None;
    };
    let woke_peer = doorbell::ring(link, lane, right.receiver());
    Some((right, (ticket, trouble, woke_peer)))
}

/// With several rights to ports of this process.
#[inline(never)]
fn give_several<'a>(
    right: &'a SendRight,
    message: ToPost<'_>,
    rights: &[Right],
) -> Option<Posted<'a>> {
    let (process, link) = (right.process(), right.link());
    let mut units = [Unit::default(); PARTS_MAX];
    let mut handles = [Handle::default(); PARTS_MAX];
    let mut count = 0;
    for ((given, unit), place) in rights.iter().zip(&mut units).zip(&mut handles) {
        let Right::Own(own) = given else { break };
        let Some((handle, port)) = own_now((process, link), own) else {
            break;
        };
        (*unit, *place) = (Part::unit_of_sender(handle, port), handle);
        count += 1;
    }
    let posted = match count == rights.len() {
        true => post_units(right, message, &units[..count]),
        false => None,
    };
    let Some((lane, ticket)) = posted else {
        let taken_back = handles[..count].iter();
        taken_back.for_each(|handle| give_back::retract(link, process, *handle));
        return None;
    };
    let woke_peer = doorbell::ring(link, lane, right.receiver());
    let (.., trouble) = message;
    Some((right, (ticket, trouble, woke_peer)))
}

/// With a right that is not to a port of this process.
#[inline(never)]
fn give_other<'a>(
    right: &'a SendRight,
    message: ToPost<'_>,
    given: &mut Right,
) -> Option<Posted<'a>> {
    let is_passed_on = matches!(right.origin(), Origin::Vine(_));
    if is_passed_on && matches!(given, Right::Block(_)) {
        return None;
    }
    let (process, link) = (right.process(), right.link());
    let (part, undo) = part_now((process, link), given)?;
    let (units, count) = part.to_units();
    let Some((lane, ticket)) = post_units(right, message, &units[..count]) else {
        undo.take_back(link);
        return None;
    };
    let woke_peer = doorbell::ring(link, lane, right.receiver());
    undo.sent((process, link), given, Some(lane));
    let (.., trouble) = message;
    Some((right, (ticket, trouble, woke_peer)))
}

/// Posts on this thread's lane, if there has been no trouble since. Its lane and ticket.
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
