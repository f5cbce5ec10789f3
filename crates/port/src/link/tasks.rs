//! The tasks that wait for something of a link: the reply to a call, room, the end of a caller's patience.

use super::Link;
use crate::guest::{self, Woken};
use crate::rank;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Waker;
use handfast_channel::reply::Slot;
use handfast_layout::link::LANES;
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_wait::word;
use std::sync::Arc;
use std::task::Wake;

/// The tasks that wait for something of a link.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Vec<Task>, rank::Tasks>);

struct Task {
    number: u64,
    what: What,
    /// Shared, so that it is copied under the lock without the application's code.
    waker: Arc<guest::Value<Waker>>,
}

/// The event a task waits for. For a slot, with the generation that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// An outcome.
    Reply(Slot, u32),
    /// Room for a request.
    Room,
    /// Room for a one-way message, in this lane.
    Space(u32),
    /// The end of a call by its caller.
    GivenUp(Slot, u32),
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Tasks {
    fn list(&self) -> MutexGuard<'_, Vec<Task>, rank::Tasks> {
        self.0.lock()
    }

    /// Enters a task. Returns its number. It announces that it waits after this, and then looks once
    /// more (E15).
    pub(crate) fn enter(&self, what: What, waker: Waker) -> u64 {
        // Relaxed: a number.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let waker = Arc::new(guest::Value::new(waker));
        // E15 waker, task half. Under the lock, before the announcement: a ring that takes that finds the
        // task here. Control thread half: `wake`.
        self.list().push(Task {
            number,
            what,
            waker,
        });
        number
    }

    /// The task waits no more.
    pub(crate) fn leave(&self, number: u64) {
        let mut tasks = self.list();
        let own = tasks.iter().position(|task| task.number == number);
        let left = own.map(|own| tasks.remove(own));
        drop(tasks);
        // Its waker is the application's.
        drop(left);
    }

    /// Wakes the tasks that `is_due` selects, outside the lock. Tasks that wait for a caller to give up are
    /// removed first: the tasks they wake may come here again.
    fn wake(&self, is_due: impl Fn(&What) -> bool) {
        guest::check_may_wake();
        let mut woken = Vec::new();
        // E15 waker, control thread half. Under the lock, after the ring. Task half: `enter`.
        self.list().retain(|task| {
            let is_due = is_due(&task.what);
            if is_due {
                woken.push(task.waker.clone());
            }
            !(is_due && matches!(task.what, What::GivenUp(..)))
        });
        woken.into_iter().map(Woken::Shared).for_each(guest::wake);
    }
}

/// Wakes all tasks that wait for something of the link that may end with it.
pub(crate) fn wake(link: &Link) {
    link.waiters.tasks.wake(|what| match what {
        What::GivenUp(slot, generation) => is_given_up(link, *slot, *generation),
        What::Reply(..) | What::Room | What::Space(_) => true,
    });
}

/// Wakes the tasks for which the peer may have rung, and those whose announcement was taken by a late waker of what was
/// waited for at the same word before (E15 late): they announce themselves again.
pub(crate) fn wake_answered(link: &Link) {
    let space = lanes_with_space(link);
    // Relaxed: a waker that takes an announcement after this look rings after it, too.
    let is_taken = |at| link.region.load(at, Ordering::Relaxed) == word::AWAKE;
    link.waiters.tasks.wake(|what| match what {
        What::GivenUp(slot, generation) => is_given_up(link, *slot, *generation),
        What::Reply(slot, generation) => {
            slot.is_answered(&link.region, *generation) || is_taken(slot.wait())
        }
        What::Space(lane) => {
            space & 1 << lane != 0 || is_taken(Place::of(link.calls, *lane).space())
        }
        What::Room => false,
    });
}

/// The lanes that tasks wait for, and where a message may find room, or a fault; a bit each.
fn lanes_with_space(link: &Link) -> u32 {
    let asked = link
        .waiters
        .tasks
        .list()
        .iter()
        .fold(0, |asked, task| match task.what {
            What::Space(lane) => asked | 1 << lane,
            _ => asked,
        });
    // Not under the lock of the list: a thread that has locked a lane may find a fault, and wakes all then.
    let has_space = |lane: &u32| {
        let mut outgoing = link.lanes[*lane as usize].lock();
        outgoing.producer.has_room(&link.region, 0).unwrap_or(true)
    };
    let lanes = (0..LANES).filter(|lane| asked & 1 << lane != 0);
    lanes
        .filter(has_space)
        .fold(0, |lanes, lane| lanes | 1 << lane)
}

/// Control thread: as [`wake_answered`], and wakes those that wait for room.
pub(crate) fn watch(link: &Link) {
    wake_answered(link);
    link.waiters
        .tasks
        .wake(|what| matches!(what, What::Room | What::Space(_)));
}

/// Whether tasks wait for room: a thread that makes some by taking an answer wakes no task.
pub(crate) fn has_tasks_for_room(link: &Link) -> bool {
    let list = link.waiters.tasks.list();
    list.iter().any(|task| task.what == What::Room)
}

/// Wakes the tasks that have waited longest for room, as a call has ended.
pub(crate) fn wake_for_room(link: &Link) {
    guest::check_may_wake();
    let list = link.waiters.tasks.list();
    let waiting = list.iter().filter(|task| task.what == What::Room);
    let waiting = waiting.take(WOKEN_FOR_ROOM);
    let woken: Vec<_> = waiting.map(|task| task.waker.clone()).collect();
    drop(list);
    woken.into_iter().map(Woken::Shared).for_each(guest::wake);
}

/// Whether the waiter in `slot`, on the peer's side, is known not to wait any more.
pub(crate) fn is_given_up(link: &Link, slot: Slot, generation: u32) -> bool {
    link.is_over() || slot.is_cancelled(&link.region, generation)
}

/// The room is in the lane of one thread, and a task may be woken on another: so not one. Should it be
/// too few, the control thread's next look wakes all.
const WOKEN_FOR_ROOM: usize = 4;

/// A thread that waits on a link for a call made on another's behalf looks again when the other caller has
/// given up.
impl Wake for Link {
    fn wake(self: Arc<Self>) {
        self.disturb();
    }
}

#[cfg(test)]
mod tests;
