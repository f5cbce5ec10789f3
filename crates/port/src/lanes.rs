//! Which lane is whose.

use core::sync::atomic::{AtomicU8, Ordering};
use handfast_layout::bell as bell_layout;
use handfast_layout::link::LANES;
use handfast_sys::lock::thread_number;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which lane each calling thread uses for each receiver of the peer. A thread keeps its lane for
/// ever, so its messages to one port stay in order.
pub(crate) struct LaneMap {
    /// Lane plus one, by receiver and thread.
    lanes: Box<[AtomicU8]>,
    free: Mutex<u32>,
    /// Which introducers lanes were taken for, one entry each.
    introduced: Mutex<Vec<u32>>,
}

/// The lanes of a receiver, which stay all there are for as long as this does.
pub(crate) struct HeldLanes<'a> {
    lanes: Vec<u32>,
    _given: MutexGuard<'a, u32>,
}

impl HeldLanes<'_> {
    pub(crate) fn iter(&self) -> core::slice::Iter<'_, u32> {
        self.lanes.iter()
    }
}

/// In the place of a receiver: it has no lanes.
pub(crate) const NOBODY: u32 = bell_layout::RECEIVERS;

/// Threads told apart; more share lanes.
const THREADS: usize = LANES as usize;

/// Lanes of one link that are taken because one process introduces rights to ports of the peer's, and because any does:
/// a quarter, and three eighths.
const INTRODUCER_LANES_MAX: usize = LANES as usize / 4;
const INTRODUCED_LANES_MAX: usize = LANES as usize * 3 / 8;

impl Default for LaneMap {
    fn default() -> Self {
        let entries = bell_layout::RECEIVERS as usize * THREADS;
        Self {
            lanes: (0..entries).map(|_| AtomicU8::new(0)).collect(),
            free: Mutex::new(0),
            introduced: Mutex::default(),
        }
    }
}

impl LaneMap {
    /// The lane of this thread for `receiver`; `None` when other receivers have used all up, and for [`NOBODY`].
    #[inline]
    pub(crate) fn lane(&self, receiver: u32) -> Option<u32> {
        let thread = thread_number() as usize % THREADS;
        let entry = self.lanes.get(receiver as usize * THREADS + thread)?;
        // Relaxed: a number; the lane itself is behind a lock.
        match entry.load(Ordering::Relaxed) {
            0 => self.assign(receiver, thread),
            lane => Some(u32::from(lane) - 1),
        }
    }

    /// The lane that this thread has for `receiver`, if it has one.
    pub(crate) fn known(&self, receiver: u32) -> Option<u32> {
        let thread = thread_number() as usize % THREADS;
        let entry = self.lanes.get(receiver as usize * THREADS + thread)?;
        // Relaxed: as in `lane`.
        u32::from(entry.load(Ordering::Relaxed)).checked_sub(1)
    }

    /// A lane to claim a right to a port of `receiver` in, that the process with this serial has introduced: the one
    /// of this thread, or any that leads there. A new one is taken for few receivers of each introducer, and leaves
    /// enough to this process: who introduces may name any port.
    pub(crate) fn lane_to_claim(&self, receiver: u32, introducer: u32) -> Option<u32> {
        let mut introduced = self
            .introduced
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = self.given(receiver) {
            return Some(lane);
        }
        let by_it = introduced.iter().filter(|by| **by == introducer).count();
        let is_too_much = by_it >= INTRODUCER_LANES_MAX || introduced.len() >= INTRODUCED_LANES_MAX;
        if is_too_much {
            return None;
        }
        let lane = self.lane(receiver)?;
        introduced.push(introducer);
        Some(lane)
    }

    /// As [`Self::lane`], or any that leads there: for what is said once, in no order with anything else.
    pub(crate) fn any_lane(&self, receiver: u32) -> Option<u32> {
        self.given(receiver).or_else(|| self.lane(receiver))
    }

    /// A lane that leads there, of this thread if there is one.
    fn given(&self, receiver: u32) -> Option<u32> {
        let thread = thread_number() as usize % THREADS;
        let row = &self.lanes[receiver as usize * THREADS..][..THREADS];
        let (before, from_own) = row.split_at(thread);
        // Relaxed: numbers; the lanes themselves are behind locks.
        let mut lanes = (from_own.iter().chain(before)).map(|lane| lane.load(Ordering::Relaxed));
        let lane = lanes.find(|lane| *lane != 0)?;
        Some(u32::from(lane) - 1)
    }

    /// The receiver that `lane` was given to.
    pub(crate) fn receiver_of(&self, lane: u32) -> Option<u32> {
        let is_lane = |entry: &AtomicU8| u32::from(entry.load(Ordering::Relaxed)) == lane + 1;
        let place = self.lanes.iter().position(is_lane)?;
        Some((place / THREADS) as u32)
    }

    /// The lanes that lead to `receiver`. No others are given out while it is held.
    pub(crate) fn hold(&self, receiver: u32) -> HeldLanes<'_> {
        let given = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let row = &self.lanes[receiver as usize * THREADS..][..THREADS];
        // Relaxed: entries change only under the lock.
        let lanes = row.iter().map(|entry| entry.load(Ordering::Relaxed));
        let mut lanes: Vec<_> = lanes.filter(|lane| *lane != 0).collect();
        lanes.sort_unstable();
        lanes.dedup();
        HeldLanes {
            lanes: lanes.iter().map(|lane| u32::from(*lane) - 1).collect(),
            _given: given,
        }
    }

    #[cold]
    fn assign(&self, receiver: u32, thread: usize) -> Option<u32> {
        let row = &self.lanes[receiver as usize * THREADS..][..THREADS];
        let mut used = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed throughout: entries change only under the lock.
        let own = row[thread].load(Ordering::Relaxed);
        if own != 0 {
            return Some(u32::from(own) - 1);
        }
        // The last quarter is for receivers that have no lane at all.
        let first = row
            .iter()
            .map(|entry| entry.load(Ordering::Relaxed))
            .find(|lane| *lane != 0);
        let reserve = if first.is_some() { LANES / 4 } else { 0 };
        let lane = if *used + reserve < LANES {
            *used += 1;
            *used as u8
        } else {
            first?
        };
        row[thread].store(lane, Ordering::Relaxed);
        Some(u32::from(lane) - 1)
    }
}
