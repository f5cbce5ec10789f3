//! The lanes on which the peer calls: the receiver of ours that has each, and what it has there.

use super::Link;
use crate::rank;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use handfast_layout::link::{LANES, Side};
use handfast_region::{Memory, Region};
use handfast_ring::lane::{Consumer, Place};
use handfast_ring::{Fault, Rule};
use handfast_sys::sync::Mutex;

pub(crate) struct Incoming {
    /// The receiver that each lane addresses, plus one.
    owners: [AtomicU8; LANES as usize],
    /// The receiver's own name for the lane.
    keys: [AtomicU32; LANES as usize],
    /// Lanes that the peer does not use any more and that a receiver may have still; a bit each.
    leaving: AtomicU32,
    /// The peer has asked what has been taken, and not every lane could be looked at.
    is_asked: AtomicBool,
    /// Consumers while no receiver holds them.
    consumers: [Mutex<Option<Consumer>, rank::Consumers>; LANES as usize],
}

impl Incoming {
    /// Unused lanes of a link, on this side of which the peer calls.
    pub(super) fn new(region: &Region, side: Side) -> Self {
        Self {
            owners: Default::default(),
            keys: Default::default(),
            leaving: AtomicU32::new(0),
            is_asked: AtomicBool::new(false),
            consumers: core::array::from_fn(|lane| {
                let place = Place::of(side, lane as u32);
                Mutex::new(Some(consumer_of(place, region)))
            }),
        }
    }

    /// The receiver that has a lane.
    pub(crate) fn owner(&self, lane: u32) -> Option<u32> {
        // Acquire: pairs with the exchange in `own` and the store in `disown`.
        let owner = self.owners[lane as usize].load(Ordering::Acquire);
        owner.checked_sub(1).map(u32::from)
    }

    /// Whether the lane is this receiver's, or becomes that now. A port bound again at the same receiver takes the lanes over.
    pub(crate) fn own(&self, lane: u32, receiver: u32) -> bool {
        let owner = receiver as u8 + 1;
        // AcqRel: one receiver wins; nothing else is published.
        match self.owners[lane as usize].compare_exchange(
            0,
            owner,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => true,
            Err(found) => found == owner,
        }
    }

    /// No receiver has the lane from now on.
    pub(crate) fn disown(&self, lane: u32) {
        // Release: a thread that takes the lane finds the consumer where it has been put.
        self.owners[lane as usize].store(0, Ordering::Release);
    }

    /// The name that a receiver has noted for a lane, perhaps another one.
    #[inline]
    pub(crate) fn key(&self, lane: u32) -> usize {
        // Relaxed: the receiver's own note, which is checked.
        self.keys[lane as usize].load(Ordering::Relaxed) as usize
    }

    pub(crate) fn note_key(&self, lane: u32, key: usize) {
        // Relaxed: as in `key`.
        self.keys[lane as usize].store(key as u32, Ordering::Relaxed);
    }

    /// Control thread: nothing comes in a lane any more. `false`: that was so already.
    pub(crate) fn leaves(&self, lane: u32) -> bool {
        // Relaxed: only the control thread changes it; a thread that reads it has read the count of leavings.
        self.leaving.fetch_or(1 << lane, Ordering::Relaxed) & 1 << lane == 0
    }

    /// Lanes in which nothing comes any more, and which a receiver may have still.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = u32> {
        // Acquire: with the Release of the count of leavings.
        let leaving = self.leaving.load(Ordering::Acquire);
        (0..LANES).filter(move |lane| leaving & 1 << lane != 0)
    }

    /// Control thread: no receiver has this lane any more.
    pub(crate) fn has_left(&self, lane: u32) {
        // Relaxed: as in `leaves`.
        self.leaving.fetch_and(!(1 << lane), Ordering::Relaxed);
    }

    /// Control thread: whether the peer has asked what has been taken, and is to be told.
    pub(crate) fn is_asked(&self) -> bool {
        // Relaxed, here and below: the control thread's alone.
        self.is_asked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_asked(&self, is_asked: bool) {
        self.is_asked.store(is_asked, Ordering::Relaxed);
    }

    pub(super) fn take_consumer(&self, lane: u32) -> Option<Consumer> {
        self.consumers[lane as usize].lock().take()
    }

    pub(super) fn return_consumer(&self, lane: u32, consumer: Consumer) {
        *self.consumers[lane as usize].lock() = Some(consumer);
    }
}

/// No receiver has the lane from now on, of which none holds the consumer.
pub(crate) fn disown(link: &Link, lane: u32) -> Result<(), Fault> {
    let mut is_empty = true;
    link.with_consumer(lane, |consumer| {
        is_empty = !consumer.is_ready(&link.region);
    });
    if !is_empty {
        return Err(Rule::LaneReceiver.broken());
    }
    link.incoming.disown(lane);
    Ok(())
}

/// Whether the peer's lane leads to this receiver, as far as the peer says: a ring may come late, when it leads elsewhere.
pub(crate) fn leads_to(link: &Link, lane: u32, receiver: u32) -> bool {
    let place = Place::of(link.calls.other(), lane);
    // Relaxed: before the ring (E3); or, where that comes late, before the word that the lane is free.
    let word = link.region.load(place.receiver(), Ordering::Relaxed);
    word == 0 || word == receiver + 1
}

/// The consumer of an unused lane.
pub(super) fn consumer_of(place: Place, region: &Region) -> Consumer {
    let consumer = Consumer::new(place);
    match region.looks_for_pages() {
        true => consumer.of_another_user(),
        false => consumer,
    }
}
