//! The periodic work of a receiver: quiet lanes, load, waiters, the dead, the end.

use super::bells::Foreigners;
use super::through::beside;
use super::{Lane, Poller, wake_for_room};
use crate::link::Link;
use crate::link::group;
use crate::link::incoming;
use crate::link::introductions::Named;
use crate::link::wake::wake_caller;
use crate::request::Request;
use core::sync::atomic::Ordering;
use handfast_channel::{arm, bell};
use handfast_layout::bell::LINKS;
use handfast_layout::counters;
use handfast_layout::link::{LANES, SLOTS};
use handfast_layout::part::is_handle;
use handfast_proto::rota::{Active, Admitted, Key, Rota};
use handfast_proto::timers::Timer;
use handfast_ring::lane::Place;
use handfast_ring::{Fault, Rule};
use handfast_sys::{clock, cpu};
use std::sync::Arc;

/// A lane without a message for this long is armed and no longer polled.
const QUIET_NS: u64 = 20_000;
/// One-way messages between two quiet checks that make a lane a stream: its producer need not fence
/// each, and arming it then costs a few microseconds.
const STREAM_MIN: u32 = 64;
/// A client that was woken keeps its place for so long before it is seen to run: the kernel may
/// let it wait for a processor. Giving the place away at once would wake ever more of them.
const WAKING_NS: u64 = 2_000_000;
/// How soon the keeper looks which lanes have been left.
const LEFT_NS: u64 = 1_000;
/// So many times in a row the client served last is found on the receiver's CPU before one asks whether it has others.
const BESIDE: u32 = 16;
/// How long an overloaded server asks its active clients to spin: longer than a sweep over all of them takes.
const OVERLOAD_SPIN_NS: u32 = 20_000;

impl Lane {
    /// Arms it. `false` when a message was there after all.
    pub(super) fn arm(&mut self) -> bool {
        if core::mem::take(&mut self.streaming) {
            return arm::arm_after_stream(&self.link.region, &mut self.consumer);
        }
        arm::arm(&self.link.region, &mut self.consumer)
    }

    /// Its client has been woken, and has not posted since.
    pub(super) fn woke(&mut self, now_ns: u64) {
        self.woken_ns = now_ns;
        self.checked = self.consumer.position();
    }

    /// As [`Self::count`], which the link's row says, too.
    fn count_for_link(&mut self) -> u64 {
        let taken = self.count();
        // The row of a link that has ended may be another's by now.
        if taken > 0 && !self.link.is_down() {
            self.link.row.add(3, taken);
        }
        taken
    }

    /// Messages taken since this was last asked.
    fn count(&mut self) -> u64 {
        let position = self.consumer.position();
        let taken = position.wrapping_sub(self.counted);
        self.counted = position;
        taken.into()
    }
}

impl Poller {
    /// A lane is looked at no longer, until it rings or is admitted.
    pub(super) fn rest(&mut self, key: Key) {
        self.active.remove(key);
        self.rested(key);
    }

    /// As [`Self::rest`], of one that is taken out of the list of active lanes otherwise.
    pub(super) fn rested(&mut self, key: Key) {
        if let Some(lane) = self.lanes[key].as_mut() {
            self.counts.taken += lane.count_for_link();
        }
    }

    /// Rule 1: leaves the request in its lane, tells its caller, stops polling.
    #[cold]
    pub(super) fn defer(&mut self, key: Key) {
        self.rest(key);
        self.defers += 1;
        if let Some(lane) = &self.lanes[key]
            && let Some((slot, generation)) = lane.waiting_slot()
        {
            slot.defer(&lane.link.region, generation);
        }
        self.publish_load(true);
    }

    /// Rules 2 and 6: makes the oldest waiters active while there is room.
    #[cold]
    pub(super) fn admit(&mut self) -> Option<Request> {
        let now_ns = clock::ticks_ns();
        while let Some(admitted) = self.rota.admit(now_ns) {
            if self.activate(admitted, now_ns)
                && let Admitted::Request(key) = admitted
            {
                match self.take(key) {
                    None if self.has_parked() => {}
                    taken => return taken,
                }
            }
        }
        None
    }

    /// As [`Self::admit`], beside active lanes that are never found empty; the messages of waiting senders are taken in turn.
    pub(super) fn fill_places(&mut self) {
        let now_ns = clock::ticks_ns();
        while self.rota.has_place()
            && let Some(admitted) = self.rota.admit(now_ns)
        {
            self.activate(admitted, now_ns);
        }
    }

    /// A waiter is polled from now on, and is woken if it waits for that alone. Whether it has a message.
    fn activate(&mut self, admitted: Admitted, now_ns: u64) -> bool {
        let (Admitted::Request(key) | Admitted::Reply(key)) = admitted;
        let Some(lane) = self.lanes[key].as_mut() else {
            return false;
        };
        let region = &lane.link.region;
        let mut woke = false;
        for slot in lane.wakes.drain(..) {
            if wake_caller(&lane.link, slot) {
                woke = true;
                self.counts.wakes += 1;
                self.rota.woke(key, now_ns);
            }
        }
        arm::disarm(region, lane.consumer.place());
        let ready = lane.consumer.is_ready(region);
        lane.checked = lane.consumer.position().wrapping_sub(1);
        if woke {
            lane.woke(now_ns);
        }
        self.active.push(lane.link.peer.uid, key);
        ready
    }

    /// Every few looks: arms lanes that have been quiet, follows changes of the process's lists,
    /// publishes the load.
    #[cold]
    pub(super) fn check_quiet(&mut self) {
        self.refresh();
        // For `cpu::recent`, too.
        let here = cpu::current();
        let now_ns = clock::ticks_ns();
        if now_ns.saturating_sub(self.looks.checked_ns) < QUIET_NS {
            return;
        }
        self.looks.checked_ns = now_ns;
        self.publish_counts();
        self.check_beside(here);
        self.set_fenceless(self.active.len() > 1);
        let mut active = core::mem::take(&mut self.active);
        active.retain(|key| self.is_busy(key, now_ns));
        self.active = active;
        let overloaded = self.rota.is_overloaded(now_ns);
        if overloaded || self.clients.overloaded {
            self.publish_load(overloaded);
        }
    }

    /// Whether an active lane goes on being looked at. It is armed if not.
    fn is_busy(&mut self, key: Key, now_ns: u64) -> bool {
        let Some(lane) = self.lanes[key].as_mut() else {
            return false;
        };
        let position = lane.consumer.position();
        let moved = position.wrapping_sub(core::mem::replace(&mut lane.checked, position));
        let is_busy = moved != 0;
        let called = core::mem::take(&mut lane.called);
        if moved >= STREAM_MIN && !called && !lane.streaming && self.process.may_ask {
            lane.streaming = true;
            arm::stream(&lane.link.region, lane.consumer.place());
        }
        if is_busy {
            lane.woken_ns = 0;
        }
        let is_waking = now_ns.saturating_sub(lane.woken_ns) < WAKING_NS;
        if is_busy || is_waking || !lane.arm() {
            return true;
        }
        self.rota.quiet(key, now_ns);
        self.rested(key);
        false
    }

    /// If this thread and all its clients have one CPU between them, no client runs while it polls: a client that is not
    /// woken does not run. All may be active then.
    fn check_beside(&mut self, here: u32) {
        if self.pinned.is_some() {
            return;
        }
        let beside = self.clients.cpu == here;
        self.clients.beside = if beside {
            self.clients.beside.wrapping_add(1)
        } else {
            0
        };
        let is_only = match self.clients.beside % BESIDE {
            _ if !beside => false,
            0 => cpu::available() == 1,
            _ => self.clients.shares_only_cpu,
        };
        if is_only != self.clients.shares_only_cpu {
            self.clients.shares_only_cpu = is_only;
            let all = LINKS as usize * LANES as usize;
            self.rota
                .set_cap(if is_only { all } else { self.clients.cap });
        }
    }

    /// With several clients a fence after each reply costs more than the whole rest of the work:
    /// it waits until the reply's line has come from the client. While this is on, replies are
    /// not fenced, and a client that is about to sleep makes this process pass a fence instead
    /// (E11).
    pub(super) fn set_fenceless(&mut self, on: bool) {
        // On one CPU callers sleep for every call, and would ask for each fence.
        let on =
            on && self.process.agreed && self.pinned.is_none() && !self.clients.shares_only_cpu;
        if on == self.clients.fenceless {
            return;
        }
        self.clients.fenceless = on;
        for group in &*self.groups {
            bell::set_fenceless(&group.bells, self.receiver, on);
        }
    }

    /// Publishes what was counted privately since the last time.
    pub(super) fn publish_counts(&mut self) {
        if self.counts_wait() {
            return;
        }
        let counts = core::mem::take(&mut self.counts);
        let tally = &self.process.counting.tally;
        let receiver = self.receiver;
        let mut total = counts.taken;
        // The others have been counted when they left.
        for key in self.active.keys() {
            if let Some(lane) = self.lanes[key].as_mut() {
                total += lane.count_for_link();
            }
        }
        let calls = total.saturating_sub(counts.sends + counts.said);
        let columns = [(3, calls), (4, counts.sends), (6, counts.bytes)];
        for (column, amount) in columns {
            tally.add(counters::port_word(receiver, column), amount);
        }
        let shared = [
            (counters::BYTES_OUT, counts.bytes_out),
            (counters::WAKES, counts.wakes),
            (counters::FAULTS, counts.faults),
        ];
        for (column, amount) in shared {
            if amount > 0 {
                tally.add_shared(counters::port_word(receiver, column), amount);
            }
        }
        tally.store(counters::port_word(receiver, 11), self.defers);
    }

    pub(super) fn publish_load(&mut self, overloaded: bool) {
        if !overloaded && !self.clients.overloaded {
            return;
        }
        self.clients.overloaded = overloaded;
        for group in &*self.groups {
            bell::publish_load(
                &group.bells,
                self.receiver,
                overloaded,
                cpu::current(),
                OVERLOAD_SPIN_NS,
            );
        }
    }

    /// Follows new groups and dead links.
    pub(crate) fn refresh(&mut self) {
        let version = group::of(&self.process).version();
        if version != self.seen.groups {
            self.set_fenceless(false);
            self.seen.groups = version;
            // A copy: counting its owners would make receivers on different CPUs write to one line.
            self.groups = group::of(&self.process).all().iter().cloned().collect();
            self.forget_groups();
            self.foreign = Foreigners::of(&self.groups);
        }
        let deaths = self.process.deaths.load(Ordering::Acquire);
        if deaths != self.seen.deaths || self.clearing.has_left() {
            self.follow_deaths(deaths);
        }
    }

    #[cold]
    pub(super) fn poison(&mut self, key: Key, fault: Fault) -> Option<Request> {
        self.counts.faults += 1;
        if let Some(lane) = &self.lanes[key] {
            lane.link.poison(fault);
        }
        // The rights of the message that is refused.
        self.spare.clear();
        self.remove(key);
        self.looks.again = true;
        None
    }

    fn remove(&mut self, key: Key) {
        self.active.remove(key);
        self.stop_waiting(key);
        self.forget(key);
    }

    /// As [`Self::remove`], of a lane that the lists of active and sleeping ones have still. Whether it was there.
    pub(super) fn forget(&mut self, key: Key) -> bool {
        self.rota.remove(key);
        let Some(mut lane) = self.lanes[key].take() else {
            return false;
        };
        self.counts.taken += lane.count();
        self.free.push(key);
        true
    }

    /// Takes what came for ports that were here before this one, up to the first message for this one: the room that it
    /// takes is this one's. A message in each place at the most.
    pub(crate) fn take_dead(&mut self, link: &Arc<Link>) {
        self.refresh();
        let groups = self.groups.clone();
        let group = groups.iter().find(|group| Arc::ptr_eq(group, &link.group));
        let heard = group.and_then(|group| group.link(link.index));
        if let Some(heard) = heard.filter(|heard| Arc::ptr_eq(heard, link)) {
            self.hear_link(&heard);
        }
        for key in 0..self.lanes.len() {
            for _ in 0..SLOTS {
                if !self.is_for_dead(key, link) {
                    break;
                }
                // A peer that makes another message of it meanwhile loses that.
                drop(self.take(key));
                self.look_again();
            }
            self.rested(key);
        }
    }

    /// Whether the next message of a lane is for a port that is gone.
    fn is_for_dead(&self, key: Key, link: &Arc<Link>) -> bool {
        let Some(lane) = &self.lanes[key] else {
            return false;
        };
        let is_dead = |port| match self.named(link, port, 0) {
            Named::To(target) => {
                target.port != self.port
                    && beside(&self.process, self.receiver, target.port).is_none()
            }
            Named::Trail(port) => port != self.port,
            Named::Dead => true,
            _ => false,
        };
        Arc::ptr_eq(&lane.link, link)
            && lane.consumer.is_ready(&link.region)
            && (lane.consumer.peek(&link.region))
                .is_ok_and(|(header, _)| is_handle(header.port) && is_dead(header.port))
    }

    /// Says in the lanes of a link, or of all, what has been taken.
    pub(crate) fn publish_heads(&mut self, of: Option<&Arc<Link>>) {
        let is_of = |lane: &Lane| of.is_none_or(|link| Arc::ptr_eq(&lane.link, link));
        let lanes = self.lanes.iter_mut().flatten();
        for lane in lanes.filter(|lane| is_of(lane)) {
            if lane.consumer.publish_head(&lane.link.region) {
                wake_for_room(&lane.link, lane.consumer.place());
            }
        }
    }

    /// Lets go of the lanes in which nothing comes any more: the keeper cannot while this thread goes on looking, and
    /// finds next that no receiver has them.
    #[cold]
    pub(super) fn leave_lanes(&mut self) {
        let links: Vec<_> = (self.groups.iter().flat_map(|group| group.all_links())).collect();
        for (_, link) in &links {
            for lane in link.incoming.leaving() {
                if link.incoming.owner(lane) != Some(self.receiver) {
                    continue;
                }
                if let Err(fault) = self.leave_lane(link, lane) {
                    link.poison(fault);
                    self.process.attention.raise();
                }
                self.process.schedule_in(Timer::FreedLanes, LEFT_NS);
            }
        }
    }

    /// Nothing comes any more in a lane of this receiver's: the lane is another's from now on.
    pub(crate) fn leave_lane(&mut self, link: &Arc<Link>, index: u32) -> Result<(), Fault> {
        if link.is_down() {
            // Its lanes go with it, and its fault has been told.
            return Ok(());
        }
        self.refresh();
        // Rings that no thread has heard, since the messages they announced have been taken.
        let groups = self.groups.clone();
        let group = groups.iter().find(|group| Arc::ptr_eq(group, &link.group));
        let heard = group.and_then(|group| group.link(link.index));
        if let Some(heard) = heard.filter(|heard| Arc::ptr_eq(heard, link)) {
            self.hear_link(&heard);
        }
        let Some(key) = self.known_key(link, index) else {
            return incoming::disown(link, index);
        };
        if self.lanes[key].as_mut().is_some_and(|lane| !lane.arm()) {
            let rule = Rule::LaneReceiver;
            let offset = Place::of(link.calls.other(), index).polled();
            return Err(Fault { rule, offset });
        }
        self.active.remove(key);
        self.stop_waiting(key);
        self.rota.remove(key);
        if let Some(mut lane) = self.lanes[key].take() {
            for slot in lane.wakes.drain(..) {
                wake_caller(&lane.link, slot);
            }
            self.free.push(key);
            self.counts.taken += lane.count_for_link();
            if self.passes_on {
                lane.consumer.passes_on(&link.region, false);
            }
            link.return_consumer(index, lane.consumer);
        }
        incoming::disown(link, index)
    }

    /// The port has moved: messages received from now on are passed on, and have not arrived by being received.
    pub(crate) fn pass_on(&mut self) {
        self.passes_on = true;
        for lane in self.lanes.iter().flatten() {
            lane.consumer.passes_on(&lane.link.region, true);
        }
    }

    /// Gives the lanes back, for a port bound at this receiver later, and answers every call
    /// that waits in them as dead.
    pub(crate) fn close(&mut self) {
        // Lanes that no thread has looked at yet, too.
        self.refresh();
        self.rests(true);
        let _ = self.anything_rang();
        self.publish_counts();
        for key in 0..self.lanes.len() {
            let Some(mut lane) = self.lanes[key].take() else {
                continue;
            };
            (self.protocols).refuse_waiting(&self.process, &lane.link, &mut lane.consumer);
            if self.passes_on {
                // No process has a right any more to the port that has moved.
                lane.consumer.passes_on(&lane.link.region, false);
            }
            for slot in lane.wakes.drain(..) {
                wake_caller(&lane.link, slot);
            }
            if !lane.arm() {
                // Messages that came meanwhile are still for this port. The keeper refuses them, or the next
                // port here does, which hears of them.
                arm::leave_armed(&lane.link.region, lane.consumer.place());
                bell::note(
                    &lane.link.region,
                    (lane.link.calls.other(), lane.index),
                    self.receiver,
                );
            }
            lane.link.return_consumer(lane.index, lane.consumer);
        }
        self.active = Active::default();
        self.waiting.clear();
        self.rota = Rota::new(self.clients.cap);
        (self.lanes, self.free) = (Vec::new(), Vec::new());
        // Threads that find the port before it leaves the list take up no lane any more.
        self.is_closed = true;
    }
}
