//! After an answer: its caller is woken, it is counted, and what is left of the request is kept for the next.

use super::{Poller, places};
use crate::link::Link;
use crate::link::wake::wake_caller;
use crate::message::Message;
use crate::reply_slot::ReplySlot;
use crate::request::Received;
use handfast_channel::reply::Slot;
use handfast_layout::link::Kind;
use handfast_proto::rota::{Key, Wake};
use handfast_region::{Bytes, Memory, View};
use handfast_ring::lane::Unit;
use handfast_sys::clock;
use handfast_sys::cpu;
use handfast_sys::futex::fence_light;
use std::sync::Arc;

/// As [`ReplySlot::answer`], leaving the time of the wake-up to the rota (its rule 4).
#[inline(always)]
pub(crate) fn answer(poller: &mut Poller, reply: &ReplySlot, bytes: &[u8]) -> bool {
    let (slot, region) = (reply.slot(), &reply.link.region.view());
    slot.answer(
        region,
        reply.generation,
        Kind::Message,
        cpu::recent(),
        bytes,
    );
    has_answered(poller, reply, (slot, region), bytes.len())
}

/// As [`answer`], with units that describe the parts of the reply.
pub(crate) fn answer_described(
    poller: &mut Poller,
    reply: &ReplySlot,
    (bytes, units): (impl Bytes, &[Unit]),
) -> bool {
    let outcome = (reply.generation, Kind::Message, cpu::recent());
    let (slot, region) = (reply.slot(), &reply.link.region.view());
    slot.answer_described(region, outcome, (bytes, units));
    has_answered(poller, reply, (slot, region), bytes.len_bytes())
}

/// The reply is in its slot.
#[inline(always)]
fn has_answered(
    poller: &mut Poller,
    reply: &ReplySlot,
    (slot, region): (Slot, &View<'_>),
    len_bytes: usize,
) -> bool {
    if is_fenceless(poller) {
        // E11 fenceless, reply. The compiler keeps the reply before the look; the fence of the
        // sleeper in `fence_for_sleep` makes the processor do so.
        fence_light();
    } else {
        // E4 wake: the fence of `fence_then_taken`, before the look at the wait word.
        region.fence();
    }
    count_answer(poller, len_bytes);
    let key = reply.key as usize;
    if !slot.is_asleep(region) {
        awake_at_reply(poller, key);
        return false;
    }
    let woke = asleep_at_reply(poller, key, &reply.link, slot) && wake_caller(&reply.link, slot);
    count_wake(poller, woke);
    woke
}

/// Keeps what is left of an answered request for the next one of its lane: allocating it, and
/// counting references up and down, would cost more than the rest of the work.
#[inline]
pub(crate) fn give_back(poller: &mut Poller, mut received: Box<Received>) {
    if received.message.has_buffer() {
        received.message.clear();
        if poller.spare.has_buffer() {
            // To the thread's pool, which has few: with its lane it would stay as long as the longest message there.
            received.message = Message::default();
        } else {
            core::mem::swap(&mut poller.spare, &mut received.message);
        }
    }
    let Some(reply) = received.reply_slot() else {
        return received.pool();
    };
    match poller.lanes.get_mut(reply.key as usize) {
        // One of another receiver has a key there, and would say that the next call came to that.
        Some(Some(lane))
            if reply.receiver == poller.receiver && Arc::ptr_eq(&lane.link, &reply.link) =>
        {
            lane.spare = Some(received);
        }
        // It may be another lane by now, and learns of another party then. Not for a link that has died meanwhile:
        // nothing might come in this lane that lets go of the link. A link that dies later is let go of by `clear`.
        Some(Some(lane)) if reply.passed_to == poller.receiver && !reply.link.is_down() => {
            lane.passed = Some(received);
        }
        _ => received.pool(),
    }
}

/// The client of `key` slept when its reply was published: whether to wake it now.
pub(crate) fn asleep_at_reply(poller: &mut Poller, key: Key, link: &Arc<Link>, slot: Slot) -> bool {
    let Some(lane) = poller.lanes.get_mut(key).and_then(Option::as_mut) else {
        return true;
    };
    if !Arc::ptr_eq(&lane.link, link) {
        return true;
    }
    let now_ns = clock::ticks_ns();
    match poller.rota.asleep_at_reply(key, now_ns) {
        Wake::Now => {
            lane.woke(now_ns);
            poller.rota.woke(key, now_ns);
            true
        }
        Wake::Later => {
            lane.wakes.push(slot);
            places::rest(poller, key);
            false
        }
    }
}

/// The client of `key` was awake when its reply was published.
#[inline]
pub(crate) fn awake_at_reply(poller: &mut Poller, key: Key) {
    if !poller.rota.is_calm() && poller.lanes.get(key).is_some_and(Option::is_some) {
        poller.rota.awake_at_reply(key);
    }
}

/// A reply was published by the thread that holds the poller.
#[inline(always)]
pub(crate) const fn count_answer(poller: &mut Poller, len_bytes: usize) {
    poller.counts.bytes_out += len_bytes as u64;
}

pub(crate) fn count_wake(poller: &mut Poller, woke: bool) {
    poller.counts.wakes += u64::from(woke);
}

/// Whether the caller of [`Slot::is_asleep`] after a reply needs no fence.
#[inline]
pub(crate) fn is_fenceless(poller: &Poller) -> bool {
    poller.clients.fenceless
}
