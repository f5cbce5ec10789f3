//! The real memory and real threads; under miri also a search for races, since a copy is an
//! ordinary access there.

use crate::arm;
use crate::reply::Slot;
use handfast_layout::link::{Kind, SLOTS, Side};
use handfast_region::{Memory, Region};
use handfast_ring::lane::{Consumer, Header, Inline, Place, Producer, Sink, Target};
use handfast_wait::word;

const SIDE: Side = Side::Connector;

pub(crate) const HEADER: Header = Header {
    kind: Kind::Message,
    port: 1,
    reply: 0,
    generation: 0,
    units: 0,
    cpu: 0,
};

#[derive(Default)]
pub(crate) struct Buffer(Option<Inline>, Vec<u8>);

impl Sink for Buffer {
    fn place(&mut self, _: usize, is_inline: bool) -> Target<'_> {
        if is_inline {
            Target::Inline(self.0.insert([0; size_of::<Inline>()]))
        } else {
            self.0 = None;
            Target::Vector(&mut self.1)
        }
    }
}

impl Buffer {
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        match &self.0 {
            Some(inline) => &inline[..len],
            None => &self.1[..len],
        }
    }
}

/// Yields until `check`; when the other thread has failed, this one ends too.
fn wait_until(mut check: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !check() {
        assert!(
            start.elapsed().as_secs() < 60,
            "the other thread has stopped"
        );
        std::thread::yield_now();
    }
}

fn message(number: u32) -> Vec<u8> {
    let len = [4, 40, 41, 130][number as usize % 4];
    (0..len).map(|at| (at ^ number) as u8).collect()
}

#[test]
fn calls_and_their_replies_cross_threads_whole() {
    let calls = if cfg!(miri) { 2 * SLOTS + 5 } else { 100_000 };
    let region = Region::heap(SIDE.reply_buffer(1));
    let (place, slot) = (Place::of(SIDE, 0), Slot::of(SIDE, 0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut consumer, mut buffer) = (Consumer::new(place), Buffer::default());
            for number in 1..=calls {
                wait_until(|| consumer.is_ready(&region));
                let (header, len) = consumer.take(&region, &mut buffer).unwrap();
                assert_eq!(header.generation, number);
                assert_eq!(buffer.bytes(len), message(number));
                slot.answer(&region, number, Kind::Message, 0, &message(number + 1));
            }
        });
        let (mut producer, mut buffer) = (Producer::new(place), Buffer::default());
        for number in 1..=calls {
            let header = Header {
                kind: Kind::Call,
                generation: number,
                ..HEADER
            };
            let position = producer.position();
            producer.post(&region, header, &message(number)).unwrap();
            wait_until(|| slot.is_answered(&region, number));
            let meta = slot.take(&region, &mut buffer).unwrap();
            assert_eq!(meta.kind, Kind::Message);
            assert_eq!(buffer.bytes(meta.len_bytes as usize), message(number + 1));
            producer.taken_through(position);
        }
    });
}

/// A peer may have any number of threads asleep there: making room wakes a few of them, and each of these a few others.
#[test]
#[cfg_attr(miri, ignore = "miri has no /proc")]
fn who_makes_room_wakes_a_few_of_those_that_sleep_for_it() {
    const SLEEPERS: usize = 12;
    let place = Place::of(SIDE, 0);
    let region = Region::heap(place.slot(0));
    word::announce(&region, place.space(), word::ASLEEP);
    std::thread::scope(|scope| {
        for _ in 0..SLEEPERS {
            let (sender, receiver) = std::sync::mpsc::channel();
            let region = &region;
            scope.spawn(move || {
                // The link's name is the thread's path.
                let own = std::fs::read_link("/proc/thread-self").unwrap();
                sender.send(own).unwrap();
                region.park(place.space(), word::ASLEEP, None);
            });
            let stat = std::path::Path::new("/proc")
                .join(receiver.recv().unwrap())
                .join("stat");
            let sleeps = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
            wait_until(sleeps);
        }
        assert!(!arm::wake_producer(&region, place));
        arm::leave_space(&region, place, || true);
        let left = SLEEPERS as u32 - 2 * arm::WOKEN_FOR_ROOM;
        assert_eq!(region.wake(place.space(), u32::MAX), left);
    });
}

#[test]
fn messages_without_replies_cross_threads_in_order_through_a_full_lane() {
    let messages = if cfg!(miri) { 2 * SLOTS + 5 } else { 100_000 };
    let region = Region::heap(SIDE.lane(1));
    let place = Place::of(SIDE, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut consumer, mut buffer) = (Consumer::new(place), Buffer::default());
            for number in 1..=messages {
                wait_until(|| {
                    consumer.publish_head(&region);
                    consumer.is_ready(&region)
                });
                let (_, len) = consumer.take(&region, &mut buffer).unwrap();
                assert_eq!(buffer.bytes(len), message(number));
            }
        });
        let mut producer = Producer::new(place);
        for number in 1..=messages {
            wait_until(|| producer.post(&region, HEADER, &message(number)).is_ok());
        }
    });
    let mut consumer = Consumer::starting_at(place, messages);
    assert!(arm::arm(&region, &mut consumer));
}
