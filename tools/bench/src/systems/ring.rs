//! The limit of `stream`: a bare single-producer ring whose slots carry their own sequence
//! number. The consumer publishes its position once per 32 messages or when it runs dry.

use super::lanes::Cell;
use super::{Bundle, Named, OneWay, Producer, Waits};
use crate::control::Line;
use crate::plan::Plan;
use crate::shared::{Shared, Words};
use crate::systems::child::Seat;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Both sides spin.
pub(crate) struct Ring;

const SLOTS: usize = 1024;
const PUBLISH_EVERY: u64 = 32;

#[repr(C, align(64))]
struct Slot(Cell);

#[repr(C)]
struct RingWords {
    /// Messages consumed; written by the consumer.
    head: Line<AtomicU64>,
    slots: [Slot; SLOTS],
}

// SAFETY: atomic integers and padding only.
unsafe impl Words for RingWords {}

impl Named for Ring {
    fn name(&self) -> &'static str {
        "limit"
    }

    fn key(&self) -> &'static str {
        "limit-stream"
    }

    fn waits(&self) -> Waits {
        Waits::Spins
    }

    fn prepare(&self, _: &Plan) -> io::Result<Bundle> {
        let (fd, _) = Shared::create("handfast-bench-ring", size_of::<RingWords>())?;
        Ok(Bundle {
            common: vec![fd],
            ..Bundle::default()
        })
    }
}

impl OneWay for Ring {
    type Producer = RingProducer;

    fn consume(&self, seat: &Seat, mut received: impl FnMut(u64)) -> io::Result<()> {
        let words: &RingWords = seat.map(size_of::<RingWords>())?.at(0);
        let mut message = [0; 24];
        // Consumed so far, and how much of it the producer was told.
        let (mut head, mut told) = (0u64, 0u64);
        seat.ready();
        loop {
            let slot = &words.slots[head as usize % SLOTS].0;
            let found = slot.has(head + 1);
            if found {
                slot.get(&mut message);
                head += 1;
                let counter = u64::from_le_bytes(*message.first_chunk().unwrap_or(&[0; 8]));
                if counter != head {
                    return Err(io::Error::other("messages out of order"));
                }
            } else if seat.plan.pause {
                core::hint::spin_loop();
            }
            if head - told >= PUBLISH_EVERY || (!found && head != told) {
                // Release: the slots below `head` have been read; pairs with the producer's
                // Acquire before it writes them again.
                words.head.0.store(head, Ordering::Release);
                told = head;
                received(head);
            }
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<Self::Producer> {
        Ok(RingProducer {
            words: seat.map(size_of::<RingWords>())?.at(0),
            pause: seat.plan.pause,
            tail: 0,
            head: 0,
        })
    }
}

/// The sending end.
pub(crate) struct RingProducer {
    words: &'static RingWords,
    pause: bool,
    tail: u64,
    /// The consumer's position as last seen.
    head: u64,
}

impl Producer for RingProducer {
    #[inline]
    fn send(&mut self, message: [u64; 3]) -> io::Result<()> {
        while self.tail - self.head == SLOTS as u64 {
            // Acquire: pairs with the Release in `consume`; the slot may be written again.
            self.head = self.words.head.0.load(Ordering::Acquire);
            if self.pause {
                core::hint::spin_loop();
            }
        }
        let slot = &self.words.slots[self.tail as usize % SLOTS].0;
        self.tail += 1;
        slot.put(message.map(u64::to_le_bytes).as_flattened());
        slot.publish(self.tail);
        Ok(())
    }
}
