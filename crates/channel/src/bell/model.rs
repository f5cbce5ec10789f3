//! loom: a producer posts to a lane that its consumer is arming and about to sleep on. Whatever
//! the interleaving, the message is received and nobody sleeps for ever.

use crate::tests::{Buffer, HEADER};
use crate::{arm, bell};
use handfast_layout::bell as layout;
use handfast_layout::link::{Kind, Side};
use handfast_region::Memory;
use handfast_region::model::{ModelMemory, must_fail};
use handfast_ring::lane::{Consumer, Place, Producer};
use handfast_wait::word::{ASLEEP, announce, withdraw};
use loom::sync::Arc;

const SIDE: Side = Side::Connector;

fn armed_doorbell(without_fence: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let place = Place::small(SIDE.lane(0), 2);
        let (mut words, areas) = ModelMemory::lane(SIDE.lane(0), 2);
        words.push(SIDE.ready(0));
        let mut link = ModelMemory::new(&words, &areas);
        let bell_words = [layout::SLEEP, layout::SUMMARY, layout::READY];
        let mut bell_memory = ModelMemory::new(&bell_words, &[]);
        link.without_fence = without_fence;
        bell_memory.without_fence = without_fence;
        arm::disarm(&link, place);
        let (link, bell_memory) = (Arc::new(link), Arc::new(bell_memory));
        let (their_link, their_bell) = (link.clone(), bell_memory.clone());
        let thread = loom::thread::spawn(move || {
            let mut producer = Producer::new(place);
            producer.post(&*their_link, HEADER, b"hello").unwrap();
            if arm::must_ring(&*their_link, place, false)
                && bell::ring(&*their_link, &*their_bell, (SIDE, 0), 0, 0).is_some()
            {
                their_bell.wake(layout::SLEEP, 1);
            }
        });
        let mut consumer = Consumer::new(place);
        let mut polled = true;
        while !(polled && consumer.is_ready(&*link)) {
            if polled {
                polled = !arm::arm(&*link, &mut consumer);
                continue;
            }
            announce(&*bell_memory, layout::SLEEP, ASLEEP);
            if !bell::link_rang(&*link, SIDE, 0) {
                bell_memory.park(layout::SLEEP, ASLEEP, None);
            }
            withdraw(&*bell_memory, layout::SLEEP);
            if bell::rang(&*bell_memory, 0) || bell::link_rang(&*link, SIDE, 0) {
                bell::take(&*bell_memory, 0, |_| {});
                bell::take_lanes(&*link, SIDE, 0, |_| polled = true);
                arm::disarm(&*link, place);
            }
        }
        let mut buffer = Buffer::default();
        let (header, len) = consumer.take(&*link, &mut buffer).unwrap();
        assert_eq!((header, buffer.bytes(len)), (HEADER, &b"hello"[..]));
        thread.join().unwrap();
    });
}

#[test]
fn e3_e5_a_post_to_a_lane_being_armed_is_always_received() {
    armed_doorbell(false);
}

#[test]
fn e5_without_the_fences_a_post_is_lost() {
    must_fail("deadlock", || armed_doorbell(true));
}

#[test]
fn e4_a_reply_reaches_a_caller_that_is_falling_asleep() {
    use crate::reply::Slot;
    loom::model(|| {
        let slot = Slot::of(SIDE, 0);
        let memory = Arc::new(ModelMemory::new(&slot.words(), &[slot.inline_bytes()]));
        let theirs = memory.clone();
        let callee = loom::thread::spawn(move || {
            slot.answer(&*theirs, 7, Kind::Message, 0, b"reply");
            if handfast_wait::word::fence_then_taken(&*theirs, slot.wait()).is_some() {
                theirs.wake(slot.wait(), 1);
            }
        });
        while !slot.is_answered(&*memory, 7) {
            announce(&*memory, slot.wait(), ASLEEP);
            if !slot.is_answered(&*memory, 7) {
                memory.park(slot.wait(), ASLEEP, None);
            }
            withdraw(&*memory, slot.wait());
        }
        let mut buffer = Buffer::default();
        let meta = slot.take(&*memory, &mut buffer).unwrap();
        let len = meta.len_bytes as usize;
        assert_eq!(
            (meta.kind, buffer.bytes(len)),
            (Kind::Message, &b"reply"[..])
        );
        callee.join().unwrap();
    });
}
