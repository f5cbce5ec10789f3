//! Armed lanes: a consumer that does not poll a lane arms it, and only then does a post ring.
//!
//! While both sides are busy nobody touches the shared bell. Edge E5, with the fences of both
//! sides: the consumer arms, fences, looks at the lane again; the producer publishes, fences,
//! looks at the polled word. One of the two sees the other.

use core::sync::atomic::Ordering::Relaxed;
use handfast_region::Memory;
use handfast_ring::lane::{Consumer, Place};

/// Arms the lane and looks at it once more. `false` when a message was there after all; the lane
/// is then not armed.
pub fn arm(memory: &impl Memory, consumer: &mut Consumer) -> bool {
    let polled = consumer.place().polled();
    consumer.publish_head(memory);
    // Relaxed: ordered before the look below by the fence.
    memory.store(polled, 0, Relaxed);
    // E5 arm. Store-load fence. Pairs with the fence of the producer after its post
    // (`must_ring`). Without both, a message can be posted to a lane nobody polls, unrung.
    memory.fence();
    // The same fence orders the published head before this look at a producer that sleeps for
    // space (E4).
    let space = consumer.place().space();
    if handfast_wait::word::taken(memory, space).is_some() {
        memory.wake(space, u32::MAX);
    }
    if consumer.is_ready(memory) {
        disarm(memory, consumer.place());
        return false;
    }
    true
}

/// The consumer polls the lane again.
pub fn disarm(memory: &impl Memory, place: Place) {
    // Relaxed: a stale "armed" costs the producer one ring for nothing.
    memory.store(place.polled(), 1, Relaxed);
}

/// After a post: fences and says whether the lane is armed, so that the producer must ring.
#[inline]
pub fn must_ring(memory: &impl Memory, place: Place) -> bool {
    // E5 post. Store-load fence. Pairs with the fence in `arm`.
    memory.fence();
    // Relaxed: ordered by the fence.
    memory.load(place.polled(), Relaxed) == 0
}

/// After publishing a head: wakes a producer that sleeps for space.
pub fn wake_producer(memory: &impl Memory, place: Place) {
    if handfast_wait::word::fence_then_taken(memory, place.space()).is_some() {
        memory.wake(place.space(), u32::MAX);
    }
}
