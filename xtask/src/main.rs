//! `cargo run -p xtask -- tidy`: checks on the tree that no compiler makes.
//!
//! * A crate depends only on crates of lower layers (`package.metadata.handfast.layer`).
//! * Every ordering edge cited in the code has both halves and a row in `spec/memory-model.md`.
//! * Functions that `ARCHITECTURE.md` names exist.
//! * The library asks for the environment in one place, which knows of set-user-id programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    if command.as_deref() != Some("tidy") {
        eprintln!("usage: cargo run -p xtask -- tidy");
        return ExitCode::FAILURE;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut problems = layers(&root);
    problems.extend(edges(&root));
    problems.extend(walk(&root));
    problems.extend(environment(&root));
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    println!("tidy: {} problems", problems.len());
    if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Each crate's layer is above those it depends on.
fn layers(root: &Path) -> Vec<String> {
    let mut crates = BTreeMap::new();
    for entry in fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let manifest = read(&entry.path().join("Cargo.toml"));
        let value = |key: &str| {
            manifest
                .lines()
                .find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='))
        };
        let name = value("name")
            .unwrap_or_default()
            .trim()
            .trim_matches('"')
            .to_owned();
        let layer = value("layer").and_then(|layer| layer.trim().parse::<u32>().ok());
        let used = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let used = used.split("\n[").next().unwrap_or_default();
        let used: Vec<String> = used
            .lines()
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .filter(|name| name.starts_with("handfast"))
            .map(str::to_owned)
            .collect();
        crates.insert(name, (layer, used));
    }
    let mut problems = Vec::new();
    for (name, (layer, used)) in &crates {
        let Some(layer) = layer else {
            problems.push(format!("{name} has no layer in package.metadata.handfast"));
            continue;
        };
        for other in used {
            match crates.get(other) {
                Some((Some(below), _)) if below < layer => {}
                _ => problems.push(format!("{name} (layer {layer}) must not depend on {other}")),
            }
        }
    }
    problems
}

/// Edges are cited as `E5 arm.` in comments: at two sites or more, and in the table.
fn edges(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    let mut sites: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        for (number, line) in read(&file).lines().enumerate() {
            let Some(comment) = line.trim().strip_prefix("// ") else {
                continue;
            };
            let Some(edge) = comment.split(' ').next() else {
                continue;
            };
            let (letter, digits) = edge.split_at(edge.len().min(1));
            if matches!(letter, "E" | "P" | "Q") && digits.parse::<u32>().is_ok() {
                let site = format!("{}:{}", file.display(), number + 1);
                sites.entry(edge.to_owned()).or_default().insert(site);
            }
        }
    }
    let table = read(&root.join("spec/memory-model.md"));
    let mut problems = Vec::new();
    for (edge, sites) in sites {
        if sites.len() < 2 {
            problems.push(format!("edge {edge} has one half only: {sites:?}"));
        }
        if !table
            .lines()
            .any(|line| line.starts_with(&format!("| {edge} ")))
        {
            problems.push(format!("edge {edge} has no row in spec/memory-model.md"));
        }
    }
    problems
}

/// Functions named as `` `Type::function` `` in ARCHITECTURE.md exist.
fn walk(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    let code: String = files.iter().map(|file| read(file)).collect();
    let text = read(&root.join("ARCHITECTURE.md"));
    let mut problems = Vec::new();
    for named in text.split('`').skip(1).step_by(2) {
        let Some((kind, function)) = named.rsplit_once("::") else {
            continue;
        };
        let function = function.trim_end_matches("()");
        let is_name = |word: &str| {
            !word.is_empty()
                && word
                    .chars()
                    .all(|c| c.is_alphanumeric() || matches!(c, '_' | ':'))
        };
        if is_name(kind)
            && is_name(function)
            && function.starts_with(char::is_lowercase)
            && !code.contains(&format!("fn {function}"))
            && !code.contains(&format!("mod {function}"))
        {
            problems.push(format!(
                "ARCHITECTURE.md names {named}, which does not exist"
            ));
        }
    }
    problems
}

/// Crates that are no part of a user's program, and files of tests and models.
const OUTSIDE: [&str; 8] = [
    "crates/cli/",
    "crates/fuzz/",
    "crates/testing/",
    "/tests/",
    "/tests.rs",
    "/examples/",
    "crates/proto/src/schedule.rs",
    "crates/region/src/model/",
];

/// `handfast_sys::process::variable` is the only function that reads the environment.
fn environment(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    files.retain(|file| {
        let path = file.to_string_lossy();
        !OUTSIDE.iter().any(|outside| path.contains(outside))
    });
    let mut problems = Vec::new();
    for file in files {
        let code = read(&file);
        let asks = |line: &&str| line.contains("env::var") || line.contains("getenv(");
        let count = code.lines().filter(asks).count();
        let allowed = usize::from(file.ends_with("sys/src/process.rs"));
        if count != allowed {
            problems.push(format!(
                "{} reads the environment; ask handfast_sys::process::variable",
                file.display()
            ));
        }
    }
    problems
}
