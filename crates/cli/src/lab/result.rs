//! What an experiment leaves: one JSON file, the same shape for all.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Counted up when what is written changes its meaning.
pub(crate) const SCHEMA: u32 = 1;

/// An experiment that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) schema: u32,
    pub(crate) about: About,
    /// What was measured here, in a sentence or two: systems, numbers, placement.
    pub(crate) measured: String,
    pub(crate) verdict: Verdict,
    /// Why it holds or not, with the figures that say so.
    pub(crate) reasons: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) tables: Vec<Table>,
    /// What was left out and why, warnings, what a ratio means.
    pub(crate) notes: Vec<String>,
    pub(crate) machine: String,
    /// Seconds since 1970 when it ended.
    pub(crate) unix_s: u64,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Few rounds: shows that it runs, not how fast.
    pub(crate) is_quick: bool,
}

/// What an experiment is, before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// What the command line and the file say: `000-figure-2`.
    pub(crate) name: String,
    /// `000` to `003`; nothing for what is no paper's.
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
    /// It could not be measured here.
    Absent,
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
    /// What stands at this x instead of the number (bars), or beside the point (scatter).
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
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let path = Self::path(folder, &self.about.name);
        let beside = path.with_extension("json.new");
        fs::write(&beside, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&beside, &path)
    }

    /// What an earlier run left, if it is whole and of this schema.
    pub(crate) fn read(folder: &Path, name: &str) -> Option<Self> {
        let bytes = fs::read(Self::path(folder, name)).ok()?;
        let outcome: Self = serde_json::from_slice(&bytes).ok()?;
        (outcome.schema == SCHEMA && outcome.about.name == name).then_some(outcome)
    }
}
