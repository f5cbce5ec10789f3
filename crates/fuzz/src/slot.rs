//! Slots of lanes and reply slots, as any process may leave them that has mapped them.

use crate::{Input, below, one_of, steps, word};
use arbitrary::Result;
use core::sync::atomic::Ordering::Relaxed;
use handfast_channel::reply::Slot;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::{self, ANSWERS, Kind, Meta, SLOTS, Side, UNIT_BYTES, UNITS_MAX};
use handfast_region::{Memory, Region};
use handfast_ring::Rule;
use handfast_ring::lane::{Consumer, Header, Inline, Place, Producer, Refused, Sink, Target};

/// The bytes of a message, and what describes its parts.
#[derive(Default, PartialEq, Debug)]
struct Taken {
    inline: Option<Inline>,
    outside: Vec<u8>,
    units: Vec<u8>,
}

impl Sink for Taken {
    fn place(&mut self, len_bytes: usize, is_inline: bool) -> Target<'_> {
        assert!(len_bytes <= MESSAGE_BYTES_MAX);
        match is_inline {
            true => Target::Inline(self.inline.insert([0; size_of::<Inline>()])),
            false => Target::Vector(&mut self.outside),
        }
    }

    fn units(&mut self) -> Option<&mut Vec<u8>> {
        Some(&mut self.units)
    }
}

impl Taken {
    fn is_as_said(&self, len_bytes: usize, units: u32) {
        match &self.inline {
            Some(bytes) => assert!(len_bytes <= bytes.len()),
            None => assert_eq!(self.outside.len(), len_bytes),
        }
        assert_eq!(self.units.len(), units as usize * UNIT_BYTES);
        assert!(units as usize <= UNITS_MAX);
    }
}

/// A meta word of any kind, or nearly a good one.
fn meta(input: &mut Input<'_>) -> Result<u32> {
    let any: u32 = input.arbitrary()?;
    Ok(match below(input, 4)? {
        0 => any,
        // Inline, and not.
        1 => any & 0xff8c_003f,
        2 => any & 0xff8c_ffff | 1 << 17,
        _ => any & 0xff0c_0fff | 1 << 17,
    })
}

const CONNECTOR: Side = Side::Connector;

thread_local! {
    /// One lane, of which every input leaves the control words as it has found them; and reply slots.
    static LANE: Region = Region::heap(CONNECTOR.lane(1));
    static REPLIES: Region = Region::heap(Side::Acceptor.lane(0));
}

/// A consumer whose producer writes anything, and a producer whose consumer does.
pub fn lane(bytes: &[u8]) {
    LANE.with(|region| {
        let place = Place::of(CONNECTOR, 0);
        let start = match bytes.first() {
            Some(1..128) => u32::MAX - 2,
            _ => 0,
        };
        let ends = &mut (
            Producer::starting_at(place, start),
            Consumer::starting_at(place, start),
        );
        region.store(place.head(), start, Relaxed);
        steps(bytes.get(1..).unwrap_or_default(), |input| {
            step(input, region, ends)
        });
        for at in (place.streaming() - 4..link::slot_offset(SLOTS - 1) + 64 + CONNECTOR.lane(0))
            .step_by(4)
        {
            region.store(at, 0, Relaxed);
        }
    });
}

fn slot_at(position: u32) -> usize {
    CONNECTOR.lane(0) + link::slot_offset(position)
}

fn step(
    input: &mut Input<'_>,
    region: &Region,
    (producer, consumer): &mut (Producer, Consumer),
) -> Result<()> {
    let position = consumer.position();
    match below(input, 8)? {
        0 => {
            // Forged, at the next place or behind it.
            let position = position.wrapping_add(below(input, 4)?.into());
            let at = slot_at(position);
            let sequence = match below(input, 4)? {
                0 => word(input)?,
                _ => position.wrapping_add(1),
            };
            let words = [meta(input)?, word(input)?, word(input)?, word(input)?];
            region.store_words(at + link::slot::META, words);
            region.store(at + link::slot::ARENA, input.arbitrary()?, Relaxed);
            region.store(at, sequence, Relaxed);
        }
        1 => {
            let kinds = [Kind::Message, Kind::Call, Kind::PASSED, Kind::CONTROL];
            let kind = kinds[usize::from(below(input, 4)?)];
            let len_bytes = one_of(input, &[0, 24, 40, 41, 1024, 1025, 65_536])?.unwrap_or(0);
            let units = usize::from(below(input, UNITS_MAX as u8 + 1)?);
            let header = Header {
                kind,
                port: 3,
                reply: 9,
                generation: 4,
                units: 0,
                cpu: 2,
            };
            let before = producer.position();
            let body = (&vec![7; len_bytes][..], &vec![[9; UNIT_BYTES]; units][..]);
            match producer.post_described(region, header, body) {
                Ok(()) => assert_eq!(producer.position(), before.wrapping_add(1)),
                Err(Refused::Full) => assert_eq!(producer.position(), before),
                Err(Refused::Fault(fault)) => assert_eq!(fault.rule, Rule::HeadDistance),
            }
        }
        2 => poll(region, consumer, input)?,
        3 if consumer.is_ready(region) => drop(take(region, consumer)),
        4 => {
            let mut places = [const { None::<Taken> }; 5].map(|_| Taken::default());
            let usual = word(input)?.into();
            let last = below(input, 2)? == 0;
            let run = consumer.poll_many(region, &mut places, usual, |header| {
                last && header.kind == Kind::Call
            });
            let taken = run.messages + usize::from(matches!(run.last, Some(Ok(_))));
            assert!(taken <= places.len() && run.bytes <= 5 * MESSAGE_BYTES_MAX as u64);
            assert_eq!(consumer.position(), position.wrapping_add(taken as u32));
        }
        5 => {
            let places = below(input, 2 * SLOTS as u8)?.into();
            let mut bytes = [0; size_of::<Inline>()];
            if let Some((header, len_bytes)) = consumer.look_ahead(region, places, &mut bytes) {
                assert!(places < SLOTS && len_bytes <= bytes.len());
                assert!(header.units as usize <= UNITS_MAX);
            }
        }
        6 => {
            consumer.publish_due(region);
            if below(input, 2)? == 0 {
                consumer.publish_head(region);
                assert!(consumer.has_published());
            }
        }
        _ => {
            let head = match below(input, 3)? {
                0 => input.arbitrary()?,
                1 => producer.position().wrapping_sub(below(input, 80)?.into()),
                _ => producer.position().wrapping_add(below(input, 80)?.into()),
            };
            region.store(producer.place().head(), head, Relaxed);
            if below(input, 2)? == 0 {
                producer.taken_through(head);
            }
            if let Err(fault) = producer.has_room(region, 65_536) {
                assert_eq!(fault.rule, Rule::HeadDistance);
            }
        }
    }
    Ok(())
}

/// The fast path takes what the slow one would, or leaves the message to the slow one.
fn poll(region: &Region, consumer: &mut Consumer, input: &mut Input<'_>) -> Result<()> {
    let position = consumer.position();
    let is_ready = consumer.is_ready(region);
    let peeked = consumer.peek(region);
    let usual = match below(input, 3)? {
        0 => word(input)?.into(),
        1 => u64::MAX,
        _ => peeked.map_or(0, |(header, _)| header.port.into()),
    };
    let (mut taken, mut other) = (
        Taken::default(),
        Consumer::starting_at(consumer.place(), position),
    );
    match consumer.poll(region, &mut taken, usual) {
        None => assert!(!is_ready),
        Some(Err(_)) => {
            assert!(is_ready && consumer.position() == position);
            let plain = |(header, _): &(Header, usize)| {
                header.units == 0
                    && u64::from(header.port) == usual
                    && matches!(header.kind, Kind::Message | Kind::Call)
            };
            assert!(!take(region, &mut other).is_some_and(|(taken, _)| plain(&taken)));
        }
        Some(Ok(polled)) => {
            assert_eq!(consumer.position(), position.wrapping_add(1));
            assert_eq!(u64::from(polled.0.port), usual);
            taken.is_as_said(polled.1, 0);
            assert_eq!(take(region, &mut other), Some((polled, taken)));
        }
    }
    Ok(())
}

/// Takes the message that waits, if it breaks no rule.
fn take(region: &Region, consumer: &mut Consumer) -> Option<((Header, usize), Taken)> {
    let position = consumer.position();
    let mut sink = Taken::default();
    let Ok((header, len_bytes)) = consumer.take(region, &mut sink) else {
        assert_eq!(consumer.position(), position);
        return None;
    };
    assert_eq!(consumer.position(), position.wrapping_add(1));
    sink.is_as_said(len_bytes, header.units);
    if header.kind == Kind::Call {
        // The index of a lookup is within bounds of 16 bits.
        assert!(header.reply < 1 << 16);
    }
    Some(((header, len_bytes), sink))
}

/// A caller whose callee writes anything.
pub fn reply(bytes: &[u8]) {
    REPLIES.with(|region| {
        steps(bytes, |input| {
            let index = one_of(input, &[0, 1, 255, 256, ANSWERS - 1])?.unwrap_or(0);
            let (slot, at) = (Slot::of(CONNECTOR, index), CONNECTOR.reply(index));
            let generation = word(input)?;
            let words = [
                generation,
                meta(input)?,
                word(input)?,
                word(input)?,
                word(input)?,
            ];
            region.store_words(at, words);
            region.store(slot.inline_bytes(), word(input)?, Relaxed);
            assert!(slot.is_answered(region, generation) && slot.generation(region) == generation);
            answered(region, slot, words[1]);
            slot.clear(region);
            Ok(())
        });
    });
}

fn answered(region: &Region, slot: Slot, meta: u32) {
    let (mut whole, mut plain) = (Taken::default(), Taken::default());
    let taken = slot.take(region, &mut whole);
    let moved = slot.moved(region);
    let straight = slot.take_plain(region, &mut plain);
    match taken {
        Ok(meta) => {
            whole.is_as_said(meta.len_bytes as usize, meta.units);
            assert_eq!(moved, None);
            assert_eq!(slot.has_parts(region), meta.units > 0);
            assert_eq!(slot.is_plain(region), meta.units == 0);
        }
        Err(fault) => assert!(matches!(fault.rule, Rule::MessageLength | Rule::ReplyKind)),
    }
    match straight {
        Some(_) => assert_eq!(
            (taken, whole),
            (Ok(straight.unwrap_or_else(|| unreachable!())), plain)
        ),
        None => assert!(
            taken.is_err()
                || taken.is_ok_and(|meta| {
                    meta.units > 0 || matches!(meta.kind, Kind::Dropped | Kind::DeadPort)
                })
        ),
    }
    if let Some(known) = Meta::unpack(meta) {
        assert_eq!(known.pack(), meta);
        let plain = Meta::unpack_plain(meta);
        let is_plain = known.units == 0 && matches!(known.kind, Kind::Message | Kind::Call);
        assert_eq!(plain, is_plain.then_some(known));
        let is_short = is_plain && known.kind == Kind::Message && !known.outside;
        let short = Meta::unpack_short(meta);
        assert_eq!(short, is_short.then_some(known.len_bytes));
    }
}
