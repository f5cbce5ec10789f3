//! The experiments there are, and what one is.

use super::result::{About, Figure, Table, Verdict};
use super::{paper000, paper001, paper002, paper003, peers};
use crate::bench::Bench;
use crate::bench::run::Run;
use std::io;

/// An experiment. To add one, implement this and add it to [`all`].
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

/// All of them, in the order of the papers.
pub(crate) fn all() -> Vec<Box<dyn Experiment>> {
    let mut all: Vec<Box<dyn Experiment>> = Vec::new();
    all.extend(paper000::all());
    all.extend(paper001::all());
    all.extend(paper002::all());
    all.extend(paper003::all());
    all.extend(peers::all());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_begin_with_their_paper() {
        let mut seen = HashSet::new();
        for experiment in all() {
            let about = experiment.about();
            assert!(seen.insert(about.name.clone()), "{} twice", about.name);
            assert!(about.name.starts_with(about.paper.as_deref().unwrap_or("")));
            assert!(!about.claim.is_empty() && !about.method.is_empty());
        }
    }
}
