//! The experiments there are.

use crate::experiment::Experiment;
use crate::{laws, paper000, paper001, paper002, paper003, paper004, peers};

/// All of them, in the order of the papers.
pub(crate) fn all() -> Vec<Box<dyn Experiment>> {
    let mut all: Vec<Box<dyn Experiment>> = Vec::new();
    all.extend(paper000::all());
    all.extend(paper001::all());
    all.extend(paper002::all());
    all.extend(paper003::all());
    all.extend(paper004::all());
    all.extend(laws::all());
    all.extend(peers::all());
    all
}

const STEPS: &str = "the steps of a protocol, no measurement: models and tests have them";

/// Figures of the papers without an experiment, and why.
pub(crate) const MISSING: [(&str, &str); 7] = [
    ("000-figure-1", STEPS),
    ("000-figure-4", STEPS),
    ("000-figure-5", STEPS),
    ("000-figure-7", STEPS),
    ("000-figure-9", STEPS),
    ("002-figure-1", "a drawing of data structures"),
    (
        "003-figure-1",
        "a drawing of three processes, which 003-figure-5 measures",
    ),
];

#[cfg(test)]
mod coverage;

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
