//! Killed after every memory operation of every step, one, two and three members at once.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Push,
    Pop,
}

const STEPS: [Step; 2] = [Step::Push, Step::Pop];
/// The value that a dying member pushes: 100 and its number.
const MARK: u64 = 100;
/// More memory operations than any step has.
const ENOUGH: u32 = 400;

impl Group {
    /// A group whose queue holds the keys 1 to `fill`, with the nodes in an order that `turns`
    /// pushes and pops have changed.
    fn filled(capacity: u32, fill: u32, turns: u32) -> Self {
        let group = Self::new(capacity);
        let queue = group.attach(60, None);
        for turn in 0..turns {
            queue.try_push(&message(u64::from(turn))).unwrap();
            queue.try_pop().unwrap();
        }
        for key in 1..=u64::from(fill) {
            queue.try_push(&message(key)).unwrap();
        }
        group
    }

    /// Member `number` is killed in `step` after `steps` operations. Whether it was; the content
    /// must have changed by the whole step or not at all, and wholly when it lived.
    fn die(&self, number: u32, step: Step, steps: u32) -> bool {
        let before = self.content();
        let mark = MARK + u64::from(number);
        let mut whole = before.clone();
        match step {
            Step::Push if before.len() < self.capacity as usize => whole.push(mark),
            Step::Pop if !before.is_empty() => drop(whole.remove(0)),
            _ => {}
        }
        let is_done = self.kill_in(number, steps, |queue| match step {
            Step::Push => {
                let pushed = queue.try_push(&message(mark));
                assert!(matches!(pushed, Ok(()) | Err(Push::Full)));
                // The pool may be short of the node that a dead pop has not returned yet.
                if pushed == Err(Push::Full) {
                    whole.clone_from(&before);
                }
            }
            Step::Pop => match queue.try_pop() {
                Ok(popped) => assert_eq!(Some(&key(&popped)), before.first()),
                Err(refused) => assert_eq!((refused, before.len()), (Pop::Empty, 0)),
            },
        });
        let after = self.content();
        let is_right = after == whole || is_done.is_none() && after == before;
        assert!(is_right, "{step:?} {steps}: {before:?} became {after:?}");
        is_done.is_none()
    }
}

/// Calls `with` for every way a member can be killed in a push or a pop, on a copy of `group`.
fn every_death(group: &Group, number: u32, mut with: impl FnMut(Group, String)) -> u32 {
    let mut deaths = 0;
    for step in STEPS {
        let mut before = None;
        for steps in 0..=ENOUGH {
            assert!(steps < ENOUGH, "{step:?} does not end");
            let group = group.copied();
            if !group.die(number, step, steps) {
                break;
            }
            // Once committed, it is committed at every later point.
            let content = group.content();
            let is_changed = before.as_ref().is_some_and(|before| *before != content);
            assert!(!is_changed || steps > 0);
            before = Some(content);
            deaths += 1;
            with(group, format!("{step:?} {steps}"));
        }
    }
    deaths
}

fn starts(capacity: u32) -> impl Iterator<Item = Group> {
    let turns = move |fill| (0..3).map(move |turns| Group::filled(capacity, fill, turns));
    (0..=capacity).flat_map(turns)
}

#[test]
#[cfg_attr(miri, ignore = "thousands of cases")]
fn a_member_killed_after_any_operation_leaves_a_queue_that_is_repaired() {
    let mut deaths = 0;
    for capacity in [1, 2, 3] {
        for start in starts(capacity) {
            deaths += every_death(&start, 1, |group, what| {
                let content = group.content();
                group.check(&content, &what);
            });
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 300);
}

#[test]
fn a_commit_happens_once_and_stays() {
    for step in STEPS {
        let start = Group::filled(3, 2, 1);
        let mut contents: Vec<Vec<u64>> = (0..ENOUGH)
            .map(|steps| (start.copied(), steps))
            .map_while(|(group, steps)| group.die(1, step, steps).then(|| group.content()))
            .collect();
        contents.dedup();
        let whole = match step {
            Step::Push => vec![1, 2, MARK + 1],
            Step::Pop => vec![2],
        };
        assert_eq!(contents, [vec![1, 2], whole]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of cases")]
fn the_other_end_goes_on_beside_a_dead_member_before_the_repair() {
    for start in starts(2) {
        every_death(&start, 1, |group, what| {
            for rounds in 0..4 {
                for order in 0..2 {
                    let group = group.copied();
                    let mut expected = group.content();
                    let other = group.attach(2, None);
                    for round in 0..rounds {
                        if (round + order) % 2 == 0 {
                            let popped = other.try_pop().ok().map(|message| key(&message));
                            let oldest = (!expected.is_empty()).then(|| expected.remove(0));
                            assert_eq!(popped, oldest, "{what}");
                        } else if other.try_push(&message(50 + round)).is_ok() {
                            expected.push(50 + round);
                        }
                    }
                    group.check(&expected, &format!("{what}, then {rounds} steps"));
                }
            }
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of cases")]
fn a_second_member_killed_after_any_operation_also_of_the_repair_changes_nothing() {
    let mut deaths = 0;
    for start in starts(2) {
        every_death(&start, 1, |group, first| {
            deaths += every_death(&group, 2, |group, second| {
                let content = group.content();
                group.check(&content, &format!("{first}, {second}"));
            });
        });
    }
    println!("{deaths} deaths of two");
    assert!(deaths > 5_000);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of cases")]
fn three_members_killed_at_both_ends_and_in_the_repair_change_nothing() {
    let mut deaths = 0;
    for start in [Group::filled(1, 1, 0), Group::filled(2, 1, 1)] {
        every_death(&start, 1, |group, first| {
            every_death(&group, 2, |group, second| {
                deaths += every_death(&group, 3, |group, third| {
                    let content = group.content();
                    group.check(&content, &format!("{first}, {second}, {third}"));
                });
            });
        });
    }
    println!("{deaths} deaths of three");
    assert!(deaths > 30_000);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of cases")]
fn a_process_with_a_dead_ones_number_repairs_before_it_attaches_even_when_killed() {
    let attach = |group: &Group, incarnation, steps: Option<u32>| {
        group.dead[1].store(false, Ordering::SeqCst);
        let memory = mortal_memory(&group.region, steps);
        let seat = group.seat(1, incarnation);
        until_killed(|| TwoLock::attach(memory, AT, group.capacity, seat).map(drop))
    };
    for start in starts(2) {
        every_death(&start, 1, |group, first| {
            let content = group.content();
            for steps in 0.. {
                let group = group.copied();
                let is_done = attach(&group, 1, Some(steps)).is_some();
                if !is_done {
                    assert_eq!(attach(&group, 2, None), Some(Ok(())));
                }
                // Alive, so nobody but itself can have repaired.
                assert!(!group.dead[1].load(Ordering::SeqCst));
                assert_eq!((group.word(HEAD_LOCK), group.word(TAIL_LOCK)), (0, 0));
                group.check(&content, &format!("{first}, adopted and killed at {steps}"));
                if is_done {
                    break;
                }
            }
        });
    }
}

#[test]
fn a_lock_is_not_taken_from_the_next_holder_of_a_dead_ones_number() {
    let group = Group::filled(2, 1, 0);
    assert!(group.die(1, Step::Push, 5));
    let stale = group.word(TAIL_LOCK);
    // Its number lives again, has repaired, and holds the same lock.
    group.dead[1].store(false, Ordering::SeqCst);
    let memory = mortal_memory(&group.region, None);
    let next = TwoLock::attach(memory, AT, 2, group.seat(1, 1)).unwrap();
    next.lock(TAIL_LOCK).unwrap();
    assert_eq!(stale & MEMBER, group.word(TAIL_LOCK) & MEMBER);
    let held = group.region.compare_exchange(AT + TAIL_LOCK, stale, 2);
    assert!(held.is_err(), "an exchange prepared before it must fail");
}
