//! Stopping before every memory operation, exhaustively: a living member is stopped in the middle
//! of a push or a pop, another one does everything it can meanwhile, and the first goes on. The
//! successes of both must match a first-in, first-out queue in which the stopped operation
//! took place at one moment. Claims of a dead third member lie in the way.

use super::tests::{Register, message, number};
use super::*;
use handfast_region::Region;
use handfast_region::model::{Countdown, Hooked};
use std::collections::VecDeque;
use std::sync::Mutex;

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Pushed(u32),
    Popped(u32),
    /// Full or Empty, which promise little: nothing.
    Refused,
}

fn push(ring: &impl Queue, value: u32) -> Done {
    match ring.try_push(&message(value)) {
        Ok(()) => Done::Pushed(value),
        Err(full) => {
            assert_eq!(full, Push::Full);
            Done::Refused
        }
    }
}

fn pop(ring: &impl Queue) -> Done {
    match ring.try_pop() {
        Ok(got) => Done::Popped(number(&got)),
        Err(empty) => {
            assert_eq!(empty, Pop::Empty);
            Done::Refused
        }
    }
}

/// Whether the queue can do this; does it.
fn apply(queue: &mut VecDeque<u32>, done: Done) -> bool {
    match done {
        Done::Pushed(value) => queue.push_back(value),
        Done::Popped(value) => return queue.pop_front() == Some(value),
        Done::Refused => {}
    }
    true
}

#[derive(Clone, Copy, Debug)]
struct Case {
    slots: u32,
    fill: u32,
    /// The phase a dead member left, at the tail or at the head.
    dead: Option<Phase>,
    pushes: bool,
    /// The operations of the other member meanwhile: a bit per operation, one for a push.
    script: u32,
}

const SCRIPT: u32 = 5;
const LIMIT: u32 = 3;

/// Stops the first member before its operation `at`. Returns whether it got there.
fn run(case: Case, at: u32) -> bool {
    let region = Region::heap(layout::len_bytes(case.slots));
    let shape = (case.slots, LIMIT);
    // The tail is just before position 0.
    let start = 0u32.wrapping_sub(case.fill + 1);
    create_at(&region, Geometry::new(0, case.slots, LIMIT), start);
    let members = Register::new();
    let other = Ring::attach(&region, 0, shape, members.of(1)).unwrap();
    let mut queue = VecDeque::new();
    for value in 0..case.fill {
        assert!(apply(&mut queue, push(&other, value)));
    }
    if let Some(phase) = case.dead {
        let dying = Ring::attach(&region, 0, shape, members.of(3)).unwrap();
        let word = if phase == Phase::Writing {
            layout::TAIL
        } else {
            queue.pop_front();
            layout::HEAD
        };
        let slot = dying.geometry.slot(dying.hint(word)) + layout::STATE;
        assert!(dying.claim(slot, dying.look(slot).unwrap(), phase));
        members.set_dead(3, true);
    }

    let meanwhile = Mutex::new(None);
    let result = {
        let (other, meanwhile) = (&other, &meanwhile);
        let memory = Hooked::new(
            &region,
            Countdown::new(move || {
                let act = |index| match case.script >> index & 1 {
                    1 => push(other, 10 + index),
                    _ => pop(other),
                };
                *meanwhile.lock().unwrap() = Some((0..SCRIPT).map(act).collect::<Vec<_>>());
            }),
        );
        let mut stopped = Ring::attach(&memory, 0, shape, members.of(2)).unwrap();
        stopped.looks = 1;
        memory.hook.set(Some(at));
        let result = if case.pushes {
            push(&stopped, 100)
        } else {
            pop(&stopped)
        };
        memory.hook.set(None);
        result
    };
    let Some(meanwhile) = meanwhile.into_inner().unwrap() else {
        return false;
    };
    let rest: Vec<_> = std::iter::repeat_with(|| pop(&other))
        .take_while(|done| *done != Done::Refused)
        .collect();

    let fits = (0..=SCRIPT as usize).any(|moment| {
        let mut queue = queue.clone();
        let (before, after) = meanwhile.split_at(moment);
        let all = before.iter().chain([&result]).chain(after).chain(&rest);
        all.copied().all(|done| apply(&mut queue, done)) && queue.is_empty()
    });
    assert!(
        fits,
        "{case:?} stopped before {at}: {queue:?}, meanwhile {meanwhile:?}, then {result:?}, {rest:?}"
    );
    for value in 0..case.slots {
        assert_eq!(push(&other, value), Done::Pushed(value), "{case:?} {at}");
    }
    assert_eq!(push(&other, 0), Done::Refused);
    true
}

#[test]
#[cfg_attr(miri, ignore = "too many cases")]
fn a_member_stopped_at_every_instruction_goes_on_as_if_it_had_not_been() {
    let mut stops = 0;
    for slots in [1, 2, 4] {
        for fill in 0..=slots {
            for dead in [None, Some(Phase::Writing), Some(Phase::Reading)] {
                // There must be a place, or a message, to be claimed.
                let possible = match dead {
                    None => true,
                    Some(Phase::Writing) => fill < slots,
                    Some(_) => fill > 0,
                };
                for script in 0..if possible { 1 << SCRIPT } else { 0 } {
                    for pushes in [true, false] {
                        let case = Case {
                            slots,
                            fill,
                            dead,
                            pushes,
                            script,
                        };
                        stops += (0..).take_while(|at| run(case, *at)).count();
                    }
                }
            }
        }
    }
    assert!(stops > 5_000, "{stops}");
}
