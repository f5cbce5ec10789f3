//! loom: every interleaving and every value an ordering allows, with rings of one and two slots
//! so that slots are reused and claims collide. The memory reports a copy that overlaps another.

mod tools;

use self::tools::*;
use super::*;

fn is_state(at: usize) -> bool {
    at >= layout::CONTROL_BYTES && at % handfast_layout::LINE == layout::STATE
}

fn phase(word: u32) -> u32 {
    word & 3
}

/// Members that push the given numbers and members that try so many pops, all at once; then the
/// rest is popped. `numbers` are the numbers of the members.
fn exchange_as(
    numbers: [u32; 3],
    slots: u32,
    pushes: &'static [&'static [u8]],
    pops: &'static [usize],
    weakness: Weakness,
    preemptions: usize,
) {
    explore(preemptions, move |reverse| {
        let memory = memory(slots, weakness);
        create(&*memory, 0, slots, LIMIT);
        let register = Register::new();
        let member = |part| attach(&memory, slots, &register, numbers[part]);
        let mut parts: Vec<Box<dyn FnOnce() -> Vec<u8> + Send>> = Vec::new();
        for numbers in pushes {
            let ring = member(parts.len());
            parts.push(Box::new(move || push(&ring, numbers)));
        }
        for tries in pops {
            let ring = member(parts.len());
            parts.push(Box::new(move || pop(&ring, *tries)));
        }
        let mut sent = together(parts, reverse);
        let mut got = sent.split_off(pushes.len());
        let ring = member(0);
        got.push(pop(&ring, slots as usize));
        assert_eq!(ring.try_pop(), Err(Pop::Empty));
        // Each consumer sees each producer's messages in order, and everything comes once.
        for numbers in &got {
            for sent in &sent {
                let from_one = numbers.iter().filter(|number| sent.contains(number));
                assert!(from_one.is_sorted(), "{got:?}");
            }
        }
        let (mut got, mut sent) = (got.concat(), sent.concat());
        got.sort_unstable();
        sent.sort_unstable();
        assert_eq!(got, sent);
    });
}

/// As [`exchange_as`], with a process for every part.
fn exchange(
    slots: u32,
    pushes: &'static [&'static [u8]],
    pops: &'static [usize],
    weakness: Weakness,
    preemptions: usize,
) {
    exchange_as([1, 2, 3], slots, pushes, pops, weakness, preemptions);
}

#[test]
fn q10_q11_messages_are_whole_and_in_order() {
    exchange(1, &[&[1, 2]], &[2], STRONG, 3);
    exchange(2, &[&[1, 2, 3]], &[3], STRONG, 3);
}

#[test]
fn q10_q11_two_producers_help_each_other_and_lose_nothing() {
    exchange(2, &[&[1], &[2]], &[2], STRONG, 2);
    exchange(1, &[&[1], &[2]], &[2], STRONG, 2);
}

#[test]
fn q10_q11_two_consumers_take_each_message_once() {
    exchange(2, &[&[1, 2]], &[1, 1], STRONG, 2);
    exchange(1, &[&[1, 2]], &[1, 1], STRONG, 2);
}

#[test]
fn q10_q11_two_threads_of_one_member_keep_their_claims_apart() {
    exchange_as([1, 1, 1], 1, &[&[1], &[2]], &[1], STRONG, 2);
    exchange_as([1, 1, 1], 1, &[&[1]], &[1, 1], STRONG, 2);
}

#[test]
fn q10_without_either_half_a_torn_message_is_seen() {
    must_panic(OVERLAP, || {
        let store = |at, word| is_state(at) && phase(word) == Phase::Full as u32;
        exchange(1, &[&[1, 2]], &[2], Weakness { store, ..STRONG }, 3);
    });
    must_panic(OVERLAP, || {
        let exchange_full = |at, from, _| is_state(at) && phase(from) == Phase::Full as u32;
        let weakness = Weakness {
            load: is_state,
            exchange: exchange_full,
            ..STRONG
        };
        exchange(1, &[&[1, 2]], &[2], weakness, 3);
    });
}

#[test]
fn q11_without_either_half_a_slot_is_overwritten_under_the_reader() {
    must_panic(OVERLAP, || {
        let store = |at, word| is_state(at) && phase(word) == Phase::Empty as u32;
        exchange(1, &[&[1, 2]], &[2], Weakness { store, ..STRONG }, 3);
    });
    must_panic(OVERLAP, || {
        let exchange_empty = |at, from, _| is_state(at) && phase(from) == Phase::Empty as u32;
        let weakness = Weakness {
            load: is_state,
            exchange: exchange_empty,
            ..STRONG
        };
        exchange(1, &[&[1, 2]], &[2], weakness, 3);
    });
}

/// One member dies while it writes, one pops and repairs, one goes on pushing.
fn death_and_a_living_member(slots: u32, weakness: Weakness) {
    explore(2, move |reverse| {
        let memory = memory(slots, weakness);
        create(&*memory, 0, slots, LIMIT);
        let register = Register::new();
        let [dying, living, popping] = [1, 2, 3].map(|me| attach(&memory, slots, &register, me));
        let dead = register.clone();
        let results = together(
            vec![
                Box::new(move || {
                    // A push that ends midway in the copy.
                    let at = dying.geometry.slot(0);
                    let empty = dying.look(at + layout::STATE).unwrap();
                    if empty == State::of(Phase::Empty, 0, 0)
                        && dying.claim(at + layout::STATE, empty, Phase::Writing)
                    {
                        dying.memory.copy_in(at + layout::BYTES, &[9; 3]);
                    }
                    dead.set(1, 1);
                    Vec::new()
                }),
                Box::new(move || push(&living, &[1])),
                Box::new(move || pop(&popping, 1)),
            ],
            reverse,
        );
        let ring = attach(&memory, slots, &register, 3);
        let mut got = results[2].clone();
        got.extend(pop(&ring, slots as usize));
        assert_eq!(got, results[1]);
        for number in 0..slots as u8 {
            assert_eq!(ring.try_push(&message(number)), Ok(()));
        }
        for number in 0..slots as u8 {
            assert_eq!(ring.try_pop(), Ok(message(number)));
        }
    });
}

#[test]
fn q12_a_repair_beside_a_living_member_takes_only_the_dead_claim() {
    death_and_a_living_member(1, STRONG);
    death_and_a_living_member(2, STRONG);
}

#[test]
fn q12_without_either_half_the_dead_members_copy_overlaps_the_next() {
    let frees = |at, from, to| {
        is_state(at) && phase(from) == Phase::Writing as u32 && phase(to) == Phase::Empty as u32
    };
    must_panic(OVERLAP, move || {
        let weakness = Weakness {
            exchange: frees,
            ..STRONG
        };
        death_and_a_living_member(1, weakness);
    });
    must_panic(OVERLAP, || {
        let weakness = Weakness {
            load: is_state,
            exchange: |at, from, _| is_state(at) && phase(from) == Phase::Empty as u32,
            ..STRONG
        };
        death_and_a_living_member(1, weakness);
    });
}

/// One member pushes and pops while another pushes or pops: no fault.
fn stale_slots(other_pushes: bool, weakness: Weakness) {
    explore(4, move |reverse| {
        let memory = memory(1, weakness);
        create(&*memory, 0, 1, LIMIT);
        let register = Register::new();
        let [one, other] = [1, 2].map(|me| attach(&memory, 1, &register, me));
        together(
            vec![
                Box::new(move || {
                    push(&one, &[1]);
                    pop(&one, 1)
                }),
                Box::new(move || match other_pushes {
                    true => push(&other, &[2]),
                    false => pop(&other, 1),
                }),
            ],
            reverse,
        );
    });
}

#[test]
fn q13_a_slot_is_never_seen_a_lap_too_old() {
    stale_slots(true, STRONG);
    stale_slots(false, STRONG);
}

#[test]
fn q13_without_either_half_an_honest_slot_looks_like_a_fault() {
    // The tail, for a push; the head, for a pop.
    for pushes in [true, false] {
        must_panic("assertion", move || {
            let load = |at| at == layout::TAIL || at == layout::HEAD;
            stale_slots(pushes, Weakness { load, ..STRONG });
        });
        must_panic("assertion", move || {
            let exchange = |at, _, _| at == layout::TAIL || at == layout::HEAD;
            stale_slots(pushes, Weakness { exchange, ..STRONG });
        });
    }
}

/// The number of a dead member is given to a new process, which adopts its claim and pushes,
/// while another member is about to repair that claim.
fn reused_number(weakness: Weakness) {
    explore(5, move |reverse| {
        let memory = memory(2, weakness);
        create(&*memory, 0, 2, LIMIT);
        let register = Register::new();
        let dead = attach(&memory, 2, &register, 1);
        let at = dead.geometry.slot(0) + layout::STATE;
        assert!(dead.claim(at, dead.look(at).unwrap(), Phase::Writing));
        register.set(1, 1);
        let repairing = attach(&memory, 2, &register, 2);
        let (joining, again) = (memory.clone(), register.clone());
        let results = together(
            vec![
                Box::new(move || {
                    register.set(1, 0);
                    push(&attach(&joining, 2, &register, 1), &[1])
                }),
                Box::new(move || pop(&repairing, 1)),
            ],
            reverse,
        );
        assert_eq!(results[0], [1]);
        let mut got = results[1].clone();
        got.extend(pop(&attach(&memory, 2, &again, 2), 1));
        assert_eq!(got, [1]);
    });
}

#[test]
fn q14_a_claim_under_a_reused_number_is_not_taken_from_its_living_owner() {
    reused_number(STRONG);
}

#[test]
fn q14_without_either_half_a_living_claim_is_taken() {
    must_panic("assertion", || {
        let load = is_state;
        reused_number(Weakness { load, ..STRONG });
    });
    must_panic("assertion", || {
        let exchange = |at, _, to| is_state(at) && phase(to) == Phase::Writing as u32;
        reused_number(Weakness { exchange, ..STRONG });
    });
}

/// A ring is made while another member waits for it.
fn format(weakness: Weakness) {
    explore(4, move |reverse| {
        let memory = memory(1, weakness);
        let making = memory.clone();
        together(
            vec![
                Box::new(move || create_at(&*making, Geometry::new(0, 1, LIMIT), 5)),
                Box::new(move || {
                    // Relaxed: attaching looks again.
                    if memory.load(layout::FORMAT, Relaxed) != 0 {
                        let ring = attach(&memory, 1, &Register::new(), 1);
                        assert_eq!(push(&ring, &[1]), [1]);
                        assert_eq!(pop(&ring, 1), [1]);
                    }
                }),
            ],
            reverse,
        );
    });
}

#[test]
fn q15_a_ring_that_is_found_is_whole() {
    format(STRONG);
}

#[test]
fn q15_without_either_half_a_half_made_ring_is_found() {
    must_panic("RingFormat", || {
        let store = |at, _| at == layout::FORMAT;
        format(Weakness { store, ..STRONG });
    });
    must_panic("RingFormat", || {
        let load = |at| at == layout::FORMAT;
        format(Weakness { load, ..STRONG });
    });
}
