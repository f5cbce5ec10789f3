//! Comments are plain sentences: none begins with a relative clause in the place of a noun.

use crate::{all_sources, read, sources};
use std::path::Path;

/// Words that begin such a sentence, unless it is a question.
const BEGINNINGS: [&str; 4] = ["Who", "Whoever", "What", "Those"];

/// Comments with such a sentence.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut files = all_sources(root);
    for directory in ["xtask/src", "fuzz/fuzz_targets"] {
        sources(&root.join(directory), &mut files);
    }
    files.sort();
    let mut problems = Vec::new();
    for path in &files {
        let text = read(path);
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim().strip_prefix("//");
            let comment = comment.map(|rest| rest.trim_start_matches(['/', '!']).trim_start());
            let Some(word) = comment.and_then(beginning) else {
                continue;
            };
            let name = path.strip_prefix(root).unwrap_or(path).display();
            problems.push(format!(
                "{name}:{}: a sentence begins with \"{word}\"; name its subject (\"a process that ...\")",
                number + 1
            ));
        }
    }
    problems
}

/// The word by which some sentence in this comment begins, if it is one of those that none begins with.
fn beginning(comment: &str) -> Option<&'static str> {
    if comment.contains('?') {
        return None;
    }
    let begins = |word: &&&str| {
        let sentences = [". ", ": ", "; "].map(|end| format!("{end}{word} "));
        comment.starts_with(&format!("{word} "))
            || sentences.iter().any(|sentence| comment.contains(sentence))
    };
    BEGINNINGS.iter().find(begins).copied()
}
