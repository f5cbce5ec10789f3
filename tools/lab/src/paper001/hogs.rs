//! Its Figure 4: a distributed file system, and processes that only use CPU.

use super::{DEFAULT, about, over_cheaper, pair, rounds, strategies};
use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::plan::Timing;
use handfast_bench::run::Run;
use handfast_bench::systems::files;
use std::io;

pub(super) struct Figure4;

/// The paper's three, and handfast's default.
const NAMES: [&str; 4] = ["spin", "block", "spin-block", DEFAULT];
/// Beside whom the two processes run; x.
const BESIDE: [&str; 3] = ["alone", "CPU hog", "nice'd hog"];

impl Experiment for Figure4 {
    fn about(&self) -> About {
        about(
            "figure-4",
            "A distributed file system: alone, beside a CPU hog, beside a nice'd one",
            "Alone, spin and spin-block are ahead of block. Beside a process that only uses CPU, and beside one of lower \
             priority, spin and block are badly hurt and spin-block is the best of the three: it gets both sides to run at \
             the same time.",
            "Two processes, each on a CPU of its own, share a file of 256 blocks of 4 KiB, which are in the memory of one at \
             first. Four user-level threads of the other access one block after another: each calls for its block, says that \
             it is there, and gives it back when it is asked to, with its bytes if it has written to them. Both processes wait \
             for any of their ports and calls in one set (in the place of select over sockets). Then the same with a process on \
             each of the two CPUs that spins for ever, at the same priority, and at nice 19. Here everybody may lower a \
             priority, so the hogs' is; the paper raised that of the file system.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Wait
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(15, 80), Timing::ms(50, 400));
        let rounds = rounds(run, 2, 5);
        let strategies = strategies("files");
        let plan = pair(run);
        run.expect(rounds as usize * BESIDE.len() * strategies.len());
        let mut places = vec![run.server_cpu, run.client_cpu];
        places.dedup();
        let (mut blocks, mut cpu_us) = (Series::default(), Series::default());
        for _ in 0..rounds {
            for beside in 0..BESIDE.len() {
                run.args.hogs = if beside == 0 { 0 } else { places.len() as u32 };
                run.start_hogs(|index| places.get(index).copied())?;
                if beside == 2 {
                    run.nice_hogs()?;
                }
                for (name, system) in &strategies {
                    if let Some(sample) = run.turn(system.as_ref(), &plan, timing) {
                        let (x, threads) = (beside as f64, files::THREADS as f64);
                        blocks.add(name, x, sample.per_second() * threads);
                        cpu_us.add(name, x, sample.cpu_per_call_ns() / 1e3 / threads);
                    }
                }
                run.stop_hogs();
            }
        }
        let (verdict, mut reasons) = judge(&blocks, claims);
        let own: Vec<String> = (0..BESIDE.len())
            .filter_map(|beside| {
                Some(format!(
                    "{:.2} {}",
                    of_best(&blocks, DEFAULT, beside)?,
                    BESIDE[beside]
                ))
            })
            .collect();
        reasons += &format!(
            "; handfast's default does {} of what the best of the three does",
            own.join(", ")
        );
        let extra = NAMES.iter().filter_map(|name| {
            let more_us = cpu_us.at(name, 1.0)? - cpu_us.at(name, 0.0)?;
            Some(format!("{name} {more_us:+.1} us"))
        });
        reasons += &format!(
            "; CPU time of a block beside a hog over that alone: {}",
            extra.collect::<Vec<_>>().join(", ")
        );
        let places: Vec<f64> = (0..BESIDE.len()).map(|beside| beside as f64).collect();
        let figure = |title: &str, y, series: &Series| Figure {
            title: title.to_owned(),
            kind: Kind::Bars,
            x: Axis::linear("beside", ""),
            y,
            curves: series.bars(&NAMES, &BESIDE),
        };
        Ok(Findings {
            measured: "The paper's three strategies and handfast's default, of all waits of both processes.".to_owned(),
            verdict,
            reasons,
            figures: vec![
                figure("Blocks accessed in a second", Axis::log("blocks", "1/s"), &blocks),
                figure("CPU time of a block, both sides", Axis::log("CPU time", "us"), &cpu_us),
                figure(
                    "CPU time of a block over that of an offline optimum",
                    Axis::log("ratio", ""),
                    &over_cheaper(&cpu_us, &places),
                ),
            ],
            tables: Vec::new(),
            notes: vec![
                "The optimum is what the cheaper of spin and block costs beside the same neighbours."
                    .to_owned(),
            ],
        })
    }
}

/// Why blocking is no loss here.
const PREEMPTS: &str =
    "a process that Linux wakes runs at once, before one that has had more than its share";

/// The throughput of `name` over the best of the paper's three.
fn of_best(blocks: &Series, name: &str, beside: usize) -> Option<f64> {
    let best = NAMES[..3]
        .iter()
        .filter_map(|name| blocks.at(name, beside as f64));
    Some(blocks.at(name, beside as f64)? / best.reduce(f64::max)?)
}

fn claims(blocks: &Series) -> Vec<Part> {
    let per_s = |name, beside: usize| blocks.at(name, beside as f64);
    let ratio = |one, other, beside| Some(per_s(one, beside)? / per_s(other, beside)?);
    let mut parts = Vec::new();
    for name in ["spin", "spin-block"] {
        let what = format!("alone, blocks read by {name} / by block");
        parts.push(Part::at_least(&what, ratio(name, "block", 0), 1.0));
    }
    for (beside, who) in BESIDE.iter().enumerate().skip(1) {
        for name in ["spin", "block"] {
            let what = format!("beside a {who}, blocks read by spin-block / by {name}");
            let ratio = ratio("spin-block", name, beside);
            parts.push(Part::at_least(&what, ratio, 1.0).unless(PREEMPTS));
        }
    }
    let kept = |name, beside| Some(per_s(name, beside)? / per_s(name, 0)?);
    for name in ["spin", "block"] {
        let what = format!("of its throughput {name} keeps beside a hog");
        parts.push(Part::at_most(&what, kept(name, 1), 0.5).unless(PREEMPTS));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;

    fn verdict(spin: [f64; 3], block: [f64; 3], hybrid: [f64; 3]) -> Verdict {
        let mut blocks = Series::default();
        for (name, values) in [("spin", spin), ("block", block), ("spin-block", hybrid)] {
            for (x, value) in values.into_iter().enumerate() {
                blocks.add(name, x as f64, value);
            }
        }
        weigh(&claims(&blocks)).0
    }

    #[test]
    fn spin_block_must_be_best_in_all_three() {
        let (spin, hybrid) = ([100.0, 5.0, 10.0], [100.0, 60.0, 80.0]);
        assert_eq!(verdict(spin, [20.0, 6.0, 8.0], hybrid), Verdict::Holds);
        assert_eq!(verdict(spin, [20.0, 19.0, 20.0], hybrid), Verdict::Partly);
        assert_eq!(verdict([1.0; 3], [2.0; 3], [1.0, 0.5, 0.5]), Verdict::Fails);
    }
}
