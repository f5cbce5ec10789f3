//! First in, first out, exactly once: against a model, and between threads.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[test]
fn a_full_queue_refuses_and_an_empty_one_says_so() {
    let group = Group::new(3);
    group.check(&[], "new");
}

proptest! {
    #![proptest_config(ProptestConfig {
        // Miri has no files to keep seeds in; a failure prints its case either way.
        failure_persistence: None,
        cases: if cfg!(miri) { 2 } else { 512 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_sequence_of_steps_of_three_members_is_that_of_a_deque(
        capacity in 1u32..6,
        steps in proptest::collection::vec((any::<bool>(), 1u32..4), 0..if cfg!(miri) { 30 } else { 60 }),
    ) {
        let group = Group::new(capacity);
        let members: Vec<_> = (1..4).map(|number| group.attach(number, None)).collect();
        let mut deque = VecDeque::new();
        for (number, (is_push, member)) in steps.into_iter().enumerate() {
            let queue = &members[member as usize - 1];
            let number = number as u64;
            if !is_push {
                let popped = queue.try_pop();
                prop_assert_eq!(popped, deque.pop_front().map(message).ok_or(Pop::Empty));
            } else if deque.len() < capacity as usize {
                prop_assert_eq!(queue.try_push(&message(number)), Ok(()));
                deque.push_back(number);
            } else {
                prop_assert_eq!(queue.try_push(&message(number)), Err(Push::Full));
            }
        }
        group.check(deque.make_contiguous(), "at the end");
    }
}

/// Threads of one process share a number, and mostly a handle.
#[test]
fn threads_pass_every_message_once_and_each_senders_in_order() {
    const SENDERS: u64 = 2;
    let each: u64 = if cfg!(miri) { 10 } else { 20_000 };
    for (capacity, looks) in [(1, 0), (2, lock::LOOKS), (64, lock::LOOKS)] {
        let region = Arc::new(Region::heap(queue_bytes(capacity)));
        let group = Group::new(1);
        let mut shared = TwoLock::create(region.clone(), 0, capacity, group.seat(1, 0)).unwrap();
        shared.looks = looks;
        let other = TwoLock::attach(region, 0, capacity, group.seat(1, 0)).unwrap();
        let popped: Vec<Vec<u64>> = std::thread::scope(|scope| {
            for sender in 0..SENDERS {
                let queue = if sender == 0 { &shared } else { &other };
                scope.spawn(move || {
                    for number in 0..each {
                        while queue.try_push(&message(sender << 32 | number)).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let receive = || {
                let mut popped = Vec::new();
                while popped.len() < (SENDERS * each / 2) as usize {
                    match shared.try_pop() {
                        Ok(message) => popped.push(key(&message)),
                        Err(refused) => {
                            assert_eq!(refused, Pop::Empty);
                            std::thread::yield_now();
                        }
                    }
                }
                popped
            };
            let receivers = [scope.spawn(receive), scope.spawn(receive)];
            receivers.map(|receiver| receiver.join().unwrap()).into()
        });
        for one in &popped {
            for sender in 0..SENDERS {
                let own = one.iter().filter(|key| **key >> 32 == sender);
                assert!(own.is_sorted_by(|a, b| a < b), "out of order");
            }
        }
        let mut all = popped.concat();
        all.sort_unstable();
        let sent = (0..SENDERS).flat_map(|sender| (0..each).map(move |n| sender << 32 | n));
        assert!(all.into_iter().eq(sent), "lost or doubled");
    }
}

#[test]
fn an_uncontended_queue_gives_back_each_message_at_once() {
    let region = Arc::new(Region::heap(queue_bytes(64)));
    let group = Group::new(1);
    let queue = TwoLock::create(region, 0, 64, group.seat(1, 0)).unwrap();
    for number in 0..10_000 {
        queue.try_push(&[number as u8; MESSAGE_BYTES]).unwrap();
        assert_eq!(queue.try_pop().unwrap()[0], number as u8);
    }
}
