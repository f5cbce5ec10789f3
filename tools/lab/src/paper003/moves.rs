//! Its Figure 2: ways to move a block whose destination is in no cache.

use super::about;
use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::run::Run;
use handfast_bench::stats::median;
use handfast_sys::{clock, cpu};
use std::hint::black_box;
use std::io;

pub(super) struct Figure2;

const SIZES: [usize; 7] = [64, 256, 512, 1024, 4096, 16_384, 65_536];

/// A way to move bytes. Lengths are multiples of 64, destinations begin on a cache line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The C library's.
    Library,
    /// The processor's own instruction for it.
    Block,
    /// A line of 64 bytes in each turn.
    Lines,
    /// As that, reading each line of the destination first, which brings it into the cache.
    ReadFirst,
    /// As that, past the caches: no line of the destination is brought in.
    Past,
}

const WAYS: [(Way, &str); 5] = [
    (Way::Library, "memcpy"),
    (Way::Block, BLOCK),
    (Way::Lines, LINES),
    (Way::ReadFirst, READ_FIRST),
    (Way::Past, PAST),
];
const BLOCK: &str = "block move (rep movsb)";
const LINES: &str = "by lines";
const READ_FIRST: &str = "by lines, each read first";
const PAST: &str = "by lines, past the caches";

impl Experiment for Figure2 {
    fn about(&self) -> About {
        about(
            "figure-2",
            "Moving a block within a process, destination in no cache",
            "For payloads below 1 KiB moving by hand, line by line, is a little faster than the processor's block move; bringing \
             each line of the destination into the cache first costs time.",
            "One thread on one CPU moves 64 B to 64 KiB from a source that stays in its caches to destinations that were flushed \
             from them. The paper's processor wrote past its cache where a line was not in it; today's bring the line in, \
             unless told not to by non-temporal stores, which are a curve of their own. Ways take turns in each round.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Eros
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let bursts = if run.args.quick { 10 } else { 20 };
        run.expect(run.rounds as usize * SIZES.len());
        let mut series = Series::default();
        let place = run.client_cpu;
        let mut area = Area::new();
        for _ in 0..run.rounds {
            for len in SIZES {
                let measure = || {
                    // Without it the figures are of a thread that moves.
                    let _ = cpu::pin(&[place]);
                    clock::calibrate();
                    WAYS.map(|(way, name)| (name, area.measure(way, len, bursts)))
                };
                let found = std::thread::scope(|scope| scope.spawn(measure).join());
                let found = found.map_err(|_| io::Error::other("a measuring thread failed"))?;
                for (name, ns) in found {
                    if let Some(ns) = ns {
                        series.add(name, len as f64, ns);
                    }
                }
                run.step();
            }
        }
        let (verdict, reasons) = judge(&series, claims);
        Ok(Findings {
            measured: "memcpy, rep movsb, and loops over cache lines: plain, reading each line first, and with non-temporal stores."
                .to_owned(),
            verdict,
            reasons,
            figures: vec![Figure {
                title: "Time of a block move, destination cold".to_owned(),
                kind: Kind::Lines,
                x: Axis::log("block", "bytes"),
                y: Axis::log("time", "ns"),
                curves: series.curves(&WAYS.map(|(_, name)| name)),
            }],
            tables: Vec::new(),
            notes: vec!["Each time is of a burst of moves to places one behind the other, divided by their number.".to_owned()],
        })
    }
}

fn claims(series: &Series) -> Vec<Part> {
    // The middle over all sizes up to this one.
    let middle = |one: &str, other: &str, most: usize| {
        let sizes = SIZES.iter().filter(|len| **len <= most);
        let ratio =
            |len: &usize| Some(series.at(one, *len as f64)? / series.at(other, *len as f64)?);
        median(&sizes.filter_map(ratio).collect::<Vec<_>>())
    };
    let by_hand = match middle(LINES, BLOCK, 512) {
        Some(ratio) => Part::at_most(
            "below 1 KiB, time of moving by lines / of the block move",
            Some(ratio),
            1.0,
        )
        .unless("the processor's own move knows of lines, too, and need not wait for one before the next"),
        None => Part::missing("moving by lines"),
    };
    let read_first = match middle(READ_FIRST, LINES, usize::MAX) {
        Some(ratio) => Part::at_least(
            "time of moving with each line read first / of not",
            Some(ratio),
            1.02,
        )
        .unless(
            "a line is brought in for writing as well, so that reading it first costs nothing more",
        ),
        None => Part::missing("reading each line first"),
    };
    vec![by_hand, read_first]
}

/// Where from and where to.
struct Area {
    from: Vec<Line>,
    to: Vec<Line>,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

const LINE_BYTES: usize = 64;
/// All destinations of a burst together.
const TO_BYTES: usize = 512 << 10;
const MOVES_MAX: usize = 64;

impl Area {
    fn new() -> Self {
        Self {
            from: vec![Line([1; LINE_BYTES]); (64 << 10) / LINE_BYTES],
            to: vec![Line([2; LINE_BYTES]); TO_BYTES / LINE_BYTES],
        }
    }

    /// The median time of one move; `None` where the processor has no such way.
    fn measure(&mut self, way: Way, len_bytes: usize, bursts: usize) -> Option<f64> {
        let lines = len_bytes / LINE_BYTES;
        let moves = (self.to.len() / lines).min(MOVES_MAX);
        let mut times = Vec::with_capacity(bursts);
        for _ in 0..bursts {
            black_box(&self.from[..lines]).iter().for_each(|line| {
                black_box(line.0[0]);
            });
            flush(&self.to[..moves * lines])?;
            let start = clock::ticks_ns();
            for to in self.to[..moves * lines].chunks_exact_mut(lines) {
                way.copy(black_box(&self.from[..lines]), black_box(to))?;
            }
            let taken = clock::ticks_ns().saturating_sub(start);
            times.push(taken as f64 / moves as f64);
        }
        median(&times)
    }
}

#[cfg(target_arch = "x86_64")]
fn flush(lines: &[Line]) -> Option<()> {
    for line in lines {
        // SAFETY: the line is there; every x86-64 processor has the instruction.
        unsafe { core::arch::x86_64::_mm_clflush(line.0.as_ptr()) };
    }
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_mm_mfence() };
    Some(())
}

#[cfg(not(target_arch = "x86_64"))]
fn flush(_: &[Line]) -> Option<()> {
    None
}

impl Way {
    #[cfg(target_arch = "x86_64")]
    fn copy(self, from: &[Line], to: &mut [Line]) -> Option<()> {
        use core::arch::asm;
        assert!(from.len() == to.len() && !from.is_empty());
        let len_bytes = size_of_val(from);
        /// A loop over lines: what to do with a line of the destination first, and how to store.
        macro_rules! by_lines {
            ($first:literal, $store:literal, $last:literal) => {
                // SAFETY: both slices have `len_bytes`, a multiple of 64 and not zero; they do not overlap, and
                // destinations are aligned to 64.
                unsafe {
                    asm!(
                        "2:",
                        $first,
                        "movups xmm0, [{from}]",
                        "movups xmm1, [{from} + 16]",
                        "movups xmm2, [{from} + 32]",
                        "movups xmm3, [{from} + 48]",
                        concat!($store, " [{to}], xmm0"),
                        concat!($store, " [{to} + 16], xmm1"),
                        concat!($store, " [{to} + 32], xmm2"),
                        concat!($store, " [{to} + 48], xmm3"),
                        "add {from}, 64",
                        "add {to}, 64",
                        "sub {left}, 64",
                        "jnz 2b",
                        $last,
                        from = inout(reg) from.as_ptr() => _,
                        to = inout(reg) to.as_mut_ptr() => _,
                        left = inout(reg) len_bytes => _,
                        out("rax") _,
                        out("xmm0") _,
                        out("xmm1") _,
                        out("xmm2") _,
                        out("xmm3") _,
                        options(nostack),
                    );
                }
            };
        }
        match self {
            Self::Library => to.copy_from_slice(from),
            // SAFETY: both slices have `len_bytes` and do not overlap; the direction flag is clear, as everywhere.
            Self::Block => unsafe {
                asm!(
                    "rep movsb",
                    inout("rsi") from.as_ptr() => _,
                    inout("rdi") to.as_mut_ptr() => _,
                    inout("rcx") len_bytes => _,
                    options(nostack, preserves_flags),
                );
            },
            Self::Lines => by_lines!("", "movups", ""),
            Self::ReadFirst => by_lines!("mov rax, [{to}]", "movups", ""),
            Self::Past => by_lines!("", "movntps", "sfence"),
        }
        Some(())
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn copy(self, _: &[Line], _: &mut [Line]) -> Option<()> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn every_way_moves_all_bytes_and_no_others() {
        let from: Vec<Line> = (1..=8).map(|number| Line([number; LINE_BYTES])).collect();
        for (way, name) in WAYS {
            let mut to = vec![Line([0; LINE_BYTES]); 9];
            way.copy(&from, &mut to[..8]).unwrap();
            for (index, line) in to.iter().enumerate() {
                let expected = if index < 8 { index as u8 + 1 } else { 0 };
                assert!(line.0.iter().all(|byte| *byte == expected), "{name}");
            }
        }
    }

    #[test]
    fn small_blocks_decide_about_moving_by_hand() {
        let verdict = |by_hand: f64, read_first: f64| {
            let mut series = Series::default();
            for len in SIZES.map(|len| len as f64) {
                series.add(BLOCK, len, len);
                // Slower where the blocks are large.
                let lines = if len > 512.0 {
                    len * 2.0
                } else {
                    len * by_hand
                };
                series.add(LINES, len, lines);
                series.add(READ_FIRST, len, lines * read_first);
            }
            weigh(&claims(&series)).0
        };
        assert_eq!(verdict(0.9, 1.2), Verdict::Holds);
        assert_eq!(verdict(1.1, 1.2), Verdict::Partly);
        assert_eq!(verdict(1.1, 1.0), Verdict::Fails);
    }
}
