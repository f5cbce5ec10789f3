//! Comments and documents are plain sentences: none begins with a relative clause in the place of a noun.

use crate::{all_sources, read, sources};
use std::path::{Path, PathBuf};

/// Words that begin such a sentence, unless it is a question.
const BEGINNINGS: [&str; 4] = ["Who", "Whoever", "What", "Those"];

/// Places of documents.
const DOCUMENTS: [&str; 5] = ["", "docs", "docs/decisions", "docs/papers", "spec"];

/// Comments and documents with such a sentence.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut files = all_sources(root);
    for directory in ["xtask/src", "fuzz/fuzz_targets"] {
        sources(&root.join(directory), &mut files);
    }
    files.sort();
    let mut problems = in_files(root, &files, comment);
    let directories = DOCUMENTS.map(|directory| documents(&root.join(directory)));
    problems.extend(in_files(root, &directories.concat(), prose));
    problems
}

/// The documents in a directory, not below it.
fn documents(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.sort();
    found
}

/// The problems of some files, of whose lines `text` finds the text.
fn in_files(root: &Path, files: &[PathBuf], text: fn(&str) -> Option<&str>) -> Vec<String> {
    let mut problems = Vec::new();
    for path in files {
        for (number, line) in read(path).lines().enumerate() {
            let Some(word) = text(line).and_then(beginning) else {
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

/// The text of a line of code that is a comment.
fn comment(line: &str) -> Option<&str> {
    let comment = line.trim().strip_prefix("//")?;
    Some(comment.trim_start_matches(['/', '!']).trim_start())
}

/// The text of a line of a document, without the signs before it; headings may be questions without a question mark.
fn prose(line: &str) -> Option<&str> {
    let signs = |c: char| c.is_ascii_digit() || matches!(c, ' ' | '*' | '-' | '.' | '>' | '|');
    (!line.starts_with('#')).then(|| line.trim_start_matches(signs))
}

/// The word by which some sentence in this text begins, if it is one of those that none begins with.
fn beginning(text: &str) -> Option<&'static str> {
    if text.contains('?') {
        return None;
    }
    let begins = |word: &&&str| {
        let sentences = [". ", ": ", "; ", "** ", "| "].map(|end| format!("{end}{word} "));
        text.starts_with(&format!("{word} "))
            || sentences.iter().any(|sentence| text.contains(sentence))
    };
    BEGINNINGS.iter().find(begins).copied()
}
