//! The MPMC ring between real processes that are killed at random instants while the others go
//! on. `HANDFAST_SEED` repeats the choices of a run, `HANDFAST_CAMPAIGN_SECS` makes it longer,
//! up to 2,048 starts of a process.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::queue::{MESSAGE_BYTES, mpmc as layout};
use handfast_region::model::{Hook, Hooked, Operation};
use handfast_region::{Memory, Region};
use handfast_ring::queue::mpmc::{Ring, create};
use handfast_ring::queue::{Members, Message, Pop, Push, Queue};
use handfast_sys::memory::{Access, Mapping, create_sealed};
use handfast_testing::{Child, PATIENCE, Random, open, path, play, start};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Slots of the ring: few, so that it is often full and often empty.
const SLOTS: u32 = 8;
/// Processes that are killed, numbered from 1; the parent has the number after them.
const CHILDREN: u32 = 4;
const PARENT: u32 = CHILDREN + 1;
/// Threads of a child, which share its number.
const THREADS: u32 = 2;
/// Every start of a child is an incarnation; each of its threads a source of messages.
const INCARNATIONS: u32 = 2048;
const SOURCES: u32 = INCARNATIONS * THREADS;
const MESSAGES_PER_SOURCE: u32 = 1 << 14;

// The shared file: the ring, then words of the test, then a bit per message that was popped.
const STOP: usize = 4096;
const REPAIRS: usize = STOP + 64;
const fn dead(member: u32) -> usize {
    REPAIRS + 64 * (1 + member as usize)
}
const fn progress(member: u32) -> usize {
    dead(16 + member)
}
const fn pushed(source: u32) -> usize {
    progress(16) + 4 * source as usize
}
const fn popped(source: u32, number: u32) -> (usize, u32) {
    let bit = source as usize * MESSAGES_PER_SOURCE as usize + number as usize;
    (pushed(SOURCES) + bit / 32 * 4, 1 << (bit % 32))
}
const LEN_BYTES: usize = (popped(SOURCES, 0).0 + 4095) & !4095;
const _: () = assert!(layout::len_bytes(SLOTS) <= STOP);

/// Makes copies take long, so that a good part of all kills hits one.
struct Slow;

impl Hook for Slow {
    const PIECE_BYTES: usize = 8;
    fn before(&self, operation: Operation) {
        if operation == Operation::Copy {
            for _ in 0..20 {
                std::hint::spin_loop();
            }
        }
    }
}

/// The parent says who is dead once it has waited for the end of the process.
struct Table<'a> {
    me: u32,
    region: &'a Region,
}

impl Members for Table<'_> {
    fn me(&self) -> u32 {
        self.me
    }
    fn is_dead(&self, member: u32) -> bool {
        let is_dead = self.region.load(dead(member), Acquire) == 1;
        if is_dead {
            add(self.region, REPAIRS, 1);
        }
        is_dead
    }
}

/// Adds to a counter that several may write; a count may be lost.
fn add(region: &Region, at: usize, amount: u32) {
    // Relaxed: counts of the test order nothing.
    region.store(at, region.load(at, Relaxed).wrapping_add(amount), Relaxed);
}

fn message(source: u32, number: u32) -> Message {
    let mut message = [0; MESSAGE_BYTES];
    let words = [
        source,
        number,
        source ^ number,
        !source,
        !number,
        0x5eed_5eed,
    ];
    for (bytes, word) in message.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    message
}

/// The state of one consumer: the last number it popped of each source.
#[derive(Default)]
struct Seen(HashMap<u32, u32>);

impl Seen {
    /// Checks a message that was popped and notes that it was.
    fn check(&mut self, region: &Region, got: &Message) {
        let word = |index: usize| u32::from_le_bytes(got[index..index + 4].try_into().unwrap());
        let (source, number) = (word(0), word(4));
        assert_eq!(*got, message(source, number), "a torn message");
        let last = self.0.insert(source, number);
        assert!(
            last.is_none_or(|last| last < number),
            "source {source}: {number} after {last:?}"
        );
        let (at, bit) = popped(source, number);
        let before = region.fetch_or(at, bit, Ordering::AcqRel);
        assert_eq!(before & bit, 0, "message {number} of {source} came twice");
    }
}

fn map(file: &impl handfast_sys::AsFd) -> Region {
    Region::mapped(Mapping::new(file, LEN_BYTES, Access::ReadWrite).unwrap())
}

#[test]
fn a_child_process_plays_its_role() {
    play(|_, arguments| {
        let region = map(&open(arguments[0]));
        let [me, incarnation] = [1, 2].map(|index| arguments[index].parse().unwrap());
        let table = Table {
            me,
            region: &region,
        };
        let slow = Hooked::new(&region, Slow);
        let ring = Ring::attach(&slow, 0, (SLOTS, PARENT), table).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (region, ring) = (&region, &ring);
                scope.spawn(move || work(region, ring, me, incarnation * THREADS + thread));
            }
        });
    });
}

/// Pushes and pops in bursts until the parent says stop.
fn work(region: &Region, ring: &impl Queue, me: u32, source: u32) {
    let mut random = Random::of(source.into());
    let (mut seen, mut next) = (Seen::default(), 0);
    while region.load(STOP, Acquire) == 0 {
        for _ in 0..random.below(2 * u64::from(SLOTS)) {
            if next == MESSAGES_PER_SOURCE {
                // It has nothing more to push, where the parent was held up for long: that is no halt.
                add(region, progress(me), 1);
                break;
            }
            match ring.try_push(&message(source, next)) {
                Ok(()) => {
                    next += 1;
                    // Release: read by the parent when this process has ended.
                    region.store(pushed(source), next, Release);
                    add(region, progress(me), 1);
                }
                Err(full) => {
                    assert_eq!(full, Push::Full);
                    std::thread::yield_now();
                }
            }
        }
        for _ in 0..random.below(2 * u64::from(SLOTS)) {
            match ring.try_pop() {
                Ok(got) => {
                    seen.check(region, &got);
                    add(region, progress(me), 1);
                }
                Err(empty) => {
                    assert_eq!(empty, Pop::Empty);
                    std::thread::yield_now();
                }
            }
        }
    }
}

/// The parent's side of a run.
struct Campaign<'a> {
    region: &'a Region,
    path: String,
    children: Vec<Option<Child>>,
    incarnations: u32,
    kills: u32,
}

impl Campaign<'_> {
    fn start(&mut self, member: u32) {
        assert!(self.incarnations < INCARNATIONS);
        let arguments = [
            &self.path,
            &member.to_string(),
            &self.incarnations.to_string(),
        ];
        let child = start("member", &arguments.map(String::as_str));
        self.incarnations += 1;
        self.children[member as usize] = Some(child);
    }

    fn kill(&mut self, member: u32) {
        self.children[member as usize].take().unwrap().kill();
        self.kills += 1;
    }

    fn is_dead(&self, member: u32, dead_now: bool) {
        self.region
            .store(dead(member), u32::from(dead_now), Release);
    }

    /// Waits until the living have done so many operations more.
    fn await_progress(&mut self, operations: u64) {
        let sum = |region: &Region| -> u32 {
            (1..PARENT)
                .map(|member| region.load(progress(member), Relaxed))
                .fold(0, u32::wrapping_add)
        };
        let (from, end) = (sum(self.region), Instant::now() + PATIENCE);
        while u64::from(sum(self.region).wrapping_sub(from)) < operations {
            std::thread::yield_now();
            assert!(Instant::now() < end, "nobody makes progress");
            for child in self.children.iter_mut().flatten() {
                let ended = child.process.try_wait().unwrap();
                assert!(ended.is_none(), "a child ended with {ended:?}");
            }
        }
    }

    /// Lets all children end by themselves.
    fn stop(&mut self) {
        self.region.store(STOP, 1, Release);
        self.children.iter_mut().flatten().for_each(Child::finish);
    }
}

#[test]
#[cfg_attr(miri, ignore = "no processes")]
fn members_killed_at_random_instants_leave_a_queue_the_others_use() {
    let mut random = Random::seeded("campaign");
    let end = Instant::now() + handfast_testing::campaign(12);

    let file = create_sealed("mpmc test", LEN_BYTES).unwrap();
    let region = map(&file);
    create(&region, 0, SLOTS, PARENT);
    let mut campaign = Campaign {
        region: &region,
        path: path(&file),
        children: (0..PARENT).map(|_| None).collect(),
        incarnations: 0,
        kills: 0,
    };
    for member in 1..PARENT {
        campaign.start(member);
    }
    // On a busy machine members are killed where the kernel has stopped them, hardly ever with a claim.
    let is_over = || match region.load(REPAIRS, Relaxed) {
        0 => Instant::now() >= end + PATIENCE,
        _ => Instant::now() >= end,
    };
    while !is_over() && campaign.incarnations < INCARNATIONS - 2 {
        campaign.await_progress(1 + random.below(5_000));
        let first = 1 + random.below(CHILDREN.into()) as u32;
        let second = 1 + random.below(CHILDREN.into()) as u32;
        let mut victims = vec![first];
        if second != first && random.below(3) == 0 {
            victims.push(second);
        }
        for victim in &victims {
            campaign.kill(*victim);
        }
        if random.below(2) == 0 {
            // The others learn of it and go on without the dead.
            victims
                .iter()
                .for_each(|victim| campaign.is_dead(*victim, true));
            campaign.await_progress(1 + random.below(5_000));
            victims
                .iter()
                .for_each(|victim| campaign.is_dead(*victim, false));
        }
        // Else nobody is told, and the successors take back what the dead had claimed.
        victims.iter().for_each(|victim| campaign.start(*victim));
    }
    campaign.stop();

    // Everything that was pushed was popped once, or is in the ring, or died with its reader.
    let table = Table {
        me: PARENT,
        region: &region,
    };
    let ring = Ring::attach(&region, 0, (SLOTS, PARENT), table).unwrap();
    let mut seen = Seen::default();
    let mut rest = 0;
    while let Ok(got) = ring.try_pop() {
        seen.check(&region, &got);
        rest += 1;
    }
    assert!(rest <= SLOTS);
    let (mut sent, mut lost) = (0, 0);
    for source in 0..campaign.incarnations * THREADS {
        let returned = region.load(pushed(source), Acquire);
        sent += returned;
        for number in 0..MESSAGES_PER_SOURCE {
            let (at, bit) = popped(source, number);
            let came = region.load(at, Relaxed) & bit != 0;
            lost += u32::from(number < returned && !came);
            // One more may have been whole when its member died.
            assert!(
                number <= returned || !came,
                "{number} of {source} was never pushed"
            );
        }
    }
    let (kills, repairs) = (campaign.kills, region.load(REPAIRS, Relaxed));
    println!("{kills} kills, {sent} messages, {lost} lost with their readers, {repairs} repairs");
    assert!(lost <= kills * THREADS, "{lost} of {sent} lost");
    assert!(kills > 20 && repairs > 0, "the test tests nothing");

    // The whole capacity is back.
    for number in 0..SLOTS {
        assert_eq!(ring.try_push(&message(0, number)), Ok(()));
    }
    assert_eq!(ring.try_push(&message(0, 0)), Err(Push::Full));
    for number in 0..SLOTS {
        assert_eq!(ring.try_pop(), Ok(message(0, number)));
    }
    assert_eq!(ring.try_pop(), Err(Pop::Empty));
}
