//! Lanes that rang.

use super::state::PassesOn;
use super::{Lane, Poller};
use crate::link::hearing::Hearing;
use crate::link::{incoming, untouched};
use handfast_channel::arm;
use handfast_channel::bell;
use handfast_proto::rota::Key;
use handfast_proto::rota::Rang;
use handfast_ring::Fault;
use handfast_ring::Rule;
use handfast_ring::lane::Place;
use handfast_sys::clock;
use std::sync::Arc;

/// Takes up the lanes of a link that rang.
pub(crate) fn hear_link(poller: &mut Poller, link: &Hearing) {
    if link.is_cut() || poller.is_closed {
        // Its lanes have been forgotten, and where they were; or the rings are another's to hear.
        return;
    }
    let (side, receiver) = (link.calls.other(), poller.receiver);
    bell::take_lanes(&link.region, side, receiver, |lane| {
        answer_lane(poller, link, lane);
    });
}

/// Rule 3 of the rota, for a lane that rang.
pub(super) fn answer_lane(poller: &mut Poller, link: &Hearing, index: u32) {
    if let Some(key) = key_of(poller, link, index) {
        answer_key(poller, key);
    }
}

/// As [`answer_lane`], for one that is known.
pub(super) fn answer_key(poller: &mut Poller, key: Key) {
    let Some(lane) = poller.lanes[key].as_mut() else {
        return;
    };
    let link = &lane.link;
    let region = &link.region;
    let ready = lane.consumer.is_ready(region);
    let asleep = ready
        && lane
            .waiting_slot()
            .is_some_and(|(slot, _)| slot.is_asleep(region));
    lane.checked = lane.consumer.position().wrapping_sub(1);
    if poller.rota.rang(key, clock::ticks_ns(), asleep) == Rang::Poll {
        arm::disarm(region, lane.consumer.place());
        poller.active.push(link.peer.uid, key);
    }
}

/// The key of a lane, made known if it is new. `None`: it belongs to another receiver, which
/// is a fault of the peer.
pub(super) fn key_of(poller: &mut Poller, link: &Hearing, index: u32) -> Option<Key> {
    let noted: Key = link.incoming.key(index);
    let lane = poller.lanes.get(noted).and_then(Option::as_ref);
    if lane.is_some_and(|lane| lane.index == index && Arc::ptr_eq(&lane.link, link)) {
        return Some(noted);
    }
    // Before anything there is looked at.
    if !link.has_lane(index) {
        poller.counts.faults += 1;
        link.poison(untouched(link.calls.other().lane(index)));
        return None;
    }
    if !incoming::leads_to(link, index, poller.receiver) {
        return None;
    }
    if !owns(poller, link, index) {
        return None;
    }
    let consumer = link.take_consumer(index);
    if poller.passes_on == PassesOn::All {
        consumer.passes_on(&link.region, true);
    }
    let lane = Lane::new(link.clone(), index, consumer);
    let key = poller.free.pop().unwrap_or(poller.lanes.len());
    if key == poller.lanes.len() {
        poller.lanes.push(None);
        poller.clearing.goes_on();
    }
    lane.link.incoming.note_key(index, key);
    poller.rota.add(key, lane.link.peer.uid);
    poller.lanes[key] = Some(lane);
    Some(key)
}

/// Whether the lane is this receiver's, or becomes that now. One of another's is the peer's fault.
pub(super) fn owns(poller: &mut Poller, link: &Hearing, index: u32) -> bool {
    let is_own = link.incoming.own(index, poller.receiver);
    if !is_own {
        poller.counts.faults += 1;
        let place = Place::of(link.calls.other(), index);
        link.poison(Fault {
            rule: Rule::LaneReceiver,
            offset: place.polled(),
        });
    }
    is_own
}
