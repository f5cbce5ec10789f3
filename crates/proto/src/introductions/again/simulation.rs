//! A right that is kept while its exporter ends. An introducer gives it again and again; of the recipient one thread receives
//! and keeps, as `keep` of `handfast-port` does, and the control thread sees the exporter end and asks that the right leave.

use super::*;
use crate::schedule::{Dice, all_pass, one_fails};
use std::collections::VecDeque;

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// Nobody finds a right that is kept before its introducer has been told.
    ToldFirst,
    /// The thread that has kept a right looks whether its exporter has ended.
    LookAfter,
}

enum InLane {
    Provided(u64, bool),
    Again(u64),
}

enum Said {
    Kept(u64),
    Leave(u64, u32),
}

/// The next step of the receiving thread.
enum Step {
    Receive,
    Tell(u64),
    Look,
}

struct World {
    without: Without,
    told: Remembered<u8>,
    keeping: Keeping<()>,
    step: Step,
    lane: VecDeque<InLane>,
    said: VecDeque<Said>,
    left: VecDeque<u64>,
    last: u64,
    /// Whether the recipient has seen the exporter end, and then has asked for the rights it keeps of it.
    is_down: bool,
    has_asked: bool,
}

/// Messages with the right in them.
const GIVEN: u64 = 12;

impl World {
    fn new(without: Without) -> Self {
        Self {
            without,
            told: Remembered::default(),
            keeping: Keeping::default(),
            step: Step::Receive,
            lane: VecDeque::new(),
            said: VecDeque::new(),
            left: VecDeque::new(),
            last: 0,
            is_down: false,
            has_asked: false,
        }
    }

    fn give(&mut self) {
        self.last += 1;
        let number = self.last;
        let given = match self.told.give(1) {
            How::Again(number) => InLane::Again(number),
            How::Provide { keep } => {
                if keep {
                    self.told.offered(1, number);
                }
                InLane::Provided(number, keep)
            }
        };
        self.lane.push_back(given);
    }

    fn ask_to_leave(&mut self) {
        let ended = self.keeping.end_those(|()| true);
        let asked = ended.into_iter();
        self.said
            .extend(asked.map(|(number, came, ())| Said::Leave(number, came)));
    }

    fn receive(&mut self) -> Result<(), String> {
        match core::mem::replace(&mut self.step, Step::Receive) {
            Step::Receive => match self.lane.pop_front() {
                Some(InLane::Provided(number, true)) => {
                    if self.keeping.keep(number, ()).is_ok() {
                        self.step = Step::Tell(number);
                        if self.without != Without::ToldFirst {
                            return self.receive();
                        }
                    }
                }
                Some(InLane::Again(number)) => match self.keeping.again(number) {
                    None => {
                        return Err(format!("nobody keeps {number}, which has come again"));
                    }
                    Some(Came::Ended { came }) => {
                        self.said.push_back(Said::Leave(number, came));
                    }
                    Some(Came::Right(())) if self.is_down => self.ask_to_leave(),
                    Some(Came::Right(())) => {}
                },
                Some(InLane::Provided(_, false)) | None => {}
            },
            Step::Tell(number) => {
                self.said.push_back(Said::Kept(number));
                self.step = Step::Look;
            }
            Step::Look => {
                if self.is_down && self.without != Without::LookAfter {
                    self.ask_to_leave();
                }
            }
        }
        Ok(())
    }

    /// The recipient's control thread.
    fn control(&mut self) {
        if let Some(number) = self.left.pop_front() {
            self.keeping.left(number);
        } else if self.is_down && !self.has_asked {
            self.has_asked = true;
            self.ask_to_leave();
        }
    }

    fn introducer_hears(&mut self) {
        let (number, has_left) = match self.said.pop_front() {
            Some(Said::Kept(number)) => (number, !self.told.kept(number)),
            Some(Said::Leave(number, came)) => (number, self.told.leave(number, came)),
            None => return,
        };
        if has_left {
            self.left.push_back(number);
        }
    }

    fn is_quiet(&self) -> bool {
        let is_idle = matches!(self.step, Step::Receive);
        is_idle && self.lane.is_empty() && self.said.is_empty() && self.left.is_empty()
    }
}

fn run(seed: u64, without: Without) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let mut world = World::new(without);
    while world.last < GIVEN || !world.is_down || !world.has_asked || !world.is_quiet() {
        match dice.roll(8) {
            0 | 1 if world.last < GIVEN => world.give(),
            2 | 3 => world.receive()?,
            4 | 5 => world.control(),
            6 => world.introducer_hears(),
            7 if dice.roll(4) == 0 => world.is_down = true,
            _ => {}
        }
    }
    match world.keeping.kept.is_empty() {
        true => Ok(()),
        false => Err("a right of an exporter that has ended is kept".into()),
    }
}

#[test]
fn nothing_is_kept_of_an_exporter_that_has_ended() {
    all_pass(20_000, &[], |seed| run(seed, Without::Nothing));
}

#[test]
fn it_would_be_without_a_look_after_it_is_kept() {
    let run = |seed| run(seed, Without::LookAfter);
    assert!(one_fails(20_000, "has ended is kept", run));
}

#[test]
fn what_has_left_would_come_again_if_it_were_found_before_its_introducer_is_told() {
    let run = |seed| run(seed, Without::ToldFirst);
    assert!(one_fails(20_000, "nobody keeps", run));
}
