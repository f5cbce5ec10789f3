//! One direction of a stream whose writer turns to the ring, goes back, ends or dies at any step, and whose reader leaves at any step: every byte that was
//! written arrives once and in order, and then the end.

use super::*;
use crate::schedule::{Dice, all_pass, one_fails};
use std::collections::VecDeque;

/// A rule that is left out, or changed. A reader that has taken more from the kernel than there was before the ring calls its peer hostile.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    /// The reader takes no more from the kernel than it had before the look at the state.
    Count,
    /// It asks for that count, and whether the writer has gone, before it looks.
    CountFirst,
    /// An end leaves the ring by an exchange.
    Exchange,
    /// The writer gives the kernel the bytes that a reader who left has not taken.
    Again,
    /// It does so before it ends the stream.
    AgainBeforeEnd,
    /// The writer turns only once the reader looks at the region.
    Looks,
    /// A reader does not leave while there are bytes in the ring that its writer has left.
    Unread,
    /// The number at which the writer turned is there before the state.
    FromFirst,
}

const BYTES: u32 = 24;
const RING: usize = 4;
const PIPE: usize = 6;
const STEPS: usize = 200;

/// The words of the region, and the kernel's socket. A byte is its own position.
struct Shared {
    state: State,
    from: u64,
    ring: Vec<u32>,
    taken: usize,
    pipe: VecDeque<u32>,
    is_shut: bool,
    /// The writer uses the region no more.
    is_gone: bool,
    /// The reader looks at the region.
    looks: bool,
}

impl Shared {
    fn unread(&self) -> usize {
        self.ring.len() - self.taken
    }

    /// One exchange: the state afterwards.
    fn exchange(&mut self, from: &[State], to: State, without: Without) -> State {
        if from.contains(&self.state) || without == Without::Exchange {
            self.state = to;
        }
        self.state
    }

    fn pending(&self) -> Pending {
        match self.pipe.len() {
            _ if self.is_gone => Pending::Gone,
            0 if self.is_shut => Pending::End,
            0 => Pending::Nothing,
            len_bytes => Pending::Bytes(len_bytes),
        }
    }
}

/// The step that the writer is in the middle of.
#[derive(Clone, Copy)]
enum Doing {
    Nothing,
    /// A turn whose first store was made.
    Turning,
    /// A write that has looked at the state.
    Writing(State),
    /// The same, before an end.
    Ending(State),
}

struct Writer {
    core: Outgoing,
    doing: Doing,
    next: u32,
    is_over: bool,
    was_killed: bool,
}

impl Writer {
    fn step(
        &mut self,
        shared: &mut Shared,
        dice: &mut Dice,
        without: Without,
    ) -> Result<(), String> {
        if self.is_over {
            return Ok(());
        }
        let broken = |_| "a writer takes its peer for hostile".to_owned();
        let is_looked_at = shared.looks || without == Without::Looks;
        match core::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => match dice.roll(12) {
                _ if self.next == BYTES => self.doing = Doing::Ending(shared.state),
                0 | 1 if self.core.may_turn() && is_looked_at => {
                    if without == Without::FromFirst {
                        self.turn(shared, without).map_err(broken)?;
                    } else {
                        shared.from = self.core.by_kernel();
                    }
                    self.doing = Doing::Turning;
                }
                2 if is_looked_at => {
                    // A writer that has not turned says first that it has.
                    if self.core.may_turn() {
                        shared.from = self.core.by_kernel();
                        self.turn(shared, without).map_err(broken)?;
                    }
                    let state = shared.exchange(&[State::Ring], State::Back, without);
                    self.core.became(state).map_err(broken)?;
                    shared.is_gone |= state == State::Back && dice.roll(2) == 0;
                }
                3 if dice.roll(20) == 0 => {
                    shared.is_shut = true;
                    shared.is_gone = true;
                    self.was_killed = true;
                    self.is_over = true;
                }
                _ => self.doing = Doing::Writing(shared.state),
            },
            Doing::Turning if without == Without::FromFirst => shared.from = self.core.by_kernel(),
            Doing::Turning => self.turn(shared, without).map_err(broken)?,
            Doing::Writing(state) => {
                self.core.became(state).map_err(broken)?;
                self.put(shared, without).map_err(broken)?;
            }
            Doing::Ending(state) => {
                self.core.became(state).map_err(broken)?;
                self.end(shared, without).map_err(broken)?;
            }
        }
        Ok(())
    }

    fn turn(&mut self, shared: &mut Shared, without: Without) -> Result<(), Broken> {
        let state = shared.exchange(&[State::Kernel], State::Ring, without);
        self.core.became(state)
    }

    /// Whether all that the reader has not taken is where it belongs.
    fn again(&mut self, shared: &mut Shared, without: Without) -> Result<Option<Put>, Broken> {
        let put = self.core.next(shared.unread())?;
        if let Put::Again(left) = put {
            if without == Without::Again {
                self.core.gave_again(left);
            } else if shared.pipe.len() < PIPE {
                let at = shared.taken + self.core.given_again();
                shared.pipe.push_back(shared.ring[at]);
                self.core.gave_again(1);
            }
            return Ok(None);
        }
        Ok(Some(put))
    }

    fn put(&mut self, shared: &mut Shared, without: Without) -> Result<(), Broken> {
        match self.again(shared, without)? {
            Some(Put::Kernel) if shared.pipe.len() < PIPE => {
                shared.pipe.push_back(self.next);
                self.core.gave_kernel(1);
                self.next += 1;
            }
            Some(Put::Ring) if shared.unread() < RING => {
                shared.ring.push(self.next);
                self.next += 1;
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, shared: &mut Shared, without: Without) -> Result<(), Broken> {
        if without == Without::AgainBeforeEnd {
            shared.is_shut = true;
            self.is_over = true;
            return Ok(());
        }
        match self.again(shared, without)? {
            Some(Put::Ring) => {
                let state = shared.exchange(&[State::Ring], State::Ended, without);
                self.core.became(state)?;
            }
            Some(_) => {
                shared.is_shut = true;
                self.is_over = true;
            }
            None => {}
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Reading {
    Nothing,
    Counted(Pending),
    /// Words were looked at, and the count came later.
    Looked(Seen),
    Decided(Take),
}

struct Reader {
    core: Incoming,
    reading: Reading,
    got: Vec<u32>,
    is_over: bool,
    /// Another program has the kernel's socket, and knows of nothing else.
    is_foreign: bool,
}

impl Reader {
    fn step(
        &mut self,
        shared: &mut Shared,
        dice: &mut Dice,
        without: Without,
    ) -> Result<(), String> {
        if self.is_over {
            return Ok(());
        }
        if !shared.looks || self.is_foreign {
            self.take_from_kernel(shared, u64::MAX, dice);
            shared.looks |= dice.roll(4) == 0;
            return Ok(());
        }
        let broken = |_| "a reader takes its peer for hostile".to_owned();
        self.reading = match self.reading {
            Reading::Nothing if dice.roll(40) == 0 => {
                self.leave(shared, without);
                Reading::Nothing
            }
            Reading::Nothing if without == Without::CountFirst => {
                Reading::Looked(Self::look(shared))
            }
            Reading::Nothing => Reading::Counted(shared.pending()),
            Reading::Looked(seen) => {
                Reading::Decided(self.core.next(shared.pending(), seen).map_err(broken)?)
            }
            Reading::Counted(pending) => {
                let seen = Self::look(shared);
                let pending = match (without, pending) {
                    (Without::Count, Pending::Bytes(_)) => Pending::Bytes(usize::MAX),
                    _ => pending,
                };
                Reading::Decided(self.core.next(pending, seen).map_err(broken)?)
            }
            Reading::Decided(take) => {
                match take {
                    Take::Kernel(most) => self.take_from_kernel(shared, most, dice),
                    Take::Ring => {
                        self.got.push(shared.ring[shared.taken]);
                        shared.taken += 1;
                    }
                    Take::AwaitEither | Take::AwaitRing => {}
                }
                Reading::Nothing
            }
        };
        Ok(())
    }

    fn look(shared: &Shared) -> Seen {
        Seen {
            state: shared.state,
            from: shared.from,
            unread: shared.unread(),
        }
    }

    fn leave(&mut self, shared: &mut Shared, without: Without) {
        shared.exchange(&[State::Kernel, State::Ring], State::Left, without);
        let left = self.core.leave(Self::look(shared));
        self.is_foreign = left.is_ok() || without == Without::Unread;
    }

    fn take_from_kernel(&mut self, shared: &mut Shared, most: u64, dice: &mut Dice) {
        let there = shared
            .pipe
            .len()
            .min(usize::try_from(most).unwrap_or(usize::MAX));
        if there == 0 {
            let is_for_good = self.is_foreign || self.core.is_by_kernel_for_good() || !shared.looks;
            self.is_over |= shared.is_shut && (is_for_good || shared.state == State::Kernel);
            return;
        }
        let taken = 1 + dice.roll(there);
        self.got.extend(shared.pipe.drain(..taken));
        self.core.took_from_kernel(taken);
    }
}

fn run(seed: u64, without: Without) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let mut shared = Shared {
        state: State::Kernel,
        from: 0,
        ring: Vec::new(),
        taken: 0,
        pipe: VecDeque::new(),
        is_shut: false,
        is_gone: false,
        looks: false,
    };
    let mut writer = Writer {
        core: Outgoing::new(),
        doing: Doing::Nothing,
        next: 0,
        is_over: false,
        was_killed: false,
    };
    let mut reader = Reader {
        core: Incoming::new(),
        reading: Reading::Nothing,
        got: Vec::new(),
        is_over: false,
        is_foreign: false,
    };
    for _ in 0..STEPS {
        // For a while, one of them alone.
        let who = dice.roll(2);
        for _ in 0..1 + dice.roll(16) {
            match who {
                0 => writer.step(&mut shared, &mut dice, without)?,
                _ => reader.step(&mut shared, &mut dice, without)?,
            }
        }
    }
    if !reader.is_over {
        return Err("the end does not come".to_owned());
    }
    let in_order = reader.got.iter().copied().eq(0..reader.got.len() as u32);
    if !in_order {
        return Err(format!("out of order: {:?}", reader.got));
    }
    // A writer that dies cannot give again what a reader has left in the ring.
    let is_whole = reader.got.len() == writer.next as usize;
    match is_whole || writer.was_killed && reader.is_foreign {
        true => Ok(()),
        false => Err(format!("lost: {} of {}", reader.got.len(), writer.next)),
    }
}

#[test]
fn every_byte_arrives_once_and_in_order_whoever_leaves_the_ring() {
    all_pass(100_000, &[], |seed| run(seed, Without::Nothing));
}

#[test]
fn without_each_rule_bytes_are_lost_or_overtaken() {
    for (without, words) in [
        (Without::Count, "hostile"),
        (Without::CountFirst, "hostile"),
        (Without::CountFirst, "lost"),
        (Without::Exchange, ""),
        (Without::Again, "out of order"),
        (Without::AgainBeforeEnd, "lost"),
        (Without::Looks, "hostile"),
        (Without::Unread, "out of order"),
        (Without::FromFirst, "hostile"),
    ] {
        let found = one_fails(20_000, words, |seed| run(seed, without));
        assert!(found, "{without:?} is not needed");
    }
}
