//! The reply rights that a link passes on.

use super::Link;
use super::held::Held;
use crate::rank;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_layout::control::ControlMessage;
use handfast_layout::link::REPLIES;
use handfast_proto::paths::{Asks, Parties};
use handfast_sys::sync::{Mutex, MutexGuard};
use std::sync::Arc;

/// Replier: how to answer the callers of one forwarder.
pub(crate) struct Party {
    /// With the caller.
    pub(crate) link: Held,
    pub(crate) set: u32,
    path: u32,
    /// The last generation of each slot that the forwarder has passed on; zero for none.
    last: Box<[AtomicU32]>,
}

impl Party {
    /// Nothing has been passed on yet.
    pub(crate) fn new(link: Held, set: u32, path: u32) -> Self {
        let last = (0..REPLIES).map(|_| AtomicU32::new(0)).collect();
        Self {
            link,
            set,
            path,
            last,
        }
    }

    /// Whether the forwarder passes this reply right on for the first time. A second answer could be
    /// written while the caller takes the first, and the caller would blame this process.
    #[inline]
    pub(crate) fn is_new(&self, place: u32, generation: u32) -> bool {
        let Some(last) = self.last.get(place as usize) else {
            return false;
        };
        let is_newer = |last| last == 0 || generation.wrapping_sub(last).cast_signed() > 0;
        let newer = |last| (generation != 0 && is_newer(last)).then_some(generation);
        // Relaxed: a number, exchanged, so that of two receivers one finds the other's.
        last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, newer)
            .is_ok()
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        // The socket is its parent's in a forked child, and so is the path.
        if self.link.is_forked() {
            return;
        }
        let path = self.path;
        self.link.say(ControlMessage::PathOver { path });
    }
}

/// Replier: the request of a forwarder.
pub(crate) struct Ask {
    pub(crate) forwarder: Arc<Link>,
    pub(crate) number: u32,
    pub(crate) between: Between,
}

impl Ask {
    /// There is no way to the caller.
    pub(crate) fn refuse(&self) {
        refuse_path(&self.forwarder, self.number);
    }
}

/// The link between a caller and a forwarder, as the replier is told of it: the forwarder's incarnation, and
/// the index it has given the link.
pub(crate) struct Between {
    pub(crate) forwarder: [u8; 20],
    pub(crate) index: u32,
    pub(crate) set: u32,
}

/// A link's reply rights that are passed on, by us to the peer and by the peer to us.
#[derive(Default)]
pub(crate) struct Passing {
    tables: Mutex<PassingTables, rank::Passing>,
    /// How often a way to the peer, or a party of the peer's, was forgotten.
    ways: AtomicU32,
    parties: AtomicU32,
}

/// Its tables, as forwarder to the peer and as replier to calls that the peer forwards.
#[derive(Default)]
pub(crate) struct PassingTables {
    pub(crate) asks: Asks,
    pub(crate) parties: Parties<Arc<Party>>,
}

impl Passing {
    pub(crate) fn lock(&self) -> MutexGuard<'_, PassingTables, rank::Passing> {
        self.tables.lock()
    }

    /// A number that changes when a way to the peer has been given up: no thread uses one from memory then.
    #[inline]
    pub(crate) fn ways(&self) -> u32 {
        // Acquire: pairs with the addition in `forget_ways`.
        self.ways.load(Ordering::Acquire)
    }

    /// A number that changes when a party of the peer's has been forgotten.
    #[inline]
    pub(crate) fn parties(&self) -> u32 {
        // Acquire: pairs with the addition in `forgot_parties`.
        self.parties.load(Ordering::Acquire)
    }

    pub(crate) fn forget_ways(&self) {
        // Release: pairs with the Acquire in `ways`.
        self.ways.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn forgot_parties(&self) {
        // Release: pairs with the Acquire in `parties`.
        self.parties.fetch_add(1, Ordering::Release);
    }
}

/// The peer's messages are taken by no thread any more: its parties end.
pub(super) fn end_parties(link: &Link) {
    let dropped = link.parts.passing.lock().parties.drop_those(|_| true);
    link.parts.passing.forgot_parties();
    drop(dropped);
}

/// Forgets a party of the peer's.
pub(crate) fn forget_party(link: &Link, number: u32) {
    let dropped = link.parts.passing.lock().parties.dropped(number);
    link.parts.passing.forgot_parties();
    drop(dropped);
}

/// Replier: tells a forwarder that it gets no path by this number.
pub(crate) fn refuse_path(link: &Link, number: u32) {
    forget_party(link, number);
    link.say(ControlMessage::PathRefused { number });
}

/// A way that reply rights have gone from this thread: of a set of a link's, through another link.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) from: (u32, u32),
    pub(crate) to: u32,
    pub(crate) version: u32,
    pub(crate) number: u32,
    pub(crate) path: u32,
}

/// Ways a thread remembers.
const KNOWN: usize = 16;

thread_local! {
    static WAYS: [Cell<Option<Known>>; KNOWN] = const { [const { Cell::new(None) }; KNOWN] };
}

impl Known {
    const fn place((from, set): (u32, u32), to: u32) -> usize {
        (from ^ set << 2 ^ to << 1) as usize % KNOWN
    }

    pub(crate) fn remember(self) {
        // A thread that is ending remembers nothing.
        let _ = WAYS.try_with(|ways| ways[Self::place(self.from, self.to)].set(Some(self)));
    }

    /// How reply slot `index` of the calls that come by the link of that number goes to the peer of `to`, if one like it has.
    #[inline]
    pub(crate) fn of((link, index): (u32, u32), to: &Link) -> Option<Self> {
        let from = (link, index / REPLIES);
        let place = Self::place(from, to.serial);
        let known = WAYS.try_with(|ways| ways[place].get()).ok().flatten()?;
        let is_it =
            known.from == from && known.to == to.serial && known.version == to.parts.passing.ways();
        is_it.then_some(known)
    }
}
