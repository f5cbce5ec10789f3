//! loom: a producer that does not fence its posts, and a consumer that arms their lane (E12).
//!
//! The producer is the light thread of the asymmetric fence: see `handfast_region::model`.

use super::{arm, arm_after_stream, must_ring, stream};
use crate::tests::HEADER;
use core::sync::atomic::Ordering::Relaxed;
use handfast_layout::link::Side;
use handfast_region::Memory;
use handfast_region::model::{Light, ModelMemory, Points, every_point, must_fail};
use handfast_ring::lane::{Consumer, Place, Producer};
use loom::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// The consumer's fence of the others.
    Membarrier,
    /// The consumer arms as if the lane had been fenced.
    Stream,
}

/// The producer posts as `SendRight::send` does and looks whether it must ring; the consumer arms
/// the lane as `upkeep::check_quiet` does. One of the two must know of the message.
fn post_to_a_lane_being_armed(without: Without) {
    every_point(3, move |barrier, points| {
        let base = Side::Connector.lane(0);
        let place = Place::small(base, 2);
        let (words, areas) = ModelMemory::lane(base, 2);
        let mut memory = ModelMemory::new(&words, &areas);
        memory.membarrier = (without != Without::Membarrier).then(|| barrier.clone());
        memory.store(place.polled(), 1, Relaxed);
        stream(&memory, place);
        let memory = Arc::new(memory);
        let (theirs, their_barrier) = (memory.clone(), barrier.clone());
        let producer = loom::thread::spawn(move || {
            let points = Points::new(their_barrier, points);
            let light = Light::new(&theirs, &points, None);
            Producer::new(place).post(&light, HEADER, b"hello").unwrap();
            let rings = must_ring(&light, place, true);
            (rings, points.finish())
        });
        let mut consumer = Consumer::new(place);
        let armed = if without == Without::Stream {
            arm(&*memory, &mut consumer)
        } else {
            arm_after_stream(&*memory, &mut consumer)
        };
        barrier.over();
        let (rings, operations) = producer.join().unwrap();
        assert!(rings || !armed, "armed, and nobody rings for the message");
        operations
    });
}

#[test]
fn e12_an_unfenced_post_to_a_lane_being_armed_is_seen_or_rung_for() {
    post_to_a_lane_being_armed(Without::Nothing);
}

#[test]
fn e12_without_the_fence_of_others_a_post_is_lost() {
    must_fail("nobody rings", || {
        post_to_a_lane_being_armed(Without::Membarrier)
    });
}

#[test]
fn e12_armed_as_if_it_had_been_fenced_a_post_is_lost() {
    must_fail("nobody rings", || {
        post_to_a_lane_being_armed(Without::Stream)
    });
}
