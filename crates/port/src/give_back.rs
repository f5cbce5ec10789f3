//! Giving back the rights that no thread here holds any more, and taking back those that the peer gives back.

use crate::awaited::{Awaited, Outcome};
use crate::link::lanes::sent;
use crate::link::releases::Unread;
use crate::link::{Link, connection, in_force, redirects};
use crate::message::{Message, Whom};
use crate::port::{exported, ports};
use crate::process::Process;
use crate::slots::{SLOTS_PER_LANE, SlotState};
use crate::{again, introduce, moving, paths};
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_layout::control::{ControlMessage, Released};
use handfast_layout::link::{REPLIES, slot_of};
use handfast_layout::part::is_handle;
use handfast_proto::rights::{Handle, Refused};
use handfast_proto::timers::Timer;
use handfast_proto::users as quota;
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_ring::{Fault, Rule};
use std::sync::Arc;

/// Control thread: gives back the rights no thread here holds. `false`: the peer does not read. A peer that leaves too much of it unread is
/// cut.
pub(crate) fn give_back(link: &Link, process: &Process) -> bool {
    let mut imports = link.imports();
    let given = imports.give_back(|used| {
        // The peer's own word: a peer that lies about what it has consumed loses its own messages.
        let head = Place::of(link.calls, used.lane).head();
        let head = link.region.load(head, Ordering::Acquire);
        // The last message may have been a call, whose answer the head does not show.
        head.wrapping_sub(used.tail).cast_signed() >= 0
            || sent::is_answered(link, used.lane, used.tail.wrapping_sub(1))
    });
    let idle = imports.idle_bytes() as u64;
    drop(imports);
    redirects::drop_moved(link, given.iter().map(|(handle, _)| *handle));
    // Before the peer hears that: a handle may mean something else then.
    again::forget_told(process, link, &given);
    let mut releases = link.releases();
    let owed = &mut releases.owed;
    owed.add(given);
    let is_told = owed.say(|rights| {
        let rights = rights.into();
        let release = ControlMessage::Release { rights };
        connection::send_bytes(link, &release.encode()).is_ok()
    });
    let is_within = owed.charge(idle);
    drop(releases);
    if is_within.is_err() {
        link.poison(Rule::Unread.broken());
        process.attention.raise();
    }
    is_told || link.is_down()
}

/// Control thread: the peer gives rights back. They end once the replies have been read that were sent
/// before: those may have a right in them that comes home.
pub(crate) fn take_back(
    link: &Arc<Link>,
    process: &Process,
    rights: impl Iterator<Item = Released>,
) -> Result<(), Fault> {
    let mut ending = Vec::new();
    for Released { name, count } in rights {
        let claimed = match is_handle(name) {
            true => Ok(Some(name)),
            false => introduce::unclaimed(link, process, name),
        };
        let (handle, released) = match claimed {
            Ok(Some(handle)) => (handle, link.exports().release(handle, count)),
            Ok(None) => continue,
            Err(refused) => (name, Err(refused)),
        };
        let is_last = released.map_err(|refused| Fault {
            rule: match refused {
                Refused::Release => Rule::RightCount,
                _ => Rule::RightHandle,
            },
            offset: 0,
        })?;
        match is_last {
            true => ending.push(handle),
            false => moving::is_under_way(link, process, handle),
        }
    }
    let is_within = end_later(link, process, ending);
    // Of rights that were claimed, whose claims are given back with them.
    is_within.map_err(|_| Rule::Introduction.broken())
}

/// Ends rights that have been given back, once the replies that are unread now have been read.
fn end_later(link: &Link, process: &Process, ending: Vec<Handle>) -> Result<(), quota::Refused> {
    if ending.is_empty() {
        return Ok(());
    }
    let is_within = link
        .releases()
        .back
        .add(ending, || unread_replies(link, process));
    settle(link, process);
    if has_unsettled(link) {
        process.schedule(Timer::Releases);
    }
    is_within
}

/// Control thread: ends the rights that were given back, if nothing unread stands in the way.
pub(crate) fn settle(link: &Link, process: &Process) {
    let next = || {
        let unread = || unread_replies(link, process);
        let ended = link
            .releases()
            .back
            .take_ended(|reply| is_unread(link, reply), unread);
        (!ended.is_empty()).then_some(ended)
    };
    // Without the lock: threads that wait for their end are woken.
    while let Some(ended) = next() {
        for handle in ended {
            finish(link, process, handle);
        }
    }
}

/// A right about to be sent was not.
pub(crate) fn retract(link: &Link, process: &Process, handle: Handle) {
    let released = link.exports().release(handle, 1);
    if released.unwrap_or(false) {
        // It is this process that has given it back.
        let _ = end_later(link, process, vec![handle]);
    }
}

fn finish(link: &Link, process: &Process, handle: Handle) {
    let mut exports = link.exports();
    let watched = exports.take_watched(handle);
    let ended = exports.finish(handle);
    in_force::count_rights(link, &exports);
    drop(exports);
    exported::watched_have_ended(&watched, |port| ports::by_id(process, port));
    // Release: pairs with the Acquire of receivers that know what it stood for.
    link.rights.ended.fetch_add(1, Ordering::Release);
    if let Some(ended) = ended {
        introduce::ended(process, ended);
    }
}

/// Whether rights wait to be given back or to end.
pub(crate) fn has_unsettled(link: &Link) -> bool {
    !link.releases().back.is_empty() || link.imports().idle() > 0
}

/// Calls that have been answered with rights, and whose answers no thread has looked at yet.
fn unread_replies(link: &Link, process: &Process) -> Vec<Unread> {
    let calls = link.slots.iter().zip(0..).map(|(slot, index)| {
        // Acquire: as in `is_unread`.
        (index, slot.generation.load(Ordering::Acquire))
    });
    let sets = paths::sets_from(process, link);
    let returns = sets.into_iter().flat_map(|set| {
        (0..REPLIES).map(move |place| {
            let index = slot_of(set, place);
            let generation = Slot::of(link.calls, index).generation(&link.region);
            (index, generation)
        })
    });
    let all = calls.chain(returns);
    all.filter(|call| is_unread(link, *call)).collect()
}

fn is_unread(link: &Link, (index, generation): Unread) -> bool {
    let reply = Slot::of(link.calls, index);
    let is_there = || reply.is_answered(&link.region, generation) && reply.has_parts(&link.region);
    match link.slots.get(index as usize) {
        // Acquire, both: a thread that has taken the reply has taken up its rights before.
        Some(slot) => {
            slot.generation.load(Ordering::Acquire) == generation
                && slot.state.load(Ordering::Acquire) != SlotState::FREE
                && is_there()
        }
        None => generation != 0 && is_there() && !link.returns().has_taken(index, generation),
    }
}

/// Whether the outcome of a call that was given up has come, and brings nothing that is to be
/// taken. Takes nothing: the lock of its lane is held, and rights that come or go may want it.
pub(crate) fn is_refused(link: &Arc<Link>, process: &Process, index: u32, generation: u32) -> bool {
    let mut awaited = Awaited::new(link.clone(), index, generation);
    if !awaited.follow(process) {
        return true;
    }
    let failure = awaited.failure();
    if !awaited.is_answered() {
        // The outcome may have been moved after the call was given up.
        awaited.cancel();
        return failure.is_some();
    }
    awaited.slot().is_plain(&awaited.link().region)
}

/// Control thread: takes the outcome of a call that was given up, since no other thread will, and drops the rights
/// that came with it. `false`: the outcome is still to come, elsewhere.
fn refuse_outcome(link: &Arc<Link>, process: &Arc<Process>, index: u32, generation: u32) -> bool {
    let mut awaited = Awaited::new(link.clone(), index, generation);
    loop {
        let failure = awaited.failure();
        if !awaited.is_answered() {
            // The outcome may have been moved after the call was given up.
            awaited.cancel();
            return failure.is_some();
        }
        match awaited.take(process, &mut Message::new(), Whom::Nobody) {
            Ok(Outcome::Moved) => {}
            Ok(Outcome::Reply(_) | Outcome::Piece | Outcome::Error(_)) => return true,
            Err(fault) => {
                awaited.link().poison(fault);
                process.attention.raise();
                return true;
            }
        }
    }
}

/// Control thread: takes what came in replies to calls that had been given up, since no caller will, and frees their slots: nobody
/// awaits outcomes there, and paths by which they might have come can go. Returns whether there are calls of that kind that
/// have not been answered.
pub(crate) fn refuse_replies(link: &Arc<Link>, process: &Arc<Process>) -> bool {
    let mut is_open = false;
    for (slot, index) in link.slots.iter().zip(0..) {
        if slot.state.load(Ordering::Acquire) != SlotState::ABANDONED {
            continue;
        }
        let reply = Slot::of(link.calls, index);
        let generation = slot.generation.load(Ordering::Acquire);
        if !reply.is_answered(&link.region, generation) {
            is_open = true;
            continue;
        }
        // The lock of its claims. It may have been claimed again meanwhile.
        let claims = link.lanes[(index / SLOTS_PER_LANE) as usize].lock();
        let is_still = slot.state.load(Ordering::Acquire) == SlotState::ABANDONED
            && slot.generation.load(Ordering::Acquire) == generation;
        if !is_still {
            continue;
        }
        if reply.is_plain(&link.region) {
            // Nothing is lost with it. Under the lock: a claim finds the slot free, or answered. Release: as in `call_slots::free`.
            slot.state.store(SlotState::FREE, Ordering::Release);
            continue;
        }
        // Relaxed: under the lock. No thread claims it meanwhile.
        slot.state.store(SlotState::REFUSED, Ordering::Relaxed);
        drop(claims);
        let is_over = refuse_outcome(link, process, index, generation);
        is_open |= !is_over;
        let state = match is_over {
            true => SlotState::FREE,
            false => SlotState::ABANDONED,
        };
        // Release: as in `call_slots::free`.
        slot.state.store(state, Ordering::Release);
    }
    is_open
}

#[cfg(test)]
mod tests;
