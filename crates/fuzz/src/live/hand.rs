//! A peer made by hand: it says, and writes, what it is told to.

use super::{NAME, PATIENCE, directory};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use handfast_channel::bell::ring;
use handfast_layout::bell;
use handfast_layout::hello::{Hello, Status, WELCOME_BYTES, Welcome};
use handfast_layout::introduction::{Process, process};
use handfast_layout::link::{LANES, REGION_BYTES, Side};
use handfast_layout::part::receiver_of;
use handfast_region::{Memory, Region};
use handfast_ring::lane::{Header, Place, Producer, Unit};
use handfast_sys::memory::{Access, Mapping};
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, socket};
use std::sync::atomic::AtomicU64;

/// The connector of a link.
pub(super) struct Hand {
    pub(super) socket: OwnedFd,
    pub(super) region: Region,
    bells: Region,
    pub(super) welcome: Welcome,
    pub(super) process: Process,
    lanes: Vec<Producer>,
    /// Descriptors sent, as it numbers them.
    pub(super) sent: u32,
}

const STAT: u8 = 2;
const COUNTERS: u8 = 3;

/// Longest control message of the other side.
const SAID_BYTES_MAX: usize = 512;

impl Hand {
    pub(super) fn new(own_bells: &OwnedFd) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: a number.
        let number = LAST.fetch_add(1, Relaxed) + 1;
        let mut incarnation = [0x11; 16];
        incarnation[..8].copy_from_slice(&number.to_le_bytes());
        let socket = socket::connect(&directory().join(NAME), PATIENCE).expect("it listens");
        let hello = Hello::new(incarnation, NAME, 3, false).to_bytes();
        socket::send(&socket, &hello, &[own_bells.as_fd()]).expect("it is there");
        let mut bytes = [0; WELCOME_BYTES];
        let (len_bytes, fds) = receive(&socket, &mut bytes).expect("it answers");
        let welcome = Welcome::parse(&bytes[..len_bytes]).expect("a welcome");
        assert_eq!(
            welcome.status,
            Status::Linked,
            "what others have left: {welcome:?}"
        );
        let map = |fd, len_bytes| {
            let mapping = Mapping::new(fd, len_bytes, Access::ReadWrite);
            Region::mapped(mapping.expect("it can be mapped"))
        };
        let place = |lane| Place::of(Side::Connector, lane);
        Self {
            region: map(&fds[0], REGION_BYTES),
            bells: map(&fds[1], bell::REGION_BYTES),
            welcome,
            process: process(incarnation, std::process::id()),
            lanes: (0..LANES).map(|lane| Producer::new(place(lane))).collect(),
            sent: 0,
            socket,
        }
    }

    /// The process that is talked to.
    pub(super) fn other(&self) -> Process {
        process(self.welcome.incarnation, std::process::id())
    }

    /// Says something over the control socket, if there is room.
    pub(super) fn say(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        // Blocking, but for no longer than the other side takes to read. It may have ended the link.
        let _ = socket::send(&self.socket, bytes, fds);
    }

    /// Posts a message, if there is room, and rings.
    pub(super) fn post(&mut self, lane: u32, header: Header, body: (&[u8], &[Unit])) {
        let outgoing = &mut self.lanes[lane as usize];
        let _ = outgoing.post_described(&self.region, header, body);
        self.ring(lane);
    }

    pub(super) fn ring(&self, lane: u32) {
        let receiver = receiver_of(self.welcome.port);
        let at = (Side::Connector, lane);
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
    pub(super) fn settle(&self) {
        if socket::send(&self.socket, &[STAT, 0], &[]).is_err() {
            return;
        }
        let mut bytes = [0; SAID_BYTES_MAX];
        loop {
            match receive(&self.socket, &mut bytes) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return,
                Ok(_) if bytes[0] == COUNTERS => return,
                Ok(_) => {}
                Err(errno) => panic!("the keeper has stopped: {errno}"),
            }
        }
    }
}

/// The next message, and its descriptors; fuzzers have timers.
pub(super) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    loop {
        match socket::receive(socket, bytes, 4) {
            Err(Errno::INTR) => {}
            received => return received,
        }
    }
}
