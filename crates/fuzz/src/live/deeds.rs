//! Possible acts of the peers of a process and of the process itself, one step at a time.

use super::hand::Hand;
use super::words::Words;
use super::{Victim, length};
use crate::{Input, below, word};
use arbitrary::Result;
use core::time::Duration;
use handfast::{Request, Right};
use handfast_layout::control::{ControlKind, ControlMessage, NOBODY};
use handfast_layout::counters;
use handfast_layout::link::{self, ANSWERS, Kind, LANES, Side, passed_word};
use handfast_layout::loan::{Geometry, Told};
use handfast_layout::part::Descriptors;
use handfast_ring::lane::Header;
use handfast_sys::memory::{create_lent, create_sealed, create_whole, seal};
use handfast_sys::{AsFd, BorrowedFd, OwnedFd, socket};
use handfast_testing::forge::Packet;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

pub(super) struct Session<'a> {
    pub(super) victim: &'a Victim,
    pub(super) hands: Vec<Hand>,
    /// Received, and not answered.
    requests: VecDeque<Request>,
    pub(super) rights: VecDeque<Right>,
}

/// The most the process holds at once.
pub(super) const HELD_MAX: usize = 8;

/// Steps from this number on pass descriptors on.
const PRESENTS: u8 = 240;

/// Longer ones are told apart by their length alone.
const SAID_BYTES_MAX: usize = 600;

const ARENA_BYTES: usize = 8192;

/// Descriptors of every kind that means something to somebody, and some that mean nothing.
fn files() -> &'static [OwnedFd; 6] {
    static FILES: OnceLock<[OwnedFd; 6]> = OnceLock::new();
    FILES.get_or_init(|| {
        let whole = create_whole("memory", 4096).expect("memory");
        seal(&whole).expect("it is new");
        let (lent, mapping) = create_lent("arena", ARENA_BYTES).expect("an arena");
        // Its owner keeps it.
        core::mem::forget(mapping);
        let path = super::directory().join("listener");
        [
            whole,
            lent,
            create_sealed("sealed", 4096).expect("a memory file"),
            socket::listen(&path, 1).expect("a listener"),
            socket::pair().expect("a socket").0,
            File::open("/dev/null").expect("a file").into(),
        ]
    })
}

/// As large as counters are, and full.
fn counters() -> &'static OwnedFd {
    static COUNTERS: OnceLock<OwnedFd> = OnceLock::new();
    COUNTERS.get_or_init(|| {
        let counters = create_sealed("counters", counters::REGION_BYTES).expect("a memory file");
        let file = File::from(counters.try_clone().expect("a descriptor"));
        let bytes: Vec<u8> = (1..=255).cycle().take(counters::REGION_BYTES).collect();
        file.write_all_at(&bytes, 0).expect("it can be written");
        counters
    })
}

impl<'a> Session<'a> {
    pub(super) fn new(victim: &'a Victim, hands: u8, has_server: bool) -> Self {
        let mut session = Self {
            victim,
            hands: (0..hands).map(|_| Hand::new(&victim.bells)).collect(),
            requests: VecDeque::new(),
            rights: VecDeque::new(),
        };
        if has_server {
            let (hand, right) = Hand::serving(victim, &session.hands[0]);
            session.hands.push(hand);
            session.rights.push_back(right.into());
        }
        session
    }

    pub(super) fn step(&mut self, input: &mut Input<'_>) -> Result<()> {
        let hand = usize::from(below(input, self.hands.len() as u8)?);
        let deed: u8 = input.arbitrary()?;
        if deed >= PRESENTS {
            return self.present(hand, input);
        }
        match deed % 11 {
            0 => self.say(hand, input),
            1 | 2 => self.post(hand, input),
            3 => self.send_descriptors(hand, input),
            4 => self.tell_of_arena(hand, input),
            5 => self.scribble(hand, input),
            6 => self.answer(hand, input),
            7 => {
                self.hands[hand].settle();
                Ok(())
            }
            8 => self.receive(input),
            9 => self.reply(input),
            _ => self.use_right(input),
        }
    }

    /// All has been heard, received and dropped.
    pub(super) fn end(mut self) {
        self.hands.iter_mut().for_each(Hand::settle);
        for _ in 0..64 {
            let Some(request) = self.victim.try_receive() else {
                break;
            };
            drop(request);
        }
        self.requests.clear();
        self.rights.clear();
    }

    fn words(&self, hand: usize) -> Words<'_> {
        Words::of(&self.hands, hand)
    }

    fn say(&mut self, hand: usize, input: &mut Input<'_>) -> Result<()> {
        let kind = kind_of(input.arbitrary()?);
        let argument = below(input, 2)?;
        let mut rest = Vec::new();
        for shape in kind.shapes() {
            self.words(hand).fill(*shape, &mut rest, input)?;
        }
        let whole = Packet::of_kind(kind, argument, &rest);
        let said = match below(input, 8)? {
            0 => whole.extended(&[0]),
            1 => whole.cut(1),
            2 => whole.patched(0, &[input.arbitrary()?]),
            _ => whole,
        };
        let said = said.cut_to(said.len().min(SAID_BYTES_MAX));
        let fds = Self::some_files(input)?;
        self.hands[hand].say(said, &fds);
        Ok(())
    }

    fn some_files(input: &mut Input<'_>) -> Result<Vec<BorrowedFd<'static>>> {
        let count = below(input, 8)?.saturating_sub(4);
        let files = files();
        let any = |input: &mut Input<'_>| Ok(files[usize::from(below(input, 6)?)].as_fd());
        (0..count).map(|_| any(input)).collect()
    }

    fn send_descriptors(&mut self, hand: usize, input: &mut Input<'_>) -> Result<()> {
        let fds = Self::some_files(input)?;
        let hand = &mut self.hands[hand];
        let (count, first) = (fds.len() as u32, hand.sent);
        let sent = ControlMessage::Descriptors(Descriptors { count, first });
        hand.say(sent, &fds);
        hand.sent = first.wrapping_add(count);
        Ok(())
    }

    fn tell_of_arena(&mut self, hand: usize, input: &mut Input<'_>) -> Result<()> {
        let number = self.words(hand).value(input)?;
        let told = match below(input, 3)? {
            0 => Told::Ended {
                number,
                lent: self.words(hand).value(input)?,
            },
            _ => match Geometry::new(2, ARENA_BYTES as u64 / 2) {
                Some(geometry) => Told::New { number, geometry },
                None => unreachable!("it is an arena"),
            },
        };
        let arena = [files()[1].as_fd()];
        let fds = match told {
            Told::New { .. } => &arena[..],
            Told::Ended { .. } => &[],
        };
        self.hands[hand].say(ControlMessage::Arena(told), fds);
        Ok(())
    }

    fn post(&mut self, hand: usize, input: &mut Input<'_>) -> Result<()> {
        let kinds = [Kind::Message, Kind::Call, Kind::PASSED, Kind::CONTROL];
        let kind = kinds[usize::from(below(input, 4)?)];
        let port = match below(input, 4)? {
            0 => self.words(hand).value(input)?,
            _ => self.hands[hand].welcome.handle,
        };
        let reply = match below(input, 3)? {
            0 => self.words(hand).value(input)?,
            1 => passed_word(below(input, 3)?.into(), below(input, 3)?.into()),
            _ => below(input, 4)?.into(),
        };
        let generation = word(input)?;
        let bytes = match kind {
            Kind::CONTROL => self.words(hand).said(input)?,
            _ => vec![7; length(input)?],
        };
        let units = self.words(hand).parts(input)?;
        let lane = u32::from(below(input, 4)?);
        let header = Header {
            kind,
            port,
            reply,
            generation,
            units: units.len() as u32,
            cpu: 0,
        };
        self.hands[hand].post(lane, header, (&bytes, &units));
        Ok(())
    }

    /// A word anywhere that anybody looks.
    fn scribble(&mut self, hand: usize, input: &mut Input<'_>) -> Result<()> {
        let side = [Side::Connector, Side::Acceptor][usize::from(below(input, 2)?)];
        let lane = u32::from(below(input, 4)?);
        let any = u32::from(input.arbitrary::<u8>()?);
        let at = match below(input, 8)? {
            0 => side.ready(any % 64),
            1 => side.claimed(),
            2 => side.returned(any),
            3 => side.over(),
            4 => side.lane(lane) + any as usize % 64 * 4,
            5 => side.lane(lane) + link::slot_offset(any % 4) + any as usize / 4 % 16 * 4,
            6 => side.reply(any % 4) + any as usize / 4 % 32 * 4,
            _ => side.reply(ANSWERS - 1 - any),
        };
        let value = self.words(hand).value(input)?;
        self.hands[hand].scribble(at, value);
        if below(input, 4)? == 0 {
            self.hands[hand].ring(lane % LANES);
        }
        Ok(())
    }

    /// An outcome in a slot of the process's calls, perhaps before there is one.
    fn answer(&mut self, hand: usize, input: &mut Input<'_>) -> Result<()> {
        let kinds = [Kind::Message, Kind::MOVED, Kind::Dropped, Kind::DeadPort];
        let kind = kinds[usize::from(below(input, 4)?)];
        let index = match below(input, 4)? {
            0 => self.words(hand).value(input)? % ANSWERS,
            _ => below(input, 3)?.into(),
        };
        let generation = u32::from(below(input, 5)?);
        let cpu = match below(input, 8)? {
            0 => link::FAILED | u32::from(below(input, 16)?),
            _ => 0,
        };
        let bytes = match below(input, 3)? {
            0 => self.words(hand).value(input)?.to_le_bytes().to_vec(),
            _ => vec![1; length(input)?],
        };
        let units = self.words(hand).parts(input)?;
        let side = self.hands[hand].side.other();
        let slot = handfast_channel::reply::Slot::of(side, index);
        let outcome = (generation, kind, cpu);
        slot.answer_described(&self.hands[hand].region, outcome, (&bytes[..], &units));
        // As an answerer wakes a caller that sleeps in a descriptor.
        self.hands[hand].say(ControlMessage::Ring { receiver: NOBODY }, &[]);
        Ok(())
    }

    /// The process takes a message.
    fn receive(&mut self, input: &mut Input<'_>) -> Result<()> {
        if let Some(mut request) = self.victim.try_receive() {
            if below(input, 4)? > 0 {
                self.rights.extend(request.take_rights());
            }
            self.requests.push_back(request);
        }
        self.requests.truncate(HELD_MAX);
        self.rights.truncate(HELD_MAX);
        Ok(())
    }

    /// The process is done with one.
    fn reply(&mut self, input: &mut Input<'_>) -> Result<()> {
        let how = below(input, 6)?;
        let bytes = vec![9; length(input)?];
        let Some(request) = self.requests.pop_front() else {
            return Ok(());
        };
        let right = self.rights.pop_front();
        match (how, right) {
            (0, _) => drop(request),
            (1, Some(right)) => drop(request.reply_with(&bytes, [right])),
            (2, _) => drop(request.reply_with(&bytes, [self.something(input)?])),
            (3, Some(Right::Send(to))) => {
                drop(request.try_forward(&to, &bytes));
                self.rights.push_back(to.into());
            }
            (4, right) => {
                let (_, reply) = request.split();
                self.rights.extend(reply.map(Right::from));
                self.rights.extend(right);
            }
            (_, right) => {
                let _ = request.reply(&bytes);
                self.rights.extend(right);
            }
        }
        Ok(())
    }

    /// Something of the process's own to give away.
    fn something(&self, input: &mut Input<'_>) -> Result<Right> {
        Ok(match below(input, 4)? {
            0 => handfast::anonymous().expect("a port").into(),
            1 => {
                let memory = handfast::Memory::from_bytes(b"memory");
                memory.expect("memory").into()
            }
            2 => match self.victim.arena.try_take(64) {
                Ok(block) => block.into(),
                Err(_) => Right::Dead,
            },
            _ => self.victim.port.mint(3).into(),
        })
    }

    /// The process uses a right that it was given.
    fn use_right(&mut self, input: &mut Input<'_>) -> Result<()> {
        let how = below(input, 8)?;
        let bytes = vec![5; length(input)?];
        let Some(right) = self.rights.pop_front() else {
            return Ok(());
        };
        match right {
            Right::Send(to) => {
                match how {
                    0 => return Ok(()),
                    1 => drop(to.try_send(&bytes)),
                    2 | 3 => {
                        let other = match how {
                            2 => to.clone().into(),
                            _ => self.something(input)?,
                        };
                        drop(to.with([other]).try_send(&bytes));
                    }
                    4 => {
                        let others = self.rights.pop_front();
                        if let Ok(answer) = to.with(others).try_call(&bytes) {
                            drop(answer.wait_timeout(Duration::ZERO));
                        }
                    }
                    5 => {
                        let file = match below(input, 2)? {
                            0 => counters(),
                            _ => &files()[usize::from(below(input, 6)?)],
                        };
                        for hand in &mut self.hands {
                            hand.show_counters(file.as_fd());
                        }
                        let _ = to.counters();
                    }
                    _ => {
                        if let Ok(mut answer) = to.call_timeout(&bytes, Duration::ZERO) {
                            self.rights.extend(answer.take_rights());
                        }
                    }
                }
                self.rights.push_back(to.into());
            }
            Right::Reply(reply) => drop(reply.reply(&bytes)),
            Right::Memory(memory) => assert!(!memory.is_empty()),
            Right::Loan(loan) => drop(loan.to_vec()),
            Right::Own(own) => drop(own.attenuate(how.into())),
            Right::Receive(port) => drop(port.try_receive()),
            _ => {}
        }
        self.rights.truncate(HELD_MAX);
        Ok(())
    }
}

/// One of the kinds of control messages.
pub(super) fn kind_of(byte: u8) -> ControlKind {
    ControlKind::ALL[usize::from(byte) % ControlKind::ALL.len()]
}
