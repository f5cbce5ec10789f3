//! A task that waits for its caller to give up (E14), or for a reply (E4), while that comes.

use super::{Task, side};
use crate::reply::Slot;
use handfast_layout::link::{Kind, Side};
use handfast_region::Memory;
use handfast_region::model::{ModelMemory, must_fail};
use handfast_wait::word::{self, DESCRIPTOR};
use loom::sync::{Arc, Mutex};

#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    WaiterFence,
    PeerFence,
    /// The waiter looks once more after its announcement.
    SecondLook,
    /// The waker is in the list before the announcement.
    EntryFirst,
}

/// The event that is waited for.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    GivenUp,
    Reply,
}

const GENERATION: u32 = 7;

impl Wait {
    fn is_due(self, slot: Slot, memory: &impl Memory) -> bool {
        match self {
            Self::GivenUp => slot.is_cancelled(memory, GENERATION),
            Self::Reply => slot.is_answered(memory, GENERATION),
        }
    }

    /// As `Watch::is_over` and `Reply::park` announce.
    fn announce(self, slot: Slot, memory: &impl Memory) {
        match self {
            Self::GivenUp => slot.watch(memory),
            Self::Reply => word::announce(memory, slot.wait(), DESCRIPTOR),
        }
    }

    /// Returns whether the waiter's keeper is to be rung.
    fn happens(self, slot: Slot, memory: &impl Memory) -> bool {
        match self {
            Self::GivenUp => slot.cancel(memory, GENERATION),
            Self::Reply => {
                slot.answer(memory, GENERATION, Kind::Message, 0, b"reply");
                word::fence_then_taken(memory, slot.wait()).is_some()
            }
        }
    }
}

fn wait(wait: Wait, without: Without) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let slot = Slot::of(Side::Connector, 0);
        let mut words = slot.words().to_vec();
        words.extend([slot.watch_word(), slot.cancel_word()]);
        let memory = Arc::new(ModelMemory::new(&words, &[slot.inline_bytes()]));
        let (task, list) = (
            Arc::new(Task::default()),
            Arc::new(Mutex::new(None::<Arc<Task>>)),
        );
        let (their_list, theirs) = (list.clone(), side(&memory, without != Without::PeerFence));
        let peer = loom::thread::spawn(move || {
            if wait.happens(slot, &theirs) {
                // The keeper: as `Tasks::wake`.
                let entered = their_list.lock().unwrap().clone();
                if let Some(task) = entered.filter(|_| wait.is_due(slot, &theirs)) {
                    task.wake();
                }
            }
        });
        let ours = side(&memory, without != Without::WaiterFence);
        let enter = || *list.lock().unwrap() = Some(task.clone());
        // Each poll of the future.
        while !wait.is_due(slot, &ours) {
            if without != Without::EntryFirst {
                enter();
            }
            wait.announce(slot, &ours);
            if without == Without::SecondLook || !wait.is_due(slot, &ours) {
                if without == Without::EntryFirst {
                    enter();
                }
                task.sleep();
            }
            *list.lock().unwrap() = None;
            if wait == Wait::Reply {
                word::withdraw(&ours, slot.wait());
            }
        }
        peer.join().unwrap();
    });
}

#[test]
fn e14_a_caller_that_gives_up_is_heard_by_a_task_that_begins_to_wait() {
    wait(Wait::GivenUp, Without::Nothing);
}

#[test]
fn e14_without_the_callees_fence_it_is_not_heard() {
    must_fail("deadlock", || wait(Wait::GivenUp, Without::WaiterFence));
}

#[test]
fn e14_without_the_callers_fence_it_is_not_heard() {
    must_fail("deadlock", || wait(Wait::GivenUp, Without::PeerFence));
}

#[test]
fn e14_without_the_second_look_it_is_not_heard() {
    must_fail("deadlock", || wait(Wait::GivenUp, Without::SecondLook));
}

#[test]
fn e15_a_ring_that_comes_before_the_waker_finds_nobody() {
    must_fail("deadlock", || wait(Wait::GivenUp, Without::EntryFirst));
}

#[test]
fn e15_a_reply_reaches_a_task_that_begins_to_wait() {
    wait(Wait::Reply, Without::Nothing);
}

#[test]
fn e15_without_the_tasks_fence_the_reply_does_not() {
    must_fail("deadlock", || wait(Wait::Reply, Without::WaiterFence));
}

#[test]
fn e15_without_the_servers_fence_the_reply_does_not() {
    must_fail("deadlock", || wait(Wait::Reply, Without::PeerFence));
}

#[test]
fn e15_a_reply_whose_ring_comes_before_the_waker_does_not() {
    must_fail("deadlock", || wait(Wait::Reply, Without::EntryFirst));
}
