//! A task that waits for its caller to give up (E14), or for a reply (E4), while that comes.

use super::{Task, side};
use crate::reply::Slot;
use core::sync::atomic::Ordering::Relaxed;
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
    /// The control thread wakes a task whose announcement has been taken, whatever for.
    Taken,
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

    /// Returns whether the waiter's control thread is to be rung.
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

/// The control thread of the waiter, when it has been rung: as `tasks::wake_answered`.
fn rung(
    (wait, without): (Wait, Without),
    (slot, list): (Slot, &Mutex<Option<Arc<Task>>>),
    memory: &impl Memory,
) {
    let entered = list.lock().unwrap().clone();
    let is_taken = || {
        wait == Wait::Reply
            && without != Without::Taken
            && memory.load(slot.wait(), Relaxed) == word::AWAKE
    };
    if let Some(task) = entered.filter(|_| wait.is_due(slot, memory) || is_taken()) {
        task.wake();
    }
}

/// With a thread that has written the slot's former reply, and has not woken its caller yet, if `is_late`.
fn wait(wait: Wait, without: Without, is_late: bool) {
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
                rung((wait, without), (slot, &their_list), &theirs);
            }
        });
        let (their_list, theirs) = (list.clone(), side(&memory, true));
        let late = is_late.then(|| {
            loom::thread::spawn(move || {
                if word::fence_then_taken(&theirs, slot.wait()).is_some() {
                    rung((wait, without), (slot, &their_list), &theirs);
                }
            })
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
        if let Some(late) = late {
            late.join().unwrap();
        }
    });
}

#[test]
fn e14_a_caller_that_gives_up_is_heard_by_a_task_that_begins_to_wait() {
    wait(Wait::GivenUp, Without::Nothing, false);
}

#[test]
fn e14_without_the_callees_fence_it_is_not_heard() {
    must_fail("deadlock", || {
        wait(Wait::GivenUp, Without::WaiterFence, false)
    });
}

#[test]
fn e14_without_the_callers_fence_it_is_not_heard() {
    must_fail("deadlock", || {
        wait(Wait::GivenUp, Without::PeerFence, false)
    });
}

#[test]
fn e14_without_the_second_look_it_is_not_heard() {
    must_fail("deadlock", || {
        wait(Wait::GivenUp, Without::SecondLook, false)
    });
}

#[test]
fn e15_a_ring_that_comes_before_the_waker_finds_nobody() {
    must_fail("deadlock", || {
        wait(Wait::GivenUp, Without::EntryFirst, false)
    });
}

#[test]
fn e15_a_reply_reaches_a_task_that_begins_to_wait() {
    wait(Wait::Reply, Without::Nothing, false);
}

#[test]
fn e15_without_the_tasks_fence_the_reply_does_not() {
    must_fail("deadlock", || {
        wait(Wait::Reply, Without::WaiterFence, false)
    });
}

#[test]
fn e15_without_the_servers_fence_the_reply_does_not() {
    must_fail("deadlock", || wait(Wait::Reply, Without::PeerFence, false));
}

#[test]
fn e15_a_reply_whose_ring_comes_before_the_waker_does_not() {
    must_fail("deadlock", || wait(Wait::Reply, Without::EntryFirst, false));
}

#[test]
fn e15_late_a_reply_reaches_a_task_whose_announcement_a_former_waker_takes() {
    wait(Wait::Reply, Without::Nothing, true);
}

#[test]
fn e15_late_it_does_not_where_a_taken_announcement_wakes_nobody() {
    must_fail("deadlock", || wait(Wait::Reply, Without::Taken, true));
}
