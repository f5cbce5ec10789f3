//! Posting a message that needs more than a look: room to wait for, rights beside its bytes.

use super::fast;
use crate::body::Body;
use crate::call_slots;
use crate::describe::laid::Reader;
use crate::describe::{Described, Load, ahead};
use crate::error::{Gone, Misuse, RightError, SendError};
use crate::link::doorbell;
use crate::link::lanes::{self, Way, leaving};
use crate::link::long;
use crate::options::Waiting;
use crate::send::{
    self, Blocked, LaneWait, Origin, Posted, SendRight, claimed, ended, room, route, spread,
};
use crate::slots::Ticket;
use core::sync::atomic::Ordering;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::Kind;
use handfast_layout::link::UNIT_BYTES;
use handfast_region::Bytes;
use handfast_ring::lane::Refused;

/// The units that say where the bytes of a long message are.
const LAID_BYTES: usize = 2 * UNIT_BYTES;

/// As [`fast::post_now`]; waits for room, and says what is wrong. Returns also the right that it
/// went through.
#[cold]
pub(super) fn post<'a>(
    this: &'a SendRight,
    bytes: Body<'_>,
    kind: Kind,
    waiting: Waiting,
) -> Result<(&'a SendRight, (Ticket, u32, u32)), SendError> {
    route::await_word(this, waiting);
    let right = route::best(this);
    if !core::ptr::eq(right, this)
        && let Body::One(bytes) = bytes
        && let Some(posted) = fast::post_now(right, bytes, kind, waiting.words_of(kind))
    {
        spread::sent(right, kind, posted.0);
        return Ok((right, posted));
    }
    let mut described = Described::new();
    let with = (&Load::default(), &mut described);
    let (right, posted) = post_with((this, right), (bytes, kind), with, waiting)?;
    spread::sent(right, kind, posted.0);
    if bytes.len_bytes() > MESSAGE_BYTES_MAX {
        let none = &mut Load::default();
        described.sent((right.process(), right.link()), none, Some(posted.1));
    }
    Ok((right, posted))
}

/// As [`post`], with rights beside the bytes. Rings. Empties `load`, unless there is an
/// error. Returns also whether this made a wake-up call.
#[cold]
pub(crate) fn post_loaded<'a>(
    this: &'a SendRight,
    bytes_and_kind: (Body<'_>, Kind),
    load: &mut Load,
    waiting: Waiting,
) -> Result<Posted<'a>, SendError> {
    route::await_word(this, waiting);
    if load.has_blocks() || load.has_member() {
        // Which nobody passes on.
        while let Origin::Vine(Some(upgrade)) = this.origin()
            && upgrade.is_held()
        {
            room::wait_for_slot(this, waiting)?;
        }
    }
    let mut described = Described::new();
    let with = (&*load, &mut described);
    let (right, (ticket, lane, trouble)) =
        post_with((this, route::best(this)), bytes_and_kind, with, waiting)?;
    spread::sent(right, bytes_and_kind.1, ticket);
    let on = (right.process(), right.link());
    described.passes_on(on, load);
    let woke_peer = doorbell::ring(right.link(), lane, right.receiver());
    described.sent(on, load, Some(lane));
    Ok((right, (ticket, trouble, woke_peer)))
}

/// By the best that a right has become. Twice there, so that what it returns need not be taken apart and put together again.
#[inline(always)]
fn post_with<'a>(
    (this, mut right): (&'a SendRight, &'a SendRight),
    (bytes, kind): (Body<'_>, Kind),
    (load, described): (&Load, &mut Described),
    waiting: Waiting,
) -> Result<(&'a SendRight, (Ticket, u32, u32)), SendError> {
    check_message(right, bytes, load)?;
    let (mut lane_wait, mut way, mut paused_ns) = (LaneWait::default(), Way::Gone, None);
    loop {
        let Some(lane) = take_lane(right, &mut lane_wait, waiting)? else {
            continue;
        };
        // Acquire: pairs with the addition in `disturb`; earlier trouble is looked at.
        let trouble = right.link().trouble.load(Ordering::Acquire);
        if let Some(next) = route::successor(right, trouble)? {
            drop(lane_wait);
            return post_with((this, next), (bytes, kind), (load, described), waiting);
        }
        if matches!(waiting, Waiting::Never)
            && let Some(next) = without_room((this, right), lane, (bytes.len_bytes(), kind), load)?
        {
            right = next;
            continue;
        }
        let Some(body) = describe(right, lane, described, (bytes, load), waiting)? else {
            continue;
        };
        let mut outgoing = send::lock(right, lane);
        let is_last = way == Way::Goes && outgoing.leads_to == right.receiver();
        if outgoing.receiver != right.receiver() && !is_last {
            // Since the look: it is another's, or others wait for it.
            drop(outgoing);
            described.take_back(right.link());
            way = leaving::give_way(right.link(), (lane, right.receiver()), &mut paused_ns);
            if way == Way::Waits {
                room::wait_for_slot(right, waiting)?;
            }
            continue;
        }
        // Acquire: as above. Its port may have moved or be gone since, and what was described may have become another. A switch
        // to a port's new home counts while it holds the lanes to the old one.
        if right.link().trouble.load(Ordering::Acquire) != trouble {
            drop(outgoing);
            described.take_back(right.link());
            continue;
        }
        let ahead = (&mut *described, &load.rights[..]);
        let ahead = ahead::send(right, (&mut outgoing, lane), (body, kind), ahead);
        let words = match kind {
            Kind::Call => waiting.words(),
            _ => described.passed(),
        };
        let units = described.units();
        let posted = ahead.and_then(|()| {
            fast::post_described(right, &mut outgoing, lane, (body, kind, words), units)
        });
        drop(outgoing);
        let body_bytes = body.len_bytes() + units.len() * UNIT_BYTES;
        match posted {
            Ok(ticket) => {
                goes_by_vine(right);
                return Ok((right, (ticket, lane, trouble)));
            }
            Err(blocked) => {
                described.lift(right.link());
                right = unblocked((this, right), blocked, (lane, body_bytes), waiting)?;
            }
        }
    }
}

/// This thread's lane. Or waits, and returns none: for one, or for the new home of a port that has moved on the word of another
/// user, which may have no such receiver.
#[inline(always)]
fn take_lane<'a>(
    right: &'a SendRight,
    wait: &mut LaneWait<'a>,
    waiting: Waiting,
) -> Result<Option<u32>, SendError> {
    if claimed::is_held(right) {
        if claimed::is_held_in_vain(right) {
            return Err(SendError::Gone(Gone::Port));
        }
        return room::wait_for_slot(right, waiting).map(|()| None);
    }
    spread::posts_at_once(right);
    match lanes::to(right.link(), right.receiver()) {
        None => wait.wait(right, waiting).map(|()| None),
        lane => Ok(lane),
    }
}

/// A message has gone through another process, if this right leads there.
#[inline(always)]
fn goes_by_vine(right: &SendRight) {
    if let Origin::Vine(Some(upgrade)) = right.origin() {
        upgrade.goes();
    }
}

/// Whether a message may be sent at all.
#[inline(always)]
fn check_message(right: &SendRight, bytes: Body<'_>, load: &Load) -> Result<(), SendError> {
    if bytes.len_bytes() > MESSAGE_BYTES_MAX {
        long::check(right.link(), bytes.len_bytes())?;
    }
    if send::is_forked(right) {
        return Err(SendError::Misuse(Misuse::Forked));
    }
    if matches!(right.origin(), Origin::Vine(_)) && (load.has_blocks() || load.has_member()) {
        return Err(SendError::Right(RightError::Vine));
    }
    if right.link().is_loop() && load.has_receiver(right.receiver()) {
        return Err(SendError::Right(RightError::Home));
    }
    Ok(())
}

/// That there is room, and a reply slot for a call, before rights are described, or long bytes copied: exporters are told of each right that is, and that it does
/// not come. A thread that waits tries again when there is room; one that does not might try often. Returns the right to try again by, where this thread may
/// call by another lane.
#[cold]
fn without_room<'a>(
    (this, right): (&'a SendRight, &'a SendRight),
    lane: u32,
    (len_bytes, kind): (usize, Kind),
    load: &Load,
) -> Result<Option<&'a SendRight>, SendError> {
    let len_bytes = match len_bytes > MESSAGE_BYTES_MAX {
        false if load.rights.is_empty() => return Ok(None),
        false => len_bytes,
        true => LAID_BYTES,
    };
    let mut outgoing = send::lock(right, lane);
    if kind == Kind::Call && outgoing.claimed.is_none() {
        outgoing.claimed = call_slots::claim(right, lane, &mut outgoing.producer);
        if outgoing.claimed.is_none() {
            drop(outgoing);
            let next = with_slots((this, right), lane);
            return next.map(Some).ok_or(SendError::Full);
        }
    }
    let lane_has_room = outgoing.producer.has_room(&right.link().region, len_bytes);
    drop(outgoing);
    match lane_has_room {
        Ok(false) => Err(SendError::Full),
        // A fault is found again, and reported, by the post that follows.
        _ => Ok(None),
    }
}

/// The right by which this thread may call, where its lane has no reply slots: by another lane.
#[cold]
fn with_slots<'a>(
    (this, right): (&'a SendRight, &'a SendRight),
    lane: u32,
) -> Option<&'a SendRight> {
    match lanes::another(right.link(), (lane, right.receiver())) {
        true => Some(right),
        false => route::elsewhere(this, right),
    }
}

/// Describes the rights of a message, and its bytes where these are too many for a lane; returns those for the lane. Or waits for room
/// for what goes ahead of it, and returns `None`.
#[inline(always)]
fn describe<'a>(
    right: &SendRight,
    lane: u32,
    described: &mut Described,
    (bytes, load): (Body<'a>, &Load),
    waiting: Waiting,
) -> Result<Option<Body<'a>>, SendError> {
    let (process, link) = (right.process(), right.link());
    let reader = Reader::Receiver {
        lane,
        receiver: right.receiver(),
        // Relaxed: a hint.
        cpu: spread::peer_cpu(right).load(Ordering::Relaxed),
    };
    let body = match described.lay(link, bytes, reader) {
        // They come back.
        Err(RightError::Loans { .. }) => return room::wait_for_slot(right, waiting).map(|()| None),
        laid => laid,
    };
    let all = body.and_then(|body| described.describe(process, link, load).map(|()| body));
    match all {
        Ok(body) => Ok(Some(body)),
        Err(RightError::Unread) => room::wait_for_slot(right, waiting).map(|()| None),
        Err(error) => Err(right.link().failure(right.port()).unwrap_or(error.into())),
    }
}

/// Waits for what the message has been refused for; returns the right to try again by.
#[cold]
fn unblocked<'a>(
    (this, right): (&'a SendRight, &'a SendRight),
    blocked: Blocked,
    (lane, body_bytes): (u32, usize),
    waiting: Waiting,
) -> Result<&'a SendRight, SendError> {
    match blocked {
        Blocked::Right(error) => return Err(error.into()),
        Blocked::Slots => match with_slots((this, right), lane) {
            Some(next) => return Ok(next),
            None => room::wait_for_slot(right, waiting)?,
        },
        Blocked::Lane(Refused::Full) => room::wait_for_room(right, lane, body_bytes, waiting)?,
        Blocked::Lane(Refused::Fault(fault)) => {
            return Err(SendError::Fault(ended::poison(right, fault)));
        }
    }
    Ok(right)
}
