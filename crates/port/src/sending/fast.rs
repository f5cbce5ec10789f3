//! The fast path of a send: if nothing has changed on the link since this right's last send, one comparison of the link's
//! count of troubles replaces all checks.

use crate::call_slots;
use crate::link::passing::Known;
use crate::link::{Outgoing, doorbell};
use crate::reply_slot::ReplySlot;
use crate::send::{self, Blocked, SendRight, life};
use crate::slots::{SlotState, Ticket};
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::INLINE_BYTES;
use handfast_layout::link::Kind;
use handfast_layout::link::REPLIES;
use handfast_layout::link::passed_word;
use handfast_region::Bytes;
use handfast_ring::lane::Header;
use handfast_ring::lane::Unit;
use handfast_sys::cpu;
use handfast_wait::chain;

/// Posts one message on this thread's lane if nothing at all stands in the way. Returns its ticket, its
/// lane, and the link's count of troubles; otherwise `post::post` finds out the obstacle.
#[inline(always)]
pub(super) fn post_now(
    right: &SendRight,
    bytes: &[u8],
    kind: Kind,
    words: (u32, u32),
) -> Option<(Ticket, u32, u32)> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return None;
    }
    let (lane, mut outgoing, trouble) = send::lane_now(right)?;
    let posted = post_described(right, &mut outgoing, lane, (bytes, kind, words), &[]);
    let ticket = posted.ok()?;
    Some((ticket, lane, trouble))
}

/// Passes a reply right on with a message, on this thread's lane, if nothing at all stands in the
/// way and one has gone this way before. Returns whether this made a wake-up call.
#[inline]
pub(crate) fn pass_now(right: &SendRight, bytes: &[u8], reply: &ReplySlot) -> Option<bool> {
    if bytes.len() > MESSAGE_BYTES_MAX || reply.link.is_over() {
        return None;
    }
    let known = Known::of((reply.link.serial, reply.index), right.link())?;
    let word = passed_word(known.number, reply.index % REPLIES);
    let words = (word, reply.generation);
    let (lane, mut outgoing, _) = send::lane_now(right)?;
    let posted = post_described(
        right,
        &mut outgoing,
        lane,
        (bytes, Kind::PASSED, words),
        &[],
    );
    drop(outgoing);
    posted.ok()?;
    chain::noted();
    // Before the fence that comes with the look whether to ring: the caller goes there meanwhile.
    reply.move_on(known.path);
    let woke_peer = doorbell::ring(right.link(), lane, right.receiver());
    reply.wake(known.path);
    if bytes.len() > INLINE_BYTES {
        fetch_next(right, lane, bytes.len(), true);
    }
    Some(woke_peer)
}

/// Fetches the memory that the next message of this length will be written to, after one has been posted on
/// `lane`: no reply to a message that is `passed` on tells which memory is free again.
#[inline(never)]
pub(super) fn fetch_next(right: &SendRight, lane: u32, len_bytes: usize, passed: bool) {
    let Some(mut outgoing) = right.link().lanes[lane as usize].try_lock() else {
        return;
    };
    let region = right.link().region.view();
    if passed {
        outgoing.producer.look_for_blocks(&region);
    }
    outgoing.producer.fetch_next(&region, len_bytes);
}

/// Publishes a message, with units that describe its rights. A call takes the reply slot reserved after the lane's last call, or
/// reserves one now, and the next call's slot is reserved after the post. `words` depend on the kind: of a call, the
/// time until which its caller waits ([`Waiting::words`](crate::options::Waiting::words)); of a reply right passed on, its name and its
/// generation; of a one-way message, zeros.
#[inline(always)]
pub(crate) fn post_described(
    right: &SendRight,
    outgoing: &mut Outgoing,
    lane: u32,
    (bytes, kind, words): (impl Bytes, Kind, (u32, u32)),
    units: &[Unit],
) -> Result<Ticket, Blocked> {
    let is_call = kind == Kind::Call;
    let (index, generation) = match outgoing.claimed {
        _ if !is_call => words,
        Some(claimed) => claimed,
        None => call_slots::claim(right, lane, &mut outgoing.producer).ok_or(Blocked::Slots)?,
    };
    life::uses(right, lane);
    if is_call && words != (0, 0) {
        let deadline_ns = u64::from(words.1) << 32 | u64::from(words.0);
        let slot = Slot::of(right.link().calls, index);
        slot.set_deadline(&right.link().region, generation, deadline_ns);
    }
    let producer = &mut outgoing.producer;
    let position = producer.position();
    let header = Header {
        kind,
        port: right.handle(),
        reply: index,
        generation,
        units: 0,
        cpu: cpu::recent(),
    };
    let region = right.link().region.view();
    if is_call {
        // Relaxed, both: read by the next claim, under the lane's lock; and before the post, so that a call
        // whose outcome a thread has seen is seen to have been made (`Root::awaited`).
        let slot = &right.link().slots[index as usize];
        slot.position.store(position, Ordering::Relaxed);
        slot.state.store(SlotState::BUSY, Ordering::Relaxed);
    }
    if let Err(refused) = producer.post_described(&region, header, (bytes, units)) {
        if is_call {
            // For the next attempt. Relaxed: as above.
            let slot = &right.link().slots[index as usize];
            slot.state.store(SlotState::CLAIMED, Ordering::Relaxed);
            outgoing.claimed = Some((index, generation));
        }
        return Err(Blocked::Lane(refused));
    }
    if !units.is_empty() {
        outgoing.named = position.wrapping_add(1);
    }
    if is_call {
        // The peer is at work now; this is done meanwhile.
        outgoing.claimed = call_slots::claim(right, lane, &mut outgoing.producer);
    }
    let generation = if is_call { generation } else { position };
    Ok(Ticket { index, generation })
}
