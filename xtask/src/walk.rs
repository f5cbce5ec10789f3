//! The names in `ARCHITECTURE.md` lead somewhere.

use crate::{all_sources, read};
use std::path::{Path, PathBuf};

/// Functions named as `` `Type::function` `` exist, and so do files. Where `` (`file.rs`) `` follows a function, it is in that file.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let code: String = all_sources(root).iter().map(|file| read(file)).collect();
    let text = read(&root.join("ARCHITECTURE.md"));
    let pieces: Vec<&str> = text.split('`').collect();
    let mut problems = Vec::new();
    for (at, named) in pieces.iter().enumerate().skip(1).step_by(2) {
        if is_file(named) && !found(root, named).exists() {
            problems.push(format!(
                "ARCHITECTURE.md names the file {named}, which does not exist"
            ));
        }
        let Some(function) = function(named) else {
            continue;
        };
        let is_there = |code: &str| {
            let items = [("fn ", "("), ("fn ", "<"), ("mod ", ";"), ("mod ", " ")];
            items
                .iter()
                .any(|(before, after)| code.contains(&format!("{before}{function}{after}")))
        };
        if named.contains("::") && !is_there(&code) {
            problems.push(format!(
                "ARCHITECTURE.md names {named}, which does not exist"
            ));
        }
        let is_followed = pieces.get(at + 1) == Some(&" (");
        if let Some(file) = pieces
            .get(at + 2)
            .filter(|file| is_followed && is_file(file))
            && !is_there(&read(&found(root, file)))
        {
            problems.push(format!("ARCHITECTURE.md: {named} is not in {file}"));
        }
    }
    problems
}

fn is_file(named: &str) -> bool {
    named.ends_with(".rs") && !named.contains(char::is_whitespace)
}

/// A file by its name: beginning at the root, or in the crate `port`.
fn found(root: &Path, named: &str) -> PathBuf {
    match root.join(named) {
        path if path.exists() => path,
        _ => root.join("crates/port/src").join(named),
    }
}

/// The function in `function`, `Type::function` or `function()`, if the name is of that form.
fn function(named: &str) -> Option<&str> {
    let named = named.trim_end_matches("()");
    let is_name = named
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | ':'));
    let function = named.rsplit("::").next()?;
    (is_name && function.starts_with(char::is_lowercase)).then_some(function)
}
