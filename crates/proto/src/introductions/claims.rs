//! A recipient's claims, as their exporter keeps them.

use super::Number;
use crate::rights::Handle;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Exporter: what the numbers stand for by which one recipient uses rights it has claimed.
#[derive(Debug, Default)]
pub struct Claims {
    /// By the recipient's number. Trees: as in `rights::Imports`, other peers are not to wait for what one peer chooses.
    claims: BTreeMap<u32, Claim>,
    /// The claims that were granted, by what they stand for: a port that ends concerns few of them.
    by_handle: BTreeSet<(Handle, u32)>,
    /// The claims that wait, by the number they wait for.
    waiting: BTreeMap<Number, u32>,
    /// The same, by the time when they are overdue.
    due: BTreeSet<(u64, u32)>,
}

/// The meaning of a recipient's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The entry of the exporter's table with this handle.
    Granted(Handle),
    /// Not known yet: the provision has not come.
    Waiting(Waiting),
    /// The right was revoked before it was claimed.
    Revoked,
    /// Nothing.
    Dead,
}

/// A claim whose provision has not come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Which one.
    pub number: Number,
    /// Until when it is waited for, by the clock of the receiver that has heard the claim. That goes more slowly while the receiver is
    /// busy, so it is behind all others, by more and more.
    pub until_ns: u64,
    /// When it is answered where no receiver looks at it, by the exporter's clock.
    pub overdue_ns: u64,
    /// Where the handle is to be told: slot and generation.
    pub reply: (u32, u32),
}

/// Claims of one recipient that wait at once.
const CLAIMS_MAX: usize = 1 << 20;

impl Claims {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.claims.len()
    }

    /// A number is claimed. `false`: it is in use, or there are too many.
    pub fn claim(&mut self, word: u32, claim: Claim) -> bool {
        let has_room = self.claims.len() < CLAIMS_MAX;
        match self.claims.entry(word) {
            Entry::Vacant(place) if has_room => {
                place.insert(claim);
                match claim {
                    Claim::Waiting(waiting) => {
                        self.waiting.insert(waiting.number, word);
                        self.due.insert((waiting.overdue_ns, word));
                    }
                    Claim::Granted(handle) => {
                        self.by_handle.insert((handle, word));
                    }
                    Claim::Revoked | Claim::Dead => {}
                }
                true
            }
            _ => false,
        }
    }

    /// The recipient is told by another way that what this number stands for was revoked: [`Self::words_of`] leaves the number out.
    pub fn has_told(&mut self, word: u32) {
        if let Some(Claim::Granted(handle)) = self.claims.get(&word) {
            self.by_handle.remove(&(*handle, word));
        }
    }

    /// The meaning of a number. `None`: it has not been claimed yet.
    #[must_use]
    pub fn get(&self, word: u32) -> Option<Claim> {
        self.claims.get(&word).copied()
    }

    /// The numbers that stand for rights of the exporter's table, with their handles.
    pub fn granted(&self) -> impl Iterator<Item = (u32, Handle)> {
        self.claims.iter().filter_map(|(word, claim)| match claim {
            Claim::Granted(handle) => Some((*word, *handle)),
            _ => None,
        })
    }

    /// It stands for this now.
    pub fn settle(&mut self, word: u32, claim: Claim) {
        if let Some(known) = self.claims.get_mut(&word) {
            let before = core::mem::replace(known, claim);
            if !matches!(claim, Claim::Waiting(_)) {
                self.forget(word, before);
            }
            if let Claim::Granted(handle) = claim {
                self.by_handle.insert((handle, word));
            }
        }
    }

    /// The number does not stand for this any more.
    fn forget(&mut self, word: u32, claim: Claim) {
        match claim {
            Claim::Waiting(waiting) => {
                self.waiting.remove(&waiting.number);
                self.due.remove(&(waiting.overdue_ns, word));
            }
            Claim::Granted(handle) => {
                self.by_handle.remove(&(handle, word));
            }
            Claim::Revoked | Claim::Dead => {}
        }
    }

    /// The numbers that stand for this handle, from `first` on, in their order. Looks at no others.
    pub fn words_of(&self, handle: Handle, first: u32) -> impl Iterator<Item = u32> {
        let of = self.by_handle.range((handle, first)..=(handle, u32::MAX));
        of.map(|(_, word)| *word)
    }

    /// Whether claims wait.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The numbers of claims that are overdue at this time: so many of them at most.
    #[must_use]
    pub fn overdue(&self, now_ns: u64, count_max: usize) -> Vec<u32> {
        let overdue = self.due.range(..=(now_ns, u32::MAX)).take(count_max);
        overdue.map(|(_, word)| *word).collect()
    }

    /// The recipient's number under which this provision has been claimed, if it has been already.
    #[must_use]
    pub fn waits_for(&self, number: Number) -> Option<u32> {
        self.waiting.get(&number).copied()
    }

    /// The recipient has no use for it any more.
    pub fn release(&mut self, word: u32) -> Option<Claim> {
        let claim = self.claims.remove(&word)?;
        self.forget(word, claim);
        Some(claim)
    }

    /// Takes all out: the recipient is gone.
    pub fn end(&mut self) -> Vec<Claim> {
        self.by_handle.clear();
        self.waiting.clear();
        self.due.clear();
        core::mem::take(&mut self.claims).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_handle_are_those_that_stand_for_it_now() {
        let mut claims = Claims::default();
        let waiting = Claim::Waiting(Waiting {
            number: ([1; 20], 7),
            until_ns: 9,
            overdue_ns: 12,
            reply: (0, 0),
        });
        for (word, claim) in [(1, Claim::Granted(5)), (2, waiting), (3, Claim::Granted(6))] {
            assert!(claims.claim(word, claim));
        }
        let words_of = |claims: &Claims, of: Handle| claims.words_of(of, 0).collect::<Vec<_>>();
        assert_eq!(words_of(&claims, 5), [1]);
        assert!(words_of(&claims, 8).is_empty());
        assert_eq!(
            [9, 11, 12].map(|now_ns| claims.overdue(now_ns, 9).len()),
            [0, 0, 1]
        );
        claims.settle(2, Claim::Granted(5));
        assert!(claims.overdue(12, 9).is_empty());
        assert_eq!(words_of(&claims, 5), [1, 2]);
        assert_eq!(claims.words_of(5, 2).collect::<Vec<_>>(), [2]);
        assert_eq!(words_of(&claims, 6), [3]);
        assert_eq!(claims.release(1), Some(Claim::Granted(5)));
        assert_eq!(words_of(&claims, 5), [2]);
        claims.settle(2, Claim::Revoked);
        assert!(words_of(&claims, 5).is_empty());
        assert_eq!(claims.end().len(), 2);
        assert!(words_of(&claims, 6).is_empty());
    }
}
