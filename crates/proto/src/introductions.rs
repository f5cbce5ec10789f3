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
pub use claims::{Claim, Claims, Waiting};

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

/// A process, by the identity it has drawn at its start, and by its process number.
pub type Incarnation = handfast_layout::hello::Process;

/// The key of a provision: the process that made it, and its number there.
pub type Number = (Incarnation, u64);

/// Exporter: rights that were provided and not claimed yet. `T` is what a right is to.
#[derive(Debug)]
pub struct Provisions<T> {
    /// Numbers are their introducers' to choose, and the table is everybody's: no hash that can be foreseen.
    provided: BTreeMap<Number, Provision<T>>,
    /// Claims that were given up before what they claim had come, by whom, and until when that is known.
    forgone: BTreeMap<(Number, Incarnation), u64>,
    /// How many of both each process has made.
    shares: BTreeMap<Incarnation, Share>,
    /// How many the processes of each user have.
    totals: BTreeMap<Counted, usize>,
    /// The users of the processes that have links.
    users: BTreeMap<Incarnation, u32>,
}

#[derive(Debug)]
struct Share {
    count: usize,
    counted: Counted,
}

/// Whose places a process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
            provided: BTreeMap::new(),
            forgone: BTreeMap::new(),
            shares: BTreeMap::new(),
            totals: BTreeMap::new(),
            users: BTreeMap::new(),
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

    /// `recipient`, which has heard of a provision before, has no link now: one is being made by which it claims that, or the one has
    /// ended by which it has claimed that. So the provision is kept for a while.
    pub fn let_expire(&mut self, number: Number, recipient: Incarnation, now_ns: u64) {
        if let Some(Provision::Waiting {
            recipient: of,
            until_ns,
            ..
        }) = self.provided.get_mut(&number)
            && *of == recipient
        {
            until_ns.get_or_insert(now_ns + GRACE_NS);
        }
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
            .extract_if(.., |(_, recipient), until_ns| is_one(*recipient, *until_ns));
        let taken: Vec<_> = taken.map(|((_, recipient), _)| recipient).collect();
        taken.into_iter().for_each(|of| self.one_less(of));
    }

    fn take_those(&mut self, mut is_one: impl FnMut(&Number, &mut Provision<T>) -> bool) -> Vec<T> {
        let known = self.provided.iter_mut();
        let those: Vec<_> = known
            .filter_map(|(number, known)| is_one(number, known).then_some(*number))
            .collect();
        let taken = those.into_iter().filter_map(|number| self.take(number));
        taken.collect()
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

#[cfg(test)]
mod tests;
