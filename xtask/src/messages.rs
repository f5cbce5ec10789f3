//! Control messages are made by their codec: no crate but `handfast-layout` knows the numbers of their kinds. The attackers, which
//! are not written in Rust, speak its version.

use crate::{all_sources, read};
use std::path::Path;

/// Calls that send a message, and the place of its bytes among the arguments.
const CALLS: [(&str, usize); 3] = [("socket::send(", 1), (".say(", 0), ("Packet::received(", 0)];

/// Messages that are made by hand.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut files = all_sources(root);
    files.retain(|path| !path.starts_with(root.join("crates/layout")));
    files.sort();
    let mut problems = Vec::new();
    for path in files {
        let text = read(&path);
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        for at in made_by_hand(&text) {
            let line = text[..at].lines().count().max(1);
            problems.push(format!(
                "{name}:{line}: a message made by hand; encode a `ControlMessage`, and have `handfast_testing::forge` make it wrong"
            ));
        }
    }
    let spoken = number_after(&read(&root.join("attackers/wire.py")), "\nVERSION = ");
    let version = number_after(
        &read(&root.join("crates/layout/src/lib.rs")),
        "LAYOUT_VERSION: u32 = ",
    );
    if spoken.is_none() || spoken != version {
        problems.push(format!(
            "attackers/wire.py: speaks version {spoken:?} of the layout, which is {version:?}"
        ));
    }
    problems
}

fn number_after(text: &str, words: &str) -> Option<u32> {
    let (_, after) = text.split_once(words)?;
    let digits = after
        .split(|letter: char| !letter.is_ascii_digit())
        .next()?;
    digits.parse().ok()
}

/// Where there is one.
fn made_by_hand(text: &str) -> Vec<usize> {
    let calls = CALLS.iter().flat_map(|(call, place)| {
        let starts = text.match_indices(call).map(|(at, _)| at + call.len());
        starts.filter(|at| argument(&text[*at..], *place).is_some_and(is_list))
    });
    let numbers = text.match_indices("control::kind").map(|(at, _)| at);
    calls.chain(numbers).collect()
}

/// An argument of the call whose arguments begin here.
fn argument(arguments: &str, place: usize) -> Option<&str> {
    let (mut depth, mut start, mut passed) = (0, 0, 0);
    for (at, letter) in arguments.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            ',' if depth == 0 && passed < place => (passed, start) = (passed + 1, at + 1),
            ',' | ')' | ']' | '}' if depth == 0 => {
                return (passed == place).then(|| arguments[start..at].trim());
            }
            _ => {}
        }
    }
    None
}

/// Whether it is written out as a list of bytes: not one byte many times, which is a buffer.
fn is_list(argument: &str) -> bool {
    let list = argument.trim_start_matches('&').strip_prefix('[');
    list.is_some_and(|list| !list.contains(';'))
}
