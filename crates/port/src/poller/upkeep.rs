//! The periodic work of a receiver: quiet lanes, load, waiters, the dead, the end.

use super::bells::{self, Foreigners};
use super::{Lane, Poller, clearing, pinned, waiting};
use crate::link::wake::wake_caller;
use crate::link::{Link, group, incoming};
use crate::request::Request;
use core::sync::atomic::Ordering;
use handfast_channel::{arm, bell};
use handfast_layout::bell::LINKS;
use handfast_layout::counters;
use handfast_layout::link::LANES;
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

/// A lane is looked at no longer, until it rings or is admitted.
pub(super) fn rest(poller: &mut Poller, key: Key) {
    poller.active.remove(key);
    rested(poller, key);
}

/// As [`upkeep::rest`], of one that is taken out of the list of active lanes otherwise.
pub(super) fn rested(poller: &mut Poller, key: Key) {
    if let Some(lane) = poller.lanes[key].as_mut() {
        poller.counts.taken += lane.count_for_link();
    }
}

/// Rule 1: leaves the request in its lane, tells its caller, stops polling.
#[cold]
pub(super) fn defer(poller: &mut Poller, key: Key) {
    rest(poller, key);
    poller.defers += 1;
    if let Some(lane) = &poller.lanes[key]
        && let Some((slot, generation)) = lane.waiting_slot()
    {
        slot.defer(&lane.link.region, generation);
    }
    publish_load(poller, true);
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

/// As [`upkeep::admit`], beside active lanes that are never found empty; the messages of waiting senders are taken in turn.
pub(super) fn fill_places(poller: &mut Poller) {
    let now_ns = clock::ticks_ns();
    while poller.rota.has_place()
        && let Some(admitted) = poller.rota.admit(now_ns)
    {
        activate(poller, admitted, now_ns);
    }
}

/// A waiter is polled from now on, and is woken if it waits for that alone. Whether it has a message.
fn activate(poller: &mut Poller, admitted: Admitted, now_ns: u64) -> bool {
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

/// Every few looks: arms lanes that have been quiet, follows changes of the process's lists,
/// publishes the load.
#[cold]
pub(super) fn check_quiet(poller: &mut Poller) {
    refresh(poller);
    // For `cpu::recent`, too.
    let here = cpu::current();
    let now_ns = clock::ticks_ns();
    if now_ns.saturating_sub(poller.looks.checked_ns) < QUIET_NS {
        return;
    }
    poller.looks.checked_ns = now_ns;
    publish_counts(poller);
    check_beside(poller, here);
    let is_one_of_many = poller.active.len() > 1;
    set_fenceless(poller, is_one_of_many);
    let mut active = core::mem::take(&mut poller.active);
    active.retain(|key| is_busy(poller, key, now_ns));
    poller.active = active;
    let overloaded = poller.rota.is_overloaded(now_ns);
    if overloaded || poller.clients.overloaded {
        publish_load(poller, overloaded);
    }
}

/// Whether an active lane goes on being looked at. It is armed if not.
fn is_busy(poller: &mut Poller, key: Key, now_ns: u64) -> bool {
    let Some(lane) = poller.lanes[key].as_mut() else {
        return false;
    };
    let position = lane.consumer.position();
    let moved = position.wrapping_sub(core::mem::replace(&mut lane.checked, position));
    let is_busy = moved != 0;
    let called = core::mem::take(&mut lane.called);
    if moved >= STREAM_MIN && !called && !lane.streaming && poller.process.may_ask {
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
    poller.rota.quiet(key, now_ns);
    rested(poller, key);
    false
}

/// If this thread and all its clients have one CPU between them, no client runs while it polls: a client that is not
/// woken does not run. All may be active then.
fn check_beside(poller: &mut Poller, here: u32) {
    if poller.pinned.is_some() {
        return;
    }
    let beside = poller.clients.cpu == here;
    poller.clients.beside = if beside {
        poller.clients.beside.wrapping_add(1)
    } else {
        0
    };
    let is_only = match poller.clients.beside % BESIDE {
        _ if !beside => false,
        0 => cpu::available() == 1,
        _ => poller.clients.shares_only_cpu,
    };
    if is_only != poller.clients.shares_only_cpu {
        poller.clients.shares_only_cpu = is_only;
        let all = LINKS as usize * LANES as usize;
        poller
            .rota
            .set_cap(if is_only { all } else { poller.clients.cap });
    }
}

/// With several clients a fence after each reply costs more than the whole rest of the work:
/// it waits until the reply's line has come from the client. While this is on, replies are
/// not fenced, and a client that is about to sleep makes this process pass a fence instead
/// (E11).
pub(super) fn set_fenceless(poller: &mut Poller, on: bool) {
    // On one CPU callers sleep for every call, and would ask for each fence.
    let on =
        on && poller.process.agreed && poller.pinned.is_none() && !poller.clients.shares_only_cpu;
    if on == poller.clients.fenceless {
        return;
    }
    poller.clients.fenceless = on;
    for group in &*poller.groups {
        bell::set_fenceless(&group.bells, poller.receiver, on);
    }
}

/// Publishes what was counted privately since the last time.
pub(super) fn publish_counts(poller: &mut Poller) {
    if pinned::counts_wait(poller) {
        return;
    }
    let counts = core::mem::take(&mut poller.counts);
    let tally = &poller.process.counting.tally;
    let receiver = poller.receiver;
    let mut total = counts.taken;
    // The others have been counted when they left.
    for key in poller.active.keys() {
        if let Some(lane) = poller.lanes[key].as_mut() {
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
    tally.store(counters::port_word(receiver, 11), poller.defers);
}

pub(super) fn publish_load(poller: &mut Poller, overloaded: bool) {
    if !overloaded && !poller.clients.overloaded {
        return;
    }
    poller.clients.overloaded = overloaded;
    for group in &*poller.groups {
        bell::publish_load(
            &group.bells,
            poller.receiver,
            overloaded,
            cpu::current(),
            OVERLOAD_SPIN_NS,
        );
    }
}

/// Follows new groups and dead links.
pub(crate) fn refresh(poller: &mut Poller) {
    let version = group::of(&poller.process).version();
    if version != poller.seen.groups {
        set_fenceless(poller, false);
        poller.seen.groups = version;
        // A copy: counting its owners would make receivers on different CPUs write to one line.
        poller.groups = group::of(&poller.process).all().iter().cloned().collect();
        pinned::forget_groups(poller);
        poller.foreign = Foreigners::of(&poller.groups);
    }
    let deaths = poller.process.deaths.load(Ordering::Acquire);
    if deaths != poller.seen.deaths || poller.clearing.has_left() {
        clearing::follow_deaths(poller, deaths);
    }
}

#[cold]
pub(super) fn poison(poller: &mut Poller, key: Key, fault: Fault) -> Option<Request> {
    poller.counts.faults += 1;
    if let Some(lane) = &poller.lanes[key] {
        lane.link.poison(fault);
    }
    // The rights of the message that is refused.
    poller.spare.clear();
    remove(poller, key);
    poller.looks.again = true;
    None
}

fn remove(poller: &mut Poller, key: Key) {
    poller.active.remove(key);
    waiting::stop_waiting(poller, key);
    forget(poller, key);
}

/// As [`upkeep::remove`], of a lane that the lists of active and sleeping ones have still. Whether it was there.
pub(super) fn forget(poller: &mut Poller, key: Key) -> bool {
    poller.rota.remove(key);
    let Some(mut lane) = poller.lanes[key].take() else {
        return false;
    };
    poller.counts.taken += lane.count();
    poller.free.push(key);
    true
}

/// Lets go of the lanes in which nothing comes any more: the keeper cannot while this thread goes on looking, and
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
    // Rings that no thread has heard, since the messages they announced have been taken.
    let groups = poller.groups.clone();
    let group = groups.iter().find(|group| Arc::ptr_eq(group, &link.group));
    let heard = group.and_then(|group| group.link(link.index));
    if let Some(heard) = heard.filter(|heard| Arc::ptr_eq(heard, link)) {
        bells::hear_link(poller, &heard);
    }
    let Some(key) = pinned::known_key(poller, link, index) else {
        return incoming::disown(link, index);
    };
    if poller.lanes[key].as_mut().is_some_and(|lane| !lane.arm()) {
        let rule = Rule::LaneReceiver;
        let offset = Place::of(link.calls.other(), index).polled();
        return Err(Fault { rule, offset });
    }
    poller.active.remove(key);
    waiting::stop_waiting(poller, key);
    poller.rota.remove(key);
    if let Some(mut lane) = poller.lanes[key].take() {
        for slot in lane.wakes.drain(..) {
            wake_caller(&lane.link, slot);
        }
        poller.free.push(key);
        poller.counts.taken += lane.count_for_link();
        if poller.passes_on {
            lane.consumer.passes_on(&link.region, false);
        }
        link.return_consumer(index, lane.consumer);
    }
    incoming::disown(link, index)
}

/// The port has moved: messages received from now on are passed on, and have not arrived by being received.
pub(crate) fn pass_on(poller: &mut Poller) {
    poller.passes_on = true;
    for lane in poller.lanes.iter().flatten() {
        lane.consumer.passes_on(&lane.link.region, true);
    }
}

/// Gives the lanes back, for a port bound at this receiver later, and answers every call
/// that waits in them as dead.
pub(crate) fn close(poller: &mut Poller) {
    // Lanes that no thread has looked at yet, too.
    refresh(poller);
    pinned::rests(poller, true);
    let _ = bells::anything_rang(poller);
    publish_counts(poller);
    for key in 0..poller.lanes.len() {
        let Some(mut lane) = poller.lanes[key].take() else {
            continue;
        };
        (poller.protocols).refuse_waiting(&poller.process, &lane.link, &mut lane.consumer);
        if poller.passes_on {
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
                poller.receiver,
            );
        }
        lane.link.return_consumer(lane.index, lane.consumer);
    }
    poller.active = Active::default();
    poller.waiting.clear();
    poller.rota = Rota::new(poller.clients.cap);
    (poller.lanes, poller.free) = (Vec::new(), Vec::new());
    // Threads that find the port before it leaves the list take up no lane any more.
    poller.is_closed = true;
}
