//! The items that users of the libraries can name: a list for each crate in `docs/api/`, so that a change of it is seen, and meant.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The crates whose items users have. The list of `handfast` has the names that it takes from the others; their lists have the items,
/// and some that only `handfast` uses.
const CRATES: [&str; 4] = [
    "handfast",
    "handfast-port",
    "handfast-domain",
    "handfast-service",
];

/// Compares the lists with what there is, or writes them anew.
pub(crate) fn run(root: &Path, writes: bool) -> ExitCode {
    let mut is_same = true;
    match document(root) {
        Ok(described) => {
            for (name, path) in described {
                is_same &= compare(root, name, &path, writes);
            }
        }
        Err(why) => {
            eprintln!("api: {why}");
            is_same = false;
        }
    }
    match is_same {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Has rustdoc describe the crates: where, for each.
fn document(root: &Path) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let mut command = Command::new("cargo");
    command
        .current_dir(root)
        .args([
            "doc",
            "--quiet",
            "--no-deps",
            "--features",
            "handfast/confine",
        ])
        .args(CRATES.iter().flat_map(|name| ["-p", *name]))
        // The format is not stable; what is read of it is.
        .env("RUSTDOC", root.join("xtask/rustdoc"))
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    let status = command
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("cargo doc has failed".to_owned());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let path = |name: &str| target.join("doc").join(name.replace('-', "_") + ".json");
    Ok(CRATES.map(|name| (name, path(name))).into())
}

/// Whether the list of a crate is what there is.
fn compare(root: &Path, name: &str, described: &Path, writes: bool) -> bool {
    let built = public_api::Builder::from_rustdoc_json(described)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    let items: String = match built {
        Ok(api) => api.items().map(|item| item.to_string() + "\n").collect(),
        Err(error) => {
            eprintln!("api: {}: {error}", described.display());
            return false;
        }
    };
    let list = root.join("docs/api").join(name.to_owned() + ".txt");
    if writes {
        return std::fs::write(&list, items).is_ok();
    }
    let listed = std::fs::read_to_string(&list).unwrap_or_default();
    let differences = differences(&listed, &items);
    for line in &differences {
        eprintln!("api: {name}: {line}");
    }
    if !differences.is_empty() {
        eprintln!("api: is that meant? Then write the list: cargo run -p xtask -- api --write");
    }
    differences.is_empty()
}

/// Lines that only one of them has.
fn differences(listed: &str, there: &str) -> Vec<String> {
    let only = |of: &str, not: &str, sign: char| -> Vec<String> {
        let not: std::collections::HashSet<_> = not.lines().collect();
        let lines = of.lines().filter(|line| !not.contains(line));
        lines.map(|line| format!("{sign} {line}")).collect()
    };
    [only(listed, there, '-'), only(there, listed, '+')].concat()
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn what_has_gone_and_what_is_new_is_said() {
        assert_eq!(differences("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
        assert!(differences("a\nb\n", "b\na\n").is_empty());
    }
}
