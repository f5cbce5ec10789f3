//! `wait`: what waiting costs, for servers whose delays follow different laws.
//!
//! The cost of a message is the CPU time of both processes beyond the service itself. It is held
//! against an oracle that knows every delay in advance ([`WaitCosts::optimum_ns`]), with the costs
//! of a block, a wake-up and a round trip as measured in the same round. The fixed policies are
//! the hand-written pair: spin half a block's cost or a whole one, then sleep (`limit`), and sleep
//! at once (`futex`).

use crate::laws::{GRID, Law, WaitCosts, mean_cost};
use crate::plan::{Plan, Task, Timing};
use crate::report::{Board, Key, Reading, Row, time};
use crate::run::Run;
use crate::session::Sample;
use crate::stats::{geometric_mean, median, ratio};
use crate::systems::{self, Runnable};
use handfast_sys::cpu;
use std::io;

/// One way of waiting: a system and, for the hand-written ones, how long it spins in halves of a
/// block's cost.
struct Policy {
    system: Box<dyn Runnable>,
    half_blocks: u64,
    /// Appended to the case, where several rows share the system's name.
    suffix: &'static str,
}

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let timing = run.timing(Timing::ms(5, 20), Timing::ms(30, 150));
    let reference = Timing::ms(
        timing.warm.as_millis() as u64,
        if run.args.quick { 10 } else { 60 },
    );
    let plan = Plan {
        pause: run.choose_pause(),
        placement: run.best_placement(),
        ..Plan::echo()
    };
    let policies = policies(run);
    run.expect(run.rounds as usize * (2 + GRID.len() * policies.len()));

    let mut board = Board::default();
    // Per row of the board: the cost over the optimum without wake-up latency.
    let mut strict = Vec::new();
    let mut blocks_ns = Vec::new();
    for _ in 0..run.rounds {
        // Without hogs: among them the two sides of a spinning pair seldom run at once, and its
        // median says how they were scheduled. Blocks and wake-ups are measured among them.
        run.stop_hogs();
        let line_ns = line_ns(run, &plan, reference);
        start_hogs(run)?;
        let Some(costs) = line_ns.and_then(|line_ns| wait_costs(run, &plan, reference, line_ns))
        else {
            continue;
        };
        blocks_ns.push(costs.block_ns);
        // The policies' limit is the best estimate so far; ratios use this round's.
        let block_ns = median(&blocks_ns).unwrap_or(costs.block_ns);
        for law in GRID {
            let delays_ns = law.delays_ns();
            for policy in &policies {
                let plan = Plan {
                    task: Task::Service(law),
                    spin_ns: (block_ns / 2.0) as u64 * policy.half_blocks,
                    ..plan.clone()
                };
                let Some(sample) = run.turn(policy.system.as_ref(), &plan, timing) else {
                    continue;
                };
                let cost_ns = cost_ns(&sample);
                let over = |optimum: &dyn Fn(u64) -> f64| {
                    let mean = mean_cost(&delays_ns, sample.served_before, sample.served, optimum);
                    ratio(Some(cost_ns), mean)
                };
                let key = key(law, policy);
                let reading = Reading {
                    cpu_ns_per_op: Some(cost_ns),
                    ratio_to_limit: over(&|delay| costs.optimum_ns(delay)),
                    ..Reading::of(&sample)
                };
                strict.push((key.clone(), over(&|delay| costs.strict_optimum_ns(delay))));
                board.add(key, reading);
            }
        }
    }
    let rows = board.rows();
    if let Some(block_ns) = median(&blocks_ns) {
        let (block, hogs) = (time(block_ns), run.args.hogs);
        run.notes
            .push(format!("One block and its wake-up: {block}. Hogs: {hogs}."));
    }
    for policy in &policies {
        summarise(run, &rows, &strict, policy);
    }
    run.notes.push(
        "CPU/op: beyond the service, both sides. p50, p99: beyond the service. ratio: CPU/op / \
         the least an oracle would need."
            .to_owned(),
    );
    Ok(rows)
}

/// Hogs where they hurt: the client's CPU, the server's, then the others.
fn start_hogs(run: &mut Run) -> io::Result<()> {
    let mut places = vec![run.client_cpu, run.server_cpu];
    places.dedup();
    let others = cpu::allowed();
    let others = others.iter().filter(|cpu| !places.contains(cpu));
    let places: Vec<u32> = places.iter().chain(others).copied().collect();
    run.start_hogs(|index| Some(places[index % places.len()]))
}

fn policies(run: &Run) -> Vec<Policy> {
    let fixed = [
        ("limit-spin-then-sleep", 1, "/spin-half"),
        ("limit-spin-then-sleep", 2, "/spin-full"),
        ("futex", 0, ""),
    ];
    let fixed = fixed.into_iter().filter_map(|(key, half_blocks, suffix)| {
        Some(Policy {
            system: systems::find(key)?,
            half_blocks,
            suffix,
        })
    });
    let ours = systems::calls().into_iter().filter(|system| {
        let name = system.named().name();
        name == "handfast-default" || name.starts_with("handfast-") && !run.args.only.is_empty()
    });
    let ours = ours.map(|system| Policy {
        system,
        half_blocks: 0,
        suffix: "",
    });
    fixed
        .chain(ours)
        .filter(|policy| run.wants(policy.system.named().name()))
        .collect()
}

/// Measures what waiting costs now, with nobody else at work.
pub fn costs(run: &mut Run, plan: &Plan, timing: Timing) -> Option<WaitCosts> {
    let line_ns = line_ns(run, plan, timing)?;
    wait_costs(run, plan, timing, line_ns)
}

/// Measures a round trip of the spinning pair.
fn line_ns(run: &mut Run, plan: &Plan, timing: Timing) -> Option<f64> {
    let limit = systems::find("limit")?;
    run.turn(limit.as_ref(), plan, timing)?.quantile_ns(0.5)
}

/// Measures what blocking costs now.
fn wait_costs(run: &mut Run, plan: &Plan, timing: Timing, line_ns: f64) -> Option<WaitCosts> {
    let futex = systems::find("futex")?;
    let asleep = run.turn(futex.as_ref(), plan, timing)?;
    Some(WaitCosts {
        // A round trip is two blocks and two wake-ups.
        block_ns: asleep.cpu_per_call_ns() / 2.0,
        line_ns,
        wake_ns: (asleep.quantile_ns(0.5)? - line_ns).max(0.0) / 2.0,
    })
}

/// CPU time of both sides per message, without the service.
pub fn cost_ns(sample: &Sample) -> f64 {
    let all = sample.server_cpu_ns + sample.clients_cpu_ns;
    // At least a nanosecond: rounding must not make a cost vanish in a geometric mean.
    (all.saturating_sub(sample.busy_ns) as f64 / sample.served.max(1) as f64).max(1.0)
}

fn key(law: Law, policy: &Policy) -> Key {
    Key {
        case: format!("{}{}", law.name(), policy.suffix),
        system: policy.system.named().name(),
        payload_bytes: None,
        clients: None,
    }
}

/// Notes a policy's geometric mean and worst cell.
fn summarise(run: &mut Run, rows: &[Row], strict: &[(Key, Option<f64>)], policy: &Policy) {
    let name = policy.system.named().name();
    let mine: Vec<(&str, f64)> = GRID
        .iter()
        .map(|law| key(*law, policy).case)
        .filter_map(|case| {
            let row = rows
                .iter()
                .find(|row| row.system == name && row.case == case)?;
            Some((row.case.as_str(), row.ratio_to_limit?))
        })
        .collect();
    let ratios: Vec<f64> = mine.iter().map(|(_, ratio)| *ratio).collect();
    let strict: Vec<f64> = GRID
        .iter()
        .filter_map(|law| {
            let key = key(*law, policy);
            let of_cell = strict.iter().filter(|(other, _)| *other == key);
            median(&of_cell.filter_map(|(_, ratio)| *ratio).collect::<Vec<_>>())
        })
        .collect();
    let worst = mine.iter().max_by(|one, two| one.1.total_cmp(&two.1));
    if let (Some(mean), Some((case, ratio))) = (geometric_mean(&ratios), worst) {
        let strict = geometric_mean(&strict).unwrap_or(0.0);
        run.notes.push(format!(
            "{name}{}: geometric mean {mean:.2}, worst {ratio:.2} ({case}); against an optimum \
             whose sleepers wake in no time {strict:.2}.",
            policy.suffix
        ));
    }
}
