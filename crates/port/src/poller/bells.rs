//! How lanes become active, and how the receiver goes to sleep.

use super::{Lane, Poller, clearing, pinned, upkeep, waiting};
use crate::link::group::{self, Group};
use crate::link::hearing::Hearing;
use crate::link::{Link, incoming, untouched};
use core::sync::atomic::Ordering;
use handfast_channel::{arm, bell};
use handfast_proto::rota::{Key, Rang};
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_ring::{Fault, Rule};
use handfast_sys::clock;
use handfast_wait::word;
use std::collections::VecDeque;
use std::sync::Arc;

/// Links with other users that are looked at in one look at the bells.
const FOREIGN_LINKS_PER_LOOK: u32 = 8;
/// Looks between two readings of the clock for quiet lanes.
const LOOKS_PER_CHECK: u32 = 128;

/// The groups of other users, in turn.
#[derive(Default)]
pub(super) struct Foreigners {
    /// Where a group is in the list of all, and its link that is looked at next.
    groups: VecDeque<(usize, u32)>,
    /// In one look at the bells: groups, and links of each.
    turns: usize,
    links: u32,
}

impl Foreigners {
    pub(super) fn of(groups: &[Arc<Group>]) -> Self {
        let places = groups.iter().enumerate();
        let places = places.filter(|(_, group)| group.is_foreign);
        let groups: VecDeque<_> = places.map(|(place, _)| (place, 0)).collect();
        let turns = groups.len().min(FOREIGN_LINKS_PER_LOOK as usize);
        let links = FOREIGN_LINKS_PER_LOOK / turns.max(1) as u32;
        Self {
            groups,
            turns,
            links,
        }
    }
}

/// Every few looks, whatever the lanes hold: the bells, and now and then the upkeep.
#[cold]
pub(super) fn look_around(poller: &mut Poller) {
    if poller.looks.count.is_multiple_of(LOOKS_PER_CHECK) {
        upkeep::check_quiet(poller);
    } else {
        // A look may take as long as its message: the dead do not wait for so many.
        upkeep::refresh(poller);
    }
    // Acquire: pairs with the Release of the keeper, which does this itself where no thread looks.
    let leavings = poller.process.leavings.load(Ordering::Acquire);
    if leavings != poller.seen.leavings {
        poller.seen.leavings = leavings;
        upkeep::leave_lanes(poller);
    }
    hear(poller);
    hear_foreign(poller);
    if poller.rota.has_place() {
        upkeep::fill_places(poller);
    }
    waiting::look_at_waiting(poller);
}

/// Looks at some links with other users, in turn: they ring there and nowhere else. Users come in turn, too.
fn hear_foreign(poller: &mut Poller) {
    for _ in 0..poller.foreign.turns {
        let Some((place, first)) = poller.foreign.groups.pop_front() else {
            return;
        };
        // Each link of a crowd may be another user's.
        let links = match poller.groups[place].uid {
            Some(_) => poller.foreign.links,
            None => FOREIGN_LINKS_PER_LOOK,
        };
        let next = hear_some(poller, place, first, links);
        poller.foreign.groups.push_back((place, next.unwrap_or(0)));
    }
}

/// Looks at all links with other users.
pub(crate) fn hear_foreign_all(poller: &mut Poller) {
    for place in 0..poller.groups.len() {
        if poller.groups[place].is_foreign {
            hear_some(poller, place, 0, u32::MAX);
        }
    }
}

fn hear_some(poller: &mut Poller, group: usize, first: u32, count: u32) -> Option<u32> {
    let receiver = poller.receiver;
    let has_rung = |link: &Link| bell::link_rang(&link.region, link.calls.other(), receiver);
    let (rang, next) = poller.groups[group].some_links(first, count, has_rung);
    for index in rang {
        answer_link(poller, group, index);
    }
    next
}

/// Answers the bells that rang; whether any did.
#[inline]
pub(super) fn hear(poller: &mut Poller) -> bool {
    let mut heard = false;
    for group in 0..poller.groups.len() {
        if poller.groups[group].is_foreign {
            continue;
        }
        if bell::rang(&poller.groups[group].bells, poller.receiver) {
            answer_bell(poller, group);
            heard = true;
        }
    }
    heard
}

/// Arms every lane and announces a sleep in every bell, then looks at everything once more.
/// `false`: there is something, do not sleep.
pub(crate) fn prepare_sleep(poller: &mut Poller, how: u32) -> bool {
    upkeep::refresh(poller);
    // The waiting lanes may be due by now.
    if clearing::is_clearing(poller)
        || waiting::look_at_waiting(poller)
        || poller.rota.waiting() > 0
    {
        return false;
    }
    let now_ns = clock::ticks_ns();
    // The list shrinks under it, and may stop shrinking midway.
    while let Some(key) = poller.active.pop() {
        let Some(lane) = poller.lanes[key].as_mut() else {
            continue;
        };
        let user = lane.link.peer.uid;
        if !lane.arm() {
            poller.active.push(user, key);
            return false;
        }
        poller.rota.quiet(key, now_ns);
        upkeep::rested(poller, key);
    }
    upkeep::publish_load(poller, false);
    upkeep::set_fenceless(poller, false);
    pinned::rests(poller, how == word::DESCRIPTOR);
    upkeep::publish_counts(poller);
    for group in &*poller.groups {
        group.announce(poller.receiver, how);
    }
    if anything_rang(poller) {
        withdraw(poller);
        return false;
    }
    poller.rota.slept();
    true
}

/// Takes the announcements back.
pub(crate) fn withdraw(poller: &mut Poller) {
    if !poller.waiting.is_empty() {
        waiting::wakes(poller);
    }
    for group in &*poller.groups {
        word::withdraw(&group.bells, Group::sleep(poller.receiver));
    }
    hear_foreign_all(poller);
}

/// Whether all lanes are armed, and none waits for its turn: they were empty when they were armed, but for the waiting ones, and a
/// post rings.
pub(super) fn is_idle(poller: &Poller) -> bool {
    poller.active.is_empty() && poller.rota.waiting() == 0 && !clearing::is_clearing(poller)
}

/// Whether nothing has rung since the receiver was prepared to sleep: its lanes have been empty since, but for the waiting ones.
pub(super) fn still_sleeps(poller: &mut Poller) -> bool {
    let sleep = Group::sleep(poller.receiver);
    // Relaxed: what is posted at this moment is no older than this look.
    let stands = |group: &Arc<Group>| group.bells.load(sleep, Ordering::Relaxed) != word::AWAKE;
    // Processes of other users take no announcement.
    is_idle(poller)
        && poller.groups.iter().all(stands)
        && !any_link_rang(poller)
        && !clearing::has_left(poller)
        && !have_lists_changed(poller)
}

/// The scan of the truth: each link's own ready word, which only its peer can clear, and what
/// this process itself may have changed.
pub(super) fn anything_rang(poller: &mut Poller) -> bool {
    any_link_rang(poller) || has_news(poller)
}

fn any_link_rang(poller: &mut Poller) -> bool {
    let receiver = poller.receiver;
    if poller.pinned.is_some() {
        return pinned::any_known_rang(poller);
    }
    let mut rang = Vec::new();
    for (place, group) in poller.groups.iter().enumerate() {
        let found =
            group.any_link(|_, link| bell::link_rang(&link.region, link.calls.other(), receiver));
        if let Some(index) = found {
            rang.push((place, index));
        }
    }
    for (group, index) in &rang {
        answer_link(poller, *group, *index);
    }
    !rang.is_empty()
}

/// Whether there is something to receive or to follow besides messages.
fn has_news(poller: &Poller) -> bool {
    poller.has_notice()
        || clearing::has_left(poller)
        || waiting::is_settled(poller)
        || have_lists_changed(poller)
        // Behind the count of nudges that the caller has read: a shutdown says so, and nudges after that.
        || poller.process.is_over()
}

/// Whether links have come to other groups, or have ended.
fn have_lists_changed(poller: &Poller) -> bool {
    // Acquire: pairs with the Release of the threads that change the lists.
    group::of(&poller.process).version() != poller.seen.groups
        || poller.process.deaths.load(Ordering::Acquire) != poller.seen.deaths
}

/// Takes up the lanes of all links that rang, whatever the bells say.
pub(crate) fn hear_all(poller: &mut Poller) {
    let mut rang = Vec::new();
    for (place, group) in poller.groups.iter().enumerate() {
        let _ = group.any_link(|index, link| {
            if bell::link_rang(&link.region, link.calls.other(), poller.receiver) {
                rang.push((place, index));
            }
            false
        });
    }
    for (group, index) in rang {
        answer_link(poller, group, index);
    }
}

/// The groups whose bells this receiver sleeps in.
pub(crate) fn groups(poller: &Poller) -> Arc<[Arc<Group>]> {
    poller.groups.clone()
}

#[cold]
fn answer_bell(poller: &mut Poller, group: usize) {
    let (groups, receiver) = (poller.groups.clone(), poller.receiver);
    bell::take(&groups[group].bells, receiver, |index| {
        answer_link(poller, group, index);
    });
}

pub(super) fn answer_link(poller: &mut Poller, group: usize, index: u32) {
    if poller.pinned.is_some() && pinned::answer_known(poller, group, index) {
        return;
    }
    if let Some(link) = poller.groups[group].link(index) {
        hear_link(poller, &link);
    }
}

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

/// As [`bells::answer_lane`], for one that is known.
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
fn key_of(poller: &mut Poller, link: &Hearing, index: u32) -> Option<Key> {
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
    if poller.passes_on {
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
fn owns(poller: &mut Poller, link: &Hearing, index: u32) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use crate::polling;
    use handfast_wait::word;

    /// One that has counted the nudges after the last one of a shutdown, having looked before it.
    #[test]
    fn no_receiver_goes_to_sleep_once_its_node_is_shut_down() {
        let node = Node::builder().start().unwrap();
        let port = node.anonymous().unwrap();
        node.shutdown();
        let at = &port.port().at;
        let handed = at.handed();
        let mut poller = polling::lock(at);
        // The first looks follow what the shutdown has ended.
        let slept = (0..16).any(|_| prepare_sleep(&mut poller, word::ASLEEP));
        assert!(!slept);
        assert_eq!(at.handed(), handed, "nothing else would end the sleep");
    }
}
