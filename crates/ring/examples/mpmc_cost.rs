//! The cost of a push and a pop of the MPMC ring, beside Vyukov's ring, which claims a position by
//! moving the tail or head and does not survive the death of a member.
//!
//! `cargo run --release -p handfast-ring --example mpmc_cost`. Heap memory, 1,024 slots, every
//! thread pushes and pops in turn; nanoseconds from the start to the end divided by the pairs of
//! all threads; the median of seven runs.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::queue::{MESSAGE_BYTES, mpmc as layout};
use handfast_region::{Memory, Region};
use handfast_ring::queue::mpmc::{Ring, create};
use handfast_ring::queue::{Members, Message, Pop, Push, Queue};
use std::sync::Barrier;
use std::time::Instant;

const SLOTS: u32 = 1024;
const PAIRS: u32 = 1_000_000;

/// Nobody dies here.
struct Immortal;

impl Members for Immortal {
    fn me(&self) -> u32 {
        1
    }
    fn is_dead(&self, _: u32) -> bool {
        false
    }
}

/// Vyukov's bounded MPMC queue (1024cores.net), on the same memory and slots.
struct Vyukov<'a>(&'a Region);

impl<'a> Vyukov<'a> {
    fn new(region: &'a Region) -> Self {
        for index in 0..SLOTS {
            // Relaxed: before any thread starts.
            region.store(layout::slot(index), index, Relaxed);
        }
        region.store(layout::TAIL, 0, Relaxed);
        region.store(layout::HEAD, 0, Relaxed);
        Self(region)
    }

    /// Claims the position a counter names; `None` when its slot is a lap behind.
    fn claim(&self, counter: usize, ahead: u32) -> Option<(u32, usize)> {
        // Relaxed: the slot's sequence orders.
        let mut position = self.0.load(counter, Relaxed);
        loop {
            let at = layout::slot(position % SLOTS);
            let sequence = self.0.load(at, Acquire);
            let distance = sequence.wrapping_sub(position.wrapping_add(ahead)) as i32;
            if distance < 0 {
                return None;
            }
            let next = position.wrapping_add(1);
            position = if distance > 0 {
                self.0.load(counter, Relaxed)
            } else {
                match self.0.compare_exchange(counter, position, next) {
                    Ok(_) => return Some((position, at)),
                    Err(found) => found,
                }
            };
        }
    }
}

impl Queue for Vyukov<'_> {
    fn try_push(&self, message: &Message) -> Result<(), Push> {
        let (position, at) = self.claim(layout::TAIL, 0).ok_or(Push::Full)?;
        self.0.copy_in(at + layout::BYTES, message);
        self.0.store(at, position.wrapping_add(1), Release);
        Ok(())
    }

    fn try_pop(&self) -> Result<Message, Pop> {
        let (position, at) = self.claim(layout::HEAD, 1).ok_or(Pop::Empty)?;
        let mut message = [0; MESSAGE_BYTES];
        self.0.copy_out(at + layout::BYTES, &mut message);
        self.0.store(at, position.wrapping_add(SLOTS), Release);
        Ok(message)
    }
}

/// Nanoseconds per pair of push and pop with so many threads.
fn run(queue: &(impl Queue + Sync), threads: u32) -> f64 {
    let gate = Barrier::new(threads as usize + 1);
    let start = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                gate.wait();
                let message = [7; MESSAGE_BYTES];
                for _ in 0..PAIRS {
                    while queue.try_push(&message).is_err() {
                        std::hint::spin_loop();
                    }
                    while queue.try_pop().is_err() {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        gate.wait();
        Instant::now()
    });
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS * threads)
}

fn main() {
    let (ours, theirs) = (
        Region::heap(layout::len_bytes(SLOTS)),
        Region::heap(layout::len_bytes(SLOTS)),
    );
    create(&ours, 0, SLOTS, 1);
    let ring = Ring::attach(&ours, 0, (SLOTS, 1), Immortal).expect("just created");
    let vyukov = Vyukov::new(&theirs);
    println!("| threads | claim on the slot | claim on the counter |");
    println!("| --- | --- | --- |");
    for threads in [1, 2, 4] {
        // In turns, so that a disturbance hits both.
        let (mut slot, mut counter) = (Vec::new(), Vec::new());
        for _ in 0..7 {
            slot.push(run(&ring, threads));
            counter.push(run(&vyukov, threads));
        }
        let [slot, counter] = [slot, counter].map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        println!("| {threads} | {slot:.1} ns | {counter:.1} ns |");
    }
}
