//! The cost of blocking here: measured once per process, when first needed.

use core::sync::atomic::Ordering::{Acquire, Release};
use handfast_region::{Memory, Region};
use handfast_sys::clock;
use std::sync::{Arc, OnceLock};

/// The machine's numbers the adaptive strategy works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// T: processor time of both sides for one block and one wake-up.
    pub block_cost_ns: u64,
    /// How much later a woken peer answers than a spinning one.
    pub wake_latency_ns: u64,
    /// The time of a yield that lets no other thread run.
    pub yield_ns: u64,
    /// CPUs that this process and its peers share.
    pub cpus: u32,
}

/// Round trips measured: enough for a median, short enough for a start-up.
const ROUNDS: usize = 48;
/// T is clamped to this range: outside it the measurement was disturbed.
const BLOCK_COST_RANGE_NS: (u64, u64) = (1_000, 50_000);

/// Yields measured, of which each may let another thread run; and the longest time that is believed of one that did not.
const YIELDS_MEASURED: usize = 16;
const YIELD_NS_MAX: u64 = 1_000;

/// This process's calibration. The first call measures: a futex ping-pong between two threads,
/// about 1 ms, bounded by `ROUNDS` round trips; later calls return the same numbers.
#[inline]
pub fn calibration() -> Calibration {
    static MEASURED: OnceLock<Calibration> = OnceLock::new();
    *MEASURED.get_or_init(measure)
}

fn measure() -> Calibration {
    clock::calibrate();
    let cpus = handfast_sys::cpu::shared();
    let region = Arc::new(Region::heap(128));
    let echo = region.clone();
    let here = handfast_sys::cpu::current();
    // Words 0 and 64: whose turn it is. Each side sleeps on its own.
    let partner = std::thread::Builder::new()
        .name("handfast-calibrate".into())
        .spawn(move || {
            // On another processor, as peers mostly are: blocks on one are cheaper. Also where
            // this process is confined to one, for this millisecond; refused, it stays here.
            let but_here = |mut cpus: Vec<u32>| {
                cpus.retain(|cpu| *cpu != here);
                cpus
            };
            let mut others = but_here(handfast_sys::cpu::allowed());
            if others.is_empty() {
                others = but_here((0..handfast_sys::cpu::online()).collect());
            }
            let _ = handfast_sys::cpu::pin(&others);
            for turn in 1..=ROUNDS as u32 {
                while echo.load(0, Acquire) < turn {
                    echo.park(0, turn - 1, None);
                }
                echo.store(64, turn, Release);
                echo.wake(64, 1);
            }
        });
    let Ok(partner) = partner else { return DEFAULT };
    let mut round_trips = Vec::with_capacity(ROUNDS);
    for turn in 1..=ROUNDS as u32 {
        let start = clock::ticks_ns();
        region.store(0, turn, Release);
        region.wake(0, 1);
        while region.load(64, Acquire) < turn {
            region.park(64, turn - 1, None);
        }
        round_trips.push(clock::ticks_ns().saturating_sub(start));
    }
    let _ = partner.join();
    round_trips.sort_unstable();
    // One round trip is two blocks and two wake-ups, one after the other: its half is the latency
    // of one, and about its cost to both sides in processor time. The lower quartile: other
    // load only ever adds.
    let half = round_trips[ROUNDS / 4] / 2;
    Calibration {
        block_cost_ns: (half * 5 / 4).clamp(BLOCK_COST_RANGE_NS.0, BLOCK_COST_RANGE_NS.1),
        wake_latency_ns: half.clamp(BLOCK_COST_RANGE_NS.0, BLOCK_COST_RANGE_NS.1),
        yield_ns: yield_ns(),
        cpus,
    }
}

/// The shortest of some yields.
fn yield_ns() -> u64 {
    let yields = (0..YIELDS_MEASURED).map(|_| {
        let start = clock::ticks_ns();
        handfast_sys::cpu::yield_now();
        clock::ticks_ns().saturating_sub(start)
    });
    yields.min().map_or(YIELD_NS_MAX, |ns| ns.min(YIELD_NS_MAX))
}

/// Where no thread can be made to measure with.
const DEFAULT: Calibration = Calibration {
    block_cost_ns: 10_000,
    wake_latency_ns: 7_000,
    yield_ns: YIELD_NS_MAX,
    cpus: 1,
};
