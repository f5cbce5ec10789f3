//! `handfast lab report`: what experiments left, to be looked at.

use crate::experiments;
use crate::page::{self, Report};
use crate::result::Outcome;
use handfast_cli::Outcome as Done;
use handfast_cli::output::{self, note, say};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// Where results are kept.
    #[arg(long, default_value = "lab-results")]
    results: PathBuf,
    /// The page to write (lab-report.html if nothing is said, - for standard output), or the folder for --svg (lab-figures).
    #[arg(long)]
    out: Option<PathBuf>,
    /// Each figure as an SVG file instead.
    #[arg(long)]
    svg: bool,
}

/// Makes the page, or the files. Results that cannot be read are named and left out.
pub(super) fn run(args: &Args) -> Done {
    let report = collect(&args.results)?;
    for reason in &report.broken {
        note(format_args!("left out: {reason}"));
    }
    if report.outcomes.is_empty() {
        let folder = args.results.display();
        note(format_args!(
            "no results in {folder}: handfast lab run --all makes them"
        ));
    }
    let out = |usual: &str| args.out.clone().unwrap_or_else(|| usual.into());
    if !args.svg {
        let path = out("lab-report.html");
        if path == Path::new("-") || path == Path::new("/dev/stdout") {
            return output::bytes(report.page().as_bytes());
        }
        write(&path, &report.page())?;
        return say!("{}", path.display());
    }
    let folder = out("lab-figures");
    if folder == Path::new("-") {
        return Err("--svg writes many files: name a folder (--out)".into());
    }
    if folder.exists() && !folder.is_dir() {
        let folder = folder.display();
        return Err(format!("{folder}: a file; name a folder for --svg (--out)").into());
    }
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for (name, svg) in report.figures() {
        let path = folder.join(name);
        write(&path, &svg)?;
        say!("{}", path.display())?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// All results of a folder, in the order of the experiments; others after them, by name. A folder that is not there
/// has none.
fn collect(folder: &Path) -> Result<Report, String> {
    let mut outcomes = Vec::new();
    let mut broken = Vec::new();
    if folder.exists() {
        let entries =
            fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths
            .iter()
            .filter(|path| path.extension() == Some(OsStr::new("json")))
        {
            match Outcome::load(path) {
                Ok(outcome) => outcomes.push(outcome),
                Err(reason) => broken.push(format!("{}: {reason}", path.display())),
            }
        }
    }
    let known: Vec<_> = experiments::all().iter().map(|one| one.about()).collect();
    let place = |name: &str| {
        known
            .iter()
            .position(|about| about.name == name)
            .unwrap_or(known.len())
    };
    let name = |outcome: &Outcome| outcome.about.name.clone();
    outcomes.sort_by_key(|outcome| (name(outcome) != page::SUMMARY, place(&name(outcome))));
    let is_there = |name: &str| outcomes.iter().any(|outcome| outcome.about.name == name);
    let missing = known
        .iter()
        .filter(|about| !is_there(&about.name))
        .cloned()
        .collect();
    Ok(Report {
        outcomes,
        missing,
        broken,
    })
}
