//! One port that moves between some homes, and processes that send to it. Statements in lanes and over
//! sockets come in the order of each, and in any order between them; processes end at any step.
//!
//! The processes do the same as `handfast-port`, with the tables of both.

mod ends;
mod homes;
mod instance;
mod senders;

use super::*;
use crate::introductions::{Claim, Claims, Incarnation, Number, Provisions, Redeemed};
use crate::rights::{Early, Exports, Imports, Meaning, Target, Use};
use crate::schedule::{Dice, all_pass, one_fails};
use instance::{Instance, State};
use senders::App;
use std::collections::{BTreeMap, VecDeque};

const HOMES: usize = 3;
const SENDERS: usize = 2;
const PROCESSES: usize = HOMES + SENDERS;
/// Threads of each sender; each has a lane to each port.
const THREADS: usize = 2;
/// Rights of each sender to the port, under a name each.
const BADGES: u64 = 2;

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Without {
    Nothing,
    /// A sender that goes another way says so in its lanes.
    Marks,
    /// It says so in each of them.
    AllLanes,
    /// It is provided for after the last mark.
    LastMark,
    /// That is said in order with what was passed on.
    Order,
    /// Nothing comes in between a mark and the other way.
    Locks,
    /// The trail stays where it is.
    Pin,
    /// A name is given back once what used it has been consumed.
    Uses,
    /// A process that gets a right at a trail is told, too.
    New,
    /// A trail stays while there are rights to it.
    Stay,
    /// Marks for a port that is no more are no fault.
    LateMarks,
    /// A message that was taken is answered, or dropped, when its process ends.
    Drops,
    /// News of a name that comes before a right by it is kept.
    Early,
    /// And what was heard of one that was given back before it was used.
    Dropped,
    /// A holder that gives back while more is under way is told once more.
    Again,
    /// And not taken for one that lies when it has said its marks before that.
    Before,
}

/// In a lane.
#[derive(Clone, Debug)]
enum Said {
    Use { word: u32, message: usize },
    Provide { word: u32, number: u64, to: usize },
    Claim { word: u32, number: Number },
    Mint { by: u32, word: u32, badge: u64 },
    Mark { word: u32, number: u64, lanes: u32 },
}

/// From the process of a port to one that has rights there.
#[derive(Clone, Debug)]
enum News {
    Moved {
        name: Handle,
        port: u32,
        number: u64,
        home: usize,
    },
    Arrived {
        instance: usize,
        handle: Handle,
        port: u32,
    },
}

/// The lane of one process, for one port.
#[derive(Default)]
struct Lane {
    queue: VecDeque<Said>,
    posted: u32,
    consumed: u32,
}

/// The state of a name.
enum Redirect {
    Stays,
    To(Moved),
}

struct Moved {
    home: usize,
    port: u32,
    number: u64,
    /// Where marks were said, when that and the switch are two steps.
    marked: Option<Vec<Use>>,
    direct: Option<App>,
}

/// A process that sends, and one that has ports.
#[derive(Default)]
struct Side {
    imports: Imports,
    redirects: BTreeMap<Handle, Redirect>,
    exports: Exports,
    claims: Claims,
    /// By port and thread.
    lanes: BTreeMap<(u32, usize), Lane>,
    /// Rights in messages.
    given: VecDeque<(Handle, Target)>,
    news: VecDeque<News>,
    releases: VecDeque<(Handle, u32)>,
    /// News of names by which nobody had a right.
    early: Early<Moved>,
    /// The exporter has heard of the sender's end.
    has_ended: bool,
}

/// A thread of a process, and the right it uses, by its first home and the name there: by one right all comes
/// in order.
type Sender = (usize, usize, usize, u32);

/// A message that has been sent.
struct Message {
    by: Sender,
    badge: u64,
    number: u64,
    is_call: bool,
    arrived: u32,
    outcomes: u32,
}

struct World {
    without: Without,
    dice: Dice,
    is_dead: [bool; PROCESSES],
    has_died: bool,
    instances: Vec<Instance>,
    sides: Vec<Side>,
    provisions: Vec<Provisions<Target>>,
    numbers: [u64; PROCESSES],
    apps: Vec<App>,
    messages: Vec<Message>,
    sent: BTreeMap<Sender, u64>,
    seen: BTreeMap<Sender, u64>,
    /// Calls that are being answered.
    open: Vec<(usize, usize)>,
    /// Counts what has been done: a process that has nothing to do any more has settled.
    done: usize,
}

const fn incarnation(of: usize) -> Incarnation {
    [of as u8 + 1; 20]
}

fn process_of(of: Incarnation) -> usize {
    usize::from(of[0]) - 1
}

impl World {
    fn new(seed: u64, without: Without) -> Result<Self, String> {
        let mut world = Self {
            without,
            dice: Dice::new(seed),
            is_dead: [false; PROCESSES],
            has_died: false,
            instances: vec![Instance::new(0)],
            sides: (0..PROCESSES * PROCESSES)
                .map(|_| Side::default())
                .collect(),
            provisions: (0..PROCESSES).map(|_| Provisions::default()).collect(),
            numbers: [0; PROCESSES],
            apps: Vec::new(),
            messages: Vec::new(),
            sent: BTreeMap::new(),
            seen: BTreeMap::new(),
            open: Vec::new(),
            done: 0,
        };
        for sender in HOMES..PROCESSES {
            for badge in 0..BADGES {
                world.grant(sender, badge);
                world.take_given(sender, 0)?;
            }
        }
        Ok(world)
    }

    fn side(&mut self, sender: usize, home: usize) -> &mut Side {
        &mut self.sides[sender * PROCESSES + home]
    }

    fn step(&mut self, may_kill: bool) -> Result<(), String> {
        let sender = HOMES + self.dice.roll(SENDERS);
        match self.dice.roll(32) {
            0 if may_kill && self.dice.roll(6) == 0 => {
                let of = self.dice.roll(PROCESSES);
                self.kill(of);
            }
            1 if self.dice.roll(2) == 0 => self.depart(),
            2 => {
                let badge = self.dice.roll(BADGES as usize) as u64;
                self.grant(sender, badge);
            }
            3 => self.copy(),
            4 => self.drop_one(),
            5..14 => self.send(sender),
            _ => self.work()?,
        }
        Ok(())
    }

    /// One step of what there is to do.
    fn work(&mut self) -> Result<(), String> {
        let (of, home) = (self.dice.roll(PROCESSES), self.dice.roll(HOMES));
        match self.dice.roll(16) {
            0 => self.arrive(),
            1..3 => self.hear(of, home)?,
            3 => self.hear_releases(of, home)?,
            4 => self.give_back(of, home),
            5..7 => self.switch(of, home)?,
            7 => self.answer(),
            8 => self.hear_of_end(of, home)?,
            10 => self.take_given(of, home)?,
            11 if self.without != Without::New => {
                let instance = self.dice.roll(self.instances.len());
                self.tell_holders(instance);
            }
            9 => self.end_tails()?,
            _ => {
                let instance = self.dice.roll(self.instances.len());
                let lane = (self.dice.roll(PROCESSES), self.dice.roll(THREADS));
                self.take(instance, lane)?;
            }
        }
        Ok(())
    }

    fn is_in(&self, of: usize, state: fn(&State) -> bool) -> bool {
        state(&self.instances[of].state)
    }

    /// Nothing more is to be done: everything is said, heard, and switched.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            let before = self.done;
            for of in 0..self.sides.len() {
                let (of, home) = (of / PROCESSES, of % PROCESSES);
                self.hear(of, home)?;
                self.take_given(of, home)?;
                self.hear_releases(of, home)?;
                self.give_back(of, home);
                self.switch(of, home)?;
                self.hear_of_end(of, home)?;
                for instance in 0..self.instances.len() {
                    for thread in 0..THREADS {
                        if self.instances[instance].home == home {
                            self.take(instance, (of, thread))?;
                        }
                    }
                }
            }
            for instance in 0..self.instances.len() {
                if self.without != Without::New {
                    self.tell_holders(instance);
                }
            }
            self.arrive();
            self.answer();
            self.end_tails()?;
            if self.done == before {
                break;
            }
        }
        for of in 0..self.sides.len() {
            let (sender, home) = (of / PROCESSES, of % PROCESSES);
            if self.is_dead[home] || self.is_dead[sender] {
                continue;
            }
            for ((port, _), lane) in &self.sides[of].lanes {
                if !lane.queue.is_empty() {
                    return Err(format!(
                        "{sender} waits for ever for {port} at {home}: {:?}",
                        lane.queue
                    ));
                }
            }
        }
        for message in &self.messages {
            let is_lost = message.arrived == 0 && !self.has_died;
            if is_lost {
                return Err(format!(
                    "message {} of {:?} is lost",
                    message.number, message.by
                ));
            }
            if message.is_call && message.outcomes != 1 && !self.is_dead[message.by.0] {
                return Err(format!(
                    "a call of {:?} has {} outcomes",
                    message.by, message.outcomes
                ));
            }
        }
        Ok(())
    }

    /// Every holder that could follow has followed, and everything is dropped: nothing may be left.
    fn end(&mut self) -> Result<(), String> {
        self.settle()?;
        if !self.has_died {
            // Rights that came before their port was heard to have moved on lead straight to it.
            for app in &self.apps {
                let (_, _, port) = self.best(app);
                let is_here = self.is_in(port as usize, |state| matches!(state, State::Receiving));
                if !is_here {
                    return Err(format!("{} goes through a trail for ever", app.sender));
                }
            }
        }
        while !self.apps.is_empty() {
            self.drop_one();
        }
        self.settle()?;
        for (of, instance) in self.instances.iter().enumerate() {
            let is_here = !self.is_dead[instance.home];
            if is_here && matches!(instance.state, State::Trail(_) | State::Leaving { .. }) {
                return Err(format!("the trail of {of} has not ended"));
            }
            if is_here && instance.rights != 0 && !matches!(instance.state, State::Ended) {
                return Err(format!("{} rights to {of} are left", instance.rights));
            }
        }
        for (of, side) in self.sides.iter().enumerate() {
            let (sender, home) = (of / PROCESSES, of % PROCESSES);
            if self.is_dead[sender] || self.is_dead[home] {
                continue;
            }
            if !side.imports.is_empty() || !side.exports.is_empty() {
                return Err(format!("rights of {sender} at {home} are left"));
            }
            if side.claims.granted().next().is_some() {
                return Err(format!("claims of {sender} at {home} are left"));
            }
            let is_kept = |redirect: &Redirect| matches!(redirect, Redirect::To(_));
            if side.redirects.values().any(is_kept) {
                return Err(format!("redirects of {sender} at {home} are left"));
            }
        }
        Ok(())
    }
}

fn run(seed: u64, without: Without) -> Result<(), String> {
    let mut world = World::new(seed, without)?;
    let may_kill = world.dice.roll(2) == 0;
    for _ in 0..20 + world.dice.roll(300) {
        world.step(may_kill)?;
    }
    world.end()
}

#[test]
fn a_port_that_moves_gets_all_once_in_order_in_every_schedule() {
    all_pass(100_000, &[], |seed| run(seed, Without::Nothing));
}

fn fails_without(rule: Without, words: &str) {
    assert!(one_fails(100_000, words, |seed| run(seed, rule)));
}

#[test]
fn without_marks_what_goes_straight_overtakes() {
    fails_without(Without::Marks, "out of order");
}

#[test]
fn without_a_mark_in_each_lane_what_goes_straight_overtakes() {
    fails_without(Without::AllLanes, "out of order");
}

#[test]
fn who_is_provided_for_at_the_first_mark_overtakes() {
    fails_without(Without::LastMark, "out of order");
}

#[test]
fn who_is_provided_for_in_another_lane_overtakes() {
    fails_without(Without::Order, "out of order");
}

#[test]
fn what_is_posted_between_a_mark_and_the_switch_is_overtaken() {
    fails_without(Without::Locks, "out of order");
}

#[test]
fn a_tail_that_follows_its_own_port_provides_where_nobody_claims() {
    fails_without(Without::Pin, "waits for ever");
}

#[test]
fn a_name_that_is_given_back_too_soon_means_something_else() {
    fails_without(Without::Uses, "means something else");
}

#[test]
fn who_gets_a_right_at_a_tail_and_is_not_told_stays_there() {
    fails_without(Without::New, "goes through a trail");
}

#[test]
fn a_tail_that_ends_too_soon_loses_messages() {
    fails_without(Without::Stay, "is lost");
}

#[test]
fn a_mark_may_come_after_the_end_of_its_port() {
    fails_without(Without::LateMarks, "cut");
}

#[test]
fn what_a_home_takes_along_is_dropped() {
    fails_without(Without::Drops, "0 outcomes");
}

#[test]
fn who_forgets_what_was_heard_before_a_right_came_stays_at_the_trail() {
    fails_without(Without::Early, "goes through a trail");
}

#[test]
fn who_forgets_what_was_heard_of_a_right_that_was_dropped_stays_at_the_trail() {
    fails_without(Without::Dropped, "goes through a trail");
}

#[test]
fn a_right_that_comes_after_all_others_were_given_back_stays_at_the_trail() {
    fails_without(Without::Again, "goes through a trail");
}

#[test]
fn marks_may_come_after_their_sender_was_told_once_more() {
    fails_without(Without::Before, "is unknown");
}
