//! The state of introductions that one link has: as exporter, whose peer claims rights; as introducer, whose peer was provided with some.

use super::{IsAwaited, Link};
use crate::rank;
use crate::users::Charge;
use handfast_layout::control::ControlMessage;
use handfast_proto::introductions::Claims;
use handfast_proto::rights::{Handle, Meaning, Target};
use handfast_sys::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Numbers of claimed rights are charged to their user by so many; and so are rights that were given back, until they end.
pub(crate) const CLAIMS_STEP: u64 = 256;

/// All that a link knows of introductions: as exporter, whose peer claims rights; as introducer, whose peer was provided with some.
pub(crate) struct Introductions {
    tables: Mutex<Tables, rank::Introductions>,
    /// Held from a look at what was provided until the claim says what came of that.
    pub(crate) redeeming: Mutex<(), rank::Redeeming>,
}

/// The claims of a link's peer and of this process, and the rights that were provided to the peer.
pub(crate) struct Tables {
    /// The names by which the peer claims the rights that others provided to it.
    pub(crate) claims: Claims,
    /// The charge to its user for those claims, at least.
    pub(crate) charge: Charge,
    /// The last rights that were provided to the peer, which may have ended before it heard of them: links with exporters,
    /// and our numbers.
    pub(crate) unheard: VecDeque<(Weak<Link>, u64)>,
    /// Claims of this process that the peer may not have answered: each takes one of our return slots.
    pub(crate) awaited: Vec<Weak<dyn IsAwaited>>,
}

impl Introductions {
    /// None yet, for which nothing is charged.
    pub(crate) fn new(nothing: Charge) -> Self {
        let tables = Tables {
            claims: Claims::default(),
            charge: nothing,
            unheard: VecDeque::new(),
            awaited: Vec::new(),
        };
        Self {
            tables: Mutex::new(tables),
            redeeming: Mutex::default(),
        }
    }
}

/// Recipient: takes the answers that are there, which frees their slots.
pub(super) fn hear_claims(link: &Link) {
    let awaited = core::mem::take(&mut link.introductions().awaited);
    // Outside of the lock: the last right to one of them may be dropped meanwhile.
    let mut open: Vec<Weak<dyn IsAwaited>> = Vec::new();
    for claimed in awaited {
        if claimed.upgrade().is_some_and(|known| known.is_awaited()) {
            open.push(claimed);
        }
    }
    let awaited = &mut link.introductions().awaited;
    awaited.append(&mut open);
}

/// The meaning of a message's word for a right.
pub(crate) enum Named {
    To(Target),
    /// A port that has ended, or a right that was never provided.
    Dead,
    /// A right that was revoked.
    Revoked,
    /// The peer's right as the old home of this port.
    Trail(u32),
    /// The right is not known yet: the claimed right has not been provided. Messages wait until then.
    NotYet(u64),
    /// The right has not been claimed yet.
    Unclaimed,
    /// A name that no honest peer uses.
    Unknown,
}

impl From<Option<Meaning>> for Named {
    fn from(meaning: Option<Meaning>) -> Self {
        match meaning {
            Some(Meaning::To(target)) => Self::To(target),
            Some(Meaning::Revoked) => Self::Revoked,
            Some(Meaning::Trail(port)) => Self::Trail(port),
            None => Self::Unknown,
        }
    }
}

impl Named {
    /// The right that the peer names by a handle.
    pub(crate) fn of_handle(link: &Link, handle: Handle) -> Self {
        link.exports().resolve(handle).into()
    }
}

impl Link {
    /// Whether what this peer says of third processes is the word of another user. It may be of rights that do not exist, for which
    /// an exporter waits in vain: until the exporter has confirmed one, no message goes by it, which would have messages of others
    /// wait behind it; and few are claimed at once ([`Own::take_for`](super::returns::Own::take_for)).
    pub(crate) fn is_of_others(&self) -> bool {
        let uid = self.peer.uid;
        uid != 0 && uid != handfast_sys::process::uid()
    }

    /// The claims of the peer and of this process, and the rights that were provided to the peer.
    pub(crate) fn introductions(&self) -> MutexGuard<'_, Tables, rank::Introductions> {
        self.rights.introductions.tables.lock()
    }

    pub(crate) fn redeeming(&self) -> MutexGuard<'_, (), rank::Redeeming> {
        self.rights.introductions.redeeming.lock()
    }
}

/// Recipient: tells the introducer that what it has provided will not be claimed.
pub(crate) fn decline(link: &Link, exporter: [u8; 20], number: u64) {
    // The rights that a peer has provided which does not read stay until it ends.
    if !link.is_behind() {
        link.say(ControlMessage::Declined { number, exporter });
    }
}

/// Introducer: the this with the exporter behind which `number` was provided to the peer; once.
pub(crate) fn take_unheard(this: &Link, exporter: &[u8], number: u64) -> Option<Arc<Link>> {
    let unheard = &mut this.introductions().unheard;
    let is_it = |(link, of): &(Weak<Link>, u64)| {
        let link = (*of == number).then(|| link.upgrade()).flatten();
        link.is_some_and(|link| exporter == link.identity())
    };
    let place = unheard.iter().position(is_it)?;
    let (link, _) = unheard.remove(place)?;
    link.upgrade()
}
