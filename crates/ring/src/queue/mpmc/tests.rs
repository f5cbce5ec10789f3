use super::*;
use core::sync::atomic::AtomicBool;
use handfast_region::Region;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

/// The dead members, as the test says.
#[derive(Clone)]
pub(super) struct Register {
    me: u32,
    dead: Arc<[AtomicBool; 64]>,
}

impl Register {
    pub(super) fn new() -> Self {
        Self {
            me: 1,
            dead: Arc::new([const { AtomicBool::new(false) }; 64]),
        }
    }

    /// The register as member `me` sees it.
    pub(super) fn of(&self, me: u32) -> Self {
        Self { me, ..self.clone() }
    }

    pub(super) fn set_dead(&self, member: u32, dead: bool) {
        self.dead[member as usize].store(dead, Release);
    }
}

impl Members for Register {
    fn me(&self) -> u32 {
        self.me
    }
    fn is_dead(&self, member: u32) -> bool {
        assert_ne!(member, self.me, "nobody asks whether itself is dead");
        self.dead[member as usize].load(Acquire)
    }
}

/// A message that says its number in every word, so that a torn one is seen.
pub(super) fn message(number: u32) -> Message {
    let mut message = [0; MESSAGE_BYTES];
    for (index, word) in message.chunks_exact_mut(4).enumerate() {
        let word_of = number.wrapping_mul(1 + 2 * index as u32);
        word.copy_from_slice(&word_of.to_le_bytes());
    }
    message
}

/// The number of a message that [`message`] made.
pub(super) fn number(got: &Message) -> u32 {
    let number = u32::from_le_bytes([got[0], got[1], got[2], got[3]]);
    assert_eq!(*got, message(number), "a torn message");
    number
}

/// A ring with all its members, the first message at `position`.
pub(super) fn rings<'a>(
    region: &'a Region,
    (slots, limit): (u32, u32),
    members: &Register,
    position: u32,
) -> Vec<Ring<&'a Region, Register>> {
    create_at(region, Geometry::new(64, slots, limit), position);
    (1..=limit)
        .map(|me| Ring::attach(region, 64, (slots, limit), members.of(me)).unwrap())
        .collect()
}

pub(super) fn region(slots: u32) -> Region {
    Region::heap(64 + layout::len_bytes(slots))
}

#[test]
fn states_survive_their_words_and_nonsense_does_not() {
    for slots in [1, 4, 256, 1 << 16] {
        let geometry = Geometry::new(0, slots, 5);
        let last = geometry.turn(u32::MAX);
        assert_eq!(geometry.next(last), geometry.turn(0));
        for turn in [0, 1, last / 2, last] {
            for member in 0..=6 {
                for phase in [Phase::Empty, Phase::Writing, Phase::Full, Phase::Reading] {
                    let state = State::of(phase, turn, member);
                    let claimed = matches!(phase, Phase::Writing | Phase::Reading);
                    let plausible = (member > 0) == claimed && member <= 5;
                    let found = State::unpack(state.pack(), geometry);
                    assert_eq!(found, plausible.then_some(state));
                }
            }
            assert_eq!(geometry.age(turn, turn), Age::Now);
            assert_eq!(geometry.age(geometry.next(turn), turn), Age::Later);
            assert_eq!(geometry.age(turn, geometry.next(turn)), Age::Before);
            let two = geometry.next(geometry.next(turn));
            assert_eq!(geometry.age(turn, two), Age::Never);
        }
        if last < (1 << 24) - 1 {
            let beyond = State::of(Phase::Full, last + 1, 0);
            assert_eq!(State::unpack(beyond.pack(), geometry), None);
        }
    }
}

/// The action of one step of the random test.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push,
    Pop,
    /// A push or a pop that dies when it has claimed its slot, and is known to be dead.
    DiePushing,
    DiePopping,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Push),
        8 => Just(Step::Pop),
        1 => Just(Step::DiePushing),
        1 => Just(Step::DiePopping),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Against the standard queue, with positions and turns that wrap around.
    #[test]
    #[cfg_attr(miri, ignore = "too many cases")]
    fn a_ring_is_a_bounded_queue(
        bits in 0u32..4,
        back in 0u32..20,
        turns in prop_oneof![Just(0u32), Just(1 << 24), Just(1 << 25)],
        steps in prop::collection::vec((step(), 1u32..4), 0..200),
    ) {
        let slots = 1 << bits;
        // Just before position 0, and before the turn wraps around in rings of few slots.
        let start = (turns << bits).wrapping_sub(back);
        let region = region(slots);
        let members = Register::new();
        members.set_dead(4, true);
        let rings = rings(&region, (slots, 4), &members, start);
        let (mut queue, mut next) = (VecDeque::new(), 0);
        // Places that a dead push holds until a pop or a push comes by, in order with messages.
        for (step, by) in steps {
            let ring = &rings[by as usize - 1];
            let dying = &rings[3];
            match step {
                Step::Push if queue.len() < slots as usize => {
                    prop_assert_eq!(ring.try_push(&message(next)), Ok(()));
                    queue.push_back(Some(next));
                    next += 1;
                }
                Step::Push => {
                    // Full, unless the oldest places belong to the dead.
                    match ring.try_push(&message(next)) {
                        Ok(()) => {
                            prop_assert_eq!(queue.pop_front(), Some(None));
                            queue.push_back(Some(next));
                            next += 1;
                        }
                        Err(full) => {
                            prop_assert_eq!(full, Push::Full);
                            prop_assert!(queue.front().unwrap().is_some());
                        }
                    }
                }
                Step::Pop => {
                    while queue.front() == Some(&None) {
                        queue.pop_front();
                    }
                    let expected = queue.pop_front().flatten().map(message).ok_or(Pop::Empty);
                    prop_assert_eq!(ring.try_pop(), expected);
                }
                Step::DiePushing if queue.len() < slots as usize => {
                    let tail = dying.hint(layout::TAIL);
                    let at = dying.geometry.slot(tail) + layout::STATE;
                    let state = dying.look(at).unwrap();
                    // A slot left there by a dead pop is in the way of a claim, as of any push.
                    if state.phase == Phase::Empty
                        && dying.geometry.age(state.turn, dying.geometry.turn(tail)) == Age::Now
                    {
                        prop_assert!(dying.claim(at, state, Phase::Writing));
                        queue.push_back(None);
                    }
                }
                Step::DiePopping => {
                    let head = dying.hint(layout::HEAD);
                    let at = dying.geometry.slot(head) + layout::STATE;
                    let state = dying.look(at).unwrap();
                    if state.phase == Phase::Full
                        && dying.geometry.age(state.turn, dying.geometry.turn(head)) == Age::Now
                    {
                        prop_assert!(dying.claim(at, state, Phase::Reading));
                        prop_assert!(queue.pop_front().unwrap().is_some());
                    }
                }
                Step::DiePushing => {}
            }
        }
    }
}

#[test]
fn no_word_of_a_member_makes_the_others_panic_or_hang() {
    // Every control word and state set to every kind of nonsense, in rings with some content.
    let seed = std::env::var("HANDFAST_SEED").ok();
    let seed = seed.and_then(|text| text.parse().ok()).unwrap_or(1u32);
    println!("HANDFAST_SEED={seed}");
    let mut random = seed;
    let mut faults = 0;
    for round in 0..if cfg!(miri) { 5 } else { 4000 } {
        let slots = 1 << (round % 4);
        let region = region(slots);
        let members = Register::new();
        members.set_dead(3, true);
        let mut rings = rings(&region, (slots, 3), &members, 0);
        for ring in &mut rings {
            (ring.looks, ring.retries) = (1, 100);
        }
        for value in 0..round % 5 {
            let _ = rings[0].try_push(&message(value));
        }
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 3
        };
        for _ in 0..4 {
            let words = 3 + slots;
            let at = 64
                + match next() % words {
                    0 => layout::TAIL,
                    1 => layout::HEAD,
                    2 => layout::FORMAT,
                    slot => layout::slot(slot - 3) + layout::STATE,
                };
            let value = match next() % 4 {
                0 => next() << 3,
                1 => next() % 16,
                2 => ((next() % 4) << 8) | (next() % 16),
                _ => u32::MAX - next() % 300,
            };
            region.store(at, value, Relaxed);
            for _ in 0..3 * slots {
                faults += u32::from(matches!(
                    rings[0].try_push(&message(1)),
                    Err(Push::Fault(_))
                ));
                faults += u32::from(matches!(rings[1].try_pop(), Err(Pop::Fault(_))));
            }
        }
    }
    assert!(faults > 0);
}

#[test]
fn every_broken_rule_is_named_with_its_place() {
    let members = Register::new();
    let place = |rule, offset| Fault { rule, offset };
    let (region, shape) = (region(4), (4, 2));
    let missing = Ring::attach(&region, 64, shape, members.of(1)).map(|_| ());
    assert_eq!(missing, Err(place(Rule::RingFormat, 64)));
    let mut rings = rings(&region, shape, &members, 0);
    let other = Ring::attach(&region, 64, (2, 2), members.of(1)).map(|_| ());
    assert_eq!(other, Err(place(Rule::RingFormat, 64)));

    let state = 64 + layout::slot(0) + layout::STATE;
    let fault = place(Rule::RingState, state);
    region.store(state, State::of(Phase::Writing, 0, 3).pack(), Relaxed);
    assert_eq!(rings[0].try_push(&message(0)), Err(Push::Fault(fault)));
    assert_eq!(rings[0].try_pop(), Err(Pop::Fault(fault)));
    let joined = Ring::attach(&region, 64, shape, members.of(1)).map(|_| ());
    assert_eq!(joined, Err(fault));

    let fault = place(Rule::RingTurn, state);
    region.store(
        state,
        State::of(Phase::Full, 1 << 23 | 1, 0).pack(),
        Relaxed,
    );
    assert_eq!(rings[0].try_push(&message(0)), Err(Push::Fault(fault)));
    assert_eq!(rings[0].try_pop(), Err(Pop::Fault(fault)));
    // All slots say that every position has long been used.
    for slot in 0..4 {
        let at = 64 + layout::slot(slot) + layout::STATE;
        region.store(at, State::of(Phase::Full, 1 << 22, 0).pack(), Relaxed);
    }
    let fault = place(Rule::RingProgress, 64 + layout::TAIL);
    rings[0].retries = 100;
    assert_eq!(rings[0].try_push(&message(0)), Err(Push::Fault(fault)));
}

#[test]
fn a_process_that_gets_a_dead_ones_number_takes_back_its_claims_only() {
    let (region, members, shape) = (region(8), Register::new(), (8, 3));
    let rings = rings(&region, shape, &members, 0);
    for (position, ring) in [0, 1, 1, 0].into_iter().enumerate() {
        let at = ring_slot(&rings[ring], position as u32);
        assert!(rings[ring].claim(at, rings[ring].look(at).unwrap(), Phase::Writing));
        rings[ring].advance(layout::TAIL, position as u32);
    }
    assert_eq!(rings[0].try_push(&message(7)), Ok(()));
    assert_eq!(rings[1].adopt(), Ok(2));
    assert_eq!(rings[1].adopt(), Ok(0));
    // The first member is alive: its claim at the head is in the way, and nobody takes it.
    assert_eq!(rings[2].try_pop(), Err(Pop::Empty));
    members.set_dead(1, true);
    assert_eq!(rings[2].try_pop(), Ok(message(7)));
}

fn ring_slot(ring: &Ring<&Region, Register>, position: u32) -> usize {
    ring.geometry.slot(position) + layout::STATE
}
