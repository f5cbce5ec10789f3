//! An experiment, and what it finds.

use crate::result::{About, Figure, Table, Verdict};
use handfast_bench::Bench;
use handfast_bench::run::Run;
use std::io;

/// An experiment. To add one, implement this and add it to `experiments::all`.
pub(crate) trait Experiment {
    /// Its description; the same each time.
    fn about(&self) -> About;

    /// The benchmark whose usual options it starts from.
    fn bench(&self) -> Bench;

    /// Measures. Systems that are not there, or fail, are absent curves, not errors.
    fn run(&self, run: &mut Run) -> io::Result<Findings>;
}

/// The findings of a run.
pub(crate) struct Findings {
    pub(crate) measured: String,
    pub(crate) verdict: Verdict,
    pub(crate) reasons: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) tables: Vec<Table>,
    pub(crate) notes: Vec<String>,
}
