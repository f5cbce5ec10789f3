//! Rights of a link that were revoked: the peer's, which it is told of, and those of this process.

use super::{Link, UNSAID_MAX};
use crate::rank;
use core::sync::atomic::{AtomicBool, Ordering};
use handfast_layout::control::ControlMessage;
use handfast_proto::introductions::Claim;
use handfast_proto::rights::Revoked as Ended;
use handfast_proto::timers::Timer;
use handfast_sys::sync::{Mutex, MutexGuard};
use std::collections::{HashSet, VecDeque};

/// All that a link knows of rights that were revoked.
#[derive(Default)]
pub(crate) struct Revoked {
    /// Rights of this process have been.
    has_any: AtomicBool,
    /// Rights the peer has, to be told as soon as the socket takes it.
    untold: Mutex<Untold, rank::Revoked>,
}

#[derive(Default)]
struct Untold {
    revoked: VecDeque<u32>,
    /// Words by which nothing could be claimed.
    in_vain: VecDeque<u32>,
}

impl Link {
    /// Revokes the peer's rights to a port with a badge, and tells it. Returns how many have ended, and how many of them
    /// were watched.
    pub(crate) fn revoke(&self, (port, badge): (u32, u64)) -> (u64, u32) {
        // Bound first: the lock of the exports ends with this statement.
        let revoked = self.exports().revoke(port, badge);
        revoked.map_or((0, 0), |revoked| self.revoked(revoked))
    }

    /// Revokes all rights of the peer to some ports, as above.
    pub(crate) fn revoke_all(&self, ports: &HashSet<u32>) {
        let revoked = self.exports().revoke_all(|port| ports.contains(&port));
        if let Some(revoked) = revoked {
            self.revoked(revoked);
        }
    }

    fn revoked(&self, revoked: Ended) -> (u64, u32) {
        // Release: pairs with the Acquire of receivers that know what it stood for.
        self.rights.ended.fetch_add(1, Ordering::Release);
        if !revoked.handles.is_empty() {
            // A right that is being redeemed at present has its word after that.
            let one = self.redeeming();
            let words = self.introductions().claims.words_of(&revoked.handles);
            drop(one);
            self.say_revoked(revoked.handles.into_iter().chain(words));
        }
        (revoked.ended, revoked.watched)
    }

    /// Tells the peer what it has claimed in vain; one that does not read finds out by using it.
    pub(crate) fn tell_if_in_vain(&self, word: u32, claim: Claim) {
        let mut untold = self.untold();
        let of = match claim {
            Claim::Revoked => &mut untold.revoked,
            Claim::Dead => &mut untold.in_vain,
            Claim::Granted(_) | Claim::Waiting { .. } => return,
        };
        if of.len() < UNSAID_MAX {
            of.push_back(word);
            drop(untold);
            self.say_untold();
        }
    }

    fn untold(&self) -> MutexGuard<'_, Untold, rank::Revoked> {
        self.rights.revoked.untold.lock()
    }

    fn say_revoked(&self, words: impl IntoIterator<Item = u32>) {
        let mut untold = self.untold();
        untold.revoked.extend(words);
        drop(untold);
        self.say_untold();
    }

    fn say_untold(&self) {
        if !self.tell_revoked() {
            self.process.schedule(Timer::Revocations);
        }
    }

    /// Tells the peer which of its rights were revoked. `false`: it does not read, or is not there yet; the keeper
    /// tells it later.
    #[must_use]
    pub(crate) fn tell_revoked(&self) -> bool {
        let mut untold = self.untold();
        let Untold { revoked, in_vain } = &mut *untold;
        let has_none = revoked.is_empty() && in_vain.is_empty();
        if !(has_none || self.is_welcomed()) {
            return self.is_down();
        }
        for (words, in_vain) in [(revoked, false), (in_vain, true)] {
            while !words.is_empty() {
                let count = words.len().min(WORDS_MAX);
                let names = words.iter().take(count);
                let names: Vec<_> = names.map(|name| name.to_le_bytes()).collect();
                let names = &names;
                let revoked = ControlMessage::Revoked { in_vain, names };
                if self.send_bytes(&revoked.encode()).is_err() {
                    return self.is_down();
                }
                words.drain(..count);
            }
        }
        true
    }

    /// Keeper: the peer says which rights of this process were revoked, or which it has claimed in vain.
    pub(crate) fn hear_revoked(&self, in_vain: bool, names: &[[u8; 4]]) {
        let words: Vec<_> = names.iter().map(|name| u32::from_le_bytes(*name)).collect();
        match in_vain {
            // Messages by them find out themselves, as the port's end.
            true => self.tell_deaths_in_vain(&words),
            false => self.was_revoked(&words),
        }
    }

    /// Rights of this process, to ports of the peer, were revoked.
    pub(crate) fn was_revoked(&self, words: &[u32]) {
        let mut imports = self.imports();
        let is_one = |word: &u32| imports.revoke(*word);
        let news: Vec<_> = words.iter().copied().filter(is_one).collect();
        drop(imports);
        // Release: also what is still on its way here comes as revoked.
        self.rights.revoked.has_any.store(true, Ordering::Release);
        if news.is_empty() {
            return;
        }
        // A thread that sends through one of them, or waits for room, looks again.
        self.disturb();
        self.tell_deaths_by(&news);
    }

    /// Whether a right of this process is known to be revoked.
    pub(crate) fn is_revoked(&self, handle: u32) -> bool {
        // Acquire: pairs with the store in `was_revoked`.
        self.rights.revoked.has_any.load(Ordering::Acquire) && self.imports().is_revoked(handle)
    }
}

/// Rights in one control message.
const WORDS_MAX: usize = 124;
