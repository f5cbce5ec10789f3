//! `handfast lab`: what the papers measured, measured on this machine, beside handfast.
//!
//! Reading order: [`result`] is the file an experiment leaves; [`experiments`] lists them; each is a value of
//! [`Experiment`] that describes itself and runs on the processes and systems of `bench`; [`report`] shows their results.

mod claims;
mod experiment;
mod experiments;
mod laws;
mod page;
mod paper000;
mod paper001;
mod paper002;
mod paper003;
mod paper004;
mod peers;
mod report;
pub(crate) mod result;
mod rows;
mod series;

use experiment::{Experiment, Findings};
use handfast_bench::run::Run;
use handfast_bench::{CHILD, machine, run_child};
use handfast_cli::Outcome as Done;
use handfast_cli::output::{note, say};
use handfast_sys::cpu;
use result::{Outcome, SCHEMA, Verdict};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

/// Measure what the papers measured, on this machine, and keep what was found.
#[derive(Clone, Debug, clap::Parser)]
#[command(bin_name = "handfast lab")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// The experiments: name, title, whether there is a result.
    List(Folder),
    /// Run experiments and keep their results; experiments that have a result already are left out.
    Run(RunArgs),
    /// Make a page of the results, or each figure as a file.
    Report(report::Args),
}

#[derive(Clone, Debug, clap::Args)]
struct Folder {
    /// Where results are kept, one JSON file each.
    #[arg(long, default_value = "lab-results")]
    results: PathBuf,
}

#[derive(Clone, Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    folder: Folder,
    /// Names, or beginnings of names (`000` for all of that paper).
    #[arg(required_unless_present = "all", conflicts_with = "all", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    names: Vec<String>,
    /// All of them.
    #[arg(long)]
    all: bool,
    /// Few short rounds, all experiments in under five minutes: shows that they run.
    #[arg(long)]
    quick: bool,
    /// Also run experiments that have a result already.
    #[arg(long)]
    again: bool,
}

fn main() -> ExitCode {
    // The processes that an experiment measures are those of `bench`.
    handfast_cli::command::tool(CHILD, run, run_child)
}

/// Does what was asked.
fn run(args: &Args) -> Done {
    match &args.what {
        What::List(folder) => list(folder),
        What::Run(args) => run_all(args),
        What::Report(args) => report::run(args),
    }
}

fn list(folder: &Folder) -> Done {
    if folder.results.exists() && !folder.results.is_dir() {
        return Err(format!("{}: not a folder", folder.results.display()).into());
    }
    for experiment in experiments::all() {
        let about = experiment.about();
        let path = Outcome::path(&folder.results, &about.name);
        let state = match Outcome::load(&path) {
            Ok(found) => verdict(found.verdict),
            Err(_) if !path.exists() => "",
            Err(reason) => {
                note(format_args!("{}: {reason}", path.display()));
                "broken"
            }
        };
        say!("{:<18} {:<8} {}", about.name, state, about.title)?;
    }
    for (name, reason) in experiments::MISSING {
        say!("{name:<18} {:<8} no experiment: {reason}", "")?;
    }
    Ok(())
}

fn run_all(args: &RunArgs) -> Done {
    let known = experiments::all();
    let is_asked = |name: &str| args.all || args.names.iter().any(|asked| name.starts_with(asked));
    for asked in &args.names {
        if !known.iter().any(|one| one.about().name.starts_with(asked)) {
            return Err(format!("no experiment begins with {asked}: see handfast lab list").into());
        }
    }
    let asked: Vec<_> = known
        .into_iter()
        .filter(|one| is_asked(&one.about().name))
        .collect();
    // Before anything is measured for it.
    let _alone = result::enter(&args.folder.results)?;
    let count = asked.len();
    let mut failed = 0;
    for (index, experiment) in asked.iter().enumerate() {
        let name = experiment.about().name;
        let place = format!("[{}/{count}] {name}", index + 1);
        let kept = Outcome::load(&Outcome::path(&args.folder.results, &name)).ok();
        // A quick one is no substitute for a full one.
        if !args.again && kept.is_some_and(|kept| args.quick || !kept.is_quick) {
            note(format_args!("{place}: there already (--again repeats it)"));
            continue;
        }
        note(format_args!("{place}"));
        match run_one(experiment.as_ref(), args.quick) {
            Ok(outcome) => {
                outcome.write(&args.folder.results)?;
                let Outcome {
                    verdict: which,
                    reasons,
                    seconds,
                    ..
                } = &outcome;
                say!("{name}: {}, {seconds:.0} s: {reasons}", verdict(*which))?;
            }
            Err(error) => {
                failed += 1;
                note(format_args!("{place}: {error}"));
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} of {count} experiments failed; the others are kept").into()),
    }
}

fn run_one(
    experiment: &dyn Experiment,
    is_quick: bool,
) -> Result<Outcome, Box<dyn std::error::Error>> {
    let start = Instant::now();
    let load = load();
    let mut run = Run::new(&handfast_bench::Args::of(experiment.bench(), is_quick))?;
    let found: Findings = experiment.run(&mut run)?;
    let mut notes = found.notes;
    notes.extend(run.finish());
    notes.extend(load);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(Outcome {
        schema: SCHEMA,
        about: experiment.about(),
        measured: found.measured,
        verdict: found.verdict,
        reasons: found.reasons,
        figures: found.figures,
        tables: found.tables,
        notes,
        machine: machine::describe(),
        unix_s: now.map_or(0, |since| since.as_secs()),
        seconds: start.elapsed().as_secs_f64(),
        is_quick,
    })
}

/// How busy the machine is without us, in a sentence.
fn load() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load = text.split_whitespace().next()?;
    let cpus = cpu::online();
    Some(format!(
        "The load average was {load} on {cpus} CPUs when it began; others' work makes these numbers wild, on all CPUs most of all."
    ))
}

const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Partly => "partly",
        Verdict::Fails => "fails",
        Verdict::Undecided => "undecided",
        Verdict::Absent => "absent",
        Verdict::Shown => "shown",
    }
}
