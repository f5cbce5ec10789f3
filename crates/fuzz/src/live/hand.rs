//! A peer made by hand: it says, and writes, whatever it is told to.

use super::server::{self, Answer};
use super::{NAME, PATIENCE, Victim, directory, wire};
use core::sync::atomic::Ordering::SeqCst;
use handfast::SendRight;
use handfast_channel::bell::ring;
use handfast_layout::bell;
use handfast_layout::control::{CONTROL_BYTES_MAX, ControlKind, ControlMessage};
use handfast_layout::hello::{Hello, Status, WELCOME_BYTES, Welcome, parse_ready};
use handfast_layout::hello::{Process, process};
use handfast_layout::link::{LANES, REGION_BYTES, Side};
use handfast_layout::part::{IS_HANDLE, receiver_of};
use handfast_region::{Memory, Region};
use handfast_ring::lane::{Header, Place, Producer, Unit};
use handfast_sys::memory::{Access, Mapping};
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, shared, socket};
use handfast_testing::forge::Packet;
use std::path::Path;

/// One end of a link.
pub(super) struct Hand {
    pub(super) socket: OwnedFd,
    pub(super) region: Region,
    bells: Region,
    /// Which end: its calls.
    pub(super) side: Side,
    /// The process's statement to it, or to one that connects.
    pub(super) welcome: Welcome,
    pub(super) process: Process,
    lanes: Vec<Producer>,
    /// Descriptors sent, as it numbers them.
    pub(super) sent: u32,
    /// The first word of the last control message that has one: a token, mostly.
    pub(super) heard: u32,
}

/// The first right that a hand gives which is connected to.
const GIVEN: u32 = IS_HANDLE;

impl Hand {
    /// The connector of a link.
    pub(super) fn new(own_bells: &OwnedFd) -> Self {
        let incarnation = wire::incarnation();
        let socket = knock(&directory().join(NAME));
        let mut bytes = [0; WELCOME_BYTES];
        let hello = Hello::new(incarnation, NAME, 3, None).to_bytes();
        socket::send(&socket, &hello, &[own_bells.as_fd()]).expect("it is there");
        let (len_bytes, fds) = wire::receive(&socket, &mut bytes).expect("it answers");
        let welcome = Welcome::parse(&bytes[..len_bytes]).expect("a welcome");
        assert_eq!(
            welcome.status,
            Status::Linked,
            "what others have left: {welcome:?}"
        );
        let hand = Self::of(
            (Side::Connector, incarnation),
            socket,
            (map(&fds[0], REGION_BYTES), &fds[1]),
            welcome,
        );
        shared::seal(&fds[0]).expect("it is mapped");
        hand.say(ControlMessage::Sealed, &[]);
        let concluded = wire::receive(&hand.socket, &mut [0; 2]);
        assert!(matches!(concluded, Ok((2, _))), "{concluded:?}");
        hand
    }

    /// The acceptor of a link that the process makes; the right that it has got. It has told another hand who it is, and its
    /// names for its port and for rights to it.
    pub(super) fn serving(victim: &Victim, other: &Self) -> (Self, SendRight) {
        let incarnation = wire::incarnation();
        let welcome = Welcome {
            link: 4,
            handle: GIVEN,
            ..Welcome::refusal(incarnation, Status::Linked, 0)
        };
        let region = server::region();
        // Before the connector seals it.
        let mapped = map(&region, REGION_BYTES);
        let own = |fd: &OwnedFd| fd.try_clone().expect("a descriptor");
        let answer = Answer {
            bytes: welcome.to_bytes().to_vec(),
            fds: vec![own(&region), own(&victim.bells)],
        };
        let (connected, heard) = victim.connect(answer);
        let right = connected.expect("what others have left");
        let welcome = Welcome {
            link: heard.hello.link,
            ..other.welcome
        };
        let hand = Self::of(
            (Side::Acceptor, incarnation),
            heard.socket,
            (mapped, &heard.bells),
            welcome,
        );
        (hand, right)
    }

    fn of(
        (side, incarnation): (Side, [u8; 16]),
        socket: OwnedFd,
        (region, bells): (Region, &OwnedFd),
        welcome: Welcome,
    ) -> Self {
        let place = |lane| Place::of(side, lane);
        Self {
            region,
            bells: map(bells, bell::REGION_BYTES),
            side,
            welcome,
            process: process(incarnation, std::process::id()),
            lanes: (0..LANES).map(|lane| Producer::new(place(lane))).collect(),
            sent: 0,
            heard: 0,
            socket,
        }
    }

    /// Where strangers are let in.
    pub(super) fn door(&self) -> OwnedFd {
        self.say(ControlMessage::DoorAsk { token: 1 }, &[]);
        let mut bytes = [0; CONTROL_BYTES_MAX];
        loop {
            let (len_bytes, mut fds) = wire::receive(&self.socket, &mut bytes).expect("it answers");
            assert!(len_bytes > 0, "the link has ended");
            if ControlKind::of(&bytes) == Some(ControlKind::Door) {
                return fds.pop().expect("a door");
            }
        }
    }

    /// Shows a file as its counters.
    pub(super) fn show_counters(&mut self, file: BorrowedFd<'_>) {
        self.say(ControlMessage::Counters, &[file]);
        self.settle();
    }

    /// The process that is talked to.
    pub(super) fn other(&self) -> Process {
        process(self.welcome.incarnation, std::process::id())
    }

    /// Says something over the control socket, if there is room.
    pub(super) fn say(&self, message: impl Into<Packet>, fds: &[BorrowedFd<'_>]) {
        // Blocking, but for no longer than the other side takes to read. It may have ended the link.
        let _ = socket::send(&self.socket, &message.into(), fds);
    }

    /// Posts a message, if there is room, and rings.
    pub(super) fn post(&mut self, lane: u32, header: Header, body: (&[u8], &[Unit])) {
        let outgoing = &mut self.lanes[lane as usize];
        let _ = outgoing.post_described(&self.region, header, body);
        self.ring(lane);
    }

    pub(super) fn ring(&self, lane: u32) {
        let receiver = receiver_of(self.welcome.port);
        let at = (self.side, lane);
        if ring(&self.region, &self.bells, at, receiver, self.welcome.link).is_some() {
            let sleep = bell::bell(receiver) + bell::SLEEP;
            self.bells.wake(sleep, u32::MAX);
        }
    }

    /// A word of the region, as it likes.
    pub(super) fn scribble(&self, at: usize, value: u32) {
        self.region.store(at, value, SeqCst);
    }

    /// Everything it has said has been heard, or the link is over.
    pub(super) fn settle(&mut self) {
        let asks = ControlMessage::ShowCounters.encode();
        if socket::send(&self.socket, &asks, &[]).is_err() {
            return;
        }
        let mut bytes = [0; CONTROL_BYTES_MAX];
        loop {
            match wire::receive(&self.socket, &mut bytes) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return,
                Ok(_) if ControlKind::of(&bytes) == Some(ControlKind::Counters) => return,
                Ok((6.., _)) => {
                    self.heard = u32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
                }
                Ok(_) => {}
                Err(errno) => panic!("the control thread has stopped: {errno}"),
            }
        }
    }
}

fn map(fd: &OwnedFd, len_bytes: usize) -> Region {
    let mapping = Mapping::new(fd, len_bytes, Access::ReadWrite);
    Region::mapped(mapping.expect("it can be mapped"))
}

/// A connection by which the process says that a hello may come.
pub(super) fn knock(path: &Path) -> OwnedFd {
    let socket = socket::connect(path, PATIENCE).expect("it listens");
    let mut bytes = [0; WELCOME_BYTES];
    let (len_bytes, _) = wire::receive(&socket, &mut bytes).expect("it says that a hello may come");
    let ready = parse_ready(&bytes[..len_bytes]);
    assert!(matches!(ready, Ok(Some(_))), "what others have left");
    socket
}
