//! How lanes become active, and how the receiver goes to sleep.

use super::{Lane, Poller};
use crate::link::Link;
use crate::link::group;
use crate::link::group::Group;
use crate::link::hearing::Hearing;
use crate::link::incoming;
use crate::link::untouched;
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

impl Poller {
    /// Every few looks, whatever the lanes hold: the bells, and now and then the upkeep.
    #[cold]
    pub(super) fn look_around(&mut self) {
        if self.looks.count.is_multiple_of(LOOKS_PER_CHECK) {
            self.check_quiet();
        } else {
            // A look may take as long as its message: the dead do not wait for so many.
            self.refresh();
        }
        // Acquire: pairs with the Release of the keeper, which does this itself where no thread looks.
        let leavings = self.process.leavings.load(Ordering::Acquire);
        if leavings != self.seen.leavings {
            self.seen.leavings = leavings;
            self.leave_lanes();
        }
        self.hear();
        self.hear_foreign();
        if self.rota.has_place() {
            self.fill_places();
        }
        self.look_at_waiting();
    }

    /// Looks at some links with other users, in turn: they ring there and nowhere else. Users come in turn, too.
    fn hear_foreign(&mut self) {
        for _ in 0..self.foreign.turns {
            let Some((place, first)) = self.foreign.groups.pop_front() else {
                return;
            };
            // Each link of a crowd may be another user's.
            let links = match self.groups[place].uid {
                Some(_) => self.foreign.links,
                None => FOREIGN_LINKS_PER_LOOK,
            };
            let next = self.hear_some(place, first, links);
            self.foreign.groups.push_back((place, next.unwrap_or(0)));
        }
    }

    /// Looks at all links with other users.
    pub(crate) fn hear_foreign_all(&mut self) {
        for place in 0..self.groups.len() {
            if self.groups[place].is_foreign {
                self.hear_some(place, 0, u32::MAX);
            }
        }
    }

    fn hear_some(&mut self, group: usize, first: u32, count: u32) -> Option<u32> {
        let receiver = self.receiver;
        let has_rung = |link: &Link| bell::link_rang(&link.region, link.calls.other(), receiver);
        let (rang, next) = self.groups[group].some_links(first, count, has_rung);
        for index in rang {
            self.answer_link(group, index);
        }
        next
    }

    /// Answers the bells that rang; whether any did.
    #[inline]
    pub(super) fn hear(&mut self) -> bool {
        let mut heard = false;
        for group in 0..self.groups.len() {
            if self.groups[group].is_foreign {
                continue;
            }
            if bell::rang(&self.groups[group].bells, self.receiver) {
                self.answer_bell(group);
                heard = true;
            }
        }
        heard
    }

    /// Arms every lane and announces a sleep in every bell, then looks at everything once more.
    /// `false`: there is something, do not sleep.
    pub(crate) fn prepare_sleep(&mut self, how: u32) -> bool {
        self.refresh();
        // The waiting lanes may be due by now.
        if self.is_clearing() || self.look_at_waiting() || self.rota.waiting() > 0 {
            return false;
        }
        let now_ns = clock::ticks_ns();
        // The list shrinks under it, and may stop shrinking midway.
        while let Some(key) = self.active.pop() {
            let Some(lane) = self.lanes[key].as_mut() else {
                continue;
            };
            let user = lane.link.peer.uid;
            if !lane.arm() {
                self.active.push(user, key);
                return false;
            }
            self.rota.quiet(key, now_ns);
            self.rested(key);
        }
        self.publish_load(false);
        self.set_fenceless(false);
        self.rests(how == word::DESCRIPTOR);
        self.publish_counts();
        for group in &*self.groups {
            group.announce(self.receiver, how);
        }
        if self.anything_rang() {
            self.withdraw();
            return false;
        }
        self.rota.slept();
        true
    }

    /// Takes the announcements back.
    pub(crate) fn withdraw(&mut self) {
        if !self.waiting.is_empty() {
            self.wakes();
        }
        for group in &*self.groups {
            word::withdraw(&group.bells, Group::sleep(self.receiver));
        }
        self.hear_foreign_all();
    }

    /// Whether all lanes are armed, and none waits for its turn: they were empty when they were armed, but for the waiting ones, and a
    /// post rings.
    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty() && self.rota.waiting() == 0 && !self.is_clearing()
    }

    /// Whether nothing has rung since the receiver was prepared to sleep: its lanes have been empty since, but for the waiting ones.
    pub(super) fn still_sleeps(&mut self) -> bool {
        let sleep = Group::sleep(self.receiver);
        // Relaxed: what is posted at this moment is no older than this look.
        let stands = |group: &Arc<Group>| group.bells.load(sleep, Ordering::Relaxed) != word::AWAKE;
        // Processes of other users take no announcement.
        self.is_idle()
            && self.groups.iter().all(stands)
            && !self.any_link_rang()
            && !self.has_left()
            && !self.have_lists_changed()
    }

    /// The scan of the truth: each link's own ready word, which only its peer can clear, and what
    /// this process itself may have changed.
    pub(super) fn anything_rang(&mut self) -> bool {
        self.any_link_rang() || self.has_news()
    }

    fn any_link_rang(&mut self) -> bool {
        let receiver = self.receiver;
        if self.pinned.is_some() {
            return self.any_known_rang();
        }
        let mut rang = Vec::new();
        for (place, group) in self.groups.iter().enumerate() {
            let found = group
                .any_link(|_, link| bell::link_rang(&link.region, link.calls.other(), receiver));
            if let Some(index) = found {
                rang.push((place, index));
            }
        }
        for (group, index) in &rang {
            self.answer_link(*group, *index);
        }
        !rang.is_empty()
    }

    /// Whether there is something to receive or to follow besides messages.
    fn has_news(&self) -> bool {
        self.has_notice()
            || self.has_left()
            || self.is_settled()
            || self.have_lists_changed()
            // Behind the count of nudges that the caller has read: a shutdown says so, and nudges after that.
            || self.process.is_over()
    }

    /// Whether links have come to other groups, or have ended.
    fn have_lists_changed(&self) -> bool {
        // Acquire: pairs with the Release of the threads that change the lists.
        group::of(&self.process).version() != self.seen.groups
            || self.process.deaths.load(Ordering::Acquire) != self.seen.deaths
    }

    /// Takes up the lanes of all links that rang, whatever the bells say.
    pub(crate) fn hear_all(&mut self) {
        let mut rang = Vec::new();
        for (place, group) in self.groups.iter().enumerate() {
            let _ = group.any_link(|index, link| {
                if bell::link_rang(&link.region, link.calls.other(), self.receiver) {
                    rang.push((place, index));
                }
                false
            });
        }
        for (group, index) in rang {
            self.answer_link(group, index);
        }
    }

    /// The groups whose bells this receiver sleeps in.
    pub(crate) fn groups(&self) -> Arc<[Arc<Group>]> {
        self.groups.clone()
    }

    #[cold]
    fn answer_bell(&mut self, group: usize) {
        let (groups, receiver) = (self.groups.clone(), self.receiver);
        bell::take(&groups[group].bells, receiver, |index| {
            self.answer_link(group, index);
        });
    }

    pub(super) fn answer_link(&mut self, group: usize, index: u32) {
        if self.pinned.is_some() && self.answer_known(group, index) {
            return;
        }
        if let Some(link) = self.groups[group].link(index) {
            self.hear_link(&link);
        }
    }

    /// Takes up the lanes of a link that rang.
    pub(crate) fn hear_link(&mut self, link: &Hearing) {
        if link.is_cut() || self.is_closed {
            // Its lanes have been forgotten, and where they were; or the rings are another's to hear.
            return;
        }
        let (side, receiver) = (link.calls.other(), self.receiver);
        bell::take_lanes(&link.region, side, receiver, |lane| {
            self.answer_lane(link, lane);
        });
    }

    /// Rule 3 of the rota, for a lane that rang.
    pub(super) fn answer_lane(&mut self, link: &Hearing, index: u32) {
        if let Some(key) = self.key_of(link, index) {
            self.answer_key(key);
        }
    }

    /// As [`Self::answer_lane`], for one that is known.
    pub(super) fn answer_key(&mut self, key: Key) {
        let Some(lane) = self.lanes[key].as_mut() else {
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
        if self.rota.rang(key, clock::ticks_ns(), asleep) == Rang::Poll {
            arm::disarm(region, lane.consumer.place());
            self.active.push(link.peer.uid, key);
        }
    }

    /// The key of a lane, made known if it is new. `None`: it belongs to another receiver, which
    /// is a fault of the peer.
    fn key_of(&mut self, link: &Hearing, index: u32) -> Option<Key> {
        let noted: Key = link.incoming.key(index);
        let lane = self.lanes.get(noted).and_then(Option::as_ref);
        if lane.is_some_and(|lane| lane.index == index && Arc::ptr_eq(&lane.link, link)) {
            return Some(noted);
        }
        // Before anything there is looked at.
        if !link.has_lane(index) {
            self.counts.faults += 1;
            link.poison(untouched(link.calls.other().lane(index)));
            return None;
        }
        if !incoming::leads_to(link, index, self.receiver) {
            return None;
        }
        if !self.owns(link, index) {
            return None;
        }
        let consumer = link.take_consumer(index);
        if self.passes_on {
            consumer.passes_on(&link.region, true);
        }
        let lane = Lane::new(link.clone(), index, consumer);
        let key = self.free.pop().unwrap_or(self.lanes.len());
        if key == self.lanes.len() {
            self.lanes.push(None);
            self.clearing.goes_on();
        }
        lane.link.incoming.note_key(index, key);
        self.rota.add(key, lane.link.peer.uid);
        self.lanes[key] = Some(lane);
        Some(key)
    }

    /// Whether the lane is this receiver's, or becomes that now. One of another's is the peer's fault.
    fn owns(&mut self, link: &Hearing, index: u32) -> bool {
        let is_own = link.incoming.own(index, self.receiver);
        if !is_own {
            self.counts.faults += 1;
            let place = Place::of(link.calls.other(), index);
            link.poison(Fault {
                rule: Rule::LaneReceiver,
                offset: place.polled(),
            });
        }
        is_own
    }
}

#[cfg(test)]
mod tests {
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
        let slept = (0..16).any(|_| poller.prepare_sleep(word::ASLEEP));
        assert!(!slept);
        assert_eq!(at.handed(), handed, "nothing else would end the sleep");
    }
}
