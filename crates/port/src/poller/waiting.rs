//! Lanes whose first message waits for the right it names: they are not looked at with the others, and have no place in the rota.

use super::patience::Patience;
use super::{Poller, bells, rung};
use crate::poller::said;
use core::sync::atomic::Ordering;
use handfast_proto::rota::Key;
use handfast_sys::clock;
use std::collections::VecDeque;

/// Lanes that are looked at in one look at the bells, however many wait.
const PER_LOOK: usize = 16;

/// The lanes that wait, and which of them are to be looked at again.
pub(super) struct Waiting {
    lanes: VecDeque<Key>,
    /// So many of them, from the front.
    unseen: usize,
    /// When the first of the others has waited for long enough, by [`Self::patience`].
    due_ns: Option<u64>,
    /// [`crate::process::Process::settled`], when the last round of looks began.
    settled: u32,
    pub(super) patience: Patience,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            lanes: VecDeque::new(),
            unseen: 0,
            due_ns: None,
            settled: 0,
            patience: Patience::new(),
        }
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        (self.lanes, self.unseen, self.due_ns) = (VecDeque::new(), 0, None);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn push(&mut self, key: Key, until_ns: u64) {
        self.lanes.push_back(key);
        self.due_ns = Some(self.due_ns.unwrap_or(until_ns).min(until_ns));
    }

    /// All are to be looked at again.
    pub(super) fn begin(&mut self) {
        self.unseen = self.lanes.len();
        self.due_ns = None;
    }

    /// Forgets lanes for which `keep` is not true.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Key) -> bool) {
        self.lanes.retain(|key| keep(*key));
        self.begin();
    }
}

/// Looks at some lanes that wait, if one of them may have to no longer. Whether some are left to look at.
pub(super) fn look_at_waiting(poller: &mut Poller) -> bool {
    look_called(poller, || None)
}

/// As [`look_at_waiting`], of a waiter that may have been called: `called` says when the first one was.
fn look_called(poller: &mut Poller, called: impl FnOnce() -> Option<u64>) -> bool {
    if poller.waiting.is_empty() {
        return false;
    }
    // Acquire: pairs with the Release of `Process::has_settled`.
    let settled = poller.process.settled.load(Ordering::Acquire);
    let still_sleeps = bells::still_sleeps(poller);
    let now_ns = match still_sleeps {
        true => poller.waiting.patience.slept(),
        false => (poller.waiting.patience).slept_until(called(), poller.waiting.due_ns),
    };
    let is_late = poller.waiting.due_ns.is_some_and(|due_ns| due_ns < now_ns);
    if settled != poller.waiting.settled || is_late {
        poller.waiting.settled = settled;
        poller.waiting.begin();
    }
    for _ in 0..PER_LOOK.min(poller.waiting.unseen) {
        poller.waiting.unseen -= 1;
        let Some(key) = poller.waiting.lanes.pop_front() else {
            break;
        };
        if let Some(until_ns) = said::until(poller, key) {
            poller.waiting.push(key, until_ns);
            continue;
        }
        if let Some(lane) = poller.lanes[key].as_mut() {
            lane.waits = false;
            rung::answer_key(poller, key);
        }
    }
    if still_sleeps && bells::is_idle(poller) {
        poller.waiting.patience.rests();
    }
    poller.waiting.unseen > 0
}

/// Whether something has happened that lanes may have waited for.
pub(super) fn is_settled(poller: &Poller) -> bool {
    // Acquire: as above.
    !poller.waiting.is_empty()
        && poller.process.settled.load(Ordering::Acquire) != poller.waiting.settled
}

/// How long the receiver may sleep, once it is prepared to: a message that waits is due then.
pub(crate) fn sleep_ns_max(poller: &Poller) -> Option<u64> {
    let until_ns = poller.waiting.due_ns?;
    // Later than that, and not at that time.
    Some(poller.waiting.patience.left_ns(until_ns) + 1)
}

/// Before the look of a task or a loop, which may have waited, or another thread meanwhile, and before what rang is heard; `called`
/// says when a waiter here was called first.
pub(crate) fn resume(poller: &mut Poller, called: impl FnOnce() -> Option<u64>) {
    look_called(poller, called);
}

/// Whether a message waits for the right it names.
pub(crate) fn has_waiting(poller: &Poller) -> bool {
    !poller.waiting.is_empty()
}

/// A thread has slept, or has been about to, and lanes are looked at from now on. It may have slept on while others looked.
pub(super) fn wakes(poller: &mut Poller) {
    // First: lanes that rang become active.
    let now_ns = bells::is_idle(poller).then(clock::ticks_ns);
    match bells::still_sleeps(poller) {
        true => poller.waiting.patience.slept(),
        false => poller
            .waiting
            .patience
            .slept_until(now_ns, poller.waiting.due_ns),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::Poller;
    use crate::poller::{clearing, idle};
    use crate::polling;
    use handfast_wait::word;

    const SECOND_NS: u64 = 1_000_000_000;

    /// How long the poller takes itself to have waited when a task looks a second after the last look.
    fn waited_ns(poller: &mut Poller, called: Option<u64>) -> u64 {
        let before_ns = poller.waiting.patience.after(SECOND_NS);
        resume(poller, || called);
        poller.waiting.patience.look() - before_ns
    }

    /// A right that nobody provides was waited for for seconds where a thread and tasks received: the thread looked after a task had
    /// begun to wait, and then slept; where the task was first to look again, the time between was no wait. A post ends the wait, since
    /// the right may have been provided by that.
    #[test]
    fn the_sleep_of_a_thread_is_a_wait_until_something_rings_also_where_a_task_looks() {
        // Where nothing else happens.
        let node = crate::Node::builder().start().unwrap();
        let port = node.anonymous().unwrap();
        let right = port.mint(0).connect().unwrap();
        let mut poller = polling::lock(&port.port().at);
        clearing::refresh(&mut poller);
        poller.waiting.push(0, u64::MAX);
        assert!(!poller.groups.is_empty());
        assert!(
            idle::prepare_to_wait(&mut poller, word::DESCRIPTOR),
            "a task"
        );
        idle::withdraw(&mut poller);
        assert!(idle::prepare_to_wait(&mut poller, word::ASLEEP), "a thread");
        let asleep_ns = waited_ns(&mut poller, None);
        assert!(asleep_ns >= SECOND_NS, "{asleep_ns}");
        // The look was none of a thread that receives: it sleeps still.
        assert!(waited_ns(&mut poller, None) >= SECOND_NS);
        assert!(idle::prepare_to_wait(&mut poller, word::ASLEEP));
        let rings = |poller: &Poller| {
            poller
                .groups
                .iter()
                .for_each(|group| group.rouse(poller.receiver))
        };
        rings(&poller);
        let rung_ns = waited_ns(&mut poller, None);
        assert!(rung_ns < SECOND_NS / 2, "{rung_ns}");
        // It was called half a second ago.
        assert!(idle::prepare_to_wait(&mut poller, word::ASLEEP));
        rings(&poller);
        let called_ns = clock::ticks_ns() - SECOND_NS / 2;
        let called_ns = waited_ns(&mut poller, Some(called_ns));
        assert!(
            (SECOND_NS / 4..SECOND_NS * 3 / 4).contains(&called_ns),
            "{called_ns}"
        );
        // A lane is looked at, where the right may be provided: the time in which its messages are handled is no wait.
        assert!(idle::prepare_to_wait(&mut poller, word::ASLEEP));
        poller.active.push(0, 1);
        let active_ns = waited_ns(&mut poller, None);
        poller.active.pop();
        assert!(active_ns < SECOND_NS / 2, "{active_ns}");
        // The same for a thread that wakes: it has slept, ...
        let slept_ns = |poller: &mut Poller| {
            let before_ns = poller.waiting.patience.after(SECOND_NS);
            idle::withdraw(poller);
            poller.waiting.patience.look() - before_ns
        };
        assert!(idle::prepare_to_wait(&mut poller, word::ASLEEP));
        assert!(slept_ns(&mut poller) >= SECOND_NS);
        // ... or slept on while another looked and found nothing, as the control thread does when a waiter is due, ...
        assert!(idle::prepare_to_wait(&mut poller, word::ASLEEP));
        let before_ns = poller.waiting.patience.after(SECOND_NS);
        assert!(idle::prepare_sleep(&mut poller, word::ASLEEP));
        let seen_ns = poller.waiting.patience.after(0);
        assert!(seen_ns - before_ns >= SECOND_NS);
        assert!(slept_ns(&mut poller) >= SECOND_NS);
        // ... or found something, ...
        assert!(idle::prepare_to_wait(&mut poller, word::ASLEEP));
        rings(&poller);
        poller.waiting.patience.look();
        assert!(slept_ns(&mut poller) < SECOND_NS / 2);
        // ... or something rang, and the process did not run for a second: the lane that rang is looked at before the wait is over, ...
        assert!(idle::prepare_to_wait(&mut poller, word::ASLEEP));
        rings(&poller);
        poller.waiting.due_ns = Some(poller.waiting.patience.after(0) + SECOND_NS);
        let stopped_ns = slept_ns(&mut poller);
        poller.waiting.due_ns = Some(u64::MAX);
        assert!(
            (SECOND_NS / 2..SECOND_NS - SECOND_NS / 100).contains(&stopped_ns),
            "{stopped_ns}"
        );
        // ... and has a lane active.
        assert!(idle::prepare_to_wait(&mut poller, word::ASLEEP));
        poller.active.push(0, 1);
        let active_ns = slept_ns(&mut poller);
        poller.active.pop();
        assert!(active_ns < SECOND_NS / 2, "{active_ns}");
        drop(poller);
        drop(right);
        node.shutdown();
    }

    /// The control thread looks at a receiver for a moment, where something rang: the receiver has waited until then.
    #[test]
    fn the_wait_of_a_sleeping_thread_counts_where_another_hands_over() {
        let node = crate::Node::builder().start().unwrap();
        let port = node.anonymous().unwrap();
        let right = port.mint(0).connect().unwrap();
        let at = &port.port().at;
        // A thread that sleeps.
        at.followers.fetch_add(1, Ordering::Relaxed);
        for rings in [false, true] {
            let mut poller = polling::lock(at);
            clearing::refresh(&mut poller);
            poller.waiting.clear();
            poller.waiting.push(0, u64::MAX);
            polling::waits::note_calls(at, &poller);
            assert!(idle::prepare_to_wait(&mut poller, word::ASLEEP));
            let before_ns = poller.waiting.patience.after(SECOND_NS);
            if rings {
                poller
                    .groups
                    .iter()
                    .for_each(|group| group.rouse(poller.receiver));
            }
            polling::leave(at, poller);
            let waited_ns = polling::lock(at).waiting.patience.look() - before_ns;
            assert!(waited_ns >= SECOND_NS, "rings: {rings}, {waited_ns}");
        }
        at.followers.fetch_sub(1, Ordering::Relaxed);
        drop(right);
        node.shutdown();
    }
}
