//! Two processes, lanes each way and a control channel in any order, against the tables.

use super::*;
use crate::schedule::{Dice, all_pass, one_fails};
use std::collections::VecDeque;

const LANES: usize = 3;
const PORTS: u32 = 3;
const BADGES: u64 = 2;

/// The required target of a right: this, as it was between two revocations.
#[derive(Clone, Copy, PartialEq)]
struct Sent {
    handle: Handle,
    target: Target,
    era: u32,
}

/// A right of the importer.
struct Right {
    sent: Sent,
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
    /// To keep a revoked entry until it has been given back.
    Entry,
    /// That what is exported after a revocation is another right.
    Mint,
    /// That a revoked right has been told of when it is given back.
    Told,
    /// To mark what comes to a watched badge.
    Mark,
    /// The importer, that a handle may come after the word that it was revoked.
    Early,
}

struct World {
    exports: Exports,
    imports: Imports,
    /// From the exporter: handles given.
    given: [VecDeque<Sent>; LANES],
    /// From the importer: messages to a handle, or with it inside.
    used: [VecDeque<Sent>; LANES],
    posted: [u32; LANES],
    consumed: [u32; LANES],
    /// From the importer: replies with the handle inside, and how many have been read.
    replies: VecDeque<Sent>,
    read: u32,
    releases: VecDeque<(Handle, u32)>,
    /// Given back, until so many replies have been read.
    ending: VecDeque<(u32, Handle)>,
    rights: Vec<Right>,
    /// How often each target was revoked.
    eras: [[u32; BADGES as usize]; PORTS as usize],
    /// Handles the importer is to be told of.
    told: VecDeque<Handle>,
    /// The last handle of each target, as a world without eras would have it.
    last: [[Option<Handle>; BADGES as usize]; PORTS as usize],
    /// Rights that have begun, less rights that have ended, of each target: no-senders notices go by this count.
    senders: [[i64; BADGES as usize]; PORTS as usize],
    /// The same count for the watched targets, as far as it is told.
    watched: [[Option<i64>; BADGES as usize]; PORTS as usize],
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
            eras: Default::default(),
            told: VecDeque::new(),
            last: Default::default(),
            senders: Default::default(),
            watched: Default::default(),
            forgets,
        }
    }

    fn step(&mut self, dice: &mut Dice) -> Result<(), String> {
        let lane = dice.roll(LANES);
        match dice.roll(13) {
            0 => {
                let target = Self::target(dice);
                let sent = self.export(target)?;
                if dice.roll(4) == 0 {
                    // There was no room in the lane after all.
                    let undone = self.exports.release(sent.handle, 1);
                    if undone.map_err(|e| format!("undo: {e:?}"))? {
                        self.finish(sent.handle);
                    }
                } else {
                    self.given[lane].push_back(sent);
                }
            }
            1 => self.receive(lane)?,
            2 if !self.rights.is_empty() => {
                let sent = self.rights[dice.roll(self.rights.len())].sent;
                self.imports.copied(sent.handle);
                let uses = Vec::new();
                self.rights.push(Right { sent, uses });
            }
            3 | 4 if !self.rights.is_empty() => {
                let place = dice.roll(self.rights.len());
                self.posted[lane] = self.posted[lane].wrapping_add(1);
                let right = &mut self.rights[place];
                self.used[lane].push_back(right.sent);
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
                self.replies.push_back(right.sent);
            }
            8 => self.read_reply()?,
            9 if dice.roll(2) == 0 => self.revoke(Self::target(dice)),
            9 => self.hear_revoked()?,
            10 if dice.roll(4) == 0 => {
                let target = Self::target(dice);
                let found = self.exports.watch(target.port, target.badge);
                *self.watched(target).get_or_insert(0) += i64::from(found);
            }
            _ if dice.roll(2) == 0 => self.give_back(),
            _ => self.hear()?,
        }
        Ok(())
    }

    fn target(dice: &mut Dice) -> Target {
        let port = dice.roll(PORTS as usize) as u32;
        let badge = dice.roll(BADGES as usize) as u64;
        // All, or two of them.
        Target::full(port, badge).attenuated([u16::MAX, 0b11][dice.roll(2)])
    }

    fn era(&self, target: Target) -> u32 {
        self.eras[target.port as usize][target.badge as usize]
    }

    fn export(&mut self, target: Target) -> Result<Sent, String> {
        let before = self.exports.len();
        let handle = self.exports.export(target).map_err(|e| format!("{e:?}"))?;
        if self.exports.len() > before {
            *self.senders(target) += 1;
            if self.watched(target).is_some() && self.forgets != Forgets::Mark {
                let marked = self.exports.watch_new(handle);
                *self.watched(target).get_or_insert(0) += i64::from(marked);
            }
        }
        let era = self.era(target);
        let last = &mut self.last[target.port as usize][target.badge as usize];
        let handle = match (self.forgets, *last) {
            (Forgets::Mint, Some(last)) if self.exports.resolve(last).is_some() => last,
            _ => handle,
        };
        *last = Some(handle);
        Ok(Sent {
            handle,
            target,
            era,
        })
    }

    fn finish(&mut self, handle: Handle) {
        let was_there = self.exports.resolve(handle).is_some();
        if let Some((target, is_watched)) = self.exports.finish(handle) {
            self.ended(target, 1, i64::from(is_watched));
        } else if was_there && self.forgets == Forgets::Told {
            self.ended(Target::full(0, 0), 1, 0);
        }
    }

    fn ended(&mut self, target: Target, count: i64, watched: i64) {
        *self.senders(target) -= count;
        if watched > 0 {
            *self.watched(target).get_or_insert(0) -= watched;
        }
    }

    fn senders(&mut self, target: Target) -> &mut i64 {
        &mut self.senders[target.port as usize][target.badge as usize]
    }

    fn watched(&mut self, target: Target) -> &mut Option<i64> {
        &mut self.watched[target.port as usize][target.badge as usize]
    }

    fn revoke(&mut self, target: Target) {
        let revoked = self
            .exports
            .revoke(target.port, target.badge)
            .unwrap_or_default();
        self.ended(target, revoked.ended.cast_signed(), revoked.watched.into());
        self.eras[target.port as usize][target.badge as usize] += 1;
        for handle in revoked.handles {
            self.told.push_back(handle);
            if self.forgets == Forgets::Entry {
                while self.exports.release(handle, 1) == Ok(false) {}
                self.exports.finish(handle);
            }
        }
    }

    fn hear_revoked(&mut self) -> Result<(), String> {
        let Some(handle) = self.told.pop_front() else {
            return Ok(());
        };
        let is_here = self.rights.iter().any(|right| right.sent.handle == handle);
        if is_here && self.imports.is_revoked(handle) {
            return Err(format!("{handle:#x} is told of twice"));
        }
        // A holder without rights to it has not given it back yet.
        if is_here || self.forgets != Forgets::Early {
            self.imports.revoke(handle);
        }
        Ok(())
    }

    /// The exporter's entry for a handle must be the target it was sent for, or say that this was revoked since.
    fn expect(&self, sent: Sent, what: &str) -> Result<(), String> {
        let must_be = match sent.era == self.era(sent.target) {
            true => Meaning::To(sent.target),
            false => Meaning::Revoked,
        };
        let found = self.exports.resolve(sent.handle);
        match found == Some(must_be) {
            true => Ok(()),
            false => Err(format!(
                "{what}: {:#x} must be {must_be:?}, is {found:?}",
                sent.handle
            )),
        }
    }

    fn receive(&mut self, lane: usize) -> Result<(), String> {
        let Some(sent) = self.given[lane].pop_front() else {
            return Ok(());
        };
        let arrived = self.imports.arrive(sent.handle, sent.target.port);
        arrived.map_err(|e| format!("arrive: {e:?}"))?;
        let uses = Vec::new();
        self.rights.push(Right { sent, uses });
        Ok(())
    }

    fn drop_right(&mut self, place: usize) {
        let right = self.rights.swap_remove(place);
        self.imports.dropped(right.sent.handle, &right.uses);
    }

    /// The exporter consumes one message.
    fn consume(&mut self, lane: usize) -> Result<(), String> {
        let Some(sent) = self.used[lane].pop_front() else {
            return Ok(());
        };
        self.consumed[lane] = self.consumed[lane].wrapping_add(1);
        self.expect(sent, "in a message")
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
        while let Some((after, handle)) = self.ending.front().copied()
            && after <= read
        {
            self.finish(handle);
            self.ending.pop_front();
        }
    }

    fn read_reply(&mut self) -> Result<(), String> {
        let Some(sent) = self.replies.pop_front() else {
            return Ok(());
        };
        self.read += 1;
        let found = self.expect(sent, "in a reply");
        self.settle();
        found
    }

    /// Whatever the importer holds, the exporter has in its table; and its entry there is right.
    fn check(&self) -> Result<(), String> {
        if self.imports.has_rights() == self.rights.is_empty() {
            return Err(format!("{} rights: the count is wrong", self.rights.len()));
        }
        for right in &self.rights {
            self.expect(right.sent, "held")?;
            let is_good = right.sent.era == self.era(right.sent.target);
            if is_good && self.imports.is_revoked(right.sent.handle) {
                return Err(format!("{:#x} is said to be revoked", right.sent.handle));
            }
        }
        let left = self.exports.len() as i64;
        let senders: i64 = self.senders.as_flattened().iter().sum();
        if senders < left || left == 0 && self.ending.is_empty() && senders != 0 {
            return Err(format!("{senders} senders, {left} in the table"));
        }
        let mut both = self
            .senders
            .as_flattened()
            .iter()
            .zip(self.watched.as_flattened());
        match both.find(|(senders, watched)| watched.is_some_and(|watched| watched != **senders)) {
            Some((senders, watched)) => Err(format!("{senders} senders, watched: {watched:?}")),
            None => Ok(()),
        }
    }

    /// Everything arrives and is dropped: nothing may be left.
    fn end(&mut self) -> Result<(), String> {
        loop {
            for lane in 0..LANES {
                while !self.given[lane].is_empty() {
                    self.receive(lane)?;
                }
            }
            while !self.told.is_empty() {
                self.hear_revoked()?;
            }
            for right in &self.rights {
                let is_good = right.sent.era == self.era(right.sent.target);
                if is_good == self.imports.is_revoked(right.sent.handle) {
                    return Err(format!("not told of {:#x}", right.sent.handle));
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
            self.check()
        } else {
            let senders = self.senders;
            Err(format!(
                "{} rights left, {senders:?} senders",
                self.exports.len()
            ))
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
fn a_revoked_entry_that_does_not_stay_until_it_is_given_back_is_found() {
    assert!(one_fails(2_000, "", |seed| run(seed, Forgets::Entry)));
}

#[test]
fn a_right_minted_after_a_revocation_needs_a_handle_of_its_own() {
    assert!(one_fails(2_000, "", |seed| run(seed, Forgets::Mint)));
}

#[test]
fn a_revoked_right_that_is_told_of_again_when_it_is_given_back_is_found() {
    let run = |seed| run(seed, Forgets::Told);
    assert!(one_fails(2_000, "senders", run));
}

#[test]
fn a_right_that_comes_to_a_watched_badge_and_is_not_marked_is_found() {
    assert!(one_fails(2_000, "watched", |seed| run(seed, Forgets::Mark)));
}

#[test]
fn the_word_of_a_revocation_that_overtakes_the_right_is_kept() {
    let run = |seed| run(seed, Forgets::Early);
    assert!(one_fails(2_000, "not told", run));
}
