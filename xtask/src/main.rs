//! `cargo run -p xtask -- tidy`: checks on the tree that no compiler makes.
//!
//! * A crate depends only on crates of lower layers (`package.metadata.handfast.layer`).
//! * Modules of a crate import each other in one direction only, and so do the modules within a module.
//! * Every ordering edge cited in the code has both halves and a row in `spec/memory-model.md`.
//! * Functions and files that `ARCHITECTURE.md` names exist.
//! * Locks have ranks, in the order of `spec/locks.md`, and none is one of the standard library's.
//! * The library asks for the environment in one place, which knows of set-user-id programs.
//! * Sentences in comments and documents name their subject.
//! * The constants that `docs/limits.md` names exist, and have the values given there.
//! * Control messages are made by their codec, not by hand, and the attackers speak the version of the layout.
//! * Files, functions and types that are too large are listed, and the list only gets shorter. `cargo run -p xtask -- sizes`
//!   lists them with their sizes.
//! * Sleeps in tests have a reason. `cargo run -p xtask -- sleeps` lists them.
//!
//! `cargo run -p xtask -- api` compares the public items with their lists in `docs/api/`. `not-exercised` is the end of `./test`.

mod api;
mod language;
mod limits;
mod messages;
mod modules;
mod not_exercised;
mod sizes;
mod sleeps;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match command.as_deref() {
        Some("tidy") => {}
        Some("api") => return api::run(&root, std::env::args().any(|word| word == "--write")),
        Some("not-exercised") => return not_exercised::run(std::env::args().skip(2)),
        Some("sleeps") => {
            sleeps::list(&root);
            return ExitCode::SUCCESS;
        }
        Some("sizes") => {
            sizes::list(&root);
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy | sizes | sleeps | api [--write]");
            return ExitCode::FAILURE;
        }
    }
    let mut problems = layers(&root);
    problems.extend(modules::check(&root));
    problems.extend(edges(&root));
    problems.extend(walk::check(&root));
    problems.extend(locks(&root));
    problems.extend(environment(&root));
    problems.extend(sizes::check(&root));
    problems.extend(sleeps::check(&root));
    problems.extend(language::check(&root));
    problems.extend(limits::check(&root));
    problems.extend(messages::check(&root));
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

/// Where packages are: crates of the library and its command, and development tools.
const PLACES: [&str; 2] = ["crates", "tools"];

/// The directories of all packages in them.
fn packages(root: &Path) -> Vec<PathBuf> {
    let entries = PLACES.map(|place| fs::read_dir(root.join(place)));
    let entries = entries.into_iter().flatten().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// All their sources.
fn all_sources(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for place in PLACES {
        sources(&root.join(place), &mut files);
    }
    files
}

/// Each crate's layer is above those it depends on.
fn layers(root: &Path) -> Vec<String> {
    let mut crates = BTreeMap::new();
    for directory in packages(root) {
        let manifest = read(&directory.join("Cargo.toml"));
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
    let files = all_sources(root);
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

/// The ranks that crates declare are the table of `spec/locks.md`, in its order, and have a lock; their crates use no locks
/// of the standard library.
fn locks(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    let mut declared: Vec<(u32, String)> = Vec::new();
    for directory in packages(root) {
        let ranks = read(&directory.join("src/rank.rs"));
        let Some((_, list)) = ranks.split_once("ranks! {") else {
            continue;
        };
        let (first, names) = list.split_once(':').unwrap_or_default();
        let first: u32 = first.trim().parse().unwrap_or_default();
        let names = names.split(['}', ',']).map(str::trim);
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        let mut files = Vec::new();
        sources(&directory.join("src"), &mut files);
        let is_outside = |file: &Path| {
            let path = file.to_string_lossy();
            let is_scenario = path.contains("/port/src/simulation");
            path.contains("/tests")
                || path.ends_with("model.rs")
                || path.contains("/model/")
                || is_scenario
        };
        files.retain(|file| !is_outside(file));
        let code: Vec<_> = files.iter().map(|file| (file, read(file))).collect();
        for (level, name) in (first..).zip(names) {
            if !code
                .iter()
                .any(|(_, code)| code.contains(&format!("rank::{name}>")))
            {
                problems.push(format!("rank {name} has no lock"));
            }
            declared.push((level, name.to_owned()));
        }
        for (file, code) in &code {
            let is_of_std = |line: &&str| {
                let line = line.trim();
                let imported = line.strip_prefix("use std::sync::").unwrap_or_default();
                let names = |word: &str| word == "Mutex" || word == "RwLock" || word == "Condvar";
                let words = |c: char| !c.is_alphanumeric();
                imported.split(words).any(names)
                    || !line.starts_with("//")
                        && (line.contains("std::sync::Mutex") || line.contains("std::sync::RwLock"))
            };
            if code.lines().any(|line| is_of_std(&line)) {
                let file = file.display();
                problems.push(format!(
                    "{file} has a lock without a rank: use handfast_sys::sync"
                ));
            }
        }
    }
    declared.sort();
    if let Some(pair) = declared.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        problems.push(format!(
            "ranks {} and {} are the same",
            pair[0].1, pair[1].1
        ));
    }
    let table = read(&root.join("spec/locks.md"));
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let named = rows.filter_map(|row| row.split(' ').next());
    let named = named.filter(|name| name.starts_with(char::is_uppercase));
    if !named.eq(declared.iter().map(|(_, name)| name)) {
        problems
            .push("spec/locks.md has other ranks than the crates, or in another order".to_owned());
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
