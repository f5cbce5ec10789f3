//! loom: a thread leaves the poller of a port while a task finds it taken and relies on that one. Whatever
//! the interleaving, the task is called, or gets the poller: it does not sleep beside the message that waits.
//!
//! As `handover`, with `Receive::poll` in the place of `Port::follow`, and `Port::call_takers` as what
//! `Port::hand_over` does first and last. The list of takers is reduced to whether the task is there.

use super::{Model, Thread, Without};
use crate::lock::owned::{ENDED, HELD, How, Word, enter, leave};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use handfast_region::Memory;
use handfast_region::model::{Light, ModelMemory, Points, every_point, must_fail};
use loom::sync::{Arc, Mutex};

const FOLLOWERS: usize = 0;
const WOKEN: usize = 4;

/// Bits of the count of followers: a thread that has gone meanwhile, and the task.
const THREAD: u32 = 1;
const TASK: u32 = 2;

/// The step that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    No,
    /// The task's fence.
    Membarrier,
    /// `leave` looks for followers before the lock is free.
    Order,
    /// `hand_over`, which takes the lock itself for a moment, looks at the takers again.
    SecondCall,
}

/// `Port::call_takers`. Whether the task was there.
fn call(memory: &impl Memory, list: &Mutex<bool>) -> bool {
    let was_there = core::mem::take(&mut *list.lock().unwrap());
    if was_there {
        memory.swap(WOKEN, 1, AcqRel);
        memory.wake(WOKEN, 1);
    }
    was_there
}

/// `Port::leave` and `Port::hand_over`.
fn leave_port(
    memory: &impl Memory,
    words: &Thread<'_>,
    how: How,
    (list, broken): (&Mutex<bool>, Broken),
) {
    let mut seen = memory.load(FOLLOWERS, Relaxed);
    leave(words, how);
    if broken != Broken::Order {
        seen = memory.load(FOLLOWERS, Relaxed);
    }
    if seen == 0 || call(memory, list) || seen & THREAD == 0 {
        return;
    }
    if let Some(how) = enter(words) {
        // It announces, for the thread.
        leave(words, how);
    }
    if broken != Broken::SecondCall {
        call(memory, list);
    }
}

/// `Receive::poll`, until it has had the poller.
fn receive(memory: &ModelMemory, words: &Thread<'_>, (list, broken): (&Mutex<bool>, Broken)) {
    loop {
        if let Some(how) = enter(words) {
            return leave(words, how);
        }
        {
            let mut list = list.lock().unwrap();
            memory.fetch_or(FOLLOWERS, TASK, Relaxed);
            *list = true;
        }
        if broken != Broken::Membarrier {
            memory.fence_others();
        }
        if let Some(how) = enter(words) {
            return leave(words, how);
        }
        while memory.load(WOKEN, Relaxed) == 0 {
            memory.park(WOKEN, 0, None);
        }
        memory.swap(WOKEN, 0, AcqRel);
    }
}

fn leaver_and_task(has_thread: bool, broken: Broken) {
    every_point(2, move |barrier, points| {
        let lock = Arc::new(Model::new(barrier.clone(), Without::Nothing));
        // Relaxed: before the other thread.
        lock.word(Word::Owner).store(ENDED, Relaxed);
        lock.word(Word::Held).store(HELD, Relaxed);
        let mut memory = ModelMemory::new(&[FOLLOWERS, WOKEN], &[]);
        memory.membarrier = Some(barrier.clone());
        memory.store(FOLLOWERS, if has_thread { THREAD } else { 0 }, Relaxed);
        let (memory, list) = (Arc::new(memory), Arc::new(Mutex::new(false)));
        let (their_lock, theirs, calls) = (lock.clone(), memory.clone(), barrier.clone());
        let their_list = list.clone();
        let leaver = loom::thread::spawn(move || {
            let points = Points::new(calls, points);
            let words = Thread::new(&their_lock, Some(&points));
            let memory = Light::new(&theirs, &points, None);
            leave_port(&memory, &words, How::Held, (&their_list, broken));
            points.finish()
        });
        receive(&memory, &Thread::new(&lock, None), (&list, broken));
        barrier.over();
        leaver.join().unwrap()
    });
}

#[test]
fn e7_a_task_that_finds_the_poller_taken_is_called() {
    leaver_and_task(false, Broken::No);
}

#[test]
fn e7_so_is_one_that_finds_it_taken_for_a_hand_over() {
    leaver_and_task(true, Broken::No);
}

#[test]
fn e7_without_the_tasks_fence_it_sleeps_beside_the_message() {
    must_fail("deadlock", || leaver_and_task(false, Broken::Membarrier));
}

#[test]
fn e7_without_the_leavers_order_the_task_sleeps_beside_the_message() {
    must_fail("deadlock", || leaver_and_task(false, Broken::Order));
}

#[test]
fn e7_without_the_second_call_the_task_sleeps_beside_the_message() {
    must_fail("deadlock", || leaver_and_task(true, Broken::SecondCall));
}
