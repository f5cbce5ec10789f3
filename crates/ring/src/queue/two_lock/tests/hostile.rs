//! Members that write nonsense.

use super::*;
use handfast_layout::queue::two_lock::{BROKEN, WAITERS};
use handfast_testing::Random;

fn fault(rule: Rule, word: usize) -> Fault {
    Fault {
        rule,
        offset: AT + word,
    }
}

fn write(group: &Group, word: usize, value: u32) {
    group.region.store(AT + word, value, Ordering::SeqCst);
}

/// Offset in the queue of the link of `node`.
fn link(node: usize) -> usize {
    NODES + (node - 1) * NODE_BYTES + NEXT
}

#[test]
fn an_index_out_of_range_is_a_fault_that_names_its_word() {
    for value in [5, 6, 1 << 24, u32::MAX] {
        for word in [POOL_HEAD, TAIL, link(2)] {
            let group = Group::new(2);
            write(&group, word, value);
            let refused = group.attach(1, None).try_push(&message(1));
            assert_eq!(refused, Err(Push::Fault(fault(Rule::QueueNode, word))));
        }
        for word in [HEAD, POOL_TAIL, link(1)] {
            let group = Group::new(2);
            group.attach(1, None).try_push(&message(1)).unwrap();
            write(&group, word, value);
            let refused = group.attach(1, None).try_pop();
            assert_eq!(refused, Err(Pop::Fault(fault(Rule::QueueNode, word))));
        }
    }
}

#[test]
fn a_loop_is_a_fault_for_an_operation_and_condemns_the_queue_in_a_repair() {
    let group = Group::new(2);
    group.attach(1, None).try_push(&message(1)).unwrap();
    write(&group, link(1), 1);
    let looped = Pop::Fault(fault(Rule::QueueChain, HEAD));
    assert_eq!(group.attach(1, None).try_pop(), Err(looped));

    for chain in [
        &[(1, 2), (2, 1)][..],
        &[(1, 1)],
        &[(1, 2), (2, 3), (3, 4), (4, 0)],
    ] {
        let group = Group::new(2);
        for (node, next) in chain {
            write(&group, link(*node), *next);
        }
        group.dead[7].store(true, Ordering::SeqCst);
        write(&group, TAIL_LOCK, 7);
        let survivor = group.attach(1, None);
        let refused = survivor.try_push(&message(1));
        assert_eq!(refused, Err(Push::Fault(fault(Rule::QueueChain, HEAD))));
        for other in [survivor, group.attach(2, None)] {
            let condemned = Push::Fault(fault(Rule::QueueLock, TAIL_LOCK));
            assert_eq!(other.try_push(&message(1)), Err(condemned));
            let condemned = Pop::Fault(fault(Rule::QueueLock, HEAD_LOCK));
            assert_eq!(other.try_pop(), Err(condemned));
        }
    }
}

#[test]
fn a_lock_word_that_names_nobody_is_a_fault() {
    for word in [WAITERS, BROKEN, BROKEN | 5, 1 << INCARNATION_SHIFT] {
        let group = Group::new(2);
        write(&group, HEAD_LOCK, word);
        let refused = group.attach(1, None).try_pop();
        assert_eq!(refused, Err(Pop::Fault(fault(Rule::QueueLock, HEAD_LOCK))));
    }
}

#[test]
fn attaching_checks_the_format_the_capacity_and_the_member() {
    let group = Group::new(2);
    let attach = |capacity, number| {
        let memory = mortal_memory(&group.region, None);
        let attached = TwoLock::attach(memory, AT, capacity, group.seat(number, 0));
        attached.map(|queue| queue.capacity())
    };
    assert_eq!(attach(2, 63), Ok(2));
    let refused = NoQueue::Fault(fault(Rule::QueueFormat, CAPACITY));
    assert_eq!(attach(1, 63), Err(refused));
    assert_eq!(attach(2, 0), Err(NoQueue::NotAMember));
    assert_eq!(attach(2, 64), Err(NoQueue::NotAMember));
    write(&group, FORMAT, 0);
    let refused = NoQueue::Fault(fault(Rule::QueueFormat, FORMAT));
    assert_eq!(attach(2, 1), Err(refused));
}

#[test]
fn random_nonsense_ends_in_answers_and_never_in_a_panic_or_a_hang() {
    let mut random = Random::seeded("nonsense");
    let mut below = |bound| random.below(bound);
    let words = [HEAD, POOL_TAIL, TAIL, POOL_HEAD].into_iter();
    let words: Vec<_> = words.chain((1..=5).map(link)).collect();
    let (mut done, mut faults) = (0, 0);
    for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
        let group = Group::new(3);
        // A living member that is said to hold a lock would be waited for; these are not.
        group.dead[7].store(true, Ordering::SeqCst);
        let queue = group.attach(1, None);
        for _ in 0..12 {
            match below(6) {
                0 => write(&group, words[below(9) as usize], below(7) as u32),
                1 => write(&group, words[below(9) as usize], below(1 << 32) as u32),
                2 => write(&group, [HEAD_LOCK, TAIL_LOCK][below(2) as usize], 7),
                3 | 4 => match queue.try_push(&message(1)) {
                    Err(Push::Fault(_)) => faults += 1,
                    _ => done += 1,
                },
                _ => match queue.try_pop() {
                    Err(Pop::Fault(_)) => faults += 1,
                    _ => done += 1,
                },
            }
        }
    }
    assert!(done > 0 && faults > 0);
}
