//! `handfast bench`: measures handfast, hand-written limits and the kernel's own ways, side by
//! side on this machine.
//!
//! Reading order: `rtt` shows a whole benchmark; [`session`] one measurement of it; [`systems::child`]
//! what its processes do; [`systems`] what is measured. Every server and every client is a process
//! of its own. Systems are measured in short turns within each round, and a ratio compares two
//! turns of the same round: the machine may change from round to round, figures of one round
//! hardly do. A table shows medians over rounds.

mod chain;
pub mod control;
pub mod eros;
mod idle;
pub mod laws;
pub mod machine;
mod payload;
mod percpu;
pub mod plan;
mod ports;
pub mod ppc;
pub mod primitives;
mod process;
pub mod report;
pub mod rights;
mod rtt;
pub mod run;
mod scale;
pub mod scheduling;
pub mod session;
mod shared;
mod sockets;
pub mod stats;
mod stream;
pub mod systems;
pub mod wait;
mod work;

use clap::ValueEnum;
use handfast::MESSAGE_BYTES_MAX;
use handfast_cli::Outcome;
use handfast_cli::output::say;
use report::Report;
use run::Run;

/// Measure this machine: handfast, the hand-written limit and the kernel's own ways.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "handfast-bench", bin_name = "handfast bench", after_help = HELP)]
pub struct Args {
    /// Which benchmark.
    #[arg(value_enum)]
    bench: Bench,
    /// Print one JSON object on one line instead of a table.
    #[arg(long)]
    json: bool,
    /// Three short rounds: shows that it runs, not how fast.
    #[arg(long)]
    pub quick: bool,
    /// Rounds to take medians over [default: 15].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: Option<u32>,
    /// Length of each recorded window, in seconds; each benchmark has its own otherwise.
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Only systems with these names (limits they are compared with are measured anyway).
    #[arg(long, value_delimiter = ',', value_parser = system)]
    pub only: Vec<String>,
    /// rtt, payload, eros, chain, rights, ppc: payload sizes in bytes; for rtt and payload at least 24.
    /// Only payload takes more than 65,536, for loans, messages and the kernel's streams. Without this option, packets of eros
    /// have up to 8,388,608.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=67_108_864))]
    pub payloads: Vec<u32>,
    /// scale, idle, percpu: numbers of client processes; ppc: of threads.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: Vec<u32>,
    /// Use only so many CPUs, by the affinity of all processes of the run; all otherwise.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: Option<u32>,
    /// scale, wait: processes that only use CPU. In wait each is pinned, first to the client's
    /// CPU, then the server's, then others.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub hogs: u32,
    /// scale: also measure the kernel's pipes and Unix sockets.
    #[arg(long)]
    with_peers: bool,
}

const HELP: &str = "\
What --json prints: `bench` and `machine`, text, and `rows`, a list. Each row has `case` and `system`,
text, and of these numbers those that its benchmark measures, medians over rounds:
  payload_bytes, clients; p50_ns, p99_ns, ops_per_s; cpu_ns_per_op, of all processes;
  ratio_to_limit, ratio_to_copy, ratio_to_unix, ratio_to_one, the ratios below; pace_to_one, as the last of them, of
  clients at the pace of their median calls; ns_per_right; jain, fairness from 0 to 1; longest_wait_ns, the longest of all rounds; switches, cpu_ns.

What `ratio` (ratio_to_limit) compares, always within one round:
  rtt      p50 with the p50 of `limit`, a hand-written spinning pair (on one CPU: a pair that
           yields). Systems that sleep for every message (handfast-block, futex and the kernel's)
           with the p50 of `futex`, hand-written futex ping-pong, instead.
  scale    throughput with the spinning limit's best over all numbers of clients: more is better.
  stream   throughput with the bare ring's: more is better.
  payload  p50 with the p50 of `limit`, which leaves the payload where it was made; echo: of a `limit` that copies
           it once; sent: none. From 65,536 bytes on, `to copy`: p50 with the p50 of one memcpy of the payload within one
           process; `to unix`: with that of `unix-stream` in the same case, or in `hot` for other cases one way.
  wait     CPU time beyond the service with the least an oracle would need: for each message the
           cheaper of spinning through the wait and sleeping once.
  idle     none.
  eros     one-way: p50 with the p50 of `limit`, as in rtt; echo: of a `limit` whose two sides each
           leave the payload in their own memory; nested and tail: of nested calls of the same
           system; table1: throughput with the best of the kernel's ways: more is better. `to copy`:
           p50 with the p50 of `copy`, which moves the same bytes by memcpy within one process.
  chain    p50 with the p50 of nested calls of handfast-default through as many processes.
  rights   p50 with the p50 of `plain`; `per right` is their difference, per right passed, with the
           call through it where there is one.
  ppc      p50 with the p50 of `limit`, two WRPKRU and a stack switch; with a payload, of one that also
           copies it once.
  percpu   throughput with that of `futex-percpu`, a hand-written futex pair on each CPU: more is better.
           `to one`: with the same system's for one client on one CPU.
  ports    none; `to one`: time with that of the same case with ten ports.
  sockets  p50 with that of `tcp`.";

/// The benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bench {
    /// Round trip of one client, by payload; on two CPUs and on one.
    Rtt,
    /// 1 to 256 clients calling one single-threaded server.
    Scale,
    /// One-way stream of 24-byte messages.
    Stream,
    /// A payload made by the client and read in full by the server, or sent back; and what one memcpy of it takes.
    Payload,
    /// CPU spent on waiting, for servers of many different delays.
    Wait,
    /// 64 clients that are connected and ask nothing.
    Idle,
    /// The measurements of the EROS paper: one way, echo, calls through several processes, and its
    /// Table 1 of the kernel's ways (`tcp` with TCP_NODELAY, `tcp-nagle` without).
    Eros,
    /// One call through a chain of 2 to 6 processes: nested, as tail calls, and as one-way messages that go round.
    Chain,
    /// The cost of rights in a call.
    Rights,
    /// Protected procedure calls into a domain of the same process, on 1 to all CPUs.
    Ppc,
    /// 1 to all CPUs, a client on each: servers of one thread, of a pool, and of a worker on each CPU.
    Percpu,
    /// One thread that serves ten ports, and a hundred thousand.
    Ports,
    /// Round trip of one connected stream socket: of the kernel, and of handfast.
    Sockets,
}

impl Args {
    /// A benchmark with its usual options.
    pub const fn of(bench: Bench, quick: bool) -> Self {
        Self {
            bench,
            json: false,
            quick,
            rounds: None,
            seconds: None,
            only: Vec::new(),
            payloads: Vec::new(),
            clients: Vec::new(),
            cpus: None,
            hogs: 0,
            with_peers: false,
        }
    }
}

/// Measures and prints.
///
/// # Errors
/// Nothing was measured, or standard output cannot be written.
pub fn run(args: &Args) -> Outcome {
    let least = match args.bench {
        Bench::Rtt | Bench::Payload => 24,
        _ => 0,
    };
    let most = match args.bench {
        Bench::Payload => u32::MAX,
        _ => MESSAGE_BYTES_MAX as u32,
    };
    if let Some(len) = args.payloads.iter().find(|len| **len > most) {
        return Err(format!("payload {len}: a message has at most {most} bytes").into());
    }
    if let Some(len) = args.payloads.iter().find(|len| **len < least) {
        return Err(format!("payload {len}: this benchmark's have at least {least} bytes").into());
    }
    let mut run = Run::new(args)?;
    let (bench, rows) = match args.bench {
        Bench::Rtt => ("rtt", rtt::measure(&mut run)?),
        Bench::Scale => ("scale", scale::measure(&mut run)?),
        Bench::Stream => ("stream", stream::measure(&mut run)?),
        Bench::Payload => ("payload", payload::measure(&mut run)?),
        Bench::Wait => ("wait", wait::measure(&mut run)?),
        Bench::Idle => ("idle", idle::measure(&mut run)?),
        Bench::Eros => ("eros", eros::measure(&mut run)?),
        Bench::Chain => ("chain", chain::measure(&mut run)?),
        Bench::Rights => ("rights", rights::measure(&mut run)?),
        Bench::Ppc => ("ppc", ppc::measure(&mut run)?),
        Bench::Percpu => ("percpu", percpu::measure(&mut run)?),
        Bench::Ports => ("ports", ports::measure(&mut run)?),
        Bench::Sockets => ("sockets", sockets::measure(&mut run)?),
    };
    if rows.is_empty() {
        let asked = args.only.join(", ");
        return Err(match run.has_warned() {
            true => {
                format!("{bench}: nothing could be measured; what was said above has the reasons")
            }
            false => {
                format!("{bench} measures nothing called {asked}: see what it has without --only")
            }
        }
        .into());
    }
    let report = Report {
        bench,
        machine: machine::describe(),
        rows,
        notes: run.finish(),
    };
    let text = if args.json {
        serde_json::to_string(&report)?
    } else {
        report.table()
    };
    say!("{text}")
}

/// The first argument of processes of a measurement, in whichever program they are.
pub const CHILD: &str = "bench-child";

/// One process of a measurement.
#[derive(Clone, Debug, clap::Parser)]
#[command(bin_name = "handfast bench-child")]
pub struct ChildArgs {
    /// The role, as JSON.
    spec: String,
}

/// Runs one process of a measurement.
///
/// # Errors
/// Its system fails.
pub fn run_child(args: &ChildArgs) -> Outcome {
    if args.spec == ppc::confined::SPEC {
        return Ok(ppc::confined::run()?);
    }
    Ok(systems::child::run(&args.spec)?)
}

fn system(text: &str) -> Result<String, String> {
    let all = systems::all();
    let mut names: Vec<_> = all.iter().map(|system| system.named().name()).collect();
    names.extend(ppc::SYSTEMS);
    names.sort_unstable();
    names.dedup();
    if names.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("there are {}", names.join(", ")))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.001 to 600".to_owned()),
    }
}
