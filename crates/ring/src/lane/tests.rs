use super::*;
use crate::Rule;
use core::sync::atomic::Ordering::Relaxed;
use handfast_layout::link::{ARENA_BYTES, SLOTS, Side, slot};
use handfast_region::{Memory, Region};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Default)]
pub(super) struct Buffer {
    array: Option<Inline>,
    vector: Vec<u8>,
    outside: bool,
}

impl Buffer {
    pub(super) fn bytes(&self, len: usize) -> &[u8] {
        if self.outside {
            &self.vector[..len]
        } else {
            &self.array.as_ref().unwrap()[..len]
        }
    }
}

impl Sink for Buffer {
    fn place(&mut self, _: usize, is_inline: bool) -> Target<'_> {
        self.outside = !is_inline;
        if is_inline {
            Target::Inline(self.array.insert([0; INLINE_BYTES]))
        } else {
            Target::Vector(&mut self.vector)
        }
    }
}

pub(super) const HEADER: Header = Header {
    kind: Kind::Call,
    port: 3,
    reply: 9,
    generation: 4,
    units: 0,
    cpu: 2,
};

fn lane(start: u32) -> (Region, Producer, Consumer) {
    let place = Place::of(Side::Connector, 0);
    let region = Region::heap(Side::Connector.lane(1));
    (
        region,
        Producer::starting_at(place, start),
        Consumer::starting_at(place, start),
    )
}

fn message(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + salt) as u8).collect()
}

#[test]
fn messages_of_every_length_arrive_whole() {
    let (region, mut producer, mut consumer) = lane(0);
    let mut buffer = Buffer::default();
    let lengths: Vec<_> = if cfg!(miri) {
        // Each place and one past its end; a long one costs miri a second.
        vec![0, 1, INLINE_BYTES, INLINE_BYTES + 1, 200, 4_097]
    } else {
        (0..=200)
            .chain((201..=65_536).step_by(997))
            .chain([65_535, 65_536])
            .collect()
    };
    for len in lengths {
        producer.post(&region, HEADER, &message(len, len)).unwrap();
        assert!(consumer.is_ready(&region));
        let (header, got) = consumer.take(&region, &mut buffer).unwrap();
        assert_eq!((header, got), (HEADER, len));
        assert_eq!(buffer.bytes(len), message(len, len));
        assert!(!consumer.is_ready(&region));
        // At once after a long message, whose block is wanted back.
        assert!(consumer.publish_due(&region) || len <= INLINE_BYTES);
    }
}

/// Keeps what describes parts, too.
#[derive(Default)]
struct Described(Buffer, Vec<u8>);

impl Sink for Described {
    fn place(&mut self, len_bytes: usize, is_inline: bool) -> Target<'_> {
        self.0.place(len_bytes, is_inline)
    }

    fn units(&mut self) -> Option<&mut Vec<u8>> {
        Some(&mut self.1)
    }
}

#[test]
fn what_describes_parts_arrives_behind_bytes_of_every_length() {
    let (region, mut producer, mut consumer) = lane(0);
    let units: Vec<Unit> = (0..12).map(|number| [number + 1; 16]).collect();
    for len in [0, 8, 24, 25, 40, 1008, 1009, 8192, 65_536] {
        for count in [1, 2, 12] {
            let (bytes, units) = (message(len, len), &units[..count]);
            let posted = producer.post_described(&region, HEADER, (&bytes[..], units));
            posted.unwrap();
            let mut sink = Described::default();
            let usual = HEADER.port.into();
            let polled = consumer.poll(&region, &mut sink, usual);
            assert_eq!(polled, Some(Err(Unusual)));
            let (header, got) = consumer.take(&region, &mut sink).unwrap();
            assert_eq!((header.units as usize, got), (count, len));
            assert_eq!(sink.0.bytes(len), bytes);
            assert_eq!(sink.1, units.as_flattened());
            consumer.publish_head(&region);
        }
    }
}

#[test]
fn what_waits_is_looked_at_ahead_and_taken_in_its_turn() {
    let (region, mut producer, mut consumer) = lane(u32::MAX - 1);
    let long = vec![7; INLINE_BYTES + 1];
    for bytes in [&b"one"[..], b"two", &long] {
        producer.post(&region, HEADER, bytes).unwrap();
    }
    let mut bytes = [0; INLINE_BYTES];
    for _ in 0..2 {
        let (ahead, len) = consumer.look_ahead(&region, 1, &mut bytes).unwrap();
        assert_eq!((ahead, &bytes[..len]), (HEADER, &b"two"[..]));
    }
    // Neither bytes that lie elsewhere nor what has not been posted.
    assert_eq!(consumer.look_ahead(&region, 2, &mut bytes).unwrap().1, 0);
    assert!(consumer.look_ahead(&region, 3, &mut bytes).is_none());
    assert!(consumer.look_ahead(&region, SLOTS, &mut bytes).is_none());
    for expected in [&b"one"[..], b"two", &long] {
        let mut taken = Buffer::default();
        assert!(consumer.is_ready(&region));
        let (_, len) = consumer.take(&region, &mut taken).unwrap();
        assert_eq!(taken.bytes(len), expected);
    }
}

#[test]
fn order_and_content_survive_wrap_around_of_positions() {
    // A few laps around 2^32, with random batches; the sequence word passes through zero.
    let (seeds, before, laps, longest) = if cfg!(miri) {
        (1, 1, 2, 45)
    } else {
        (8, 3, 10, 1_500)
    };
    for seed in 1..=seeds {
        let start = 0u32.wrapping_sub(before * SLOTS).wrapping_add(seed * 7);
        let (region, mut producer, mut consumer) = lane(start);
        // The slots before the start hold what a running lane would have left there.
        for back in 1..=SLOTS {
            let position = start.wrapping_sub(back);
            let at = producer.place().slot(position) + slot::SEQUENCE;
            region.store(at, position.wrapping_add(1), Relaxed);
        }
        region.store(producer.place().head(), start, Relaxed);
        let mut buffer = Buffer::default();
        let (mut sent, mut received, mut random) = (0usize, 0usize, seed);
        while received < laps * SLOTS as usize {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            for _ in 0..random >> 25 {
                let len = sent * 13 % longest;
                match producer.post(&region, HEADER, &message(len, sent)) {
                    Ok(()) => sent += 1,
                    Err(refused) => {
                        assert_eq!(refused, Refused::Full);
                        break;
                    }
                }
            }
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            for _ in 0..random >> 25 {
                if !consumer.is_ready(&region) {
                    break;
                }
                let (_, len) = consumer.take(&region, &mut buffer).unwrap();
                assert_eq!(len, received * 13 % longest, "seed {seed}");
                assert_eq!(buffer.bytes(len), message(len, received), "seed {seed}");
                received += 1;
            }
            consumer.publish_head(&region);
        }
    }
}

#[test]
fn a_full_lane_refuses_and_loses_nothing() {
    let (region, mut producer, mut consumer) = lane(0);
    let mut buffer = Buffer::default();
    for number in 0..SLOTS {
        producer
            .post(&region, HEADER, &number.to_le_bytes())
            .unwrap();
    }
    assert_eq!(producer.post(&region, HEADER, b"x"), Err(Refused::Full));
    assert_eq!(producer.has_room(&region, 1), Ok(false));
    for number in 0..SLOTS {
        let (_, len) = consumer.take(&region, &mut buffer).unwrap();
        assert_eq!(buffer.bytes(len), number.to_le_bytes());
    }
    consumer.publish_head(&region);
    assert_eq!(producer.has_room(&region, 1), Ok(true));
    producer.post(&region, HEADER, b"x").unwrap();
}

#[test]
fn a_reply_frees_slots_and_blocks_without_a_published_head() {
    let (region, mut producer, mut consumer) = lane(0);
    let mut buffer = Buffer::default();
    for round in 0..if cfg!(miri) { 70 } else { 1000 } {
        let position = producer.position();
        producer
            .post(&region, HEADER, &message(100, round))
            .unwrap();
        consumer.take(&region, &mut buffer).unwrap();
        producer.taken_through(position);
    }
    // A reply that claims what was never posted changes nothing.
    let position = producer.position();
    producer.taken_through(position.wrapping_add(5));
    assert_eq!(producer.head, position);
}

#[test]
fn an_impossible_head_is_a_fault_whatever_its_value() {
    for head in [5, SLOTS + 1, 1 << 31, u32::MAX - SLOTS, 70] {
        let (region, mut producer, _) = lane(0);
        region.store(producer.place().head(), head, Relaxed);
        let mut result = Ok(());
        for _ in 0..=SLOTS {
            result = producer.post(&region, HEADER, b"x");
        }
        if head > SLOTS {
            let fault = Fault {
                rule: Rule::HeadDistance,
                offset: producer.place().head(),
            };
            assert_eq!(result, Err(Refused::Fault(fault)), "head {head}");
        }
    }
}

#[test]
fn lengths_and_places_out_of_bounds_are_faults() {
    let (region, mut producer, mut consumer) = lane(0);
    let mut buffer = Buffer::default();
    producer.post(&region, HEADER, &message(100, 0)).unwrap();
    let at = producer.place().slot(0);
    let good = region.load(at + slot::META, Relaxed);
    for (meta, arena, rule) in [
        (good | 0x1_ffff, 0, Rule::MessageLength),
        (good & !(1 << 17), 0, Rule::MessageLength),
        (good, ARENA_BYTES as u32 - 99, Rule::ArenaBounds),
        (good, u32::MAX, Rule::ArenaBounds),
    ] {
        region.store(at + slot::META, meta, Relaxed);
        region.store(at + slot::ARENA, arena, Relaxed);
        assert_eq!(consumer.take(&region, &mut buffer).unwrap_err().rule, rule);
    }
    region.store(at + slot::META, good, Relaxed);
    region.store(at + slot::ARENA, ARENA_BYTES as u32 - 100, Relaxed);
    assert!(consumer.take(&region, &mut buffer).is_ok());
}

#[test]
fn runs_are_taken_in_order_up_to_a_pick_a_fault_or_the_end_of_places() {
    const ONE_WAY: Header = Header {
        kind: Kind::Message,
        ..HEADER
    };
    let is_call = |header: Header| header.kind == Kind::Call;
    let start = 0u32.wrapping_sub(SLOTS / 2);
    let (region, mut producer, mut consumer) = lane(start);
    region.store(producer.place().head(), start, Relaxed);
    let mut places: Vec<_> = (0..SLOTS).map(|_| Buffer::default()).collect();
    let laps = if cfg!(miri) { 2 } else { 20 };
    let (mut sent, mut received) = (0, 0);
    while sent < laps * SLOTS as usize {
        // Short ones and long ones, more than there is room for: some are refused.
        let messages: Vec<_> = (sent..sent + 1 + sent % 90)
            .map(|number| message(number * 7 % 60, number))
            .collect();
        sent += producer.post_many(&region, ONE_WAY, &messages);
        let called = producer.post(&region, HEADER, &message(50, sent)).is_ok();
        sent += usize::from(called);
        let few = &mut places[..1 + sent % 40];
        let room = few.len();
        let run = consumer.poll_many(&region, few, HEADER.port.into(), is_call);
        for (place, number) in places[..run.messages].iter().zip(received..) {
            assert_eq!(
                place.bytes(number * 7 % 60),
                message(number * 7 % 60, number)
            );
        }
        received += run.messages;
        let Some(last) = run.last else {
            assert!(run.messages == room || received == sent);
            continue;
        };
        let (header, len) = last.unwrap();
        assert_eq!((header, len), (HEADER, 50));
        assert_eq!(places[run.messages].bytes(len), message(50, received));
        received += 1;
    }
    consumer.publish_head(&region);
    while producer.post_many(&region, ONE_WAY, &[b"x"]) == 1 {}
    let run = consumer.poll_many(&region, &mut places[..3], HEADER.port.into(), |_| false);
    assert_eq!((run.messages, run.last), (3, None));
    // The next but one names a length that cannot be: what is before it is taken.
    let bad = producer.place().slot(consumer.position().wrapping_add(1));
    region.store(bad + slot::META, u32::MAX, Relaxed);
    let run = consumer.poll_many(&region, &mut places, HEADER.port.into(), |_| false);
    assert_eq!((run.messages, run.last), (1, Some(Err(Unusual))));
}

#[test]
fn a_run_of_messages_stops_at_one_that_is_too_long() {
    let (region, mut producer, _) = lane(0);
    let long = vec![0; handfast_layout::MESSAGE_BYTES_MAX + 1];
    let messages: [&[u8]; 3] = [b"one", &long, b"three"];
    assert_eq!(producer.post_many(&region, HEADER, &messages), 1);
    assert_eq!(producer.position(), 1);
}

#[test]
fn what_was_posted_before_a_message_panicked_counts() {
    struct Piece(Option<u8>);
    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            core::slice::from_ref(self.0.as_ref().expect("no bytes"))
        }
    }
    let one_way = Header {
        kind: Kind::Message,
        ..HEADER
    };
    let (region, mut producer, mut consumer) = lane(0);
    let pieces = [Some(1), Some(2), None, Some(3)].map(Piece);
    let post = || producer.post_many(&region, one_way, &pieces);
    assert!(catch_unwind(AssertUnwindSafe(post)).is_err());
    assert_eq!(producer.post_many(&region, one_way, &pieces[3..]), 1);
    let mut places: Vec<_> = (0..5).map(|_| Buffer::default()).collect();
    let run = consumer.poll_many(&region, &mut places, HEADER.port.into(), |_| false);
    assert_eq!((run.messages, run.bytes, run.last), (3, 3, None));
    let taken: Vec<_> = places[..3].iter().map(|place| place.bytes(1)).collect();
    assert_eq!(taken, [[1], [2], [3]]);
}
