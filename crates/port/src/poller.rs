//! The receiving side of a port: which lanes it polls, in which order, and when it may sleep.
//!
//! One thread at a time holds the poller (it is behind a lock that is never held asleep). A sweep
//! takes what the bells say, polls the active lanes round robin, and admits waiters; the rota
//! (`handfast-proto`) decides who is active.

use crate::group::Group;
use crate::link::{Link, control};
use crate::message::Message;
use crate::process::Process;
use crate::request::{ReplyRight, Request};
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_channel::{arm, bell};
use handfast_layout::link::{Kind, LANES, REPLIES, SLOTS};
use handfast_layout::{bell as bell_layout, counters};
use handfast_proto::rota::{Admitted, Key, Rang, Rota, Verdict, Wake};
use handfast_region::Memory;
use handfast_ring::lane::{Consumer, Place};
use handfast_ring::{Fault, Rule};
use handfast_sys::{clock, cpu};
use handfast_wait::{Waiter, word};
use std::sync::Arc;

/// A lane this receiver has seen.
struct Lane {
    link: Arc<Link>,
    /// A count of `link` for the next request.
    spare: Option<Arc<Link>>,
    /// Position at which a lane whose link is down is left, whatever it still holds.
    end: Option<u32>,
    index: u32,
    consumer: Consumer,
    /// Messages taken since they were last published.
    taken: u64,
    /// Something came since the last quiet check.
    fresh: bool,
    /// Reply slots whose callers wait for their turn to be woken.
    wakes: Vec<Slot>,
}

/// Counts kept in private memory between two quiet checks.
#[derive(Default)]
struct Counts {
    calls: u64,
    sends: u64,
    bytes: u64,
}

pub(crate) struct Poller {
    receiver: u32,
    /// Index that messages name.
    port: u32,
    process: Arc<Process>,
    groups: Vec<Arc<Group>>,
    groups_version: u32,
    deaths: u32,
    lanes: Vec<Option<Lane>>,
    active: Vec<Key>,
    cursor: usize,
    rota: Rota,
    /// The lane whose message the last look found.
    found: Option<Key>,
    looks: u32,
    checked_ns: u64,
    overloaded: bool,
    /// Replies are not fenced at present; sleepers fence for us.
    fenceless: bool,
    /// Whether they can: this process is registered for the fences of others.
    may_be_fenceless: bool,
    /// CPU of the client served last.
    client_cpu: u32,
    cap: usize,
    pub(crate) waiter: Option<Box<Waiter>>,
    eager: bool,
    counts: Counts,
    pub(crate) defers: u64,
}

/// Looks between two readings of the clock for quiet lanes.
const LOOKS_PER_CHECK: u32 = 128;
/// A lane without a message for this long is armed and no longer polled.
const QUIET_NS: u64 = 20_000;
/// What an overloaded server asks its active clients to spin: longer than a sweep over all of
/// them takes.
const OVERLOAD_SPIN_NS: u32 = 20_000;

impl Poller {
    pub(crate) fn new((receiver, port): (u32, u32), process: Arc<Process>, waiter: Waiter) -> Self {
        let cap = (cpu::online() as usize).saturating_sub(1).max(1);
        Self {
            receiver,
            port,
            process,
            groups: Vec::new(),
            groups_version: u32::MAX,
            deaths: 0,
            lanes: Vec::new(),
            active: Vec::new(),
            cursor: 0,
            rota: Rota::new(cap),
            found: None,
            looks: 0,
            checked_ns: 0,
            overloaded: false,
            fenceless: false,
            may_be_fenceless: handfast_sys::futex::register_fence(),
            client_cpu: u32::MAX,
            cap,
            eager: waiter.is_eager(),
            waiter: Some(Box::new(waiter)),
            counts: Counts::default(),
            defers: 0,
        }
    }

    /// One sweep. `true` when a message waits to be taken with [`Self::take`].
    #[inline(always)]
    pub(crate) fn look(&mut self) -> bool {
        if self.found.is_some() {
            return true;
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_CHECK) {
            self.check_quiet();
        }
        for group in 0..self.groups.len() {
            if bell::rang(&self.groups[group].bells, self.receiver) {
                self.answer_bell(group);
            }
        }
        for step in 0..self.active.len() {
            let place = self.cursor + step;
            let place = if place >= self.active.len() {
                place - self.active.len()
            } else {
                place
            };
            let key = self.active[place];
            let Some(lane) = self.lanes[key].as_ref() else {
                continue;
            };
            if !lane.consumer.is_ready(&lane.link.region) {
                continue;
            }
            if self.rota.request(key, clock::ticks_ns) == Verdict::Defer {
                self.defer(place, key);
                // Positions have shifted; the next look starts anew.
                return self.admit();
            }
            self.cursor = if place + 1 >= self.active.len() {
                0
            } else {
                place + 1
            };
            if self.active.len() > 1
                && let Some(next) = self.lanes[self.active[self.cursor]].as_ref()
            {
                // The next lane's line comes while this one's message is worked on.
                next.consumer.prefetch(&next.link.region);
            }
            self.found = Some(key);
            return true;
        }
        if self.rota.waiting() > 0 {
            self.admit()
        } else {
            false
        }
    }

    /// Takes the message the last look found. `None` when its peer broke a rule or is gone, or when
    /// it was for a port that is no more; its caller has been answered then.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Request> {
        let key = self.found.take()?;
        let lane = self.lanes[key].as_mut()?;
        lane.fresh = true;
        let mut message = Message::new();
        let (header, len_bytes) = match lane.consumer.take(&lane.link.region, &mut message) {
            Ok(taken) => taken,
            Err(fault) => {
                self.poison(key, fault);
                return None;
            }
        };
        let is_call = header.kind == Kind::Call;
        if is_call && header.reply >= REPLIES {
            let offset = lane.consumer.place().head();
            let rule = Rule::ReplySlot;
            self.poison(key, Fault { rule, offset });
            return None;
        }
        lane.taken += 1;
        self.client_cpu = header.cpu;
        // Only a long message or a batch publishes the head; then a producer may wait.
        let place = lane.consumer.place();
        if lane.link.region.load(place.space(), Ordering::Relaxed) != word::AWAKE {
            lane.consumer.publish_head(&lane.link.region);
            arm::wake_producer(&lane.link.region, place);
        }
        self.counts.bytes += len_bytes as u64;
        self.counts.calls += u64::from(is_call);
        self.counts.sends += u64::from(!is_call);
        if is_call && let Some(reply) = message.reply() {
            *reply = Some(ReplyRight {
                link: lane.spare.take().unwrap_or_else(|| lane.link.clone()),
                index: header.reply,
                generation: header.generation,
                key: key as u32,
            });
        }
        if header.port != self.port {
            return refuse(message);
        }
        Some(Request::new(message))
    }

    /// Replaces the strategy.
    pub(crate) fn set_waiter(&mut self, waiter: Waiter) {
        self.eager = waiter.is_eager();
        self.waiter = Some(Box::new(waiter));
    }

    /// Whether to look a few hundred times before asking the strategy.
    #[inline]
    pub(crate) fn looks_first(&self) -> bool {
        self.eager && (self.client_cpu != cpu::recent() || self.active.len() > 1)
    }

    /// Publishes what was counted privately since the last time.
    fn publish_counts(&mut self) {
        let counts = core::mem::take(&mut self.counts);
        let tally = &self.process.tally;
        let receiver = self.receiver;
        let columns = [(3, counts.calls), (4, counts.sends), (6, counts.bytes)];
        for (column, amount) in columns {
            tally.add(counters::port_word(receiver, column), amount);
        }
        tally.store(counters::port_word(receiver, 11), self.defers);
        for lane in self.lanes.iter_mut().flatten() {
            let taken = core::mem::take(&mut lane.taken);
            if taken > 0 {
                tally.add(counters::link_word(lane.link.index, 3), taken);
            }
        }
    }

    /// Gives the link of an answered request back to its lane. Counting references up and down is
    /// two locked instructions a message; keeping one count at the lane is none.
    #[inline]
    pub(crate) fn give_back(&mut self, key: Key, link: Arc<Link>) {
        if let Some(lane) = self.lanes.get_mut(key).and_then(Option::as_mut)
            && Arc::ptr_eq(&lane.link, &link)
        {
            lane.spare = Some(link);
        }
    }

    /// Whether the one client being served runs on this thread's CPU.
    pub(crate) fn shares_processor(&self) -> bool {
        self.active.len() <= 1 && self.client_cpu == cpu::current()
    }

    /// Arms every lane and announces a sleep in every bell, then looks at everything once more.
    /// `false`: there is something, do not sleep.
    pub(crate) fn prepare_sleep(&mut self, how: u32) -> bool {
        self.refresh();
        if self.rota.waiting() > 0 {
            return false;
        }
        let now_ns = clock::ticks_ns();
        // The list shrinks under it, and may stop shrinking midway.
        self.cursor = 0;
        while let Some(key) = self.active.pop() {
            let Some(lane) = self.lanes[key].as_mut() else {
                continue;
            };
            if !arm::arm(&lane.link.region, &mut lane.consumer) {
                self.active.push(key);
                return false;
            }
            self.rota.quiet(key, now_ns);
        }
        self.publish_load(false);
        self.set_fenceless(false);
        self.publish_counts();
        for group in &self.groups {
            word::announce(
                &group.bells,
                bell_layout::bell(self.receiver) + bell_layout::SLEEP,
                how,
            );
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
        for group in &self.groups {
            word::withdraw(
                &group.bells,
                bell_layout::bell(self.receiver) + bell_layout::SLEEP,
            );
        }
    }

    /// The scan of the truth: each link's own ready word, which only its peer can clear, and what
    /// this process itself may have changed.
    fn anything_rang(&mut self) -> bool {
        let receiver = self.receiver;
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
        // Acquire: pairs with the Release of those who change the lists.
        !rang.is_empty()
            || self.process.groups_version.load(Ordering::Acquire) != self.groups_version
            || self.process.deaths.load(Ordering::Acquire) != self.deaths
    }

    /// The groups whose bells this receiver sleeps in.
    pub(crate) fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.clone()
    }

    /// The client of `key` slept when its reply was published: whether to wake it now.
    pub(crate) fn asleep_at_reply(&mut self, key: Key, link: &Arc<Link>, slot: Slot) -> bool {
        let Some(lane) = self.lanes.get_mut(key).and_then(Option::as_mut) else {
            return true;
        };
        if !Arc::ptr_eq(&lane.link, link) {
            return true;
        }
        let now_ns = clock::ticks_ns();
        match self.rota.asleep_at_reply(key, now_ns) {
            Wake::Now => {
                self.rota.woke(now_ns);
                true
            }
            Wake::Later => {
                lane.wakes.push(slot);
                self.drop_active(key);
                false
            }
        }
    }

    /// The client of `key` was awake when its reply was published.
    #[inline]
    pub(crate) fn awake_at_reply(&mut self, key: Key) {
        if self.lanes.get(key).is_some_and(Option::is_some) {
            self.rota.awake_at_reply(key);
        }
    }

    #[cold]
    fn answer_bell(&mut self, group: usize) {
        let mut links = Vec::new();
        bell::take(&self.groups[group].bells, self.receiver, |index| {
            links.push(index)
        });
        for index in links {
            self.answer_link(group, index);
        }
    }

    fn answer_link(&mut self, group: usize, index: u32) {
        let Some(link) = self.groups[group].link(index) else {
            return;
        };
        let mut lanes = Vec::new();
        let side = link.calls.other();
        bell::take_lanes(&link.region, side, self.receiver, |lane| lanes.push(lane));
        for lane in lanes {
            self.answer_lane(&link, lane);
        }
    }

    /// Rule 3 of the rota, for a lane that rang.
    fn answer_lane(&mut self, link: &Arc<Link>, index: u32) {
        let Some(key) = self.key_of(link, index) else {
            return;
        };
        let Some(lane) = self.lanes[key].as_mut() else {
            return;
        };
        let region = &link.region;
        let ready = lane.consumer.is_ready(region);
        let asleep = ready
            && lane.consumer.peek(region).is_ok_and(|(header, _)| {
                header.kind == Kind::Call
                    && header.reply < REPLIES
                    && Slot::of(link.calls.other(), header.reply).is_asleep(region)
            });
        lane.fresh = true;
        if self.rota.rang(key, clock::ticks_ns(), asleep) == Rang::Poll {
            arm::disarm(region, lane.consumer.place());
            self.active.push(key);
        }
    }

    /// The key of a lane, made known if it is new. `None`: it belongs to another receiver, which
    /// is a fault of the peer.
    fn key_of(&mut self, link: &Arc<Link>, index: u32) -> Option<Key> {
        let known = self.lanes.iter().position(|lane| {
            lane.as_ref()
                .is_some_and(|lane| lane.index == index && Arc::ptr_eq(&lane.link, link))
        });
        if known.is_some() {
            return known;
        }
        let owner = self.receiver as u8 + 1;
        // AcqRel: one receiver wins; nothing else is published.
        match link.owners[index as usize].compare_exchange(
            0,
            owner,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => {}
            // A port bound again at the same receiver takes the lanes over.
            Err(found) if found == owner => {}
            Err(_) => {
                let place = Place::of(link.calls.other(), index);
                link.poison(Fault {
                    rule: Rule::LaneReceiver,
                    offset: place.polled(),
                });
                return None;
            }
        }
        let consumer = link.take_consumer(index);
        let link = link.clone();
        let lane = Lane {
            link,
            spare: None,
            end: None,
            index,
            consumer,
            taken: 0,
            fresh: true,
            wakes: Vec::new(),
        };
        let key = self
            .lanes
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.lanes.len());
        if key == self.lanes.len() {
            self.lanes.push(None);
        }
        self.lanes[key] = Some(lane);
        self.rota.add(key);
        Some(key)
    }

    /// Rule 1: leaves the request in its lane, tells its caller, stops polling.
    #[cold]
    fn defer(&mut self, place: usize, key: Key) {
        self.active.remove(place);
        if self.cursor > place {
            self.cursor -= 1;
        }
        self.defers += 1;
        if let Some(lane) = &self.lanes[key]
            && let Ok((header, _)) = lane.consumer.peek(&lane.link.region)
            && header.kind == Kind::Call
            && header.reply < REPLIES
        {
            let slot = Slot::of(lane.link.calls.other(), header.reply);
            slot.defer(&lane.link.region, header.generation);
        }
        self.publish_load(true);
    }

    /// Rules 2 and 6: makes the oldest waiters active while there is room.
    #[cold]
    fn admit(&mut self) -> bool {
        let now_ns = clock::ticks_ns();
        while let Some(admitted) = self.rota.admit(now_ns) {
            let (Admitted::Request(key) | Admitted::Reply(key)) = admitted;
            let Some(lane) = self.lanes[key].as_mut() else {
                continue;
            };
            let region = &lane.link.region;
            for slot in lane.wakes.drain(..) {
                if wake_caller(&lane.link, slot) {
                    self.rota.woke(now_ns);
                }
            }
            arm::disarm(region, lane.consumer.place());
            let ready = lane.consumer.is_ready(region);
            lane.fresh = true;
            self.active.push(key);
            if matches!(admitted, Admitted::Request(_)) && ready {
                self.found = Some(key);
                return true;
            }
        }
        false
    }

    /// Every few looks: arms lanes that have been quiet, follows changes of the process's lists,
    /// publishes the load.
    #[cold]
    fn check_quiet(&mut self) {
        self.refresh();
        // For `cpu::recent`.
        let _ = cpu::current();
        let now_ns = clock::ticks_ns();
        if now_ns.saturating_sub(self.checked_ns) < QUIET_NS {
            return;
        }
        self.checked_ns = now_ns;
        self.publish_counts();
        self.set_fenceless(self.active.len() > 1);
        let mut place = 0;
        while place < self.active.len() {
            let key = self.active[place];
            let Some(lane) = self.lanes[key].as_mut() else {
                self.active.remove(place);
                continue;
            };
            if core::mem::take(&mut lane.fresh) || !arm::arm(&lane.link.region, &mut lane.consumer)
            {
                place += 1;
                continue;
            }
            self.rota.quiet(key, now_ns);
            self.active.remove(place);
        }
        self.cursor = 0;
        let overloaded = self.rota.is_overloaded(now_ns);
        if overloaded || self.overloaded {
            self.publish_load(overloaded);
        }
    }

    /// With several clients a fence after each reply costs more than the whole rest of the work:
    /// it waits until the reply's line has come from the client. While this is on, replies are
    /// not fenced, and a client that is about to sleep makes this process pass a fence instead
    /// (E11).
    fn set_fenceless(&mut self, on: bool) {
        let on = on && self.may_be_fenceless;
        if on == self.fenceless {
            return;
        }
        self.fenceless = on;
        for group in &self.groups {
            bell::set_fenceless(&group.bells, self.receiver, on);
        }
    }

    /// Whether the caller of [`Slot::is_asleep`] after a reply needs no fence.
    #[inline]
    pub(crate) fn is_fenceless(&self) -> bool {
        self.fenceless
    }

    fn publish_load(&mut self, overloaded: bool) {
        if !overloaded && !self.overloaded {
            return;
        }
        self.overloaded = overloaded;
        for group in &self.groups {
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
        // Acquire, twice: pairs with the Release of those who change the lists.
        let version = self.process.groups_version.load(Ordering::Acquire);
        if version != self.groups_version {
            self.set_fenceless(false);
            self.groups_version = version;
            self.groups = self.process.groups();
        }
        let deaths = self.process.deaths.load(Ordering::Acquire);
        if deaths != self.deaths {
            self.deaths = deaths;
            self.clear_out();
        }
    }

    /// Forgets the lanes of dead links, once their one-way messages have been received.
    #[cold]
    fn clear_out(&mut self) {
        for key in 0..self.lanes.len() {
            let Some(lane) = &mut self.lanes[key] else {
                continue;
            };
            if !lane.link.is_down() {
                continue;
            }
            // A lane holds so many messages at its peer's end and no more; a peer that was cut and
            // goes on writing is not listened to.
            let end = *lane
                .end
                .get_or_insert(lane.consumer.position().wrapping_add(SLOTS));
            if lane.consumer.position().wrapping_sub(end).cast_signed() >= 0 {
                self.remove(key);
                continue;
            }
            if lane.consumer.is_ready(&lane.link.region) && !self.rota.is_active(key) {
                // Messages of the dead are received like others; a lane that was out or waiting
                // becomes active for that.
                self.rota.remove(key);
                self.rota.add(key);
                let _ = self.rota.rang(key, clock::ticks_ns(), false);
                self.active.push(key);
            }
            if !lane.consumer.is_ready(&lane.link.region) {
                self.remove(key);
            } else {
                // Look again at the next opportunity.
                self.deaths = self.deaths.wrapping_sub(1);
            }
        }
    }

    fn poison(&mut self, key: Key, fault: Fault) {
        if let Some(lane) = &self.lanes[key] {
            lane.link.poison(fault);
        }
        self.remove(key);
    }

    fn remove(&mut self, key: Key) {
        self.drop_active(key);
        self.rota.remove(key);
        self.lanes[key] = None;
    }

    fn drop_active(&mut self, key: Key) {
        if let Some(place) = self.active.iter().position(|active| *active == key) {
            self.active.remove(place);
            self.cursor = 0;
        }
    }

    /// Gives the lanes back, for a port bound at this receiver later, and answers every call
    /// that waits in them as dead.
    pub(crate) fn close(&mut self) {
        self.publish_counts();
        for key in 0..self.lanes.len() {
            let Some(mut lane) = self.lanes[key].take() else {
                continue;
            };
            let region = &lane.link.region;
            let mut message = Message::new();
            for _ in 0..SLOTS {
                if !lane.consumer.is_ready(region) {
                    break;
                }
                match lane.consumer.take(region, &mut message) {
                    Ok((header, _)) if header.kind == Kind::Call && header.reply < REPLIES => {
                        let slot = Slot::of(lane.link.calls.other(), header.reply);
                        slot.answer(region, header.generation, Kind::DeadPort, 0, &[]);
                        wake_caller(&lane.link, slot);
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            for slot in lane.wakes.drain(..) {
                wake_caller(&lane.link, slot);
            }
            let _ = arm::arm(region, &mut lane.consumer);
            lane.link.return_consumer(lane.index, lane.consumer);
        }
        self.active.clear();
        self.rota = Rota::new(self.cap);
    }
}

/// Answers a message for a port that is no more.
#[cold]
fn refuse(mut message: Message) -> Option<Request> {
    if let Some(reply) = message.reply().and_then(Option::take) {
        reply.answer(Kind::DeadPort, &[]);
    }
    None
}

/// After a reply was published: wakes its caller if it sleeps. Returns whether it did.
#[inline]
pub(crate) fn wake_caller(link: &Link, slot: Slot) -> bool {
    let Some(how) = word::fence_then_taken(&link.region, slot.wait()) else {
        return false;
    };
    handfast_channel::stamp(&link.region, slot.stamp());
    if how == word::DESCRIPTOR {
        link.tell(control::RING, 0);
    } else {
        link.region.wake(slot.wait(), u32::MAX);
    }
    true
}

const _: () = assert!(
    LANES < 32 && bell_layout::RECEIVERS < 255,
    "both fit a byte, plus one"
);
