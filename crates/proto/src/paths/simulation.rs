//! Some processes that call each other and pass the calls on, against the three tables. Reply slots
//! are memory, so what is written there is seen at once; control messages and lanes are queues, each
//! in its own order; processes and links end at any step.
//!
//! The processes do the same as `handfast-port`, step by step where another thread or process
//! may come in between.

mod control;
mod ends;
mod outcomes;
mod passing;
mod quiet;

use super::*;
use crate::schedule::{Dice, all_pass, one_fails};
use control::Control;
use outcomes::Wait;
use passing::{Message, Pass};
use std::collections::VecDeque;

const PROCESSES: usize = 4;
const LANES: usize = 2;
/// Slots of a set.
const PLACES: usize = 2;
const OWN_SET: u32 = 1;
const SETS: u32 = 4;

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// A path that is over stays known until those who waited then have left.
    Followers,
    /// The same, and its set stays taken while somebody waits in it.
    Waiters,
    /// Return slots are cleared when they are granted.
    Clearing,
    /// A number leads to one path.
    NewNumbers,
    /// The replier says that a path is over after the last right to answer by it is gone.
    LastRight,
    /// A caller that finds no outcome and an end looks for the outcome again.
    SecondLook,
    /// A set from which a path leads on is not granted again.
    LeadingOn,
    /// A request to a link that has ended is refused.
    Unmet,
    /// A request to a caller stays known when the forwarder is gone: the caller will answer.
    Tokens,
    /// The forwarder is told that a caller is gone.
    Refusal,
    /// The same, where the link with the caller ends while the path comes to be known.
    LateRefusal,
    /// A caller's link may end between the look for it and the entry of the request.
    LateUnmet,
    /// The parties of a link end when nobody listens to it any more, even if it is still held.
    DeafParties,
    /// A forwarder's source ends its paths.
    Drops,
}

/// One side of a link. The other one is that with the last bit of its number changed.
struct End {
    number: usize,
    of: usize,
    peer: usize,
    /// Its process's number for it, as told to others. Used again.
    index: u32,
    is_down: bool,
    /// It is down because the peer broke a rule: its lanes are not listened to.
    is_cut: bool,
    /// Its process has forgotten it, but for those who hold it.
    has_ended: bool,
    /// Nothing is taken from its lanes any more.
    is_deaf: bool,
    /// The last use of it is gone.
    is_gone: bool,
    /// The other side has ended: the socket says so after what was sent.
    peer_ended: bool,
    /// The application has a right to a port of the peer.
    is_held: bool,
    /// The peer has a right to a port of this process.
    is_granted: bool,
    /// From the peer.
    socket: VecDeque<Control>,
    lanes: [VecDeque<Message>; LANES],
    /// Outcomes of calls that are made through this side, and others that come here.
    slots: [[Slot; PLACES]; SETS as usize],
    /// For the first two sets: the generation of the last use, and whether it is in use.
    used: [[(u32, bool); PLACES]; 2],
    asks: Asks,
    parties: Parties<usize>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u32,
    outcome: Outcome,
}

#[derive(Clone, Copy, Default, Debug, PartialEq)]
enum Outcome {
    #[default]
    Dropped,
    /// The answer to this call.
    Answer(usize),
    Moved(u32),
}

/// The right to answer a call.
struct Right {
    /// The holder's link with the caller.
    end: usize,
    set: u32,
    place: usize,
    generation: u32,
    party: Option<usize>,
    call: usize,
}

#[derive(Default)]
struct Process {
    is_dead: bool,
    core: Paths,
    /// The ends the process knows.
    live: Vec<usize>,
    wanted: Vec<Wanted>,
    last_token: u32,
    rights: Vec<Right>,
    passes: Vec<Pass>,
    waits: Vec<Wait>,
}

struct Wanted {
    token: u32,
    of: usize,
    forwarder: usize,
    number: u32,
}

/// The meaning of a replier's number.
struct Party {
    end: usize,
    set: u32,
    path: u32,
    /// Entries of tables and rights.
    uses: usize,
}

/// A path of a caller's.
struct Known {
    of: usize,
    end: usize,
    number: u32,
    set: u32,
    root: (usize, u32),
    is_over: bool,
    last: Option<Vec<(usize, u32)>>,
    /// Entries of tables and waits.
    uses: usize,
}

/// The required outcome of a call.
#[derive(Default)]
struct Call {
    /// Something has happened after which it need not be answered.
    is_excused: bool,
    /// Links it needs: for ever, until its caller is told where it has gone, and now.
    vines: Vec<usize>,
    moves: Vec<usize>,
    needs: Vec<usize>,
}

struct World {
    without: Without,
    now_ns: u64,
    dice: Dice,
    processes: Vec<Process>,
    ends: Vec<End>,
    parties: Vec<Party>,
    paths: Vec<Known>,
    calls: Vec<Call>,
    answers: usize,
}

impl World {
    fn step(&mut self) -> Result<(), String> {
        for _ in 0..6 {
            let of = self.dice.roll(PROCESSES);
            self.work(of)?;
        }
        let of = self.dice.roll(PROCESSES);
        if self.processes[of].is_dead {
            return Ok(());
        }
        match self.dice.roll(64) {
            0 => self.now_ns += ASK_AGAIN_NS / 2,
            1..3 => self.connect(of),
            3 if self.dice.roll(3) == 0 => self.cut(of),
            4 if self.dice.roll(4) == 0 => self.kill(of),
            4 => self.renew(),
            5 => self.hold(of),
            6 => self.release(of),
            7 => self.give_up(of),
            8 => self.answer(of, false),
            // Nearly all take the same way, so that there are paths for it.
            9..11 => self.call(of),
            11..24 => self.call(0),
            _ if of + 1 < PROCESSES && self.dice.roll(8) > 0 => self.begin_pass(of),
            _ => self.answer(of, true),
        }
        Ok(())
    }

    /// One step of what a process does when it gets something to do.
    fn work(&mut self, of: usize) -> Result<(), String> {
        match self.dice.roll(16) {
            0..5 => while self.hear(of)? && self.dice.roll(4) > 0 {},
            5..8 => self.receive(of),
            8..11 => self.pass(of),
            11..14 => self.look(of)?,
            14 => self.leave_paths(of),
            _ => self.collect(of),
        }
        Ok(())
    }
}

fn run(seed: u64, without: Without) -> Result<(), String> {
    let mut world = World::new(seed, without);
    for _ in 0..50 + world.dice.roll(250) {
        world.step()?;
        world.check()?;
    }
    world.end()
}

#[test]
fn every_call_has_its_own_outcome_in_every_schedule() {
    all_pass(100_000, &[], |seed| run(seed, Without::Nothing));
}

fn fails_without(rule: Without, words: &str) {
    assert!(one_fails(400_000, words, |seed| run(seed, rule)));
}

#[test]
fn a_path_that_is_forgotten_when_it_is_over_loses_outcomes() {
    fails_without(Without::Followers, "is lost");
}

#[test]
fn a_set_that_is_granted_while_somebody_waits_in_it_is_found() {
    fails_without(Without::Waiters, "got the answer of");
}

#[test]
fn slots_that_are_not_cleared_show_outcomes_of_others() {
    fails_without(Without::Clearing, "got the answer of");
}

#[test]
fn a_number_that_is_used_twice_means_another_path() {
    fails_without(Without::NewNumbers, "is lost");
}

#[test]
fn a_path_that_is_over_while_somebody_may_answer_is_found() {
    fails_without(Without::LastRight, "waits for ever");
}

#[test]
fn an_end_is_looked_for_before_the_outcome() {
    fails_without(Without::SecondLook, "is lost");
}

#[test]
fn a_set_from_which_a_path_leads_on_is_not_free() {
    fails_without(Without::LeadingOn, "answer");
}

#[test]
fn what_a_caller_that_is_gone_was_asked_for_is_refused() {
    fails_without(Without::Unmet, "never answered");
}

#[test]
fn a_caller_may_grant_what_a_forwarder_that_is_gone_has_asked_for() {
    fails_without(Without::Tokens, "was not wanted");
}

#[test]
fn what_is_asked_while_the_caller_goes_is_refused() {
    fails_without(Without::LateUnmet, "never answered");
}

#[test]
fn a_forwarder_is_told_that_a_caller_is_gone() {
    fails_without(Without::Refusal, "means nothing");
}

#[test]
fn a_forwarder_is_told_that_a_caller_went_just_then() {
    fails_without(Without::LateRefusal, "means nothing");
}

#[test]
fn what_was_lost_with_a_link_is_not_waited_for() {
    fails_without(Without::DeafParties, "waits for ever");
}

#[test]
fn a_path_ends_with_its_source() {
    fails_without(Without::Drops, "has ended");
}
