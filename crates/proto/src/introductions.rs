//! Introductions: a right to a port of one process, given by a second to a third (`docs/decisions/0009-introductions.md`).
//!
//! The *introducer* tells the *exporter*, in order with what it has sent there before, that it
//! provides a right to the *recipient*; and it tells the recipient where to ask for it. The
//! recipient *claims* it on its own link with the exporter, under a number it chooses, and uses that
//! number at once. A claim whose provision has not come yet waits: what was sent before by the
//! introducer arrives before what the recipient sends (capability facts, section 2c).
//!
//! A provision can be redeemed once, by the process it names, so its number is no secret.

mod again;
mod claims;

#[cfg(test)]
mod simulation;

pub use again::{Came, How, Keeping, Remembered};
pub use claims::{Claim, Claims};

use core::hash::Hash;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// A process, by the identity it has drawn at its start, and by its process number.
pub type Incarnation = handfast_layout::hello::Process;

/// The key of a provision: the process that made it, and its number there.
pub type Number = (Incarnation, u64);

/// Exporter: rights that were provided and not claimed yet. `T` is what a right is to.
#[derive(Debug)]
pub struct Provisions<T> {
    /// Numbers are their introducers' to choose, and the table is everybody's: no hash that can be foreseen.
    provided: HashMap<Number, Provision<T>>,
    /// Claims that were given up before what they claim had come, by whom, and until when that is known.
    forgone: HashMap<(Number, Incarnation), u64>,
    /// How many of both each process has made.
    shares: HashMap<Incarnation, Share>,
    /// How many the processes of each user have.
    totals: HashMap<Counted, usize>,
    /// The users of the processes that have links.
    users: HashMap<Incarnation, u32>,
}

#[derive(Debug)]
struct Share {
    count: usize,
    counted: Counted,
}

/// Whose places a process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Counted {
    User(u32),
    /// Its own: its user is not known.
    Process(Incarnation),
}

#[derive(Debug)]
enum Provision<T> {
    Waiting {
        target: Result<T, Nothing>,
        recipient: Incarnation,
        until_ns: Option<u64>,
    },
    /// Taken back before it came, or after it was redeemed.
    Void { until_ns: u64 },
}

/// Provisions of one exporter at once. The processes of one user can make three quarters of what others leave them, and one
/// process as many as it leaves to others of its user: a process that comes later finds room, too.
pub const PROVISIONS_MAX: usize = 65_536;
/// How long a provision outlives its introducer.
const GRACE_NS: u64 = 10_000_000_000;

/// In the place of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// The port is gone.
    Port,
    /// The right was revoked.
    Right,
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redeemed<T> {
    /// It is a right to this.
    To(T),
    /// It was revoked.
    Revoked,
    /// Its port is gone, it is void, or another's to claim.
    Dead,
    /// The provision has not come yet.
    NotYet,
}

impl<T> Default for Provisions<T> {
    fn default() -> Self {
        Self {
            provided: HashMap::new(),
            forgone: HashMap::new(),
            shares: HashMap::new(),
            totals: HashMap::new(),
            users: HashMap::new(),
        }
    }
}

impl<T: Copy> Provisions<T> {
    /// A process has a link: its provisions count for its user from now on.
    pub fn belongs(&mut self, process: Incarnation, user: u32) {
        self.users.insert(process, user);
    }

    /// An introducer provides a right to `target` to `recipient`. Returns `target` when it is not kept:
    /// it was taken back or given up, its number is in use, or there are too many. One to nothing is known
    /// for a while, for its claim to find.
    pub fn provide(
        &mut self,
        number: Number,
        target: Option<T>,
        recipient: Incarnation,
        now_ns: u64,
    ) -> Option<T> {
        let target = target.ok_or(Nothing::Port);
        self.provide_within(number, target, (recipient, usize::MAX), now_ns)
    }

    /// As [`Self::provide`], where so many of an introducer are kept at once.
    pub fn provide_within(
        &mut self,
        number: Number,
        target: Result<T, Nothing>,
        (recipient, limit): (Incarnation, usize),
        now_ns: u64,
    ) -> Option<T> {
        if !self.forgone.is_empty() && self.forgone.remove(&(number, recipient)).is_some() {
            self.one_less(recipient);
            return target.ok();
        }
        if let Some(known) = self.provided.get(&number) {
            if matches!(known, Provision::Void { .. }) {
                self.take(number);
            }
            return target.ok();
        }
        if !self.takes_place(number.0, limit) {
            return target.ok();
        }
        let until_ns = target.is_err().then_some(now_ns + GRACE_NS);
        let waiting = Provision::Waiting {
            target,
            recipient,
            until_ns,
        };
        self.provided.insert(number, waiting);
        None
    }

    /// `recipient` claims a provision.
    pub fn redeem(&mut self, number: Number, recipient: Incarnation) -> Redeemed<T> {
        let Entry::Occupied(known) = self.provided.entry(number) else {
            return Redeemed::NotYet;
        };
        let target = match known.get() {
            Provision::Waiting {
                target,
                recipient: of,
                ..
            } if *of == recipient => *target,
            Provision::Waiting { .. } => return Redeemed::Dead,
            // It stays: the provision itself may be still to come, after the claim of one that is gone.
            Provision::Void { .. } => return Redeemed::Dead,
        };
        known.remove();
        self.one_less(number.0);
        match target {
            Ok(target) => Redeemed::To(target),
            Err(Nothing::Right) => Redeemed::Revoked,
            Err(Nothing::Port) => Redeemed::Dead,
        }
    }

    /// The result `recipient` would get if it claimed a provision now.
    #[must_use]
    pub fn provided(&self, number: Number, recipient: Incarnation) -> Option<T> {
        match self.provided.get(&number)? {
            Provision::Waiting {
                target,
                recipient: of,
                ..
            } if *of == recipient => target.ok(),
            _ => None,
        }
    }

    /// The introducer takes a provision back, which may not have come yet. Returns the provision's target.
    pub fn take_back(&mut self, number: Number, now_ns: u64) -> Option<T> {
        match self.provided.get(&number) {
            // It may be taken back twice before it comes: when its message was not sent, and when its
            // recipient has ended.
            Some(Provision::Void { .. }) => return None,
            Some(Provision::Waiting { .. }) => return self.take(number),
            None => {}
        }
        if self.takes_place(number.0, usize::MAX) {
            let until_ns = now_ns + GRACE_NS;
            self.provided.insert(number, Provision::Void { until_ns });
        }
        None
    }

    /// `recipient` will not claim a provision, which may not have come yet. Returns the provision's target;
    /// provisions to others stay.
    pub fn forgo(&mut self, number: Number, recipient: Incarnation, now_ns: u64) -> Option<T> {
        match self.provided.get(&number) {
            Some(Provision::Waiting { recipient: of, .. }) if *of == recipient => {
                return self.take(number);
            }
            Some(_) => return None,
            None => {}
        }
        let of = (number, recipient);
        if !self.forgone.contains_key(&of) && self.takes_place(recipient, usize::MAX) {
            self.forgone.insert(of, now_ns + GRACE_NS);
        }
        None
    }

    /// Revokes provisions of these targets, to anybody or to `recipient`. Returns the targets.
    pub fn revoke(
        &mut self,
        recipient: Option<Incarnation>,
        is_one: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        let mut revoked = Vec::new();
        for provision in self.provided.values_mut() {
            if let Provision::Waiting {
                target,
                recipient: to,
                ..
            } = provision
                && target.as_ref().is_ok_and(&is_one)
                && recipient.is_none_or(|recipient| recipient == *to)
            {
                revoked.extend(core::mem::replace(target, Err(Nothing::Right)));
            }
        }
        revoked
    }

    /// The targets that were provided and not claimed yet.
    pub fn targets_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let provided = self.provided.values_mut();
        provided.filter_map(|provision| match provision {
            Provision::Waiting { target, .. } => target.as_mut().ok(),
            Provision::Void { .. } => None,
        })
    }

    /// Counts one more of a process's, if it may have one and has less than this.
    fn takes_place(&mut self, of: Incarnation, limit: usize) -> bool {
        let free = self.free();
        let user = self.users.get(&of);
        let share = self.shares.entry(of).or_insert_with(|| Share {
            count: 0,
            counted: user.map_or(Counted::Process(of), |user| Counted::User(*user)),
        });
        let total = self.totals.entry(share.counted).or_default();
        let of_user = (free + *total) / 4 * 3;
        let has_room = share.count < limit && share.count + *total < of_user;
        share.count += usize::from(has_room);
        *total += usize::from(has_room);
        if !has_room {
            self.forget_none(of);
        }
        has_room
    }

    fn free(&self) -> usize {
        PROVISIONS_MAX.saturating_sub(self.provided.len() + self.forgone.len())
    }

    fn one_less(&mut self, of: Incarnation) {
        let Some(share) = self.shares.get_mut(&of) else {
            return;
        };
        share.count -= 1;
        if let Some(total) = self.totals.get_mut(&share.counted) {
            *total -= 1;
        }
        self.forget_none(of);
    }

    /// Keeps nothing of a process that has none.
    fn forget_none(&mut self, of: Incarnation) {
        if let Some(share) = self.shares.get(&of) {
            let counted = share.counted;
            if share.count == 0 {
                self.shares.remove(&of);
            }
            if self.totals.get(&counted) == Some(&0) {
                self.totals.remove(&counted);
            }
        }
    }

    /// Takes out a number's entry. Returns the target of its provision.
    fn take(&mut self, number: Number) -> Option<T> {
        let provision = self.provided.remove(&number)?;
        self.one_less(number.0);
        match provision {
            Provision::Waiting { target, .. } => target.ok(),
            Provision::Void { .. } => None,
        }
    }

    /// A process has ended: provisions to it end, returned here; provisions made by it last a
    /// while. Or its link has, and it is not known to be dead: then both last a while.
    pub fn ended(&mut self, of: Incarnation, is_dead: bool, now_ns: u64) -> Vec<T> {
        let until = now_ns + GRACE_NS;
        self.users.remove(&of);
        if is_dead {
            self.take_forgone(|recipient, _| recipient == of);
        }
        self.take_those(|(introducer, _), provision| match provision {
            Provision::Void { .. } => is_dead && *introducer == of,
            Provision::Waiting { recipient, .. } if is_dead && *recipient == of => true,
            Provision::Waiting {
                until_ns,
                recipient,
                ..
            } => {
                if *introducer == of || *recipient == of {
                    until_ns.get_or_insert(until);
                }
                false
            }
        })
    }

    /// The processes that are known to claim something of introducers that have ended: asked whether they live, before
    /// [`Self::expire`]. Looks at all provisions.
    pub fn recipients_of_ended(&self) -> impl Iterator<Item = Incarnation> {
        self.provided
            .values()
            .filter_map(|provision| match provision {
                Provision::Waiting {
                    recipient,
                    until_ns: Some(_),
                    ..
                } => Some(*recipient),
                _ => None,
            })
    }

    /// Takes out provisions that have outlived their introducer for too long, or their recipient, too: a living introducer
    /// takes back its provisions to the dead. `is_gone` says which processes have ended for sure.
    pub fn expire(&mut self, now_ns: u64, mut is_gone: impl FnMut(Incarnation) -> bool) -> Vec<T> {
        self.take_forgone(|_, until_ns| until_ns <= now_ns);
        self.take_those(|_, provision| match provision {
            Provision::Waiting {
                recipient,
                until_ns: Some(until_ns),
                ..
            } => *until_ns <= now_ns || is_gone(*recipient),
            Provision::Waiting { until_ns: None, .. } => false,
            Provision::Void { until_ns } => *until_ns <= now_ns,
        })
    }

    fn take_forgone(&mut self, is_one: impl Fn(Incarnation, u64) -> bool) {
        let taken = self
            .forgone
            .extract_if(|(_, recipient), until_ns| is_one(*recipient, *until_ns));
        let taken: Vec<_> = taken.map(|((_, recipient), _)| recipient).collect();
        taken.into_iter().for_each(|of| self.one_less(of));
        shrink(&mut self.forgone);
    }

    fn take_those(&mut self, mut is_one: impl FnMut(&Number, &mut Provision<T>) -> bool) -> Vec<T> {
        let known = self.provided.iter_mut();
        let those: Vec<_> = known
            .filter_map(|(number, known)| is_one(number, known).then_some(*number))
            .collect();
        let taken = those.into_iter().filter_map(|number| self.take(number));
        let taken = taken.collect();
        shrink(&mut self.provided);
        shrink(&mut self.shares);
        shrink(&mut self.totals);
        taken
    }

    /// Whether some will expire.
    #[must_use]
    pub fn has_mortal(&self) -> bool {
        let is_mortal = |provision: &Provision<T>| {
            matches!(
                provision,
                Provision::Void { .. }
                    | Provision::Waiting {
                        until_ns: Some(_),
                        ..
                    }
            )
        };
        !self.forgone.is_empty() || self.provided.values().any(is_mortal)
    }
}

/// Gives back the memory of a table that was much larger: a peer that fills it leaves nothing behind, and later walks are as short
/// as what is there.
fn shrink<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    if table.capacity() > PLACES_KEPT && table.len() < table.capacity() / 4 {
        table.shrink_to(PLACES_KEPT.max(2 * table.len()));
    }
}

/// Places that a table keeps in any case.
const PLACES_KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const A: Incarnation = [1; 20];
    const B: Incarnation = [2; 20];
    const C: Incarnation = [3; 20];

    /// A peer that has left filled the table once: the memory of thousands of provisions stayed for ever.
    #[test]
    fn a_table_that_was_full_gives_its_memory_back() {
        let (introducer, recipient) = (A, B);
        let mut provisions = Provisions::default();
        for number in 0..10_000 {
            let refused = provisions.provide((introducer, number), Some(()), recipient, 0);
            assert!(refused.is_none(), "{number}");
        }
        assert_eq!(provisions.ended(recipient, true, 1).len(), 10_000);
        assert!(provisions.provided.capacity() <= 2 * PLACES_KEPT);
    }

    #[test]
    fn a_provision_is_redeemed_once_by_whom_it_names() {
        let mut provisions = Provisions::default();
        assert_eq!(provisions.redeem((A, 1), B), Redeemed::NotYet);
        assert_eq!(provisions.provide((A, 1), Some(7), B, 0), None);
        assert_eq!(provisions.redeem((A, 1), C), Redeemed::Dead);
        assert_eq!(provisions.redeem((C, 1), B), Redeemed::NotYet);
        assert_eq!(provisions.redeem((A, 1), B), Redeemed::To(7));
        assert_eq!(provisions.redeem((A, 1), B), Redeemed::NotYet);
        provisions.provide((A, 2), None, B, 0);
        assert_eq!(provisions.redeem((A, 2), B), Redeemed::Dead);
        provisions.provide_within((A, 2), Err(Nothing::Right), (B, 9), 0);
        assert_eq!(provisions.redeem((A, 2), B), Redeemed::Revoked);
    }

    #[test]
    fn processes_of_one_user_share_what_one_process_may_have() {
        let mut provisions = Provisions::default();
        let process = |number: u32| -> Incarnation {
            core::array::from_fn(|place| {
                if place < 4 {
                    number.to_le_bytes()[place]
                } else {
                    0
                }
            })
        };
        for number in 0..100 {
            provisions.belongs(process(number), 4711);
        }
        provisions.belongs(B, 4712);
        let provide = |provisions: &mut Provisions<u8>, by, number| {
            provisions.provide((by, number), Some(7), C, 0).is_none()
        };
        let mut make_all = |by| {
            let made = (0..).take_while(|number| provide(&mut provisions, by, *number));
            made.count()
        };
        // Half of three quarters, then half of the rest.
        let of_user = PROVISIONS_MAX / 4 * 3;
        let first = make_all(process(0));
        assert_eq!((first, make_all(process(1))), (of_user / 2, of_user / 4));
        let all = first
            + of_user / 4
            + (2..100)
                .map(|number| make_all(process(number)))
                .sum::<usize>();
        assert!((of_user - 8..=of_user).contains(&all), "{all}");
        assert!(make_all(B) > (PROVISIONS_MAX - of_user) / 3);
        // All are given back.
        for of in (0..100).map(process).chain([B]) {
            provisions.ended(of, true, 0);
        }
        provisions.expire(2 * GRACE_NS, |_| true);
        assert!(provisions.shares.is_empty() && provisions.totals.is_empty());
        assert!(provisions.users.is_empty());
    }

    #[test]
    fn what_was_revoked_is_claimed_in_vain_by_those_it_was_revoked_from() {
        let mut provisions = Provisions::default();
        for (number, target, recipient) in [(1, 7, B), (2, 7, C), (3, 8, B)] {
            assert_eq!(
                provisions.provide((A, number), Some(target), recipient, 0),
                None
            );
        }
        assert_eq!(provisions.revoke(Some(B), |of| *of == 7), [7]);
        assert_eq!(provisions.redeem((A, 1), B), Redeemed::Revoked);
        assert_eq!(provisions.redeem((A, 3), B), Redeemed::To(8));
        assert_eq!(provisions.targets_mut().count(), 1);
        assert_eq!(provisions.revoke(None, |of| *of == 7), [7]);
        assert_eq!(provisions.revoke(None, |_| true), []);
        assert_eq!(provisions.take_back((A, 2), 0), None, "told of");
    }

    #[test]
    fn what_is_taken_back_is_not_redeemed_whichever_comes_first() {
        let mut provisions = Provisions::default();
        provisions.provide((A, 1), Some(7), B, 0);
        assert_eq!(provisions.take_back((A, 1), 0), Some(7));
        assert_eq!(provisions.take_back((A, 2), 0), None);
        assert_eq!(provisions.provide((A, 2), Some(8), B, 0), Some(8));
        assert_eq!(provisions.provide((A, 2), Some(9), B, 0), None);
        assert_eq!(provisions.provide((A, 2), Some(10), B, 0), Some(10));
        assert_eq!(provisions.redeem((A, 2), B), Redeemed::To(9));
        assert_eq!(provisions.take_back((A, 3), 0), None);
        assert_eq!(provisions.take_back((A, 3), 0), None, "twice");
        assert_eq!(provisions.redeem((A, 3), B), Redeemed::Dead);
        assert_eq!(provisions.provide((A, 3), Some(11), B, 0), Some(11));
    }

    #[test]
    fn provisions_end_with_their_recipient_and_a_while_after_their_introducer() {
        let mut provisions = Provisions::default();
        provisions.provide((A, 1), Some(7), B, 0);
        provisions.provide((A, 2), Some(8), C, 0);
        assert_eq!(provisions.ended(B, true, 5), [7]);
        assert!(!provisions.has_mortal());
        assert_eq!(provisions.ended(A, true, 5), []);
        assert!(provisions.has_mortal());
        assert_eq!(provisions.expire(GRACE_NS, |of| of != C), []);
        assert_eq!(provisions.redeem((A, 2), C), Redeemed::To(8));
        provisions.provide((A, 3), Some(9), C, 0);
        let _ = provisions.ended(A, true, 5);
        assert_eq!(provisions.expire(GRACE_NS + 5, |_| false), [9]);
        // Its link has ended, and it lives.
        provisions.provide((A, 4), Some(10), B, 0);
        assert_eq!(provisions.ended(B, false, 5), []);
        assert_eq!(provisions.redeem((A, 4), B), Redeemed::To(10));
        provisions.provide((A, 5), Some(11), B, 0);
        assert_eq!(provisions.ended(B, false, 5), []);
        assert_eq!(provisions.expire(GRACE_NS + 5, |_| false), [11]);
        provisions.provide((A, 6), Some(10), C, 0);
        provisions.provide((B, 4), Some(11), C, 0);
        let _ = provisions.ended(A, true, 5);
        assert_eq!(provisions.expire(6, |of| of == C), [10]);
    }

    #[test]
    fn a_claim_that_is_given_up_ends_its_own_provision_and_no_other() {
        let mut provisions = Provisions::default();
        provisions.provide((A, 1), Some(7), B, 0);
        assert_eq!(provisions.forgo((A, 1), C, 0), None);
        assert_eq!(provisions.forgo((A, 2), C, 0), None);
        assert_eq!(provisions.provide((A, 2), Some(8), B, 0), None);
        assert_eq!(provisions.redeem((A, 1), B), Redeemed::To(7));
        assert_eq!(provisions.redeem((A, 2), B), Redeemed::To(8));
        // Before it comes, and after.
        assert_eq!(provisions.forgo((A, 3), B, 0), None);
        assert_eq!(provisions.provide((A, 3), Some(9), B, 0), Some(9));
        provisions.provide((A, 4), Some(10), B, 0);
        assert_eq!(provisions.forgo((A, 4), B, 0), Some(10));
        // The statements of C last a while, too.
        assert!(provisions.has_mortal());
        assert_eq!(provisions.expire(GRACE_NS, |_| false), []);
        assert!(!provisions.has_mortal() && provisions.shares.is_empty());
    }

    #[test]
    fn who_makes_as_many_as_it_can_leaves_room_for_others() {
        if cfg!(miri) {
            // It is some thousand times slower, and looks for something else.
            return;
        }
        for by_voids in [false, true] {
            let mut provisions = Provisions::default();
            for number in 0..2 * PROVISIONS_MAX as u64 {
                match by_voids {
                    true => drop(provisions.take_back((A, number), 0)),
                    false => drop(provisions.provide((A, number), Some(1), B, 0)),
                }
                provisions.forgo((C, number), B, 0);
            }
            assert!(provisions.provided.len() + provisions.forgone.len() < PROVISIONS_MAX);
            for number in 0..1000 {
                assert_eq!(provisions.provide((C, number), Some(2), A, 0), None);
            }
            let _ = (provisions.ended(A, true, 0), provisions.ended(B, true, 0));
            let _ = (
                provisions.ended(C, true, 0),
                provisions.expire(GRACE_NS, |_| false),
            );
            assert!(provisions.provided.is_empty() && provisions.shares.is_empty());
        }
    }
}
