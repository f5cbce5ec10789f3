//! The result of an experiment: one JSON file, the same shape for all.

use handfast_cli::temporary;
use handfast_sys::{Errno, OwnedFd, directory};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Counted up when what is written changes its meaning.
pub(crate) const SCHEMA: u32 = 1;

/// An experiment that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) schema: u32,
    pub(crate) about: About,
    /// The measurement here, in a sentence or two: systems, numbers, placement.
    pub(crate) measured: String,
    pub(crate) verdict: Verdict,
    /// Why it holds or not, with the figures that say so.
    pub(crate) reasons: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) tables: Vec<Table>,
    /// Parts left out and why, warnings, the meaning of a ratio.
    pub(crate) notes: Vec<String>,
    pub(crate) machine: String,
    /// Seconds since 1970 when it ended.
    pub(crate) unix_s: u64,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Few rounds: shows that it runs, not how fast.
    pub(crate) is_quick: bool,
}

/// The description of an experiment, before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// The name on the command line and of the file: `000-figure-2`.
    pub(crate) name: String,
    /// `000` to `004`; nothing for what is no paper's.
    pub(crate) paper: Option<String>,
    pub(crate) title: String,
    pub(crate) claim: String,
    pub(crate) method: String,
}

/// Whether the claim holds on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Holds,
    /// Some of it, or with other factors; the reasons say which.
    Partly,
    Fails,
    /// Too few rounds agree.
    Undecided,
    /// It could not be measured here.
    Absent,
    /// The paper has no number to hold against it.
    Shown,
}

/// Curves or bars over one pair of axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) title: String,
    pub(crate) kind: Kind,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Points of a curve are joined, by x.
    Lines,
    /// Points alone.
    Scatter,
    /// One bar for each curve at each x, side by side.
    Bars,
    /// One bar at each x, of all curves.
    Stacked,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Axis {
    pub(crate) label: String,
    /// `ns`, `us`, `bytes`, `messages/s`; empty for a number.
    pub(crate) unit: String,
    /// How it is shown first.
    pub(crate) is_log: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Why it has no points, if it has none.
    pub(crate) absent: Option<String>,
    pub(crate) points: Vec<Point>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) x: f64,
    /// A median over rounds.
    pub(crate) y: f64,
    /// The lowest and the highest round.
    pub(crate) range: Option<(f64, f64)>,
    /// The text at this x instead of the number (bars), or beside the point (scatter).
    pub(crate) label: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Axis {
    pub(crate) fn linear(label: &str, unit: &str) -> Self {
        Self {
            label: label.to_owned(),
            unit: unit.to_owned(),
            is_log: false,
        }
    }

    pub(crate) fn log(label: &str, unit: &str) -> Self {
        Self {
            is_log: true,
            ..Self::linear(label, unit)
        }
    }
}

impl Curve {
    pub(crate) fn new(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let point = |(x, y)| Point {
            x,
            y,
            range: None,
            label: None,
        };
        Self {
            name: name.to_owned(),
            absent: None,
            points: points.into_iter().map(point).collect(),
        }
    }
}

impl Outcome {
    /// The file of an experiment in a results folder.
    pub(crate) fn path(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}.json"))
    }

    /// Writes it whole, or not at all: beside its place first.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), String> {
        let path = Self::path(folder, &self.about.name);
        let beside = path.with_extension("json.new");
        let json = serde_json::to_vec_pretty(self).map_err(|error| error.to_string())?;
        let _goes_on = temporary::goes_on();
        let written = fs::write(&beside, json).and_then(|()| fs::rename(&beside, &path));
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            format!("{}: {error}", path.display())
        })
    }

    /// The result that an earlier run left in this file, or why it is no result.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let bytes = read(path).map_err(|error| error.to_string())?;
        let value: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|error| format!("no JSON: {error}"))?;
        let schema = value.get("schema").and_then(serde_json::Value::as_u64);
        if schema != Some(u64::from(SCHEMA)) {
            let found = schema.map_or_else(|| "none".to_owned(), |schema| schema.to_string());
            return Err(format!(
                "its schema is {found}, and this handfast reads {SCHEMA}: run the experiment again"
            ));
        }
        let outcome: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let name = &outcome.about.name;
        match path.file_stem() == Some(OsStr::new(name)) {
            true => Ok(outcome),
            false => Err(format!("it is a result of {name}, by another file name")),
        }
    }
}

/// The content of a file, if it is one, and of a length that a result may have: nobody waits for a pipe or reads a device.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(io::Error::other("longer than 16 MiB, as no result is")),
        false => Ok(bytes),
    }
}

/// The longest are some 100 KiB.
const BYTES_MAX: u64 = 16 << 20;

/// Makes the folder if it is not there, sees that results can be written there, and keeps other runs out of it as long as
/// the returned descriptor is there: they would disturb one another's measurements.
pub(crate) fn enter(folder: &Path) -> Result<OwnedFd, String> {
    let why = |error: io::Error| {
        format!(
            "no results can be kept in {} ({error}); name another folder (--results)",
            folder.display()
        )
    };
    fs::create_dir_all(folder).map_err(why)?;
    let alone = directory::lock(folder).map_err(|errno| match errno {
        Errno::AGAIN => format!(
            "another handfast lab run is at work for {}; wait for it, since each wants the machine for itself",
            folder.display()
        ),
        errno => why(errno.into()),
    })?;
    let trial = folder.join("trial.json.new");
    let written = fs::write(&trial, "{}");
    let removed = fs::remove_file(&trial);
    written.and(removed).map_err(why)?;
    Ok(alone)
}
