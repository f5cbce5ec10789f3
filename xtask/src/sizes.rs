//! Sizes of files, tests included, and of functions and types of the libraries: what is larger than its limit is in a list,
//! and the list only gets shorter.

use crate::{all_sources, read, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const FIELDS_MAX: usize = 25;
const METHODS_MAX: usize = 40;

/// Crates that are libraries of the product.
const CRATES: [&str; 12] = [
    "channel", "domain", "handfast", "layout", "macros", "port", "proto", "region", "ring",
    "service", "sys", "wait",
];

/// All that is larger than its limit still.
const LARGER: &str = include_str!("larger.txt");

/// Everything larger than its limit has to be in the list, and nothing else.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let larger = all(root);
    let listed: BTreeSet<_> = LARGER.lines().map(str::to_owned).collect();
    let found: BTreeSet<_> = larger.keys().cloned().collect();
    let new = found.difference(&listed).map(|what| {
        format!(
            "{what} is too large ({}): see xtask/src/sizes.rs",
            larger[what]
        )
    });
    let gone = listed
        .difference(&found)
        .map(|what| format!("{what} is no longer too large: strike it from xtask/src/larger.txt"));
    new.chain(gone).collect()
}

/// Prints all of that, with the sizes.
pub(crate) fn list(root: &Path) {
    for (what, size) in all(root) {
        println!("{size:5} {what}");
    }
}

fn all(root: &Path) -> BTreeMap<String, usize> {
    let mut larger = BTreeMap::new();
    for file in all_sources(root) {
        let lines = read(&file).lines().count();
        if lines > FILE_LINES_MAX {
            let path = file.strip_prefix(root).unwrap_or(&file);
            larger.insert(format!("file {}", path.display()), lines);
        }
    }
    for name in CRATES {
        let source = root.join("crates").join(name).join("src");
        let mut files = Vec::new();
        sources(&source, &mut files);
        let mut methods: BTreeMap<String, usize> = BTreeMap::new();
        for file in files {
            let path = file.strip_prefix(&source).unwrap_or(&file);
            let is_test = path.iter().any(|part| {
                let part = part.to_string_lossy();
                ["test", "model", "simulation", "stress"]
                    .iter()
                    .any(|word| part.contains(word))
            });
            if is_test {
                continue;
            }
            let code = read(&file);
            let code = code.split("#[cfg(test)]\nmod tests {").next();
            let code = code.unwrap_or_default();
            // A module of tests by another name.
            if code.contains("#[test]") {
                continue;
            }
            let lines: Vec<_> = code.lines().collect();
            let place = format!("{name}/{}", path.display());
            functions(&lines, &place, &mut larger);
            types(&lines, &place, &mut larger);
            count_methods(&lines, &mut methods);
        }
        for (of, count) in methods {
            if count > METHODS_MAX {
                larger.insert(format!("methods {name} {of}"), count);
            }
        }
    }
    larger
}

/// The name behind a keyword in a line, if it has that: `fn name(`.
fn named<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let line = line.trim_start();
    let (before, after) = line.split_once(keyword)?;
    let is_declared = before.split_whitespace().all(|word| {
        word.starts_with("pub")
            || ["const", "unsafe", "async", "extern", "\"C\""].contains(&word)
            || word.starts_with("in ")
    });
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (is_declared && end > 0).then(|| &after[..end])
}

/// How many lines from `first` to the closing brace with the same indentation.
fn length(lines: &[&str], first: usize) -> usize {
    let indent = lines[first].len() - lines[first].trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let rest = &lines[first..];
    let body = rest
        .iter()
        .position(|line| line.ends_with('{') || line.ends_with(';'));
    // A declaration without a body.
    if body.is_none_or(|at| rest[at].ends_with(';')) {
        return 0;
    }
    rest.iter()
        .position(|line| *line == end)
        .map_or(0, |at| at + 1)
}

fn functions(lines: &[&str], place: &str, larger: &mut BTreeMap<String, usize>) {
    for (at, line) in lines.iter().enumerate() {
        if let Some(name) = named(line, "fn ") {
            let count = length(lines, at);
            if count > FUNCTION_LINES_MAX {
                larger.insert(format!("function {place} {name}"), count);
            }
        }
    }
}

fn types(lines: &[&str], place: &str, larger: &mut BTreeMap<String, usize>) {
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = named(line, "struct ").filter(|_| line.ends_with('{')) else {
            continue;
        };
        let body = &lines[at..at + length(lines, at)];
        let is_field = |line: &&&str| {
            let line = line.trim_start();
            !line.starts_with("//") && !line.starts_with('#') && line.contains(": ")
        };
        let count = body.iter().filter(is_field).count();
        if count > FIELDS_MAX {
            larger.insert(format!("fields {place} {name}"), count);
        }
    }
}

fn count_methods(lines: &[&str], methods: &mut BTreeMap<String, usize>) {
    let mut of = None;
    for line in lines {
        if let Some(rest) = line.strip_prefix("impl") {
            let rest = rest.trim_start_matches(|c| c != ' ').trim_start();
            let name = rest.split(['<', ' ', '{']).next().unwrap_or_default();
            of = (!line.contains(" for ")).then(|| name.to_owned());
        } else if *line == "}" {
            of = None;
        }
        let is_method = line.starts_with("    ") && !line.starts_with("     ");
        if let Some(of) = of
            .as_ref()
            .filter(|_| is_method && named(line, "fn ").is_some())
        {
            *methods.entry(of.clone()).or_default() += 1;
        }
    }
}
