//! `handfast abuse`: everything that can happen to processes, to other users' processes too, while well-behaved ones call
//! one another and find nothing lost, wrong, late or left behind.
//!
//! Two servers and two clients are well-behaved and live through all of it; what is done, is done to victims that share the
//! servers with them. `faults` is the plan, by one seed; `client` and `caller` do the checks.

mod caller;
mod child;
mod client;
mod faults;
mod forger;
mod kinds;
mod leaks;
mod reach;
mod server;
mod sockets;
mod steady;
mod talk;
mod tally;
mod users;
mod victim;

use child::Child;
use child::Spec;
use faults::Attacker;
use handfast_cli::output::{note, say};
use handfast_cli::temporary::Directory;
use handfast_cli::{Outcome, command, descriptors};
use handfast_testing::Random;
use leaks::Holdings;
use rustix::process::WaitOptions;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use steady::Steady;
use tally::{Leaks, Tally};

/// Kill, stop, flood and scribble on processes while others call one another, and count what was lost: nothing.
#[derive(clap::Parser)]
#[command(bin_name = "handfast abuse")]
struct Args {
    /// How long, in minutes; a tenth more for stream sockets, and some seconds to begin and to count.
    #[arg(long, default_value_t = 1.0, value_parser = minutes)]
    minutes: f64,
    /// Which faults come in which order; by the clock unless given, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// The deadline of each call to a server that lives, in seconds; one that takes longer is lost.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    stall_s: u64,
    /// Whether processes of several users strike one another as well, for two minutes more.
    #[arg(long, value_enum, default_value_t = users::Users::Auto)]
    users: users::Users,
    /// Run only the attack by users with this name (may be repeated).
    #[arg(long, value_name = "NAME", conflicts_with = "attacks")]
    attack: Vec<String>,
    /// Run this many attacks by users, chosen by the seed.
    #[arg(long, value_name = "COUNT")]
    attacks: Option<usize>,
}

impl Args {
    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            now.as_nanos() as u64
        })
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number of minutes")?;
    match minutes > 0.0 && minutes <= 100_000.0 {
        true => Ok(minutes),
        false => Err("from above 0 to 100,000".to_owned()),
    }
}

/// Threads that do what is done, each with one victim at a time.
pub(crate) const ATTACKERS: usize = 4;
const SERVERS: [&str; 2] = ["steady-a", "steady-b"];
const CLIENTS: u64 = 2;
/// So long all goes well first, so that everything has been used once before what processes have is counted.
const WARM: Duration = Duration::from_secs(3);
/// Floods can take a server's descriptors up to their number, and messages with descriptors need some: with 1024, a
/// few in a minute end by [`Gone::Reply`](handfast::error::Gone::Reply).
const DESCRIPTORS: u64 = 4096;
/// Streams are struck for this part of the time, after it.
const STREAMS_PART: u32 = 10;
/// How often the well-behaved are looked after.
const LOOK: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    command::tool(child::ROLE, run, run_child)
}

fn run_child(spec: &Spec) -> Outcome {
    // A panic of any thread ends the process, so that it is seen.
    std::panic::set_hook(Box::new(move |panic| {
        // Rust's library does so in each new thread that has no room for its stacks.
        let is_without_memory = panic.to_string().contains("os error 12");
        if !is_without_memory {
            // Also where nobody reads its errors.
            let what = panic.to_string().replace('\n', " ");
            child::say(&format!("panicked {what}"));
            note(format_args!(
                "{panic}\n{}",
                std::backtrace::Backtrace::force_capture()
            ));
        }
        std::process::exit(if is_without_memory {
            1
        } else {
            child::PANICKED
        });
    }));
    child::interrupted_by_signals();
    match spec.role.as_str() {
        "server" => server::run(spec),
        "client" => victim::client(spec),
        "steady" => client::run(spec),
        "mute" => victim::mute(spec),
        "slow" => victim::slow(spec),
        "forks" => victim::forks(spec),
        "visitor" => victim::visitor(spec),
        "scribbler" => reach::client(spec),
        "foul" => reach::server(spec),
        "hellos" => forger::hellos(spec),
        "fake" => forger::fake_server(spec),
        "control" => forger::control(spec),
        "connects" => forger::connects(spec),
        "links" => forger::links(spec),
        "sweeper" => sweep(spec),
        "users-server" => users::server(spec),
        "users-victim" => users::victim(spec),
        "users-newcomer" => users::newcomer(spec),
        role => sockets::role(spec)
            .unwrap_or_else(|| Err(format!("no role of abuse is called {role:?}").into())),
    }
}

/// The role of a process that takes names over from dead servers, and gives them up.
fn sweep(spec: &Spec) -> Outcome {
    // Any name will do for what lies under none.
    for name in spec.words.iter().map(String::as_str).chain(["sweeper"]) {
        if let Err(error) = handfast::bind(name) {
            child::say(&format!("{name}: {error}"));
        }
    }
    Ok(())
}

fn run(args: &Args) -> Outcome {
    let seed = args.seed();
    if args.users != users::Users::Only {
        run_alike(args, seed)?;
    }
    let well = match args.users {
        users::Users::Off => {
            say!("\nusers: skipped: --users off")?;
            true
        }
        on => users::run(on, (&args.attack, args.attacks), seed)?,
    };
    match well {
        true => Ok(()),
        false => Err("one user could hurt another".into()),
    }
}

/// All processes are of one user.
fn run_alike(args: &Args, seed: u64) -> Outcome {
    let limit = Duration::from_secs(args.stall_s);
    let time = Duration::from_secs_f64(args.minutes * 60.0);
    let allowed = descriptors::raise();
    if allowed < DESCRIPTORS {
        return Err(format!(
            "a process may have {allowed} descriptors here, and the servers need {DESCRIPTORS} to have room beside floods; \
             raise the hard limit (ulimit -Hn {DESCRIPTORS})"
        )
        .into());
    }
    say!("handfast abuse --minutes {} --seed {seed}", args.minutes)?;
    // Whose parent was killed comes to this process, which sees that it has ended.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let directory = Directory::new("handfast-abuse-")?;
    let directory = directory.path();
    let tally = Tally::default();
    let (mut servers, mut clients) = steady::start(seed, limit, directory)?;
    steady::look_after(&mut clients, Instant::now() + WARM, limit, &tally);
    steady::introduce(seed, directory)?;
    steady::pause(&mut clients, limit, &tally);
    for steady in servers.iter_mut().chain(&mut clients) {
        steady.heap = steady.trim(limit);
        steady.before = Holdings::of(steady.child.id())?;
        steady.child.tell("go");
    }
    abuse(
        seed,
        time,
        limit,
        (directory, &servers, &mut clients),
        &tally,
    )?;
    steady::pause(&mut clients, limit, &tally);
    let mut leaks = Leaks::default();
    for steady in servers.iter_mut().chain(&mut clients) {
        steady.trim(limit);
        leaks::compare(&steady.who, steady.child.id(), &steady.before, &mut leaks);
        let heap = leaks::settled_heap(steady.heap, || steady.trim(limit));
        leaks::compare_heap(&steady.who, (steady.heap, heap), &mut leaks);
    }
    steady::end(servers, &mut clients, limit, &tally);
    left_behind(directory, limit, &mut leaks)?;
    let reports: Vec<_> = clients.into_iter().map(|client| client.report).collect();
    let well = tally::table(&tally.counts(), &reports, &leaks, limit)?;
    match sockets::run(seed, time / STREAMS_PART, limit)? && well {
        true => Ok(()),
        false => {
            Err(format!("something was lost, wrong, late or left behind (--seed {seed})").into())
        }
    }
}

/// Does what is done.
fn abuse(
    seed: u64,
    time: Duration,
    limit: Duration,
    (directory, servers, clients): (&Path, &[Steady], &mut [Steady]),
    tally: &Tally,
) -> Outcome {
    let stop = AtomicBool::new(false);
    let names = SERVERS.map(str::to_owned);
    std::thread::scope(|scope| {
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|number| {
                let steady = servers
                    .iter()
                    .chain(&*clients)
                    .map(|steady| Ok((steady.who.clone(), steady.child.pidfd()?)));
                let attacker = Attacker {
                    number,
                    random: Random::of(seed ^ (number as u64 + 1) << 56),
                    directory: directory.to_owned(),
                    servers: &names,
                    steady: steady.collect::<std::io::Result<_>>()?,
                    limit,
                    tally,
                    stop: &stop,
                    whom: String::new(),
                };
                Ok(scope.spawn(move || attacker.run()))
            })
            .collect::<Result<_, Box<dyn std::error::Error>>>()?;
        let end = Instant::now() + time;
        let (mut shown, mut all_live) = (Instant::now(), true);
        while all_live && (Instant::now() < end) {
            steady::look_after(clients, Instant::now() + LOOK, limit, tally);
            all_live = servers
                .iter()
                .chain(&*clients)
                .all(|steady| !steady.child.has_ended());
            if shown.elapsed() > Duration::from_secs(10) {
                shown = Instant::now();
                let calls: u64 = clients.iter().map(|client| client.report.calls).sum();
                note(format_args!("{}, {calls} calls", tally.counts().so_far()));
            }
        }
        // Relaxed: no more than a flag.
        stop.store(true, Relaxed);
        while attackers.iter().any(|attacker| !attacker.is_finished()) {
            steady::look_after(clients, Instant::now() + LOOK, limit, tally);
        }
        Ok(())
    })
}

/// Finds leftovers of processes that are gone.
fn left_behind(directory: &Path, limit: Duration, leaks: &mut Leaks) -> Outcome {
    let names: Vec<_> = leaks::files(directory)
        .into_iter()
        .filter(|name| name.starts_with("prey-") || name.starts_with("foul-"))
        .collect();
    // A dead server's socket stays until the next one takes the name over.
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut sweeper = Child::start(&Spec::new("sweeper", 0, &names), directory, &[], None)?;
    let swept = sweeper.wait(limit);
    let kept = std::iter::from_fn(|| sweeper.line(Duration::ZERO)).collect::<Vec<_>>();
    drop(sweeper);
    let left = leaks::files(directory);
    leaks.files.extend(
        left.iter()
            .map(|name| leaks::file_in_words(directory, name)),
    );
    if !left.is_empty() {
        leaks.files.push(format!(
            "the sweeper of {names:?} ended with {swept:?} and said {kept:?}"
        ));
    }
    let end = Instant::now() + limit;
    loop {
        // The children that have come to this process and have ended.
        while matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        leaks.processes = leaks::children();
        if leaks.processes.is_empty() || Instant::now() >= end {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}
