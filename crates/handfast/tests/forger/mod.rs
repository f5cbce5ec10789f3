//! A link made by hand: a peer that says and writes what it likes; and the honest process it says
//! that to.
#![allow(dead_code, reason = "each test binary uses a part of this")]

pub(crate) mod introductions;

use crate::common;
use handfast::Right;
use handfast::error::Rule;
use handfast_channel::bell;
use handfast_channel::reply::Slot;
use handfast_layout::control::{CONTROL_BYTES_MAX, ControlKind, ControlMessage};
use handfast_layout::hello::{Hello, WELCOME_BYTES, Welcome};
use handfast_layout::hello::{Process, process};
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::{
    Kind, LANE_BYTES, LANES, Meta, OWN_SET, REGION_BYTES, Side, UNIT_BYTES, arena_offset,
    passed_word, reply, slot, slot_of, slot_offset,
};
use handfast_layout::part::{Part, receiver_of};
use handfast_region::{Memory, Region};
use handfast_ring::lane::{Header, Place, Producer, Refused, Unit};
use handfast_sys::memory::{Access, Mapping};
use handfast_testing::forge::Packet;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The index that a link made by hand says it has at its maker.
pub(crate) const INDEX: u32 = 3;

/// An honest process: answers calls with what they say, keeps the rights that come, and when it is told
/// to `call`, says what a call through the last one of them brings.
pub(crate) fn honest(name: &str, first: Option<&str>) {
    common::say_cuts();
    let port = handfast::bind(name).unwrap();
    let first = first.map(|name| Right::from(handfast::connect(name).unwrap()));
    let kept = Mutex::new(Vec::from_iter(first));
    let kept = || kept.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let mut request = port.receive().unwrap();
                kept().extend(request.take_rights());
                if request.is_call() {
                    let bytes = request.bytes().to_vec();
                    // The caller may be gone by now.
                    let _ = request.reply(&bytes);
                }
            }
        });
        common::say("ready");
        while let Some(told) = common::told() {
            let last = |of: &Vec<Right>| match of.last() {
                Some(Right::Send(right)) => right.clone(),
                other => panic!("{other:?}"),
            };
            match told.as_str() {
                "call" => {
                    let right = last(&kept());
                    scope.spawn(move || {
                        let answer = right.call_timeout(b"ask", Duration::from_secs(5));
                        let answer =
                            answer.map(|answer| String::from_utf8_lossy(&answer).into_owned());
                        common::say(&format!("{answer:?}"));
                    });
                }
                "hurry" => {
                    let right = last(&kept());
                    for _ in 0..300 {
                        let _ = right.call_timeout(b"ask", Duration::from_millis(1));
                    }
                    common::say("hurried");
                }
                "pass on" => {
                    let to = last(&kept());
                    let first = kept().swap_remove(0);
                    let Right::Send(right) = &first else {
                        panic!("{first:?}");
                    };
                    to.with([right.clone().into()]).send(b"").unwrap();
                    *kept() = vec![first];
                    common::say("passed on");
                }
                _ => unreachable!("{told}"),
            }
        }
        std::process::exit(0);
    });
}

/// Starts an honest process.
pub(crate) fn start_honest(what: &str) -> (common::Child, String) {
    let name = common::name(what);
    let child = common::start("honest", &[&name]);
    child.expect("ready");
    (child, name)
}

/// The process says that it has cut a link for this rule.
pub(crate) fn expect_cut(child: &common::Child, rule: Rule, what: &str) {
    // Another thread than the one that has found it says so.
    let line = child.line_that(|line| line.starts_with(common::CUT));
    assert!(line.contains(rule.text()), "{what}: {line}");
}

/// An act that no honest peer does, by a name, and the rule it breaks.
pub(crate) type Forgery = (&'static str, fn(&mut Hand), Rule);

/// Each is refused with its rule, and the honest go on: `besides` looks after each.
pub(crate) fn refused_by_name(what: &str, forgeries: &[Forgery], besides: impl Fn(&str, u8)) {
    let (mut server, name) = start_honest(what);
    let honest = handfast::connect(&name).unwrap();
    for (number, (what, forge, rule)) in (0u8..).zip(forgeries) {
        let mut hand = Hand::new(&name, 100 + number);
        forge(&mut hand);
        expect_cut(&server, *rule, what);
        hand.expect_end();
        besides(&name, number);
        assert_eq!(&*honest.call(what.as_bytes()).unwrap(), what.as_bytes());
    }
    assert_eq!(server.said(), None);
    server.finish();
}

/// A right to a port of a process, of somebody who breaks no rule, works.
pub(crate) fn serves(name: &str) {
    let right = handfast::connect(name).unwrap();
    let answer = right.call_timeout(b"honest", common::PATIENCE).unwrap();
    assert_eq!(&*answer, b"honest");
}

/// Processor time that a process has used.
pub(crate) fn used(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    let per_second = rustix::param::clock_ticks_per_second();
    Duration::from_millis((ticks(11) + ticks(12)) * 1000 / per_second)
}

/// See the module text. It is the connector.
pub(crate) struct Hand {
    pub(crate) socket: OwnedFd,
    pub(crate) region: Arc<Region>,
    pub(crate) bells: Region,
    /// The first bytes of the two.
    addresses: [usize; 2],
    is_published: bool,
    pub(crate) welcome: Welcome,
    /// The process identity that it claims, with the number of this process.
    pub(crate) process: Process,
    /// The other process.
    pub(crate) peer: Process,
    lanes: Vec<Producer>,
    /// Calls taken from each lane of the other side.
    taken: [u32; LANES as usize],
    calls: u32,
}

impl Hand {
    pub(crate) fn new(name: &str, number: u8) -> Self {
        let bells = handfast_layout::bell::REGION_BYTES;
        let own = handfast_sys::memory::create_sealed("fake", bells).unwrap();
        let incarnation = common::incarnation(number);
        let hello = Hello::new(incarnation, name, INDEX, None).to_bytes();
        let mut linked = None;
        // Refused while what others had is on its way back.
        assert!(common::within_patience(|| {
            let socket = common::knock(name);
            handfast_sys::socket::send(&socket, &hello, &[own.as_fd()]).unwrap();
            let mut bytes = [0; WELCOME_BYTES];
            let (len_bytes, fds) = handfast_sys::socket::receive(&socket, &mut bytes, 2).unwrap();
            let welcome = Welcome::parse(&bytes[..len_bytes]).unwrap();
            let is_linked = fds.len() == 2;
            if !is_linked {
                println!("refused: {:?}", welcome.status);
            }
            linked = Some((socket, welcome, fds));
            is_linked
        }));
        let (socket, welcome, fds) = linked.unwrap();
        let peer = handfast_sys::socket::peer(&socket).unwrap();
        let map = |fd: &OwnedFd, len_bytes, access| Mapping::new(fd, len_bytes, access).unwrap();
        let region = map(&fds[0], REGION_BYTES, Access::ReadWrite);
        // Another user's bells are only looked at.
        let is_published = handfast_sys::shared::is_whole(&fds[1]).unwrap();
        let of_bells = match is_published {
            true => Access::Read,
            false => Access::ReadWrite,
        };
        let bells = map(&fds[1], bells, of_bells);
        common::take_offer(&socket, &fds[0]);
        Self {
            socket,
            addresses: [&region, &bells].map(|mapping| mapping.base().as_ptr() as usize),
            region: Arc::new(Region::mapped(region)),
            bells: Region::mapped(bells),
            is_published,
            welcome,
            process: process(incarnation, std::process::id()),
            peer: process(welcome.incarnation, peer.pid),
            lanes: (0..LANES)
                .map(|lane| Producer::new(Place::of(Side::Connector, lane)))
                .collect(),
            taken: [0; LANES as usize],
            calls: 0,
        }
    }

    /// Posts to the first lane, waits for room, and rings.
    pub(crate) fn post(&mut self, kind: Kind, words: (u32, u32, u32), body: (&[u8], &[Unit])) {
        let receiver = receiver_of(self.welcome.port);
        self.post_to((0, receiver), kind, words, body);
    }

    /// As [`Self::post`], to any lane, for any receiver.
    pub(crate) fn post_to(
        &mut self,
        (lane, receiver): (u32, u32),
        kind: Kind,
        (port, reply, generation): (u32, u32, u32),
        body: (&[u8], &[Unit]),
    ) {
        self.put(lane, (kind, port, reply, generation), body);
        self.ring(lane, receiver);
    }

    /// As [`Self::post`], to any lane, without a ring.
    pub(crate) fn put(
        &mut self,
        lane: u32,
        (kind, port, reply, generation): (Kind, u32, u32, u32),
        (bytes, units): (&[u8], &[Unit]),
    ) {
        let header = Header {
            kind,
            port,
            reply,
            generation,
            units: units.len() as u32,
            cpu: 0,
        };
        let (outgoing, region) = (&mut self.lanes[lane as usize], &*self.region);
        assert!(common::within_patience(|| loop {
            match outgoing.post_described(region, header, (bytes, units)) {
                Ok(()) => return true,
                Err(Refused::Full) => std::thread::yield_now(),
                Err(Refused::Fault(fault)) => panic!("{fault:?}"),
            }
            if handfast_sys::socket::is_closed(&self.socket) {
                return true;
            }
        }));
    }

    fn ring(&self, lane: u32, receiver: u32) {
        let at = (Side::Connector, lane);
        if self.is_published {
            let sleep = handfast_layout::bell::bell(receiver) + handfast_layout::bell::SLEEP;
            bell::note(&*self.region, at, receiver);
            self.bells.wake(sleep, u32::MAX);
            self.say(ControlMessage::Ring {
                receiver: receiver as u8,
            });
            return;
        }
        let asleep = bell::ring(&*self.region, &self.bells, at, receiver, self.welcome.link);
        if asleep.is_some() {
            let sleep = handfast_layout::bell::bell(receiver) + handfast_layout::bell::SLEEP;
            self.bells.wake(sleep, u32::MAX);
            // To one that sleeps in a descriptor.
            self.say(ControlMessage::Ring {
                receiver: receiver as u8,
            });
        }
    }

    /// A word of the link.
    pub(crate) fn word(&self, at: usize) -> *mut u32 {
        assert!(at + 4 <= REGION_BYTES);
        (self.addresses[0] + at) as *mut u32
    }

    /// The word in which the threads sleep that receive at the port.
    pub(crate) fn bell(&self) -> *mut u32 {
        let bell = handfast_layout::bell::bell(receiver_of(self.welcome.port));
        let at = bell + handfast_layout::bell::SLEEP;
        (self.addresses[1] + at) as *mut u32
    }

    /// Wakes whoever sleeps at the port, for nothing.
    pub(crate) fn wake(&self) {
        let bell = handfast_layout::bell::bell(receiver_of(self.welcome.port));
        let sleep = bell + handfast_layout::bell::SLEEP;
        if self.bells.swap(sleep, 0, SeqCst) != 0 {
            self.bells.wake(sleep, u32::MAX);
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], parts: &[Part]) {
        let units = units(parts);
        let port = self.welcome.handle;
        self.post(Kind::Message, (port, 0, 0), (bytes, &units));
    }

    /// Says something about introductions through the first right.
    pub(crate) fn tell(&mut self, said: LaneControl) {
        let port = self.welcome.handle;
        let word = passed_word(0, 0);
        self.post(Kind::CONTROL, (port, word, 1), (&said.encode(), &[]));
    }

    /// Calls through a right of the process, and returns what kind of outcome comes with what bytes.
    pub(crate) fn call(&mut self, port: u32, bytes: &[u8]) -> (Kind, Vec<u8>) {
        self.calls += 1;
        let generation = self.calls;
        self.post(Kind::Call, (port, 0, generation), (bytes, &[]));
        self.outcome(0, generation).expect("an answer")
    }

    /// As [`Self::call`], where the link may be over by then: without an answer.
    pub(crate) fn try_call(&mut self, port: u32, bytes: &[u8]) -> Option<(Kind, Vec<u8>)> {
        self.calls += 1;
        let generation = self.calls;
        self.post(Kind::Call, (port, 0, generation), (bytes, &[]));
        let slot = Side::Connector.reply(0);
        let has_come = || self.region.load(slot + reply::GENERATION, SeqCst) == generation;
        assert!(common::within_patience(|| {
            let mut hangs = [PollFd::new(&self.socket, PollFlags::RDHUP)];
            let now = rustix::event::Timespec::default();
            has_come() || rustix::event::poll(&mut hangs, Some(&now)) == Ok(1)
        }));
        has_come().then(|| self.outcome(0, generation))?
    }

    /// All it has said and posted has been heard.
    pub(crate) fn settle(&mut self) {
        let handle = self.welcome.handle;
        assert_eq!(self.call(handle, b"settled").1, b"settled");
        self.said_meanwhile();
    }

    /// Asks for the counters, and returns the messages that come before them.
    pub(crate) fn said_meanwhile(&self) -> Vec<Packet> {
        assert!(self.say(ControlMessage::ShowCounters));
        let next = || Some(self.hear()).filter(|said| *said != ControlMessage::Counters);
        std::iter::from_fn(next).collect()
    }

    /// As [`Self::settle`], whatever else the process says meanwhile.
    pub(crate) fn settle_quietly(&mut self) {
        let handle = self.welcome.handle;
        assert_eq!(self.call(handle, b"settled").1, b"settled");
    }

    /// The process says that it will not claim what `exporter` was told of.
    pub(crate) fn expect_declined(&self, exporter: Process) {
        let said = self.hear();
        let declined = |said| match said {
            ControlMessage::Declined { exporter, .. } => Some(exporter),
            _ => None,
        };
        assert_eq!(declined(said.message()), Some(exporter), "{said:?}");
    }

    /// The outcome in a slot for that generation, within patience.
    pub(crate) fn outcome(&self, index: u32, generation: u32) -> Option<(Kind, Vec<u8>)> {
        let at = Side::Connector.reply(index);
        let load = |word| self.region.load(at + word, SeqCst);
        common::within_patience(|| load(reply::GENERATION) == generation).then(|| {
            let meta = Meta::unpack(load(reply::META)).unwrap();
            let from = match meta.outside {
                true => Side::Connector.reply_buffer(index),
                false => at + reply::BYTES,
            };
            let mut bytes = vec![0; meta.len_bytes as usize];
            self.region.copy_out(from, &mut bytes);
            (meta.kind, bytes)
        })
    }

    /// The slot of the next call or message that the process makes: reply slot and generation.
    pub(crate) fn next(&mut self) -> (u32, u32, usize) {
        let mut found = None;
        assert!(common::within_patience(|| {
            found = self.try_next();
            found.is_some()
        }));
        found.unwrap()
    }

    pub(crate) fn try_next(&mut self) -> Option<(u32, u32, usize)> {
        for lane in 0..LANES {
            let position = self.taken[lane as usize];
            let at = Side::Acceptor.lane(lane) + slot_offset(position);
            let load = |word| self.region.load(at + word, SeqCst);
            if load(slot::SEQUENCE) == position + 1 {
                self.taken[lane as usize] += 1;
                let head = Side::Acceptor.lane(lane) + handfast_layout::link::lane::HEAD;
                self.region.store(head, position + 1, SeqCst);
                return Some((load(slot::REPLY) & 0xffff, load(slot::GENERATION), at));
            }
        }
        None
    }

    /// The units that describe the parts of the next message, which has this many units and no bytes.
    pub(crate) fn next_units(&mut self, count: usize) -> Vec<Unit> {
        let (_, _, at) = self.next();
        let lane = at - (at - Side::Acceptor.lane(0)) % LANE_BYTES;
        let arena = self.region.load(at + slot::ARENA, SeqCst) as usize;
        let mut units = vec![[0; UNIT_BYTES]; count];
        let from = match count {
            // They lie in the slot.
            ..3 => at + slot::BYTES,
            _ => lane + arena_offset() + arena,
        };
        self.region.copy_out(from, units.as_flattened_mut());
        units
    }

    /// Answers a call of the process's.
    pub(crate) fn answer(
        &self,
        (index, generation): (u32, u32),
        kind: Kind,
        (bytes, parts): (&[u8], &[Part]),
    ) {
        let slot = Slot::of(Side::Acceptor, index);
        let outcome = (generation, kind, 0);
        slot.answer_described(&*self.region, outcome, (bytes, &units(parts)));
        self.region.swap(slot.wait(), 0, SeqCst);
        self.region.wake(slot.wait(), u32::MAX);
    }

    /// Sends a control message. `false`: the link is over.
    pub(crate) fn say(&self, message: impl Into<Packet>) -> bool {
        handfast_sys::socket::send(&self.socket, &message.into(), &[]).is_ok()
    }

    /// The next control message that is more than a ring.
    pub(crate) fn hear(&self) -> Packet {
        self.try_hear().expect("a message: the link is over")
    }

    /// As [`Self::hear`]; `None` when the link is over.
    pub(crate) fn try_hear(&self) -> Option<Packet> {
        loop {
            let mut bytes = [0; CONTROL_BYTES_MAX];
            match handfast_sys::socket::receive(&self.socket, &mut bytes, 4) {
                Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => return None,
                Ok((len_bytes, _)) => {
                    let packet = Packet::received(&bytes[..len_bytes]);
                    if packet.kind() != ControlKind::Ring {
                        return Some(packet);
                    }
                }
                Err(errno) => panic!("nothing was said: {errno}"),
            }
        }
    }

    /// The process has ended the link.
    pub(crate) fn expect_end(&self) {
        while self.try_hear().is_some() {}
    }
}

/// Moves threads that sleep in one word to another (`FUTEX_REQUEUE`), so many at most. Returns how many there were.
pub(crate) fn requeue(from: *mut u32, most: i32, to: *mut u32) -> u32 {
    let of = libc::FUTEX_REQUEUE;
    // SAFETY: no memory is written, and the kernel checks the addresses.
    let moved = unsafe { libc::syscall(libc::SYS_futex, from, of, 0, most as usize, to) };
    u32::try_from(moved).unwrap()
}

/// The units that describe these parts.
pub(crate) fn units(parts: &[Part]) -> Vec<Unit> {
    let described = parts.iter().map(|part| part.to_units());
    described
        .flat_map(|(units, count)| units[..count].to_vec())
        .collect()
}

/// The first return slot that its link's caller names.
pub(crate) const OWN_SLOT: u32 = slot_of(OWN_SET, 0);
