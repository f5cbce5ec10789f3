//! A recipient's claims, as their exporter keeps them.

use super::Number;
use crate::rights::Handle;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Exporter: what the numbers stand for by which one recipient uses rights it has claimed.
#[derive(Debug, Default)]
pub struct Claims {
    /// By the recipient's number. Trees: as in `rights::Imports`, other peers are not to wait for what one peer chooses.
    claims: BTreeMap<u32, Claim>,
    /// The claims that wait, by the number they wait for.
    waiting: BTreeMap<Number, u32>,
    /// The same, by the time until when they wait.
    due: BTreeSet<(u64, u32)>,
}

/// The meaning of a recipient's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The entry of the exporter's table with this handle.
    Granted(Handle),
    /// Not known yet: the provision has not come.
    Waiting {
        /// Which one.
        number: Number,
        /// Until when it is waited for.
        until_ns: u64,
        /// Where the handle is to be told: slot and generation.
        reply: (u32, u32),
    },
    /// The right was revoked before it was claimed.
    Revoked,
    /// Nothing.
    Dead,
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
                if let Claim::Waiting {
                    number, until_ns, ..
                } = claim
                {
                    self.waiting.insert(number, word);
                    self.due.insert((until_ns, word));
                }
                true
            }
            _ => false,
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
            if !matches!(claim, Claim::Waiting { .. }) {
                self.waits_no_more(word, before);
            }
        }
    }

    fn waits_no_more(&mut self, word: u32, claim: Claim) {
        if let Claim::Waiting {
            number, until_ns, ..
        } = claim
        {
            self.waiting.remove(&number);
            self.due.remove(&(until_ns, word));
        }
    }

    /// The numbers that stand for one of these handles. Looks at all.
    #[must_use]
    pub fn words_of(&self, handles: &HashSet<Handle>) -> Vec<u32> {
        let is_one = |claim: &Claim| matches!(claim, Claim::Granted(of) if handles.contains(of));
        let claims = self.claims.iter();
        claims
            .filter_map(|(word, claim)| is_one(claim).then_some(*word))
            .collect()
    }

    /// Whether claims wait.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The numbers of claims that were to wait until before this time, and still do: so many of them at most.
    #[must_use]
    pub fn overdue(&self, now_ns: u64, count_max: usize) -> Vec<u32> {
        let overdue = self.due.range(..(now_ns, 0)).take(count_max);
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
        self.waits_no_more(word, claim);
        Some(claim)
    }

    /// Takes all out: the recipient is gone.
    pub fn end(&mut self) -> Vec<Claim> {
        self.waiting.clear();
        self.due.clear();
        core::mem::take(&mut self.claims).into_values().collect()
    }
}
