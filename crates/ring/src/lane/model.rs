//! loom: publish and consume, every interleaving, with a ring of two slots so that slots are
//! reused. The memory reports a copy that overlaps a write.

use super::*;
use core::sync::atomic::Ordering;
use handfast_region::model::{ModelMemory, OVERLAP, must_panic};
use handfast_region::{Memory, Wait};
use loom::sync::Arc;

const SLOTS: u32 = 2;
const MESSAGES: u32 = 3;

/// Collects inline bytes.
struct Buffer(Inline, Vec<u8>);

impl Sink for Buffer {
    fn place(&mut self, _: usize, is_inline: bool) -> Target<'_> {
        if is_inline {
            Target::Inline(&mut self.0)
        } else {
            Target::Vector(&mut self.1)
        }
    }
}

fn header(port: u32) -> Header {
    Header {
        kind: Kind::Message,
        port,
        reply: 0,
        generation: 0,
        cpu: 0,
    }
}

/// One producer of three messages over two slots, one consumer; `M` may weaken the memory.
fn exchange<M: Memory + 'static>(wrap: fn(ModelMemory) -> M) {
    loom::model(move || {
        let place = Place::small(0, SLOTS);
        let (words, areas) = ModelMemory::lane(0, SLOTS);
        let memory = Arc::new(wrap(ModelMemory::new(&words, &areas)));
        let producing = memory.clone();
        let producer = loom::thread::spawn(move || {
            let mut producer = Producer::new(place);
            for number in 0..MESSAGES {
                while producer
                    .post(&*producing, header(number), &[number as u8; 8])
                    .is_err()
                {
                    loom::thread::yield_now();
                }
            }
        });
        let mut consumer = Consumer::new(place);
        let mut buffer = Buffer([0; INLINE_BYTES], Vec::new());
        for number in 0..MESSAGES {
            while !consumer.is_ready(&*memory) {
                loom::thread::yield_now();
            }
            let (header, len) = consumer.take(&*memory, &mut buffer).unwrap();
            assert_eq!(
                (header.port, len, buffer.0[..8].to_vec()),
                (number, 8, vec![number as u8; 8])
            );
            consumer.publish_head(&*memory);
        }
        producer.join().unwrap();
    });
}

#[test]
fn e1_e2_messages_are_whole_and_in_order() {
    exchange(|memory| memory);
}

/// Model memory that turns one ordering on one word into Relaxed.
struct Weak {
    inner: ModelMemory,
    weak: fn(usize) -> bool,
}

impl Weak {
    fn order(&self, at: usize, order: Ordering) -> Ordering {
        if (self.weak)(at) { Relaxed } else { order }
    }
}

impl Memory for Weak {
    fn load(&self, at: usize, order: Ordering) -> u32 {
        self.inner.load(at, self.order(at, order))
    }
    fn store(&self, at: usize, value: u32, order: Ordering) {
        self.inner.store(at, value, self.order(at, order));
    }
    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32 {
        self.inner.swap(at, value, self.order(at, order))
    }
    fn fetch_or(&self, at: usize, bits: u32, order: Ordering) -> u32 {
        self.inner.fetch_or(at, bits, self.order(at, order))
    }
    fn compare_exchange(&self, at: usize, current: u32, new: u32) -> Result<u32, u32> {
        self.inner.compare_exchange(at, current, new)
    }
    fn fence(&self) {
        self.inner.fence();
    }

    fn fence_others(&self) -> bool {
        self.inner.fence_others()
    }
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.inner.copy_in(at, bytes);
    }
    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.inner.copy_out(at, bytes);
    }
    fn park(&self, at: usize, expected: u32, deadline_ns: Option<u64>) -> Wait {
        self.inner.park(at, expected, deadline_ns)
    }
    fn wake(&self, at: usize, count: u32) -> u32 {
        self.inner.wake(at, count)
    }
}

#[test]
fn e1_without_release_and_acquire_a_torn_message_is_seen() {
    must_panic(OVERLAP, || {
        exchange(|inner| Weak {
            inner,
            weak: |at| at % handfast_layout::LINE == slot::SEQUENCE && at >= lane::CONTROL_BYTES,
        });
    });
}

#[test]
fn e2_without_release_and_acquire_a_slot_is_overwritten_under_the_reader() {
    must_panic(OVERLAP, || {
        exchange(|inner| Weak {
            inner,
            weak: |at| at == Place::small(0, SLOTS).head(),
        });
    });
}
