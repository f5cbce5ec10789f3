//! `handfast lab report`: what experiments left, to be looked at.

use super::experiments;
use super::page::{self, Report};
use super::result::{Outcome, SCHEMA};
use crate::Outcome as Done;
use crate::output::{note, say};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// Where results are kept.
    #[arg(long, default_value = "lab-results")]
    results: PathBuf,
    /// The page to write (lab-report.html if nothing is said), or the folder for --svg (lab-figures).
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
        write(&path, &report.page())?;
        return say!("{}", path.display());
    }
    let folder = out("lab-figures");
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
            match read(path) {
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

/// A result, or why it is none.
fn read(path: &Path) -> Result<Outcome, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| format!("no JSON: {error}"))?;
    let schema = value.get("schema").and_then(serde_json::Value::as_u64);
    if schema != Some(u64::from(SCHEMA)) {
        let found = schema.map_or_else(|| "none".to_owned(), |schema| schema.to_string());
        return Err(format!(
            "its schema is {found}, and this handfast reads {SCHEMA}: run the experiment again"
        ));
    }
    let outcome: Outcome = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let name = &outcome.about.name;
    match path.file_stem() == Some(OsStr::new(name)) {
        true => Ok(outcome),
        false => Err(format!("it is a result of {name}, by another file name")),
    }
}
