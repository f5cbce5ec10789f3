//! Death after every memory operation, exhaustively: a member pushes, pops or attaches and stops
//! for ever before its n-th access to shared memory, for every n; a second one does the same
//! beside it; then a survivor uses the ring.

use super::tests::{Register, message};
use super::*;
use handfast_region::Region;
use handfast_region::model::{Countdown, Hooked, until_killed};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Push(u32),
    Pop,
    /// Only attaches, which frees what its number left.
    Join,
}

/// The observed outcome of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It returned, and had this effect.
    Pushed,
    Popped(Message),
    Nothing,
    /// It did not return: any effect, or none.
    Died,
}

/// One way to run the test.
#[derive(Clone, Copy, Debug)]
struct Case {
    slots: u32,
    start: u32,
    fill: u32,
    first: Act,
    /// The second member's act and number; the first's number when it is its successor.
    second: Option<(Act, u32)>,
    /// Whether the second member can know that the first is dead.
    known: bool,
    /// Whether the survivor learns of deaths, or successors adopt the numbers instead.
    oracle: bool,
}

const SURVIVOR: u32 = 1;
const FIRST: u32 = 2;
const SECOND: u32 = 3;
const LIMIT: u32 = 3;

fn ring<M: Memory>(memory: &M, case: Case, members: Register) -> Ring<&M, Register> {
    let mut ring = Ring::attach(memory, 0, (case.slots, LIMIT), members).unwrap();
    ring.looks = 1;
    ring
}

/// Performs an act that dies before its operation `left`.
fn perform(region: &Region, case: Case, act: Act, members: Register, left: u32) -> Outcome {
    let memory = Hooked::new(region, Countdown::killing());
    if act == Act::Join {
        memory.hook.set(Some(left));
    }
    until_killed(|| {
        let ring = ring(&memory, case, members);
        memory.hook.set(Some(left));
        match act {
            Act::Push(value) => match ring.try_push(&message(value)) {
                Ok(()) => Outcome::Pushed,
                Err(full) => {
                    assert_eq!(full, Push::Full, "{case:?}");
                    Outcome::Nothing
                }
            },
            Act::Pop => match ring.try_pop() {
                Ok(message) => Outcome::Popped(message),
                Err(empty) => {
                    assert_eq!(empty, Pop::Empty, "{case:?}");
                    Outcome::Nothing
                }
            },
            Act::Join => Outcome::Nothing,
        }
    })
    .unwrap_or(Outcome::Died)
}

/// Every content the ring may have after an act, for every content before.
fn after(before: &[VecDeque<u32>], slots: u32, act: Act, outcome: Outcome) -> Vec<VecDeque<u32>> {
    let mut after = Vec::new();
    for content in before {
        if matches!(outcome, Outcome::Nothing | Outcome::Died) {
            after.push(content.clone());
        }
        let mut changed = content.clone();
        match (act, outcome) {
            (Act::Push(value), Outcome::Pushed | Outcome::Died) => {
                changed.push_back(value);
                if changed.len() <= slots as usize {
                    after.push(changed);
                }
            }
            (Act::Pop, Outcome::Popped(_) | Outcome::Died) => {
                let popped = changed.pop_front();
                let right = match outcome {
                    Outcome::Popped(got) => popped.is_some_and(|value| message(value) == got),
                    _ => popped.is_some(),
                };
                if right {
                    after.push(changed);
                }
            }
            _ => {}
        }
    }
    after
}

/// Runs a case with the given deaths. Returns the outcomes and what was left in the ring.
fn run(case: Case, deaths: [u32; 2]) -> ([Outcome; 2], VecDeque<u32>) {
    let region = Region::heap(layout::len_bytes(case.slots));
    create_at(
        &region,
        Geometry::new(0, case.slots, LIMIT),
        case.start.wrapping_sub(case.fill),
    );
    let members = Register::new();
    // The survivor attaches first, as members do that were there before.
    let survivor = ring(&region, case, members.of(SURVIVOR));
    let mut content = VecDeque::new();
    for value in 0..case.fill {
        survivor.try_push(&message(value)).unwrap();
        content.push_back(value);
    }
    let mut allowed = vec![content];
    let mut outcomes = [Outcome::Nothing; 2];

    outcomes[0] = perform(&region, case, case.first, members.of(FIRST), deaths[0]);
    allowed = after(&allowed, case.slots, case.first, outcomes[0]);
    if let Some((act, number)) = case.second {
        members.set_dead(FIRST, case.known && number != FIRST);
        outcomes[1] = perform(&region, case, act, members.of(number), deaths[1]);
        allowed = after(&allowed, case.slots, act, outcomes[1]);
    }
    members.set_dead(FIRST, case.oracle);
    members.set_dead(SECOND, case.oracle);
    if !case.oracle {
        drop(ring(&region, case, members.of(FIRST)));
        drop(ring(&region, case, members.of(SECOND)));
    }

    let mut left = VecDeque::new();
    loop {
        match survivor.try_pop() {
            Ok(got) => {
                let value = u32::from_le_bytes(got[..4].try_into().unwrap());
                assert_eq!(got, message(value), "a torn message: {case:?} {deaths:?}");
                left.push_back(value);
            }
            Err(empty) => {
                assert_eq!(empty, Pop::Empty, "{case:?} {deaths:?}");
                break;
            }
        }
    }
    assert!(
        allowed.contains(&left),
        "{case:?} {deaths:?} {outcomes:?}: {left:?} is none of {allowed:?}"
    );
    // Everything works and the whole capacity is back, whatever was claimed.
    for lap in 0..if cfg!(miri) { 1 } else { 3 } {
        for value in 0..case.slots {
            let pushed = survivor.try_push(&message(value + lap));
            assert_eq!(pushed, Ok(()), "{case:?} {deaths:?}: push {value} of {lap}");
        }
        assert_eq!(survivor.try_push(&message(0)), Err(Push::Full));
        for value in 0..case.slots {
            assert_eq!(survivor.try_pop(), Ok(message(value + lap)));
        }
        assert_eq!(survivor.try_pop(), Err(Pop::Empty));
    }
    (outcomes, left)
}

/// All fills and starts of rings of one, two and four slots. Under miri two slots and one start,
/// which wraps around: every operation of every act is still the last of some run.
fn situations(mut each: impl FnMut(Case)) {
    let (rings, starts) = if cfg!(miri) { (1, 1) } else { (3, 3) };
    for slots in [2, 1, 4].into_iter().take(rings) {
        for start in [0, slots, 1].into_iter().take(starts) {
            for fill in 0..=slots {
                for first in [Act::Push(100), Act::Pop] {
                    for oracle in [true, false] {
                        each(Case {
                            slots,
                            start,
                            fill,
                            first,
                            second: None,
                            known: false,
                            oracle,
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn one_death_at_every_instruction_leaves_a_whole_queue() {
    let mut deaths = 0;
    situations(|case| {
        let before: VecDeque<u32> = (0..case.fill).collect();
        let mut effect = false;
        for left in 0.. {
            let (outcomes, content) = run(case, [left, 0]);
            // Once an act has taken effect, it has for every later death.
            assert!(content != before || !effect, "{case:?} {left}");
            effect = content != before;
            if outcomes[0] != Outcome::Died {
                break;
            }
            deaths += 1;
        }
    });
    // That the test does not pass by doing nothing: a push has eight operations.
    let few = if cfg!(miri) { 60 } else { 300 };
    assert!(deaths > few, "{deaths}");
}

#[test]
#[cfg_attr(miri, ignore = "too many cases; the same code as one death")]
fn two_deaths_at_every_pair_of_instructions_leave_a_whole_queue() {
    let mut deaths = 0;
    situations(|case| {
        let seconds = [
            (Act::Push(200), SECOND),
            (Act::Pop, SECOND),
            // The successor of the first dies too: while it adopts, while it works.
            (Act::Join, FIRST),
            (Act::Push(200), FIRST),
            (Act::Pop, FIRST),
        ];
        for second in seconds {
            for known in [true, false] {
                let case = Case {
                    second: Some(second),
                    known,
                    ..case
                };
                for first in 0.. {
                    let mut outcomes = [Outcome::Died; 2];
                    for left in 0.. {
                        (outcomes, _) = run(case, [first, left]);
                        if outcomes[1] != Outcome::Died {
                            break;
                        }
                        deaths += 1;
                    }
                    if outcomes[0] != Outcome::Died {
                        break;
                    }
                }
            }
        }
    });
    assert!(deaths > 10_000, "{deaths}");
}

#[test]
fn dead_claims_on_every_slot_at_once_are_freed() {
    for (claimed, pop_first, slots) in [
        (Phase::Writing, false, 4),
        (Phase::Writing, true, 4),
        (Phase::Reading, false, 4),
        (Phase::Reading, true, 4),
        (Phase::Writing, false, 1),
    ] {
        let region = Region::heap(layout::len_bytes(slots));
        create(&region, 0, slots, LIMIT);
        let members = Register::new();
        let attach = |number| Ring::attach(&region, 0, (slots, LIMIT), members.of(number)).unwrap();
        let survivor = attach(SURVIVOR);
        // Several threads of one process.
        let dying = attach(FIRST);
        for position in 0..slots {
            let at = dying.geometry.slot(position) + layout::STATE;
            let mut word = layout::TAIL;
            if claimed == Phase::Reading {
                dying.try_push(&message(9)).unwrap();
                word = layout::HEAD;
            }
            let state = dying.look(at).unwrap();
            assert!(dying.claim(at, state, claimed));
            dying.advance(word, position);
        }
        // While they may be alive nothing goes on, and nothing blocks.
        assert_eq!(survivor.try_push(&message(0)), Err(Push::Full));
        assert_eq!(survivor.try_pop(), Err(Pop::Empty));
        members.set_dead(FIRST, true);
        if pop_first {
            assert_eq!(survivor.try_pop(), Err(Pop::Empty));
        }
        for value in 0..slots {
            assert_eq!(survivor.try_push(&message(value)), Ok(()));
        }
        assert_eq!(survivor.try_push(&message(0)), Err(Push::Full));
        for value in 0..slots {
            assert_eq!(survivor.try_pop(), Ok(message(value)));
        }
    }
}
