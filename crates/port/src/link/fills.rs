//! Blocks that this process fills with long messages to a peer, as it says so to the peer meanwhile; and whether that peer does the same.

use super::Link;
use crate::rank;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use handfast_channel::fill::{Filling, Place};
use handfast_layout::loan::LentBlock;
use handfast_sys::cpu;
use handfast_sys::sync::Mutex;

/// So many bytes at a time the peer is told of.
pub(crate) const STEP_BYTES: u32 = 32 * 1024;

pub(crate) struct Fills {
    /// A bit for each lane in whose words a thread says what it fills.
    taken: Mutex<u32, rank::Fills>,
    /// Number of the last fill.
    last: AtomicU32,
    /// The peer has sent a message after it had said how it filled its block.
    come: AtomicBool,
    /// The processor of the peer's thread that has sent the last one.
    peer_cpu: AtomicU32,
}

impl Default for Fills {
    fn default() -> Self {
        Self {
            taken: Mutex::default(),
            last: AtomicU32::new(0),
            come: AtomicBool::new(false),
            peer_cpu: AtomicU32::new(u32::MAX),
        }
    }
}

impl Fills {
    /// A long message has come whose fill was said.
    pub(crate) fn has_come(&self) {
        // Relaxed, here and below: hints.
        self.come.store(true, Ordering::Relaxed);
    }

    /// Whether one has come, and others may.
    #[inline]
    pub(crate) fn come(&self) -> bool {
        self.come.load(Ordering::Relaxed)
    }

    /// Nothing came of one that was said: nobody looks before the next has come.
    pub(crate) fn come_no_more(&self) {
        self.come.store(false, Ordering::Relaxed);
    }

    /// A long call has come from this processor.
    pub(crate) fn came_from(&self, cpu: u32) {
        self.peer_cpu.store(cpu, Ordering::Relaxed);
    }

    /// Whether the caller of the last long call runs on this thread's processor, as far as is known.
    pub(crate) fn shares_processor(&self) -> bool {
        self.peer_cpu.load(Ordering::Relaxed) == cpu::current()
    }
}

/// A fill under way, that the peer is told of; until it is dropped.
pub(crate) struct Fill<'a> {
    link: &'a Link,
    lane: u32,
    serial: u32,
    len_bytes: u32,
    /// So many bytes are there, and so many the peer has been told of.
    reached: Cell<u32>,
    said: Cell<u32>,
}

impl<'a> Fill<'a> {
    /// Says in the words of `lane` that a block is filled: for a message, or for the answer in the reply slot with the number
    /// before `answers`. `None`: another thread uses those words.
    pub(crate) fn begin(
        link: &'a Link,
        (lane, answers): (u32, u32),
        lent: &LentBlock,
    ) -> Option<Self> {
        let fills = &link.parts.fills;
        let mut taken = fills.taken.lock();
        if *taken & 1 << lane != 0 {
            return None;
        }
        *taken |= 1 << lane;
        drop(taken);
        // Relaxed: a number.
        let serial = loop {
            let last = fills.last.fetch_add(1, Ordering::Relaxed);
            if let Some(serial) = last.checked_add(1) {
                break serial;
            }
        };
        let len_bytes = u32::try_from(lent.len_bytes).unwrap_or(u32::MAX);
        let filling = Filling {
            serial,
            answers,
            arena: lent.arena,
            block: lent.block,
            len_bytes,
        };
        Place::of(link.calls, lane).begin(&link.region, filling);
        Some(Self {
            link,
            lane,
            serial,
            len_bytes,
            reached: Cell::new(0),
            said: Cell::new(0),
        })
    }

    pub(crate) const fn serial(&self) -> u32 {
        self.serial
    }

    /// So many more bytes are there. The peer is told when they are many, or all.
    pub(crate) fn reach(&self, len_bytes: usize) {
        let reached = self.reached.get() + len_bytes as u32;
        self.reached.set(reached);
        if reached - self.said.get() >= STEP_BYTES || reached == self.len_bytes {
            self.said.set(reached);
            Place::of(self.link.calls, self.lane).reach(&self.link.region, reached);
        }
    }
}

impl Drop for Fill<'_> {
    fn drop(&mut self) {
        Place::of(self.link.calls, self.lane).end(&self.link.region);
        *self.link.parts.fills.taken.lock() &= !(1 << self.lane);
    }
}
