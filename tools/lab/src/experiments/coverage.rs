//! Every figure and table of the papers has an experiment, or a reason why it has none.

use super::{MISSING, all};
use std::collections::BTreeSet;

/// The number of figures and tables of each paper.
const PAPERS: [(&str, usize, usize); 5] = [
    ("000", 12, 1),
    ("001", 4, 0),
    ("002", 2, 0),
    ("003", 6, 1),
    ("004", 0, 0),
];

/// Experiments about a paper's text.
const OF_TEXT: [(&str, &str); 8] = [
    ("000-asynchronous", "sections 1 and 2.1"),
    ("001-ttcp", "section 5.1"),
    ("001-optimum", "section 3.2"),
    ("002-scaling", "section 3"),
    ("002-workers", "section 2"),
    ("004-merged-rights", "section 2.5.1"),
    ("004-no-senders", "sections 2.5.3 and 2.5.4"),
    ("004-moves", "section 2.5.6"),
];

fn numbered(paper: &str, kind: &str, count: usize) -> impl Iterator<Item = String> {
    (1..=count).map(move |number| format!("{paper}-{kind}-{number}"))
}

#[test]
fn every_figure_and_table_is_listed_or_has_a_reason() {
    let listed = all().iter().map(|one| one.about()).collect::<Vec<_>>();
    let listed: BTreeSet<&str> = listed.iter().map(|about| about.name.as_str()).collect();
    let mut known = BTreeSet::new();
    for (paper, figures, tables) in PAPERS {
        known.extend(numbered(paper, "figure", figures));
        known.extend(numbered(paper, "table", tables));
    }
    for name in &known {
        let reason = MISSING.iter().find(|(missing, _)| missing == name);
        assert_ne!(
            listed.contains(name.as_str()),
            reason.is_some(),
            "{name}: an experiment, or a reason in MISSING"
        );
    }
    for (name, reason) in MISSING.iter().chain(&OF_TEXT) {
        assert!(!reason.is_empty(), "{name}");
    }
    for (name, _) in MISSING {
        assert!(known.contains(name), "{name} is no figure");
    }
    for (name, _) in OF_TEXT {
        assert!(listed.contains(name) && !known.contains(name), "{name}");
    }
    let is_of_paper = |name: &&&str| !name.starts_with("peers-") && !name.starts_with("laws-");
    for name in listed.iter().filter(is_of_paper) {
        let is_text = OF_TEXT.iter().any(|(text, _)| text == name);
        assert!(is_text || known.contains(*name), "{name} is in no list");
    }
}
