//! Threads at full speed.

use super::tests::{Register, message, number, region, rings};
use super::*;
use core::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// Nothing taken for so long is a hang, and a failure.
const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 20 });

#[test]
fn threads_of_few_numbers_take_every_message_once_and_in_order() {
    // Two threads share each number: claims of one are not mistaken for the other's.
    const MESSAGES: u32 = if cfg!(miri) { 6 } else { 50_000 };
    for slots in [1, 2, if cfg!(miri) { 16 } else { 64 }] {
        let (region, members) = (region(slots), Register::new());
        let rings = rings(&region, (slots, 4), &members, 0u32.wrapping_sub(100));
        let (rings, taken) = (&rings, &AtomicU32::new(0));
        let (start, progress) = (Instant::now(), &AtomicU32::new(0));
        let wait = move || {
            // Relaxed, here and below: a count, and its time in milliseconds.
            let idle_ms =
                (start.elapsed().as_millis() as u32).saturating_sub(progress.load(Relaxed));
            assert!(
                u128::from(idle_ms) < PATIENCE.as_millis(),
                "a message is missing"
            );
            std::thread::yield_now();
        };
        let mut got: Vec<Vec<u32>> = std::thread::scope(|scope| {
            for producer in 0..4 {
                scope.spawn(move || {
                    for value in 0..MESSAGES {
                        let message = message(producer << 24 | value);
                        while let Err(full) = rings[producer as usize / 2].try_push(&message) {
                            assert_eq!(full, Push::Full);
                            wait();
                        }
                    }
                });
            }
            let consumers: Vec<_> = (0..4)
                .map(|consumer| {
                    scope.spawn(move || {
                        let mut got = Vec::new();
                        while taken.load(Relaxed) < 4 * MESSAGES {
                            match rings[2 + consumer / 2].try_pop() {
                                Ok(message) => {
                                    taken.fetch_add(1, Relaxed);
                                    progress.store(start.elapsed().as_millis() as u32, Relaxed);
                                    got.push(number(&message));
                                }
                                Err(empty) => {
                                    assert_eq!(empty, Pop::Empty);
                                    wait();
                                }
                            }
                        }
                        got
                    })
                })
                .collect();
            consumers
                .into_iter()
                .map(|consumer| consumer.join().unwrap())
                .collect()
        });
        for got in &got {
            for producer in 0..4 {
                assert!(
                    got.iter()
                        .filter(|value| *value >> 24 == producer)
                        .is_sorted()
                );
            }
        }
        let mut all = got.concat();
        got.clear();
        all.sort_unstable();
        let sent: Vec<_> = (0..4)
            .flat_map(|producer| (0..MESSAGES).map(move |value| producer << 24 | value))
            .collect();
        assert!(all == sent, "a message was lost or came twice");
    }
}
