//! The exporter: its tables for each of the others, and its reactions to their statements.

use super::*;
use crate::rights::Handle;
use crate::rights::Meaning;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Side {
    pub(super) exports: Exports,
    pub(super) claims: Claims,
    pub(super) lanes: [VecDeque<Said>; LANES],
    pub(super) consumed: [u32; LANES],
    pub(super) socket: VecDeque<Control>,
    pub(super) peer_ended: bool,
    pub(super) has_ended: bool,
    /// Which introduction a number of the recipient's stands for.
    introductions: HashMap<u32, usize>,
}

/// The right a number stands for, or why it is not known.
enum Named {
    To(Target),
    Dead,
    /// It will be known.
    NotYet,
    Unknown,
}

impl Side {
    /// The exporter's own handle of a right, if it has told it.
    pub(super) fn at_home(&self, word: u32) -> Option<Handle> {
        match self.claims.get(word) {
            Some(Claim::Granted(handle)) => Some(handle),
            Some(_) => None,
            None => self.exports.resolve(word).map(|_| word),
        }
    }
}

impl World {
    /// Gives a right to one of the others.
    pub(super) fn grant(&mut self, to: usize) -> Result<(), String> {
        if self.sides[to].has_ended || self.sides[to].peer_ended {
            return Ok(());
        }
        let port = self.dice.roll(PORTS) as u32;
        let badge = self.dice.roll(BADGES) as u64;
        let target = Target::full(port, badge);
        let handle = self.export(to, target);
        let handle = handle.ok_or("the table is full")?;
        self.holders[to].given.push_back((handle, target));
        Ok(())
    }

    fn export(&mut self, to: usize, target: Target) -> Option<Handle> {
        let before = self.sides[to].exports.len();
        let handle = self.sides[to].exports.export(target).ok()?;
        if self.sides[to].exports.len() > before {
            self.rights[target.port as usize] += 1;
        }
        Some(handle)
    }

    fn ended(&mut self, target: Target) {
        if self.without != Without::Count {
            self.rights[target.port as usize] -= 1;
        }
    }

    fn named(&mut self, of: usize, word: u32) -> Result<Named, String> {
        if let Some(Meaning::To(target)) = self.sides[of].exports.resolve(word) {
            return Ok(Named::To(target));
        }
        let claim = match self.sides[of].claims.get(word) {
            Some(Claim::Waiting(waiting)) => {
                let introduction = self.sides[of].introductions[&word];
                let claim = self.redeem(of, introduction, waiting.until_ns - CLAIM_NS)?;
                self.sides[of].claims.settle(word, claim);
                Some(claim)
            }
            claim => claim,
        };
        Ok(match claim {
            Some(Claim::Granted(handle)) => match self.sides[of].exports.resolve(handle) {
                Some(Meaning::To(target)) => Named::To(target),
                _ => Named::Unknown,
            },
            Some(Claim::Revoked | Claim::Dead) => Named::Dead,
            Some(Claim::Waiting(_)) => Named::NotYet,
            None if word >> 31 == 0 => Named::NotYet,
            None => Named::Unknown,
        })
    }

    fn redeem(&mut self, of: usize, at: usize, seen_ns: u64) -> Result<Claim, String> {
        let introduction = &self.introductions[at];
        let number = (incarnation(introduction.by), introduction.number);
        let redeemed = self.provisions.redeem(number, incarnation(of));
        let is_late = self.now_ns.saturating_sub(seen_ns) >= CLAIM_NS;
        match redeemed {
            Redeemed::NotYet if !is_late => {
                let until_ns = seen_ns + CLAIM_NS;
                return Ok(Claim::Waiting(Waiting {
                    number,
                    until_ns,
                    overdue_ns: until_ns,
                    reply: (0, 0),
                }));
            }
            Redeemed::To((target, which)) => {
                if which != at || target != introduction.target || introduction.is_redeemed {
                    return Err(format!("introduction {at} was redeemed with {which}"));
                }
                self.introductions[at].is_redeemed = true;
                if self.without == Without::Once {
                    let _ = self.provisions.provide(
                        number,
                        Some((target, at)),
                        incarnation(of),
                        self.now_ns,
                    );
                    self.introductions[at].is_redeemed = false;
                }
                if self.without == Without::NextFirst {
                    self.ended(target);
                    self.check()?;
                    self.rights[target.port as usize] += 1;
                }
                let granted = self.export(of, target);
                self.ended(target);
                if let Some(handle) = granted {
                    return Ok(Claim::Granted(handle));
                }
            }
            Redeemed::NotYet => {
                // Should it come after all, nobody has a use for it.
                let given_up = self.provisions.forgo(number, incarnation(of), self.now_ns);
                assert_eq!(given_up, None, "it was not there");
            }
            Redeemed::Revoked | Redeemed::Dead => {}
        }
        if self.may_fail(at) || self.sides[of].peer_ended {
            return Ok(Claim::Dead);
        }
        if self.is_held_up(at) {
            self.introductions[at].is_excused = true;
            return Ok(Claim::Dead);
        }
        Err(format!("introduction {at} has come to nothing"))
    }

    /// The provision has waited in its lane until time passed, and so behind a message that waits for something that may never
    /// come: nobody waits longer for the one than for the other.
    fn is_held_up(&self, at: usize) -> bool {
        let is_it =
            |said: &Said| matches!(said, Said::Provide { introduction, .. } if *introduction == at);
        let by = self.introductions[at].by;
        self.sides[by].lanes.iter().flatten().any(is_it)
    }

    /// A holder has answered the exporter with what was provided to it: that has a right of its own to drop.
    pub(super) fn come_home(&mut self, of: usize, at: usize) -> Result<(), String> {
        let Introduction { by, number, .. } = self.introductions[at];
        let (number, recipient) = ((incarnation(by), number), incarnation(of));
        let found = match self.provisions.redeem(number, recipient) {
            Redeemed::To((target, which)) => {
                self.ended(target);
                (which == at).then_some(target)
            }
            Redeemed::Revoked | Redeemed::Dead => None,
            Redeemed::NotYet if self.without == Without::Foresight => None,
            Redeemed::NotYet => {
                let found = self.foresee(at)?;
                if found.is_some() && self.without != Without::HomeOnce {
                    let given_up = self.provisions.forgo(number, recipient, self.now_ns);
                    assert_eq!(given_up, None, "it was not there");
                }
                found
            }
        };
        let may_fail = self.may_fail(at);
        self.introductions[at].is_excused = true;
        match found {
            Some(target) if target == self.introductions[at].target => Ok(()),
            None if may_fail => Ok(()),
            found => Err(format!("introduction {at} did not come home: {found:?}")),
        }
    }

    /// The target that a statement waiting in the lanes provides.
    fn foresee(&mut self, at: usize) -> Result<Option<Target>, String> {
        let by = self.introductions[at].by;
        let waits = self.sides[by].lanes.iter().flatten();
        let word = waits.clone().find_map(|said| match said {
            Said::Provide {
                right,
                introduction,
                ..
            } if *introduction == at => Some(right.word),
            _ => None,
        });
        let Some(word) = word else {
            return Ok(None);
        };
        let claimed = waits.clone().find_map(|said| match said {
            Said::Claim {
                word: its,
                introduction,
            } if *its == word => Some(*introduction),
            _ => None,
        });
        let claimed = claimed.or_else(|| self.sides[by].introductions.get(&word).copied());
        Ok(match (self.named(by, word)?, claimed) {
            (Named::To(target), _) => Some(target),
            (Named::NotYet, Some(claimed)) => {
                let Introduction {
                    by: introducer,
                    number,
                    ..
                } = self.introductions[claimed];
                let number = (incarnation(introducer), number);
                match self.provisions.provided(number, incarnation(by)) {
                    Some((target, _)) => Some(target),
                    None => self.foresee(claimed)?,
                }
            }
            _ => None,
        })
    }

    /// Takes the next message from a lane, unless it has to wait.
    pub(super) fn consume(&mut self, of: usize) -> Result<(), String> {
        let lane = self.dice.roll(LANES);
        self.take(of, lane).map(|_| ())
    }

    /// Returns whether there was one to take.
    fn take(&mut self, of: usize, lane: usize) -> Result<bool, String> {
        let Some(said) = self.sides[of].lanes[lane].front().cloned() else {
            return Ok(false);
        };
        let named = match &said {
            Said::Claim { .. } => None,
            Said::Use(right) | Said::Provide { right, .. } => {
                Some((right, self.named(of, right.word)?))
            }
        };
        let target = match named {
            None => None,
            Some((_, Named::NotYet)) if self.without != Without::Waiting => return Ok(false),
            Some((right, Named::To(target))) if target == right.target => {
                self.is_in_order(right)?;
                Some(target)
            }
            Some((_, Named::Dead)) => None,
            Some((right, _)) => return Err(format!("{:#x} means something else", right.word)),
        };
        self.sides[of].lanes[lane].pop_front();
        match said {
            Said::Use(_) => {}
            Said::Provide {
                recipient,
                introduction,
                ..
            } => self.provide(of, introduction, (target, recipient)),
            Said::Claim { word, introduction } => {
                self.sides[of].introductions.insert(word, introduction);
                let claim = self.redeem(of, introduction, self.now_ns)?;
                if !self.sides[of].claims.claim(word, claim) {
                    return Err(format!("{word} is claimed twice"));
                }
            }
        }
        self.sides[of].consumed[lane] += 1;
        Ok(true)
    }

    fn is_in_order(&self, right: &Right) -> Result<(), String> {
        let is_before =
            |(of, lane, count): &(usize, usize, u32)| self.sides[*of].consumed[*lane] >= *count;
        match right.after.iter().all(is_before) {
            true => Ok(()),
            false => Err(format!("a message by {:#x} came too soon", right.word)),
        }
    }

    fn provide(&mut self, by: usize, at: usize, (target, to): (Option<Target>, usize)) {
        let number = (incarnation(by), self.introductions[at].number);
        if let Some(target) = target
            && self.without != Without::Count
        {
            self.rights[target.port as usize] += 1;
        }
        if target.is_none() {
            self.introductions[at].is_excused = true;
        }
        let what = target.map(|target| (target, at));
        if let Some((target, _)) =
            self.provisions
                .provide(number, what, incarnation(to), self.now_ns)
        {
            self.ended(target);
        }
        // Provisions that were found in the lane of a process that has ended.
        if self.sides[by].has_ended && self.without != Without::LastWill {
            self.end_provisions(by);
        }
    }

    fn end_provisions(&mut self, of: usize) {
        let ended = self.provisions.ended(incarnation(of), true, self.now_ns);
        for (target, at) in ended {
            self.introductions[at].is_excused = true;
            self.ended(target);
        }
    }

    /// Hears something over a socket, or of the end of one.
    pub(super) fn hear(&mut self, of: usize) -> Result<(), String> {
        let side = &mut self.sides[of];
        let is_lost = side.peer_ended && self.dice.roll(4) == 0;
        let control = side
            .socket
            .pop_front()
            .filter(|_| !is_lost && !side.has_ended);
        let Some(control) = control else {
            if side.peer_ended && !core::mem::replace(&mut side.has_ended, true) {
                side.socket.clear();
                for (port, count) in side.exports.end().ports {
                    self.rights[port as usize] -= count.cast_signed();
                }
                self.end_provisions(of);
            }
            return Ok(());
        };
        match control {
            Control::Void { number } => self.take_back((incarnation(of), number)),
            Control::Release { word, count } => self.released(of, word, count)?,
        }
        Ok(())
    }

    fn released(&mut self, of: usize, word: u32, count: u32) -> Result<(), String> {
        let handle = match word >> 31 {
            1 => word,
            _ => match self.sides[of].claims.release(word) {
                Some(Claim::Granted(handle)) => handle,
                Some(Claim::Waiting(Waiting { number, .. })) => {
                    let at = self.sides[of].introductions[&word];
                    self.introductions[at].is_excused = true;
                    if self.without != Without::ReleasedFirst {
                        let recipient = incarnation(of);
                        let given_up = self.provisions.forgo(number, recipient, self.now_ns);
                        if let Some((target, _)) = given_up {
                            self.ended(target);
                        }
                    }
                    return Ok(());
                }
                Some(Claim::Revoked | Claim::Dead) => return Ok(()),
                None => return Err(format!("{word} was never claimed")),
            },
        };
        let exports = &mut self.sides[of].exports;
        let released = exports.release(handle, count);
        if released.map_err(|refused| format!("release: {refused:?}"))?
            && let Some((target, _)) = exports.finish(handle)
        {
            self.rights[target.port as usize] -= 1;
        }
        Ok(())
    }

    fn take_back(&mut self, number: Number) {
        if self.without == Without::VoidFirst && !self.provisions.provided.contains_key(&number) {
            return;
        }
        if let Some((target, _)) = self.provisions.take_back(number, self.now_ns) {
            self.ended(target);
        }
    }

    /// Time passes when there is nothing else to do: the exporter does not let lanes wait.
    pub(super) fn pass_time(&mut self) -> Result<(), String> {
        let mut at = 0;
        while at < HOLDERS * LANES {
            let is_taken = self.take(at / LANES, at % LANES)?;
            at = if is_taken { 0 } else { at + 1 };
        }
        let mut heard = self.holders.iter().flat_map(|holder| &holder.inbox);
        if heard.all(VecDeque::is_empty) {
            self.now_ns += GRACE_NS / 4;
        }
        let holders = &self.holders;
        let is_gone = |of: Incarnation| holders[usize::from(of[0]) - 1].is_dead;
        for (target, at) in self.provisions.expire(self.now_ns, is_gone) {
            self.introductions[at].is_excused = true;
            self.ended(target);
        }
        Ok(())
    }
}
