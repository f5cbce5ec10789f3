//! The bell: how a post to an armed lane reaches a receiver that sleeps in one place.
//!
//! Three levels, set from the bottom up and taken from the top down: the link's own ready word
//! (one bit per lane), the bell's ready words (one bit per link), the bell's summary (one bit per
//! ready word). A bit found set at the top therefore always finds the bits below it. The upper
//! two are shared by a trust group and are hints: before it sleeps the receiver looks at every
//! link's own ready word, which only that link's peer can clear.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use handfast_layout::bell as layout;
use handfast_layout::link::Side;
use handfast_region::Memory;
use handfast_wait::word;

/// Notes at all three levels that `lane` of `side` has a message for `receiver`, then looks
/// whether the receiver sleeps. Returns how, if this call must wake it. Two to three locked
/// instructions; no system call.
pub fn ring(
    link: &impl Memory,
    bell: &impl Memory,
    (side, lane): (Side, u32),
    receiver: u32,
    index: u32,
) -> Option<u32> {
    let base = layout::bell(receiver);
    // E3 ready, set half, three times. AcqRel: a receiver that takes the upper bit sees the lower one,
    // and the message below that. Take half: `take`, `take_lanes`.
    link.fetch_or(side.ready(receiver), 1 << lane, AcqRel);
    bell.fetch_or(
        base + layout::READY + (index / 32) as usize * 4,
        1 << (index % 32),
        AcqRel,
    );
    bell.fetch_or(base + layout::SUMMARY, 1 << (index / 32), AcqRel);
    word::fence_then_taken(bell, base + layout::SLEEP)
}

/// As [`ring`], where the bell is the owner's alone to write: notes the message in the link's own word, which the owner
/// looks at by itself while it is awake, and says how it sleeps.
pub fn ring_published(
    link: &impl Memory,
    bell: &impl Memory,
    (side, lane): (Side, u32),
    receiver: u32,
) -> u32 {
    // E3 ready, set half, once. AcqRel: as in `ring`.
    link.fetch_or(side.ready(receiver), 1 << lane, AcqRel);
    // E4 wake. Store-load fence. Pairs with the fence in `announce`.
    link.fence();
    // Relaxed: ordered by the fence. Nobody takes the announcement: a sender that finds nobody to wake has the owner do so.
    bell.load(layout::bell(receiver) + layout::SLEEP, Relaxed)
}

/// Callee: notes for itself that `lane` of `side` has a message for `receiver`, as [`ring`] does at the
/// lowest level: found by the next scan before a sleep.
pub fn note(link: &impl Memory, (side, lane): (Side, u32), receiver: u32) {
    // E3 ready, set half. AcqRel: as in `ring`.
    link.fetch_or(side.ready(receiver), 1 << lane, AcqRel);
}

/// Whether anything rang since the last [`take`]. One load of a line that is cached until then.
#[inline]
pub fn rang(bell: &impl Memory, receiver: u32) -> bool {
    // Relaxed: `take` synchronises.
    bell.load(layout::bell(receiver) + layout::SUMMARY, Relaxed) != 0
}

/// Takes the links that rang, as indices; at most [`layout::LINKS`].
pub fn take(bell: &impl Memory, receiver: u32, mut each: impl FnMut(u32)) {
    let base = layout::bell(receiver);
    // E3 ready, take half, twice. AcqRel: pairs with the bits set in `ring`.
    let mut summary = bell.swap(base + layout::SUMMARY, 0, AcqRel);
    while summary != 0 {
        let group = summary.trailing_zeros();
        summary &= summary - 1;
        let mut links = bell.swap(base + layout::READY + group as usize * 4, 0, AcqRel);
        while links != 0 {
            each(group * 32 + links.trailing_zeros());
            links &= links - 1;
        }
    }
}

/// Whether a lane of the link rang: the truth the scan before a sleep looks at.
pub fn link_rang(link: &impl Memory, side: Side, receiver: u32) -> bool {
    // Relaxed: ordered after the announcement by its fence; `take_lanes` synchronises.
    link.load(side.ready(receiver), Relaxed) != 0
}

/// Takes the lanes of a link that rang for `receiver`. Bits past the last lane are dropped.
pub fn take_lanes(link: &impl Memory, side: Side, receiver: u32, mut each: impl FnMut(u32)) {
    // E3 ready, take half. AcqRel: pairs with the bit set in `ring`.
    let mut lanes = link.swap(side.ready(receiver), 0, AcqRel);
    lanes &= ((1u64 << handfast_layout::link::LANES) - 1) as u32;
    while lanes != 0 {
        each(lanes.trailing_zeros());
        lanes &= lanes - 1;
    }
}

/// Says that from now on the server looks at wait words after its replies without a fence, or
/// that it fences again.
pub fn set_fenceless(bell: &impl Memory, receiver: u32, on: bool) {
    let at = layout::bell(receiver) + layout::FENCELESS;
    // E11 fenceless, server half. Store-load fences on both sides of the store. Switching on: a
    // sleeper that does not see the word has announced itself before our next look at its wait
    // word. Switching off: our earlier unfenced replies are out before anybody relies on fences.
    // Sleeper half: `fence_for_sleep`.
    bell.fence();
    bell.store(at, u32::from(on), Relaxed);
    bell.fence();
}

/// After announcing a sleep in a reply slot: if the server does not fence, makes it. `false` when
/// it should have but this process may not: the sleep must then be short.
pub fn fence_for_sleep(bell: &impl Memory, receiver: u32) -> bool {
    // E11 fenceless, sleeper half. Ordered after the announcement by its fence. Acquire: a word
    // that says "fences again" brings the unfenced replies before it. The process-wide fence acts
    // as one in the server between its reply and its look at the wait word. Server half:
    // `set_fenceless`.
    let fenceless = bell.load(layout::bell(receiver) + layout::FENCELESS, Acquire) != 0;
    !fenceless || bell.fence_others()
}

/// An overloaded server's statement to its clients. Written by the server, read by clients as a hint.
pub fn publish_load(bell: &impl Memory, receiver: u32, overloaded: bool, cpu: u32, spin_ns: u32) {
    let base = layout::bell(receiver);
    // Relaxed, all three: hints.
    bell.store(base + layout::SPIN_NS, spin_ns, Relaxed);
    bell.store(base + layout::CPU, cpu + 1, Relaxed);
    bell.store(base + layout::OVERLOADED, u32::from(overloaded), Relaxed);
}

/// The spin limit an overloaded server asks for, in nanoseconds, and the CPU it runs on.
#[inline]
pub fn load_hint(bell: &impl Memory, receiver: u32) -> Option<(u32, u32)> {
    let base = layout::bell(receiver);
    // Relaxed, all three: hints.
    if bell.load(base + layout::OVERLOADED, Relaxed) == 0 {
        return None;
    }
    let cpu = bell.load(base + layout::CPU, Relaxed).wrapping_sub(1);
    Some((bell.load(base + layout::SPIN_NS, Relaxed), cpu))
}

#[cfg(test)]
mod fenceless;
#[cfg(test)]
mod model;
