//! Tests that sleep say why: none takes a sleep for synchronisation.

use crate::{all_sources, read};
use std::path::Path;

/// The beginning of the comment right before a sleep.
const REASON: &str = "// Sleep: ";

/// A sleep in a test: its file and line, and the reason that the comment before it gives.
struct Sleep {
    place: String,
    reason: Option<String>,
}

/// Sleeps in tests without a reason.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let without = all(root).into_iter().filter(|sleep| sleep.reason.is_none());
    let problem = |sleep: Sleep| {
        format!(
            "{}: a sleep in a test without a comment `{REASON}...` before it; wait for what is to come (`within_patience`) if it is one",
            sleep.place
        )
    };
    without.map(problem).collect()
}

/// Prints each with its reason.
pub(crate) fn list(root: &Path) {
    for Sleep { place, reason } in all(root) {
        println!("{place}: {}", reason.as_deref().unwrap_or("no reason"));
    }
}

fn all(root: &Path) -> Vec<Sleep> {
    let mut files = all_sources(root);
    files.sort();
    let is_test = |path: &&std::path::PathBuf| {
        let path = path.to_string_lossy();
        path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/testing/")
    };
    let mut found = Vec::new();
    for path in files.iter().filter(is_test) {
        let text = read(path);
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            if !line.contains("thread::sleep(") && !line.contains("time::sleep(") {
                continue;
            }
            let before = lines[..number].iter().rev();
            let mut comment = before.take_while(|line| line.starts_with("//"));
            let name = path.strip_prefix(root).unwrap_or(path).display();
            found.push(Sleep {
                place: format!("{name}:{}", number + 1),
                reason: comment.find_map(|line| line.strip_prefix(REASON).map(str::to_owned)),
            });
        }
    }
    found
}
