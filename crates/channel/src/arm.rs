//! Armed lanes: a consumer that does not poll a lane arms it, and only then does a post ring.
//!
//! While both sides are busy nobody touches the shared bell. Edge E5, with the fences of both
//! sides: the consumer arms, fences, looks at the lane again; the producer publishes, fences,
//! looks at the polled word. One of the two sees the other.

use core::sync::atomic::Ordering::Relaxed;
use handfast_region::Memory;
use handfast_ring::lane::{Consumer, Place};
use handfast_wait::word;

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
    look_armed(memory, consumer)
}

/// Says that posts to the lane need no fence: a stream pays one for every message otherwise, and
/// each waits until the message's line has come from the consumer. A lane with this word set is
/// armed by [`arm_after_stream`] only.
pub fn stream(memory: &impl Memory, place: Place) {
    // Relaxed: a producer that sees it late fences once too often.
    memory.store(place.streaming(), 1, Relaxed);
}

/// As [`arm`], for a lane whose posts were not fenced; from now on they are. One system call.
pub fn arm_after_stream(memory: &impl Memory, consumer: &mut Consumer) -> bool {
    let place = consumer.place();
    consumer.publish_head(memory);
    // Relaxed, both: ordered before the look below by the fence.
    memory.store(place.polled(), 0, Relaxed);
    memory.store(place.streaming(), 0, Relaxed);
    // E12 stream, consumer half. Fence of all threads of all processes that agreed to it. In the
    // producer it acts as a fence at some point of its program: before its post, and then its look
    // at the polled word comes later and finds "armed"; or after it, and then the message is
    // visible below. Producer half: `must_ring`.
    if !memory.fence_others() {
        // It was not refused before. A store is visible long before the shortest sleep has ended.
        handfast_sys::clock::nap();
    }
    look_armed(memory, consumer)
}

/// After a lane has been armed and the fence passed.
fn look_armed(memory: &impl Memory, consumer: &Consumer) -> bool {
    // The fence orders the published head, too, before this look at a producer that sleeps for
    // space (E4).
    let space = consumer.place().space();
    if word::taken(memory, space).is_some() {
        memory.wake(space, WOKEN_FOR_ROOM);
    }
    if consumer.is_ready(memory) {
        disarm(memory, consumer.place());
        return false;
    }
    true
}

/// After [`arm`] has found a message: arms the lane nevertheless and leaves it, whatever it holds.
/// A later post rings.
pub fn leave_armed(memory: &impl Memory, place: Place) {
    // Relaxed: ordered by the fence.
    memory.store(place.polled(), 0, Relaxed);
    // E5 arm. As in `arm`: a post whose fence comes after this one finds the lane armed.
    memory.fence();
}

/// The consumer polls the lane again.
pub fn disarm(memory: &impl Memory, place: Place) {
    // Relaxed: a stale "armed" costs the producer one ring for nothing.
    memory.store(place.polled(), 1, Relaxed);
}

/// After a post: fences and says whether the lane is armed, so that the producer must ring.
/// `agreed`: this process passes the fences that others ask for, and may so do without its own
/// where the consumer says so.
#[inline]
pub fn must_ring(memory: &impl Memory, place: Place, agreed: bool) -> bool {
    // Relaxed: whatever it says, an arming consumer has passed a fence here since or will.
    if agreed && memory.load(place.streaming(), Relaxed) != 0 {
        // E12 stream, producer half. The compiler keeps the post before the look; the fence of the
        // consumer makes the processor do so. Consumer half: `arm_after_stream`.
        handfast_sys::futex::fence_light();
    } else {
        // E5 post. Store-load fence. Pairs with the fence in `arm`.
        memory.fence();
    }
    // Relaxed: ordered by the fence.
    memory.load(place.polled(), Relaxed) == 0
}

/// Whether a message lies in a lane that nobody polls. A hint of the consumer's words to the producer.
pub fn holds_unpolled(memory: &impl Memory, place: Place) -> bool {
    // Relaxed, all: hints. The head was published when the lane was armed.
    let head = memory.load(place.head(), Relaxed);
    memory.load(place.polled(), Relaxed) == 0
        && memory.load(place.slot(head), Relaxed) == head.wrapping_add(1)
}

/// After publishing a head: wakes producers that sleep for space. Returns whether one of them sleeps in a descriptor,
/// and is to be rung for there.
#[must_use]
pub fn wake_producer(memory: &impl Memory, place: Place) -> bool {
    match word::fence_then_taken(memory, place.space()) {
        None => false,
        // Threads may sleep beside who announced last.
        Some(how) => {
            memory.wake(place.space(), WOKEN_FOR_ROOM);
            how == word::DESCRIPTOR
        }
    }
}

/// A receiver that made room wakes at most so many sleeping senders, however many there are: they may be any number of a hostile
/// peer's. The others are left asleep, and nobody's announcement is there any more.
pub const WOKEN_FOR_ROOM: u32 = 4;

/// Producer that has announced itself and no longer waits for room, with any result: wakes others of its process, which
/// may have been left asleep, or may fall asleep by its announcement. A producer that finds no room announces
/// itself again, and with that the others. `others`: whether any are counted that sleep there, or are about to. One system
/// call if so.
pub fn leave_space(memory: &impl Memory, place: Place, others: impl FnOnce() -> bool) {
    // E19 space, leaving half. This sender does not count any more. Another that sleeps was counted before its last look: before
    // this one counted itself off, and is seen here; or later, and then it has found the room that this one has
    // found, or messages in its place. Sleeping half: `Room::park`.
    if others() {
        // A task's announcement stays, for a ring.
        let _ = memory.compare_exchange(place.space(), word::ASLEEP, word::AWAKE);
        memory.wake(place.space(), WOKEN_FOR_ROOM);
    }
}

#[cfg(test)]
mod room;
#[cfg(test)]
mod streaming;
