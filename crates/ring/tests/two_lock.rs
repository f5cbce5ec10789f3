//! Real processes pass messages through one two-lock queue and are killed at random instants.
//!
//! Every message is `(producer, number, check)`. The work of each process stands in a ledger in
//! shared memory, so that it survives the process: the last number acknowledged to a producer, a bit for
//! each message a consumer has got, and whether a consumer is inside a pop (whose message dies
//! with it once the pop is committed). Kills that certainly hit are in `two_lock_death.rs`.
#![cfg(not(miri))]

use core::sync::atomic::Ordering::SeqCst;
use handfast_layout::page_align;
use handfast_layout::queue::two_lock::{HEAD_LOCK, MEMBER, TAIL_LOCK, queue_bytes};
use handfast_region::{Memory, Region};
use handfast_ring::queue::two_lock::TwoLock;
use handfast_ring::queue::{Pop, Push, Queue};
use handfast_sys::memory::{Access, Mapping, create_sealed};
use handfast_sys::{OwnedFd, cpu, members};
use handfast_testing::{Child, Random, alone, open, path, play};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CAPACITY: u32 = 32;
const KILLS: u32 = 300;
/// The test ends earlier on a slow machine.
const CAMPAIGN: Duration = Duration::from_secs(7);

/// The ledger: what the processes are to do, then a record for each, then a bit per message.
const PHASE: usize = page_align(queue_bytes(CAPACITY));
const RECORDS: usize = PHASE + 64;
const RECORD_BYTES: usize = 64;
const IDS: u32 = 512;
const ACKNOWLEDGED: usize = 0;
const TRIED: usize = 4;
const INSIDE: usize = 8;
const GOT: usize = 12;
const NUMBER: usize = 16;
const BITS: usize = page_align(RECORDS + IDS as usize * RECORD_BYTES);
/// Messages per producer; only pages that are touched exist.
const MESSAGES: u32 = 1 << 23;
const FILE_BYTES: usize = BITS + IDS as usize * (MESSAGES as usize / 8);

const RUN: u32 = 0;
const STOP_PRODUCING: u32 = 1;
const DRAIN: u32 = 2;

const fn record(id: u32, word: usize) -> usize {
    RECORDS + id as usize * RECORD_BYTES + word
}

const fn bit(id: u32, number: u32) -> (usize, u32) {
    let word = id as usize * (MESSAGES as usize / 32) + number as usize / 32;
    (BITS + word * 4, 1 << (number % 32))
}

fn check(id: u32, number: u32) -> u64 {
    (u64::from(id) << 32 | u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn map(file: &OwnedFd) -> Arc<Region> {
    let mapping = Mapping::new(file, FILE_BYTES, Access::ReadWrite).unwrap();
    Arc::new(Region::mapped(mapping))
}

#[test]
fn a_child_process_plays_its_role() {
    play(|role, arguments| {
        let id: u32 = arguments[0].parse().unwrap();
        let memory = map(&open(arguments[1]));
        let member = members::join(open(arguments[2])).unwrap();
        memory.store(record(id, NUMBER), member.number(), SeqCst);
        let queue = TwoLock::attach(memory.clone(), 0, CAPACITY, member).unwrap();
        match role {
            "producer" => produce(&memory, &queue, id),
            _ => consume(&memory, &queue, id),
        }
    });
}

fn produce(memory: &Region, queue: &TwoLock<Region>, id: u32) {
    for number in 0..MESSAGES {
        let mut message = [0; 24];
        message[..4].copy_from_slice(&id.to_le_bytes());
        message[8..12].copy_from_slice(&number.to_le_bytes());
        message[16..].copy_from_slice(&check(id, number).to_le_bytes());
        memory.store(record(id, TRIED), number + 1, SeqCst);
        while let Err(refused) = queue.try_push(&message) {
            assert_eq!(refused, Push::Full);
            if memory.load(PHASE, SeqCst) != RUN {
                return;
            }
            cpu::yield_now();
        }
        memory.store(record(id, ACKNOWLEDGED), number + 1, SeqCst);
        if memory.load(PHASE, SeqCst) != RUN {
            return;
        }
    }
}

fn consume(memory: &Region, queue: &TwoLock<Region>, id: u32) {
    let mut last = BTreeMap::new();
    for got in 1.. {
        // Read before the look: what is empty after the last push stays so.
        let phase = memory.load(PHASE, SeqCst);
        memory.store(record(id, INSIDE), 1, SeqCst);
        match queue.try_pop() {
            Ok(message) => {
                let word = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap());
                let (from, number) = (word(0), word(8));
                assert_eq!(message[16..], check(from, number).to_le_bytes(), "torn");
                let (at, mask) = bit(from, number);
                let was = memory.fetch_or(at, mask, SeqCst);
                assert_eq!(was & mask, 0, "message {number} of {from} came twice");
                let before = last.insert(from, number);
                assert!(before < Some(number), "out of order");
                memory.store(record(id, GOT), got, SeqCst);
            }
            Err(Pop::Empty) if phase == DRAIN => return,
            Err(refused) => {
                assert_eq!(refused, Pop::Empty);
                cpu::yield_now();
            }
        }
        memory.store(record(id, INSIDE), 0, SeqCst);
    }
}

struct Peer {
    process: Child,
    role: &'static str,
    id: u32,
}

#[test]
fn producers_killed_at_random_lose_and_double_no_acknowledged_message_and_no_capacity() {
    assert_eq!(
        campaign(&["producer", "consumer", "consumer"], ["producer"; 3]),
        (0, 0)
    );
}

#[test]
fn a_consumer_killed_at_random_takes_one_message_along_at_most() {
    let (missing, inside) = campaign(&["producer", "producer", "consumer"], ["consumer"; 3]);
    assert!(
        missing <= inside,
        "{missing} lost, {inside} consumers killed inside a pop"
    );
}

/// Kills processes of the roles `dying`, beside others that live on. Messages that were acknowledged
/// and not received, and consumers killed inside a pop.
fn campaign(living: &[&'static str; 3], dying: [&'static str; 3]) -> (u32, u32) {
    let _alone = alone();
    let mut random = Random::seeded("campaign");

    let file = create_sealed("two-lock test", FILE_BYTES).unwrap();
    let group = members::create("two-lock members").unwrap();
    let memory = map(&file);
    // A second descriptor of the group would end our membership when closed; `group` stays open.
    let member = members::join(open(&path(&group))).unwrap();
    let queue = TwoLock::create(memory.clone(), 0, CAPACITY, member).unwrap();

    let mut roles = Vec::new();
    let mut start = |role: &'static str| {
        let id = roles.len() as u32;
        assert!(id < IDS);
        roles.push(role);
        let arguments = [&id.to_string(), &path(&file), &path(&group)];
        let process = handfast_testing::start(role, &arguments.map(String::as_str));
        Peer { process, role, id }
    };
    let survivors = living.map(&mut start);
    let mut mortals = dying.map(&mut start);
    let of = |id: u32, word: usize| memory.load(record(id, word), SeqCst);

    let (mut kills, mut holders, mut inside, mut first_half) = (0, 0, 0, (0, 0));
    let began = Instant::now();
    while kills < KILLS && began.elapsed() < CAMPAIGN {
        // The instant of the kill is what is random.
        // Sleep: a moment chosen at random.
        std::thread::sleep(Duration::from_micros(random.below(12_000)));
        let victim = &mut mortals[random.below(3) as usize];
        victim.process.kill();
        let number = of(victim.id, NUMBER);
        let holds = |lock| number != 0 && memory.load(lock, SeqCst) & MEMBER == number;
        holders += u32::from(holds(HEAD_LOCK) || holds(TAIL_LOCK));
        inside += of(victim.id, INSIDE);
        *victim = start(victim.role);
        kills += 1;
        if kills == KILLS / 2 {
            first_half = (of(survivors[0].id, ACKNOWLEDGED), of(survivors[2].id, GOT));
        }
    }
    let all = (of(survivors[0].id, ACKNOWLEDGED), of(survivors[2].id, GOT));
    println!("{kills} kills, {holders} of them of a lock's holder, {inside} inside a pop");
    println!("survivors: {first_half:?} messages, then {all:?}");
    // On a fast machine a producer has made all its messages before half of the kills.
    let has_produced = all.0 > first_half.0 || all.0 == MESSAGES;
    assert!(has_produced && all.1 > first_half.1, "no progress");

    let peers: Vec<Peer> = survivors.into_iter().chain(mortals).collect();
    let finish = |mut peer: Peer| peer.process.finish();
    memory.store(PHASE, STOP_PRODUCING, SeqCst);
    let (producers, consumers): (Vec<_>, Vec<_>) =
        peers.into_iter().partition(|peer| peer.role == "producer");
    producers.into_iter().for_each(finish);
    memory.store(PHASE, DRAIN, SeqCst);
    consumers.into_iter().for_each(finish);

    let (mut sent, mut missing) = (0, 0);
    for (id, _) in (0..).zip(&roles).filter(|(_, role)| **role == "producer") {
        let (acknowledged, tried) = (of(id, ACKNOWLEDGED), of(id, TRIED));
        let is_there = |number| {
            let (at, mask) = bit(id, number);
            memory.load(at, SeqCst) & mask != 0
        };
        sent += acknowledged;
        missing += (0..acknowledged)
            .filter(|number| !is_there(*number))
            .count() as u32;
        assert!(
            !(tried..MESSAGES.min(tried + 100)).any(is_there),
            "never sent"
        );
    }
    println!("{sent} messages acknowledged, {missing} died with their consumers");
    assert!(
        missing <= inside,
        "{missing} lost, {inside} consumers killed inside a pop"
    );

    // The parent is a member too: nothing is left, and the whole capacity is there.
    for _ in 0..3 {
        assert_eq!(queue.try_pop(), Err(Pop::Empty));
        for number in 0..CAPACITY {
            assert_eq!(queue.try_push(&[number as u8; 24]), Ok(()));
        }
        assert_eq!(queue.try_push(&[0; 24]), Err(Push::Full));
        for number in 0..CAPACITY {
            assert_eq!(queue.try_pop(), Ok([number as u8; 24]));
        }
    }
    (missing, inside)
}
