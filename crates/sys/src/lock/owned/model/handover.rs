//! loom: a thread leaves the poller of a port while another is about to sleep beside it, and a
//! client posts. Whatever the interleaving, the other thread gets the poller: the post is received.
//!
//! The lock is the real one. Around it stand `Port::leave`, `Port::hand_over` and `Port::follow`
//! (`crates/port/src/port.rs`), step by step, with one lane, one bell and one follower;
//! `bells::prepare_sleep` is reduced to arming, announcing and looking, and a post to
//! `arm::must_ring` and the bell's wait word, which have models of their own.

use super::{Model, Thread, Without};
use crate::lock::owned::{ENDED, HELD, How, Word, enter, leave};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use handfast_region::Memory;
use handfast_region::model::{Light, ModelMemory, Points, every_point, must_fail};
use loom::sync::Arc;

const SLEEP: usize = 0;
const MESSAGE: usize = 4;
const ARMED: usize = 8;
const FOLLOWERS: usize = 12;
const HANDED: usize = 16;

const ASLEEP: u32 = 1;
const AWAKE: u32 = 0;

/// The order that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    No,
    /// `follow` without its fence.
    Membarrier,
    /// `leave` looks for followers before the lock is free.
    Order,
    /// `hand_over` without its count.
    Count,
}

/// A client: `Producer::post`, `arm::must_ring`, `bell::ring`.
fn post(memory: &impl Memory) {
    memory.store(MESSAGE, 1, Release);
    memory.fence();
    if memory.load(ARMED, Relaxed) == 1 && memory.swap(SLEEP, AWAKE, AcqRel) == ASLEEP {
        memory.wake(SLEEP, 1);
    }
}

/// `bells::prepare_sleep`.
fn prepare_sleep(memory: &impl Memory) -> bool {
    memory.store(ARMED, 1, Relaxed);
    memory.store(SLEEP, ASLEEP, Relaxed);
    memory.fence();
    if memory.load(MESSAGE, Acquire) == 1 {
        memory.swap(SLEEP, AWAKE, AcqRel);
        return false;
    }
    true
}

/// `Port::leave` and `Port::hand_over`.
fn leave_port(memory: &impl Memory, words: &Thread<'_>, how: How, broken: Broken) {
    let mut seen = 0;
    if broken == Broken::Order {
        seen = memory.load(FOLLOWERS, Relaxed);
    }
    leave(words, how);
    if broken != Broken::Order {
        seen = memory.load(FOLLOWERS, Relaxed);
    }
    if seen == 0 {
        return;
    }
    let count = || {
        if broken != Broken::Count {
            let handed = memory.load(HANDED, Relaxed);
            memory.store(HANDED, handed + 1, Release);
        }
    };
    let quiet = enter(words).is_some_and(|how| {
        let quiet = prepare_sleep(memory);
        leave(words, how);
        quiet
    });
    count();
    memory.fence();
    if !quiet || memory.load(SLEEP, Relaxed) == AWAKE {
        memory.wake(HANDED, 1);
    }
}

/// `Port::follow`; returns once it has the poller.
fn follow(memory: &ModelMemory, words: &Thread<'_>, broken: Broken) {
    memory.store(FOLLOWERS, 1, Relaxed);
    loop {
        let handed = memory.load(HANDED, Acquire);
        let sleep = memory.load(SLEEP, Acquire);
        if broken != Broken::Membarrier {
            memory.fence_others();
        }
        if let Some(how) = enter(words) {
            return leave(words, how);
        }
        memory.park_any(&[(SLEEP, sleep), (HANDED, handed)]);
    }
}

/// How the leaver holds the lock, and when the message comes.
#[derive(Clone, Copy, PartialEq)]
enum Case {
    /// The leaver owns the lock; the message is there.
    Owned,
    /// The ownership has ended; the message is there.
    Ended,
    /// The ownership has ended; a third thread posts the message.
    Posted,
}

fn leaver_and_follower(case: Case, broken: Broken) {
    every_point(2, move |barrier, points| {
        let lock = Arc::new(Model::new(barrier.clone(), Without::Nothing));
        // Relaxed: before the other threads.
        let how = if case == Case::Owned {
            lock.word(Word::Inside).store(1, Relaxed);
            How::Inside
        } else {
            lock.word(Word::Owner).store(ENDED, Relaxed);
            lock.word(Word::Held).store(HELD, Relaxed);
            How::Held
        };
        let words = [SLEEP, MESSAGE, ARMED, FOLLOWERS, HANDED];
        let mut memory = ModelMemory::new(&words, &[]);
        memory.membarrier = Some(barrier.clone());
        memory.store(MESSAGE, u32::from(case != Case::Posted), Relaxed);
        let memory = Arc::new(memory);
        let (their_lock, theirs, calls) = (lock.clone(), memory.clone(), barrier.clone());
        let leaver = loom::thread::spawn(move || {
            let points = Points::new(calls, points);
            let words = Thread::new(&their_lock, Some(&points));
            let memory = Light::new(&theirs, &points, None);
            leave_port(&memory, &words, how, broken);
            points.finish()
        });
        let theirs = memory.clone();
        let client = (case == Case::Posted).then(|| loom::thread::spawn(move || post(&*theirs)));
        follow(&memory, &Thread::new(&lock, None), broken);
        barrier.over();
        if let Some(client) = client {
            client.join().unwrap();
        }

        leaver.join().unwrap()
    });
}

#[test]
fn e7_a_message_that_waits_is_handed_over() {
    leaver_and_follower(Case::Ended, Broken::No);
}

#[test]
fn e7_a_message_that_comes_meanwhile_is_handed_over() {
    leaver_and_follower(Case::Posted, Broken::No);
}

#[test]
fn e7_a_message_that_waits_is_handed_over_by_the_owner() {
    leaver_and_follower(Case::Owned, Broken::No);
}

#[test]
fn e7_without_the_followers_fence_it_sleeps_beside_the_message() {
    must_fail("deadlock", || {
        leaver_and_follower(Case::Ended, Broken::Membarrier)
    });
}

#[test]
fn e7_without_the_leavers_order_the_follower_sleeps_beside_the_message() {
    must_fail("deadlock", || {
        leaver_and_follower(Case::Ended, Broken::Order)
    });
}

#[test]
fn e7_without_the_count_a_message_that_waits_is_left() {
    must_fail("deadlock", || {
        leaver_and_follower(Case::Ended, Broken::Count)
    });
}

#[test]
fn e7_without_the_count_a_message_that_comes_meanwhile_is_left() {
    must_fail("deadlock", || {
        leaver_and_follower(Case::Posted, Broken::Count)
    });
}
