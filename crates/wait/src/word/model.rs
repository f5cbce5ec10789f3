//! loom: the four interleavings of paper 000, Figure 4. The steps that exclude interleavings 1, 2 and 4, and the fences, are each
//! removed once. Interleaving 3 needs no step here, since a futex keeps no count; the paper's own way, with a semaphore, has a model beside the
//! harness (`tools/bench/src/systems/sleep_wake/party/model.rs`). A lost wake-up shows as a deadlock, which loom reports.

use super::*;
use core::sync::atomic::Ordering::{Acquire, Release};
use handfast_region::model::{ModelMemory, must_fail};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;

const WORD: usize = 0;
/// The queue: one word per producer, nonzero once it has published.
const QUEUE: [usize; 2] = [4, 8];

#[derive(Clone, Copy)]
struct Without {
    second_look: bool,
    test_and_set: bool,
    fence: bool,
    comparison: bool,
}

const COMPLETE: Without = Without {
    second_look: false,
    test_and_set: false,
    fence: false,
    comparison: false,
};

/// `producers` publish one message each; the consumer sleeps until it has seen all of them.
/// Returns nothing; counts wake-up calls and fails when there are more than sleeps announced.
fn sleep_and_wake(producers: usize, without: Without) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let mut memory = ModelMemory::new(&[WORD, QUEUE[0], QUEUE[1]], &[]);
        memory.without_fence = without.fence;
        memory.without_compare = without.comparison;
        let memory = Arc::new(memory);
        let (calls, announcements) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let threads: Vec<_> = (0..producers)
            .map(|producer| {
                let (memory, calls) = (memory.clone(), calls.clone());
                loom::thread::spawn(move || {
                    memory.store(QUEUE[producer], 1, Release);
                    let asleep = if without.test_and_set {
                        // Looks and takes in two steps.
                        memory.fence();
                        let asleep = memory.load(WORD, Relaxed) == ASLEEP;
                        if asleep {
                            memory.store(WORD, AWAKE, Relaxed);
                        }
                        asleep
                    } else {
                        fence_then_taken(&*memory, WORD).is_some()
                    };
                    if asleep {
                        calls.fetch_add(1, Relaxed);
                        memory.wake(WORD, 1);
                    }
                })
            })
            .collect();
        let seen = || {
            QUEUE[..producers]
                .iter()
                .all(|at| memory.load(*at, Acquire) == 1)
        };
        while !seen() {
            announcements.fetch_add(1, Relaxed);
            announce(&*memory, WORD, ASLEEP);
            if without.second_look || !seen() {
                memory.park(WORD, ASLEEP, None);
            }
            withdraw(&*memory, WORD);
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let (calls, sleeps) = (calls.load(Relaxed), announcements.load(Relaxed));
        assert!(
            calls <= sleeps,
            "{calls} wake-ups for {sleeps} announced sleeps"
        );
    });
}

#[test]
fn interleaving_1_wake_up_before_sleep_is_not_lost() {
    sleep_and_wake(1, COMPLETE);
}

#[test]
fn interleaving_1_without_the_comparison_before_the_sleep_the_wake_up_is_lost() {
    let without = Without {
        comparison: true,
        ..COMPLETE
    };
    must_fail("deadlock", || sleep_and_wake(1, without));
}

#[test]
fn interleaving_2_and_3_two_producers_wake_at_most_once_per_announcement() {
    sleep_and_wake(2, COMPLETE);
}

#[test]
fn interleaving_2_without_the_test_and_set_wake_ups_multiply() {
    let without = Without {
        test_and_set: true,
        ..COMPLETE
    };
    must_fail("wake-ups for", || sleep_and_wake(2, without));
}

#[test]
fn interleaving_4_without_step_c3_the_wake_up_is_lost() {
    let without = Without {
        second_look: true,
        ..COMPLETE
    };
    must_fail("deadlock", || sleep_and_wake(1, without));
}

#[test]
fn e4_without_the_fences_the_wake_up_is_lost() {
    let without = Without {
        fence: true,
        ..COMPLETE
    };
    must_fail("deadlock", || sleep_and_wake(1, without));
}

#[test]
fn death_of_the_peer_during_sleep_ends_the_sleep() {
    // The control thread marks the link dead, fences, and takes the announcement like any waker; the
    // sleeper looks at the mark where it looks for a message.
    const DEAD: usize = 4;
    loom::model(|| {
        let memory = Arc::new(ModelMemory::new(&[WORD, DEAD], &[]));
        let dying = memory.clone();
        let control_thread = loom::thread::spawn(move || {
            dying.store(DEAD, 1, Release);
            if fence_then_taken(&*dying, WORD).is_some() {
                dying.wake(WORD, 1);
            }
        });
        while memory.load(DEAD, Acquire) == 0 {
            announce(&*memory, WORD, ASLEEP);
            if memory.load(DEAD, Acquire) == 0 {
                memory.park(WORD, ASLEEP, None);
            }
            withdraw(&*memory, WORD);
        }
        control_thread.join().unwrap();
    });
}
