//! How a receiver lets go of the lanes of links that have ended: some at a time, however many there are.

use super::state::{Foreigners, PassesOn};
use super::{Lane, Poller, lane, load, pinned, places, rung, through};
use crate::link::introductions::Named;
use crate::link::wake::wake_caller;
use crate::link::{Link, group, incoming};
use crate::port::ports;
use crate::request::Received;
use core::sync::atomic::Ordering;
use handfast_layout::link::SLOTS;
use handfast_layout::part::is_handle;
use handfast_proto::rota::Key;
use handfast_proto::rota::Rang;
use handfast_proto::timers::Timer;
use handfast_ring::Fault;
use handfast_ring::Rule;
use handfast_ring::lane::Place;
use handfast_sys::clock;
use std::sync::Arc;

/// Lanes that are looked at in one go when links have ended.
const CLEAR_LANES: usize = 128;
/// How soon lanes of the dead are looked at again in which messages are left.
const CLEAR_AGAIN_NS: u64 = 1_000_000;
/// And after this multiple of the duration of the last look.
const CLEAR_SHARE: u64 = 8;

/// A look for the lanes of links that have ended.
#[derive(Default)]
pub(super) struct Clearing {
    /// How many links had ended when it began.
    links: u32,
    /// Lanes still to be looked at, and the last one that was.
    lanes: usize,
    next: Key,
    /// Some of the dead that were looked at have messages left; in the last look some had; and when they are looked at again.
    has_messages: bool,
    has_left: bool,
    again_ns: u64,
    /// How long this look has taken so far.
    took_ns: u64,
}

impl Clearing {
    /// There is one place more, which is as far from the last one that was looked at as the first of all.
    pub(super) const fn goes_on(&mut self) {
        if self.lanes > 0 {
            self.lanes += 1;
        }
    }

    /// The place that is looked at next, of so many.
    const fn step(&mut self, places: usize) -> Option<Key> {
        if self.lanes == 0 || places == 0 {
            self.lanes = 0;
            return None;
        }
        self.lanes -= 1;
        self.next = (self.next + 1) % places;
        Some(self.next)
    }

    /// The look is over. There is another one if messages are left: after a pause, so that most of the time is for messages.
    fn ends(&mut self, now_ns: u64) {
        let pause_ns = CLEAR_AGAIN_NS.max(CLEAR_SHARE * self.took_ns);
        self.has_left = core::mem::take(&mut self.has_messages);
        if self.has_left {
            self.again_ns = now_ns.saturating_add(pause_ns);
        }
    }

    /// Whether the last look has found messages, of which there may be some still.
    #[inline]
    pub(super) const fn has_left(&self) -> bool {
        self.has_left
    }
}

/// Links have ended: their lanes are looked for, some at a time, so that messages of others do not wait for a look at all. Not
/// at every look while messages of the dead are left.
#[cold]
pub(super) fn follow_deaths(poller: &mut Poller, deaths: u32) {
    let begun_ns = clock::ticks_ns();
    let is_new = poller.clearing.links != deaths;
    if is_new || !is_clearing(poller) {
        if begun_ns < poller.clearing.again_ns {
            return;
        }
        // Messages may wait for something that comes no more.
        poller.waiting.begin();
        pinned::forget_links(poller);
        // No other thread has seen these links: their contents are first heard of here. They are the next
        // port's, if this one is gone.
        let rung = (!poller.is_closed).then(|| ports::at(&poller.process, poller.receiver));
        for link in rung
            .flatten()
            .map(|port| port.at.take_rung())
            .unwrap_or_default()
        {
            rung::hear_link(poller, &link);
        }
        poller.clearing.links = deaths;
        // From where the last look ended: one that is begun again and again comes round, too.
        poller.clearing.lanes = poller.lanes.len();
        poller.clearing.took_ns = 0;
    }
    clear_out(poller);
    let then_ns = clock::ticks_ns();
    poller.clearing.took_ns += then_ns.saturating_sub(begun_ns);
    if is_clearing(poller) {
        return;
    }
    poller.clearing.ends(then_ns);
    poller.seen.deaths = deaths;
}

/// Whether what the peers of so many links may have left has been received, of the links that have ended so far.
pub(super) fn has_heard(poller: &Poller, links: u32) -> bool {
    if poller.clearing.links.wrapping_sub(links).cast_signed() < 0 {
        return false;
    }
    if !is_clearing(poller) && !poller.clearing.has_left {
        return true;
    }
    let is_before = |lane: &Lane| {
        let ended = lane.link.life.ended_at();
        ended.is_some_and(|ended| links.wrapping_sub(ended).cast_signed() >= 0)
    };
    let mut lanes = poller.lanes.iter().flatten();
    !lanes.any(|lane| is_before(lane) && lane.consumer.is_ready(&lane.link.region))
}

/// Whether messages of the dead are left that do not wait for a right: those that do are looked at again in time.
pub(super) fn has_left(poller: &Poller) -> bool {
    let is_left = |lane: &Lane| lane.link.is_down() && !lane.waits;
    poller.clearing.has_left && poller.lanes.iter().flatten().any(is_left)
}

/// Whether there may be messages in lanes of links that have ended: some of the remaining lanes have been looked at now.
#[inline]
pub(crate) fn goes_on_clearing(poller: &mut Poller) -> bool {
    let is_clearing = is_clearing(poller);
    if is_clearing {
        refresh(poller);
    }
    is_clearing
}

/// Whether lanes are left to be looked at since links have ended: a thread that would sleep goes on first.
pub(super) const fn is_clearing(poller: &Poller) -> bool {
    poller.clearing.lanes > 0
}

/// Forgets the lanes of dead links among the next ones, once their one-way messages have been received.
fn clear_out(poller: &mut Poller) {
    let mut have_gone = false;
    for _ in 0..CLEAR_LANES {
        let Some(key) = poller.clearing.step(poller.lanes.len()) else {
            break;
        };
        have_gone |= clear(poller, key);
    }
    if have_gone {
        // In one go: a dead user's lanes may be thousands.
        let lanes = &poller.lanes;
        poller.active.retain(|key| lanes[key].is_some());
        poller.waiting.retain(|key| lanes[key].is_some());
    }
}

/// Forgets a lane if its link has ended and nothing is left in it. Whether it was there.
fn clear(poller: &mut Poller, key: Key) -> bool {
    let Some(Some(lane)) = poller.lanes.get_mut(key) else {
        return false;
    };
    // A box kept for the next message would keep a dead caller's link.
    let is_down = |passed: &mut Box<Received>| {
        let reply = passed.reply_slot();
        reply.is_some_and(|reply| reply.link.is_down())
    };
    drop(lane.passed.take_if(is_down));
    if !lane.link.is_down() {
        return false;
    }
    // A lane holds so many messages at its peer's end and no more; a peer that was cut and goes on writing is not
    // listened to.
    let position = lane.consumer.position();
    let end = *lane.end.get_or_insert(position.wrapping_add(SLOTS));
    let is_over = position.wrapping_sub(end).cast_signed() >= 0;
    // The rights of a link that was cut have ended.
    if lane.link.is_cut() || is_over || !lane.consumer.is_ready(&lane.link.region) {
        return places::forget(poller, key);
    }
    poller.clearing.has_messages = true;
    if !lane.waits && !poller.rota.is_active(key) {
        // Messages of the dead are received like others; a lane that was out becomes active for that, and one that waits
        // has its turn.
        let user = lane.link.peer.uid;
        if poller.rota.rang(key, clock::ticks_ns(), false) == Rang::Poll {
            poller.active.push(user, key);
        }
    }
    false
}

/// Hears rings of a link that no thread has heard, if the link is in the lists still.
fn hear_last(poller: &mut Poller, link: &Arc<Link>) {
    let groups = poller.groups.clone();
    let group = groups.iter().find(|group| Arc::ptr_eq(group, &link.group));
    let heard = group.and_then(|group| group.link(link.index));
    if let Some(heard) = heard.filter(|heard| Arc::ptr_eq(heard, link)) {
        rung::hear_link(poller, &heard);
    }
}

/// Takes what came for ports that were here before this one, up to the first message for this one: the room that it
/// takes is this one's. A message in each place at the most.
pub(crate) fn take_dead(poller: &mut Poller, link: &Arc<Link>) {
    refresh(poller);
    hear_last(poller, link);
    for key in 0..poller.lanes.len() {
        for _ in 0..SLOTS {
            if !is_for_dead(poller, key, link) {
                break;
            }
            // A peer that makes another message of it meanwhile loses that.
            drop(poller.take(key));
            poller.look_again();
        }
        places::rested(poller, key);
    }
}

/// Whether the next message of a lane is for a port that is gone.
fn is_for_dead(poller: &Poller, key: Key, link: &Arc<Link>) -> bool {
    let Some(lane) = &poller.lanes[key] else {
        return false;
    };
    let is_dead = |port| match poller.named(link, port, 0) {
        Named::To(target) => {
            target.port != poller.port
                && through::beside(&poller.process, poller.receiver, target.port).is_none()
        }
        Named::Trail(port) => port != poller.port,
        Named::Dead => true,
        _ => false,
    };
    Arc::ptr_eq(&lane.link, link)
        && lane.consumer.is_ready(&link.region)
        && (lane.consumer.peek(&link.region))
            .is_ok_and(|(header, _)| is_handle(header.port) && is_dead(header.port))
}

/// Says in the lanes of a link, or of all, what has been taken.
pub(crate) fn publish_heads(poller: &mut Poller, of: Option<&Arc<Link>>) {
    let is_of = |lane: &Lane| of.is_none_or(|link| Arc::ptr_eq(&lane.link, link));
    let lanes = poller.lanes.iter_mut().flatten();
    for lane in lanes.filter(|lane| is_of(lane)) {
        if lane.consumer.publish_head(&lane.link.region) {
            lane::wake_for_room(&lane.link, lane.consumer.place());
        }
    }
}

/// How soon the control thread looks which lanes have been left.
pub(super) const LEFT_NS: u64 = 1_000;

/// Follows new groups and dead links.
pub(crate) fn refresh(poller: &mut Poller) {
    let version = group::of(&poller.process).version();
    if version != poller.seen.groups {
        load::set_fenceless(poller, false);
        poller.seen.groups = version;
        // A copy: counting its owners would make receivers on different CPUs write to one line.
        poller.groups = group::of(&poller.process).all().iter().cloned().collect();
        pinned::forget_groups(poller);
        poller.foreign = Foreigners::of(&poller.groups);
    }
    let deaths = poller.process.deaths.load(Ordering::Acquire);
    if deaths != poller.seen.deaths || poller.clearing.has_left() {
        follow_deaths(poller, deaths);
    }
}

/// Lets go of the lanes in which nothing comes any more: the control thread cannot while this thread goes on looking, and
/// finds next that no receiver has them.
#[cold]
pub(super) fn leave_lanes(poller: &mut Poller) {
    let links: Vec<_> = (poller.groups.iter().flat_map(|group| group.all_links())).collect();
    for (_, link) in &links {
        for lane in link.incoming.leaving() {
            if link.incoming.owner(lane) != Some(poller.receiver) {
                continue;
            }
            if let Err(fault) = leave_lane(poller, link, lane) {
                link.poison(fault);
                poller.process.attention.raise();
            }
            poller.process.schedule_in(Timer::FreedLanes, LEFT_NS);
        }
    }
}

/// Nothing comes any more in a lane of this receiver's: the lane is another's from now on.
pub(crate) fn leave_lane(poller: &mut Poller, link: &Arc<Link>, index: u32) -> Result<(), Fault> {
    if link.is_down() {
        // Its lanes go with it, and its fault has been told.
        return Ok(());
    }
    refresh(poller);
    // The messages that they announced have been taken.
    hear_last(poller, link);
    let Some(key) = pinned::known_key(poller, link, index) else {
        return incoming::disown(link, index);
    };
    if poller.lanes[key].as_mut().is_some_and(|lane| !lane.arm()) {
        let rule = Rule::LaneReceiver;
        let offset = Place::of(link.calls.other(), index).polled();
        return Err(Fault { rule, offset });
    }
    poller.active.remove(key);
    places::stop_waiting(poller, key);
    poller.rota.remove(key);
    if let Some(mut lane) = poller.lanes[key].take() {
        for slot in lane.wakes.drain(..) {
            wake_caller(&lane.link, slot);
        }
        poller.free.push(key);
        poller.counts.taken += lane.count_for_link();
        if poller.passes_on != PassesOn::Nothing {
            lane.consumer.passes_on(&link.region, false);
        }
        link.return_consumer(index, lane.consumer);
    }
    incoming::disown(link, index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_for_the_dead_take_a_ninth_of_the_time_at_most_while_messages_are_left() {
        let mut clearing = Clearing::default();
        clearing.ends(1_000);
        assert!(!clearing.has_left());
        assert_eq!(
            clearing.again_ns, 0,
            "nothing is left: the next death is looked for at once"
        );
        for (took_ns, pause_ns) in [(10, CLEAR_AGAIN_NS), (CLEAR_AGAIN_NS, 8 * CLEAR_AGAIN_NS)] {
            (clearing.has_messages, clearing.took_ns) = (true, took_ns);
            clearing.ends(1_000);
            assert!(clearing.has_left());
            assert_eq!(clearing.again_ns, 1_000 + pause_ns);
        }
    }

    #[test]
    fn a_look_for_the_dead_comes_to_all_places_also_while_others_are_added() {
        for added_after in 0..10 {
            let mut clearing = Clearing {
                lanes: 5,
                next: 3,
                ..Clearing::default()
            };
            let (mut places, mut seen) = (5, Vec::new());
            for step in 0.. {
                if step == added_after && clearing.lanes > 0 {
                    places += 1;
                    clearing.goes_on();
                }
                match clearing.step(places) {
                    Some(key) => seen.push(key),
                    None => break,
                }
            }
            assert!(
                (0..5).all(|key| seen.contains(&key)),
                "{added_after}: {seen:?}"
            );
        }
    }
}
