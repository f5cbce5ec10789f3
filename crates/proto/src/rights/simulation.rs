//! Two processes, lanes each way and a control channel in any order, against the tables.

use super::*;
use crate::schedule::{Dice, all_pass, one_fails};
use std::collections::VecDeque;

const LANES: usize = 3;
const PORTS: u32 = 3;
const BADGES: u64 = 2;

/// A right of the importer, with what it must stand for.
struct Right {
    handle: Handle,
    target: Target,
    uses: Vec<Use>,
}

/// A rule the importer forgets.
#[derive(Clone, Copy, PartialEq)]
enum Forgets {
    Nothing,
    /// To wait until messages that used a handle have been consumed.
    Uses,
    /// To give back as often as it received.
    Count,
    /// The exporter, to wait until replies that were sent before a release have been read.
    Replies,
}

struct World {
    exports: Exports,
    imports: Imports,
    /// From the exporter: handles given.
    given: [VecDeque<(Handle, Target)>; LANES],
    /// From the importer: messages to a handle, or with it inside.
    used: [VecDeque<(Handle, Target)>; LANES],
    posted: [u32; LANES],
    consumed: [u32; LANES],
    /// From the importer: replies with the handle inside, and how many have been read.
    replies: VecDeque<(Handle, Target)>,
    read: u32,
    releases: VecDeque<(Handle, u32)>,
    /// Given back, until so many replies have been read.
    ending: VecDeque<(u32, Handle)>,
    rights: Vec<Right>,
    forgets: Forgets,
}

impl World {
    fn new(forgets: Forgets, start: u32) -> Self {
        Self {
            exports: Exports::default(),
            imports: Imports::default(),
            given: Default::default(),
            used: Default::default(),
            posted: [start; LANES],
            consumed: [start; LANES],
            replies: VecDeque::new(),
            read: 0,
            releases: VecDeque::new(),
            ending: VecDeque::new(),
            rights: Vec::new(),
            forgets,
        }
    }

    fn step(&mut self, dice: &mut Dice) -> Result<(), String> {
        let lane = dice.roll(LANES);
        match dice.roll(10) {
            0 => {
                let port = dice.roll(PORTS as usize) as u32;
                let badge = dice.roll(BADGES as usize) as u64;
                let target = Target { port, badge };
                let handle = self.exports.export(target).map_err(|e| format!("{e:?}"))?;
                if dice.roll(4) == 0 {
                    // There was no room in the lane after all.
                    let undone = self.exports.release(handle, 1);
                    undone.map_err(|e| format!("undo: {e:?}"))?;
                    self.exports.finish(handle);
                } else {
                    self.given[lane].push_back((handle, target));
                }
            }
            1 => self.receive(lane)?,
            2 if !self.rights.is_empty() => {
                let Right { handle, target, .. } = self.rights[dice.roll(self.rights.len())];
                self.imports.copied(handle);
                let uses = Vec::new();
                self.rights.push(Right {
                    handle,
                    target,
                    uses,
                });
            }
            3 | 4 if !self.rights.is_empty() => {
                let place = dice.roll(self.rights.len());
                self.posted[lane] = self.posted[lane].wrapping_add(1);
                let right = &mut self.rights[place];
                self.used[lane].push_back((right.handle, right.target));
                right.uses.retain(|used| used.lane != lane as u32);
                let tail = self.posted[lane];
                right.uses.push(Use {
                    lane: lane as u32,
                    tail,
                });
            }
            5 if !self.rights.is_empty() => self.drop_right(dice.roll(self.rights.len())),
            6 => self.consume(lane)?,
            7 if !self.rights.is_empty() => {
                let right = &self.rights[dice.roll(self.rights.len())];
                self.replies.push_back((right.handle, right.target));
            }
            8 => self.read_reply()?,
            _ if dice.roll(2) == 0 => self.give_back(),
            _ => self.hear()?,
        }
        Ok(())
    }

    fn receive(&mut self, lane: usize) -> Result<(), String> {
        let Some((handle, target)) = self.given[lane].pop_front() else {
            return Ok(());
        };
        let arrived = self.imports.arrive(handle, target.port);
        arrived.map_err(|e| format!("arrive: {e:?}"))?;
        let uses = Vec::new();
        self.rights.push(Right {
            handle,
            target,
            uses,
        });
        Ok(())
    }

    fn drop_right(&mut self, place: usize) {
        let right = self.rights.swap_remove(place);
        self.imports.dropped(right.handle, &right.uses);
    }

    /// The exporter consumes one message: its handle must stand for what it stood for when posted.
    fn consume(&mut self, lane: usize) -> Result<(), String> {
        let Some((handle, target)) = self.used[lane].pop_front() else {
            return Ok(());
        };
        self.consumed[lane] = self.consumed[lane].wrapping_add(1);
        match self.exports.resolve(handle) {
            Some(found) if found == target => Ok(()),
            found => Err(format!("{handle:#x} was {target:?}, is {found:?}")),
        }
    }

    fn give_back(&mut self) {
        let (consumed, forgets) = (self.consumed, self.forgets);
        let is_consumed = |used: Use| {
            forgets == Forgets::Uses
                || consumed[used.lane as usize]
                    .wrapping_sub(used.tail)
                    .cast_signed()
                    >= 0
        };
        let given = self.imports.give_back(is_consumed).into_iter();
        let count = |count| if forgets == Forgets::Count { 1 } else { count };
        self.releases
            .extend(given.map(|(handle, received)| (handle, count(received))));
    }

    fn hear(&mut self) -> Result<(), String> {
        let Some((handle, count)) = self.releases.pop_front() else {
            return Ok(());
        };
        let released = self.exports.release(handle, count);
        if released.map_err(|e| format!("release: {e:?}"))? {
            let unread = if self.forgets == Forgets::Replies {
                0
            } else {
                self.replies.len() as u32
            };
            self.ending.push_back((self.read + unread, handle));
        }
        self.settle();
        Ok(())
    }

    fn settle(&mut self) {
        let read = self.read;
        while let Some((after, handle)) = self.ending.front()
            && *after <= read
        {
            self.exports.finish(*handle);
            self.ending.pop_front();
        }
    }

    fn read_reply(&mut self) -> Result<(), String> {
        let Some((handle, target)) = self.replies.pop_front() else {
            return Ok(());
        };
        self.read += 1;
        let found = self.exports.resolve(handle);
        self.settle();
        if found == Some(target) {
            return Ok(());
        }
        Err(format!(
            "in a reply: {handle:#x} was {target:?}, is {found:?}"
        ))
    }

    /// Whatever the importer holds, the exporter has in its table.
    fn check(&self) -> Result<(), String> {
        let right = self.rights.iter().find(|right| {
            let found = self.exports.resolve(right.handle);
            found != Some(right.target)
        });
        right.map_or(Ok(()), |right| Err(format!("{:#x} is lost", right.handle)))
    }

    /// Everything arrives and is dropped: nothing may be left.
    fn end(&mut self) -> Result<(), String> {
        loop {
            for lane in 0..LANES {
                while !self.given[lane].is_empty() {
                    self.receive(lane)?;
                }
            }
            while !self.rights.is_empty() {
                self.drop_right(0);
            }
            for lane in 0..LANES {
                while !self.used[lane].is_empty() {
                    self.consume(lane)?;
                }
            }
            while !self.replies.is_empty() {
                self.read_reply()?;
            }
            self.give_back();
            if self.releases.is_empty() {
                break;
            }
            while !self.releases.is_empty() {
                self.hear()?;
            }
        }
        if self.exports.is_empty() && self.imports.is_empty() {
            Ok(())
        } else {
            Err(format!("{} rights left", self.exports.len()))
        }
    }
}

fn run(seed: u64, forgets: Forgets) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    // Positions wrap around.
    let mut world = World::new(forgets, 5u32.wrapping_sub(dice.roll(40) as u32));
    for _ in 0..20 + dice.roll(100) {
        world.step(&mut dice)?;
        world.check()?;
    }
    world.end()
}

#[test]
fn handles_stand_for_what_they_were_sent_for_in_every_schedule() {
    all_pass(100_000, &[], |seed| run(seed, Forgets::Nothing));
}

#[test]
fn a_release_that_overtakes_messages_is_found() {
    assert!(one_fails(2_000, "", |seed| run(seed, Forgets::Uses)));
}

#[test]
fn a_right_that_is_sent_again_while_it_is_given_back_needs_the_count() {
    assert!(one_fails(2_000, "", |seed| run(seed, Forgets::Count)));
}

#[test]
fn a_right_that_goes_home_in_a_reply_ends_after_that_has_been_read() {
    assert!(one_fails(2_000, "", |seed| run(seed, Forgets::Replies)));
}

#[test]
fn what_no_honest_peer_does_is_refused() {
    let target = |port| Target { port, badge: 7 };
    let mut exports = Exports::default();
    let handle = exports.export(target(1)).unwrap();
    assert_eq!(
        exports.export(target(1)),
        Ok(handle),
        "one handle for one right"
    );
    assert_eq!(exports.release(handle, 3), Err(Refused::Release));
    assert_eq!(exports.release(handle ^ 1, 1), Err(Refused::Unknown));
    assert_eq!(
        exports.release(handle ^ 1 << INDEX_BITS, 1),
        Err(Refused::Unknown)
    );
    assert_eq!(
        exports.release(handle & !IS_HANDLE, 1),
        Err(Refused::Unknown)
    );
    assert_eq!(exports.release(handle, 0), Err(Refused::Release));
    assert_eq!(exports.finish(handle), None);
    assert_eq!(exports.release(handle, 2), Ok(true));
    assert_eq!(exports.release(handle, 1), Err(Refused::Unknown));
    assert_eq!(exports.resolve(handle), Some(target(1)));
    assert_eq!(exports.finish(handle), Some(target(1)));
    assert_eq!(exports.finish(handle), None);
    assert_eq!(exports.resolve(handle), None);
    let again = exports.export(target(2)).unwrap();
    assert_ne!(again, handle, "the same index, another generation");

    let mut imports = Imports::default();
    assert_eq!(imports.arrive(5, 1), Err(Refused::Unknown));
    assert_eq!(imports.arrive(handle, 1), Ok(()));
    assert_eq!(imports.arrive(handle, 2), Err(Refused::Port));
    assert_eq!(imports.len(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "a million steps")]
fn the_table_holds_a_million_rights_and_says_when_it_is_full() {
    let target = |badge| Target { port: 0, badge };
    let mut exports = Exports::default();
    for badge in 0..u64::from(EXPORTS_MAX) {
        exports.export(target(badge)).unwrap();
    }
    assert_eq!(exports.export(target(u64::MAX)), Err(Refused::Full));
    assert_eq!(exports.end(), [(0, u64::from(EXPORTS_MAX))]);
    assert_eq!(exports.end(), [], "told once");
    assert_eq!(exports.export(target(0)), Err(Refused::Over));
    let handle = handle(5, 0);
    assert_eq!(
        exports.resolve(handle),
        Some(target(5)),
        "for what was left behind"
    );
    assert_eq!(exports.release(handle, 1), Ok(true));
    assert_eq!(exports.finish(handle), None, "it has been told of");

    // A peer that makes up handles finds an end, too.
    let mut imports = Imports::default();
    let made_up = (0..).map(|number| IS_HANDLE | number);
    let taken = made_up.take_while(|handle| imports.arrive(*handle, 1).is_ok());
    assert_eq!(taken.count(), EXPORTS_MAX as usize);
}
