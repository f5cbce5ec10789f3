//! Descriptors that peers pass on with hellos, control messages and messages, of kinds that nobody expects there.

use super::deeds::{HELD_MAX, Session, kind_of};
use super::files::{self, KINDS};
use super::hand::{self, Hand};
use super::{NAME, directory, wire};
use crate::{Input, below};
use arbitrary::Result;
use core::time::Duration;
use handfast_layout::control::{ControlMessage, Shape};
use handfast_layout::hello::{Hello, WELCOME_BYTES};
use handfast_layout::link::Kind;
use handfast_layout::loan::{Geometry, LentBlock, Told, next_number};
use handfast_layout::part::{Bound, Descriptors, Part};
use handfast_ring::lane::{Header, Unit};
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, socket};
use handfast_testing::forge::Packet;
use std::sync::mpsc::channel;

/// Where they go.
const WAYS: u8 = 8;
/// As many as one message may have, and one more.
const COUNT_MAX: u8 = 5;
/// How long this process's own close of a descriptor may take, which is to be none: the last one is to be the other side's.
const OWN_CLOSE: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Passes descriptors on. The bytes say of which kind, how many and where.
    pub(super) fn present(&mut self, hand: usize, input: &mut Input<'_>) -> Result<()> {
        let kind = usize::from(input.arbitrary::<u8>()?) % KINDS.len();
        let way = below(input, WAYS)?;
        let count = 1 + below(input, COUNT_MAX)?;
        let detail: u8 = input.arbitrary()?;
        let (_, make) = KINDS[kind];
        // The session goes on without kinds that this machine does not have.
        let Ok(fd) = make() else { return Ok(()) };
        let fds: Vec<OwnedFd> = (1..count).filter_map(|_| fd.try_clone().ok()).collect();
        let fds: Vec<OwnedFd> = fds.into_iter().chain([fd]).collect();
        if kind == files::DEAF {
            // Not to where the application closes it: that is its own affair.
            return self.present_deaf(hand, way, detail, fds);
        }
        let hand = &mut self.hands[hand];
        match way {
            0 => self.greet(&fds, false),
            1 => self.greet(&fds, true),
            2 => hand.say(message(detail), &borrowed(&fds)),
            3 => hand.name(fds, |number| {
                let part = Part::Descriptor { number };
                units_of(&part)
            }),
            4 => hand.name(fds, |number| {
                let len_bytes = [4096, 8192, 4097, 2 << 20, 1, u64::MAX][usize::from(detail) % 6];
                units_of(&Part::Memory { number, len_bytes })
            }),
            5 => hand.name(fds, |number| {
                let part = Part::Receive {
                    token: detail.into(),
                    number,
                    name_bytes: 5,
                    asks: detail.is_multiple_of(2),
                };
                let bound = Bound {
                    file: (1, 2),
                    name: "moved".to_owned(),
                };
                let first = part.to_units().0[0];
                std::iter::once(first).chain(bound.to_units()).collect()
            }),
            6 => hand.lend(&fds, detail),
            _ => hand.show(&fds),
        }
        self.hands.iter_mut().for_each(Hand::settle);
        // Half of what came is kept for a while.
        while let Some(mut request) = self.victim.try_receive() {
            let rights = request.take_rights();
            if detail.is_multiple_of(2) {
                self.rights.extend(rights);
            }
        }
        self.rights.truncate(HELD_MAX);
        Ok(())
    }

    /// Says hello on a connection of its own. It is answered, whatever comes with it.
    fn greet(&self, fds: &[OwnedFd], behind_bells: bool) {
        let socket = hand::knock(&directory().join(NAME));
        let hello = Hello::new(wire::incarnation(), NAME, 5, None).to_bytes();
        let bells = behind_bells.then(|| self.victim.bells.as_fd());
        let fds: Vec<_> = bells.into_iter().chain(borrowed(fds)).collect();
        if socket::send(&socket, &hello, &fds).is_err() {
            return;
        }
        answered(&socket);
    }

    /// Passes on sockets whose close waits, and closes its own at once, so that the last close is the other side's. The closing
    /// side goes on meanwhile.
    fn present_deaf(&mut self, hand: usize, way: u8, detail: u8, fds: Vec<OwnedFd>) -> Result<()> {
        let bells = self.victim.bells.try_clone().expect("a descriptor");
        let socket = match way % 3 {
            2 => self.hands[hand].socket.try_clone().expect("a descriptor"),
            _ => hand::knock(&directory().join(NAME)),
        };
        let hello = Hello::new(wire::incarnation(), NAME, 5, None).to_bytes();
        let (tell, told) = channel();
        let (bytes, with_bells) = match way % 3 {
            0 => (hello.to_vec(), false),
            1 => (hello.to_vec(), true),
            _ => (message(detail).to_vec(), false),
        };
        std::thread::spawn(move || {
            let bells = with_bells.then(|| bells.as_fd());
            let passed: Vec<_> = bells.into_iter().chain(borrowed(&fds)).collect();
            let _ = socket::send(&socket, &bytes, &passed);
            drop(passed);
            drop(fds);
            let _ = tell.send(socket);
        });
        if let Ok(socket) = told.recv_timeout(OWN_CLOSE)
            && way % 3 < 2
        {
            answered(&socket);
        }
        self.hands.iter_mut().for_each(Hand::settle);
        Ok(())
    }
}

fn answered(socket: &OwnedFd) {
    let mut bytes = [0; WELCOME_BYTES];
    match wire::receive(socket, &mut bytes) {
        Ok((0, _)) | Err(Errno::CONNRESET) => panic!("a hello is answered, whatever comes with it"),
        Ok(_) => {}
        Err(errno) => panic!("a hello is answered: {errno}"),
    }
}

fn borrowed(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}

/// A control message of a kind, all zeros, with one element in a list.
fn message(detail: u8) -> Packet {
    let kind = kind_of(detail);
    let len_bytes = |shape: &Shape| match *shape {
        Shape::Zero(len_bytes) => len_bytes,
        Shape::Word => 4,
        Shape::Long => 8,
        Shape::Process => 20,
        Shape::List(element_bytes) => element_bytes,
    };
    let rest: usize = kind.shapes().iter().map(len_bytes).sum();
    Packet::of_kind(kind, 0, &vec![0; rest])
}

fn units_of(part: &Part) -> Vec<Unit> {
    let (units, count) = part.to_units();
    units[..count].to_vec()
}

impl Hand {
    /// Sends them ahead, and a message that names the first.
    fn name(&mut self, mut fds: Vec<OwnedFd>, units: impl FnOnce(u32) -> Vec<Unit>) {
        fds.truncate(4);
        let (count, first) = (fds.len() as u32, self.sent);
        let sent = ControlMessage::Descriptors(Descriptors { count, first });
        self.say(sent, &borrowed(&fds));
        self.sent = first.wrapping_add(count);
        self.post_units(&units(first));
    }

    fn post_units(&mut self, units: &[Unit]) {
        let header = Header {
            kind: Kind::Message,
            port: self.welcome.handle,
            reply: 0,
            generation: 0,
            units: units.len() as u32,
            cpu: 0,
        };
        self.post(0, header, (b"here", units));
    }

    /// Tells of an arena that is none, and lends of it.
    fn lend(&mut self, fds: &[OwnedFd], detail: u8) {
        let lengths = [4096, 8192, 1 << 20];
        let len_bytes = lengths[usize::from(detail) % lengths.len()];
        let (number, place) = (next_number(u32::from(detail) % 16), 2);
        let Some(geometry) = Geometry::new(place, len_bytes / u64::from(place)) else {
            return;
        };
        let told = ControlMessage::Arena(Told::New { number, geometry });
        self.say(told, &borrowed(&fds[..1]));
        self.post_units(&units_of(&Part::Loan(LentBlock {
            arena: number,
            block: 0,
            loan: 0,
            generation: 1,
            len_bytes: 64,
            fill: 0,
        })));
        self.post_units(&units_of(&Part::Bytes(LentBlock {
            arena: number,
            block: 0,
            loan: 1,
            generation: 1,
            len_bytes: len_bytes / u64::from(place),
            fill: 0,
        })));
    }

    /// Shows them as its counters, which somebody has asked for or not.
    fn show(&mut self, fds: &[OwnedFd]) {
        for fd in fds {
            self.say(ControlMessage::Counters, &[fd.as_fd()]);
        }
    }
}
