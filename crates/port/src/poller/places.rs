//! Which lanes are polled: they rest, wait for a place, get one, or are forgotten.

use super::{Poller, load};
use crate::link::wake::wake_caller;
use crate::message::Message;
use crate::request::Request;
use handfast_channel::arm;
use handfast_proto::rota::Admitted;
use handfast_proto::rota::Key;
use handfast_ring::Fault;
use handfast_sys::clock;

/// A lane is looked at no longer, until it rings or is admitted.
pub(super) fn rest(poller: &mut Poller, key: Key) {
    poller.active.remove(key);
    rested(poller, key);
}

/// As [`rest`], of one that is taken out of the list of active lanes otherwise.
pub(super) fn rested(poller: &mut Poller, key: Key) {
    if let Some(lane) = poller.lanes[key].as_mut() {
        poller.counts.taken += lane.count_for_link();
    }
}

/// Rule 1: leaves the request in its lane, tells its caller, stops polling.
#[cold]
pub(super) fn defer(poller: &mut Poller, key: Key) {
    rest(poller, key);
    poller.counts.defers += 1;
    if let Some(lane) = &poller.lanes[key]
        && let Some((slot, generation)) = lane.waiting_slot()
    {
        slot.defer(&lane.link.region, generation);
    }
    load::publish_load(poller, true);
}

/// Rules 2 and 6: makes the oldest waiters active while there is room.
#[cold]
pub(super) fn admit(poller: &mut Poller) -> Option<Request> {
    let now_ns = clock::ticks_ns();
    while let Some(admitted) = poller.rota.admit(now_ns) {
        if activate(poller, admitted, now_ns)
            && let Admitted::Request(key) = admitted
        {
            match poller.take(key) {
                None if poller.has_parked() => {}
                taken => return taken,
            }
        }
    }
    None
}

/// As [`admit`], beside active lanes that are never found empty; the messages of waiting senders are taken in turn.
pub(super) fn fill_places(poller: &mut Poller) {
    let now_ns = clock::ticks_ns();
    while poller.rota.has_place()
        && let Some(admitted) = poller.rota.admit(now_ns)
    {
        activate(poller, admitted, now_ns);
    }
}

/// A waiter is polled from now on, and is woken if it waits for that alone. Whether it has a message.
pub(super) fn activate(poller: &mut Poller, admitted: Admitted, now_ns: u64) -> bool {
    let (Admitted::Request(key) | Admitted::Reply(key)) = admitted;
    let Some(lane) = poller.lanes[key].as_mut() else {
        return false;
    };
    let region = &lane.link.region;
    let mut woke = false;
    for slot in lane.wakes.drain(..) {
        if wake_caller(&lane.link, slot) {
            woke = true;
            poller.counts.wakes += 1;
            poller.rota.woke(key, now_ns);
        }
    }
    arm::disarm(region, lane.consumer.place());
    let ready = lane.consumer.is_ready(region);
    lane.checked = lane.consumer.position().wrapping_sub(1);
    if woke {
        lane.woke(now_ns);
    }
    poller.active.push(lane.link.peer.uid, key);
    ready
}

#[cold]
pub(super) fn poison(poller: &mut Poller, key: Key, fault: Fault) -> Option<Request> {
    poller.counts.faults += 1;
    if let Some(lane) = &poller.lanes[key] {
        lane.link.poison(fault);
    }
    // The rights of the message that is refused, whose ends wake those that are told of them: not under this lock.
    if poller.spare.has_rights()
        && let Some(lane) = &poller.lanes[key]
    {
        let refused = core::mem::replace(&mut poller.spare, Message::new());
        poller.process.users.free(lane.link.peer.uid, refused);
    }
    poller.spare.clear();
    remove(poller, key);
    poller.looks.again = true;
    None
}

pub(super) fn remove(poller: &mut Poller, key: Key) {
    poller.active.remove(key);
    stop_waiting(poller, key);
    forget(poller, key);
}

/// As [`remove`], of a lane that the lists of active and sleeping ones have still. Whether it was there.
pub(super) fn forget(poller: &mut Poller, key: Key) -> bool {
    poller.rota.remove(key);
    let Some(mut lane) = poller.lanes[key].take() else {
        return false;
    };
    poller.counts.taken += lane.count();
    poller.free.push(key);
    true
}

/// The first message of this lane waits. The lane is armed, so that it rings for later messages.
pub(super) fn park(poller: &mut Poller, key: Key, until_ns: u64) {
    poller.looks.parked = true;
    rest(poller, key);
    poller.rota.quiet(key, clock::ticks_ns());
    if let Some(lane) = poller.lanes[key].as_mut() {
        arm::leave_armed(&lane.link.region, lane.consumer.place());
        if !core::mem::replace(&mut lane.waits, true) {
            poller.waiting.push(key, until_ns);
        }
    }
}

/// The lane waits no more.
pub(super) fn stop_waiting(poller: &mut Poller, key: Key) {
    if poller.lanes[key].as_ref().is_some_and(|lane| lane.waits) {
        poller.waiting.retain(|waits| waits != key);
    }
}
