//! loom: publish and consume, every interleaving, with a ring of two slots so that slots are
//! reused. The memory reports a copy that overlaps a write.

use super::tests::{Buffer, HEADER};
use super::*;
use core::sync::atomic::Ordering;
use core::sync::atomic::Ordering::Relaxed;
use handfast_layout::link::slot;
use handfast_region::model::{Hook, Hooked, ModelMemory, OVERLAP, Operation, must_panic};
use loom::sync::Arc;

const SLOTS: u32 = 2;
const MESSAGES: u32 = 3;

fn header(port: u32) -> Header {
    Header { port, ..HEADER }
}

/// One producer of three messages over two slots, one consumer; some words are weak.
fn exchange(weak: fn(usize) -> bool) {
    loom::model(move || {
        let place = Place::small(0, SLOTS);
        let (words, areas) = ModelMemory::lane(0, SLOTS);
        let memory = Box::new(ModelMemory::new(&words, &areas));
        let memory = Arc::new(Hooked::new(memory, Weak(weak)));
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
        let mut buffer = Buffer::default();
        for number in 0..MESSAGES {
            while !consumer.is_ready(&*memory) {
                loom::thread::yield_now();
            }
            let (got, len) = consumer.take(&*memory, &mut buffer).unwrap();
            assert_eq!(got, header(number));
            assert_eq!(buffer.bytes(len), [number as u8; 8]);
            consumer.publish_head(&*memory);
        }
        producer.join().unwrap();
    });
}

#[test]
fn e1_e2_messages_are_whole_and_in_order() {
    exchange(|_| false);
}

/// Words whose orderings are turned into Relaxed.
struct Weak(fn(usize) -> bool);

impl Hook for Weak {
    fn order(&self, operation: Operation, order: Ordering) -> Ordering {
        match operation {
            Operation::Load(at)
            | Operation::Store(at, _)
            | Operation::Swap(at, _)
            | Operation::Or(at, _)
                if (self.0)(at) =>
            {
                Relaxed
            }
            _ => order,
        }
    }
}

#[test]
fn e1_without_release_and_acquire_a_torn_message_is_seen() {
    must_panic(OVERLAP, || {
        exchange(|at| at % handfast_layout::LINE == slot::SEQUENCE && at >= lane::CONTROL_BYTES);
    });
}

/// A consumer that has received one message, and passes the second one on.
fn passing_on(weak: fn(usize) -> bool) {
    loom::model(move || {
        let place = Place::small(0, SLOTS);
        let (words, areas) = ModelMemory::lane(0, SLOTS);
        let memory = Box::new(ModelMemory::new(&words, &areas));
        let memory = Arc::new(Hooked::new(memory, Weak(weak)));
        let producing = memory.clone();
        let producer = loom::thread::spawn(move || {
            let mut producer = Producer::new(place);
            for number in 0..2 {
                producer
                    .post(&*producing, header(number), &[number as u8; 8])
                    .unwrap();
            }
            assert!(!producer.has_arrived(&*producing), "{PASSED_ON}");
        });
        let mut consumer = Consumer::new(place);
        let mut buffer = Buffer::default();
        for number in 0..2 {
            if number == 1 {
                consumer.passes_on(&*memory, true);
            }
            while !consumer.is_ready(&*memory) {
                loom::thread::yield_now();
            }
            let _ = consumer.take(&*memory, &mut buffer).unwrap();
            consumer.publish_head(&*memory);
        }
        producer.join().unwrap();
    });
}

const PASSED_ON: &str = "it is on its way";

#[test]
fn e2_what_is_passed_on_has_not_arrived() {
    passing_on(|_| false);
}

#[test]
fn e2_without_release_and_acquire_what_is_passed_on_is_taken_for_received() {
    must_panic(PASSED_ON, || {
        passing_on(|at| at == Place::small(0, SLOTS).head());
    });
}

#[test]
fn e2_without_release_and_acquire_a_slot_is_overwritten_under_the_reader() {
    must_panic(OVERLAP, || {
        exchange(|at| at == Place::small(0, SLOTS).head());
    });
}
