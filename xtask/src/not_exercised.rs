//! `cargo run -p xtask -- not-exercised RECORDS [LOG]`: the end of `./test`.
//!
//! The records are lines of `handfast_testing::not_exercised`, and of scripts that leave out a step. The log is of
//! `tests/emulated/run`, whose processor has memory keys: a test that passed there lacked none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;

const KEYS: &str = "no memory keys";

/// Prints the records, each once, and their number.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let Some(path) = arguments.next() else {
        eprintln!("usage: cargo run -p xtask -- not-exercised RECORDS [LOG]");
        return ExitCode::FAILURE;
    };
    let log = arguments.next().map(fs::read_to_string);
    match fs::read_to_string(&path) {
        Ok(records) => print!(
            "{}",
            report(&records, &log.and_then(Result::ok).unwrap_or_default())
        ),
        Err(error) => {
            eprintln!("{path}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn report(records: &str, log: &str) -> String {
    let mut missing: BTreeSet<(String, String)> = records.lines().map(parts).collect();
    let (passed, recorded) = emulated(log);
    let mut elsewhere = BTreeSet::new();
    missing.retain(|(test, why)| {
        let is_elsewhere = why == KEYS && passed.contains(test);
        is_elsewhere.then(|| elsewhere.insert(test.clone()));
        !is_elsewhere
    });
    // The emulated machine has keys, and may lack something else.
    missing.extend(
        recorded
            .into_iter()
            .filter(|(test, _)| elsewhere.contains(test)),
    );
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut text = String::new();
    for (test, why) in &missing {
        *reasons.entry(why).or_default() += 1;
        text += &format!("{test}: {why}\n");
    }
    let tests: BTreeSet<_> = missing.iter().map(|(test, _)| test).collect();
    let reasons: Vec<_> = reasons
        .iter()
        .map(|(why, count)| format!("{why}: {count}"))
        .collect();
    text += &match tests.len() {
        0 => "not exercised here: nothing".to_owned(),
        count => format!(
            "not exercised here: {count} tests and steps ({})",
            reasons.join(", ")
        ),
    };
    if !elsewhere.is_empty() {
        let count = elsewhere.len();
        text += &format!("; exercised on the emulated processor only: {count}");
    }
    text + "\n"
}

/// A record's test and reason.
fn parts(record: &str) -> (String, String) {
    let (test, why) = record
        .split_once(": ")
        .unwrap_or((record, "no reason given"));
    (test.to_owned(), why.to_owned())
}

/// The tests that passed on the emulated machine, as records name them, and the records that were made there.
fn emulated(log: &str) -> (BTreeSet<String>, BTreeSet<(String, String)>) {
    let (mut passed, mut recorded) = (BTreeSet::new(), BTreeSet::new());
    let mut target = "";
    for line in log.lines() {
        if let Some(begun) = line.strip_prefix("== ") {
            target = begun.split([' ', '@']).next().unwrap_or_default();
        } else if let Some(name) = line.strip_prefix("test ") {
            let name = name.strip_suffix(" ... ok");
            passed.extend(name.map(|name| format!("{target} {name}")));
        } else if let Some(record) = line.strip_prefix("not exercised: ") {
            let (test, why) = parts(record);
            let name = test.rsplit(' ').next().unwrap_or_default();
            recorded.insert((format!("{target} {name}"), why));
        }
    }
    (passed, recorded)
}

#[cfg(test)]
mod tests {
    use super::report;

    const RECORDS: &str = "\
a:gate second: no memory keys
a:gate first: no memory keys
a:lib tests::first: no memory keys
a:lib tests::first: not root
a:gate first: no memory keys
./test instructions: no valgrind
";

    #[test]
    fn each_record_is_a_line_and_each_test_counts_once() {
        let expected = "\
./test instructions: no valgrind
a:gate first: no memory keys
a:gate second: no memory keys
a:lib tests::first: no memory keys
a:lib tests::first: not root
not exercised here: 4 tests and steps (no memory keys: 3, no valgrind: 1, not root: 1)
";
        assert_eq!(report(RECORDS, ""), expected);
        assert_eq!(report("", ""), "not exercised here: nothing\n");
    }

    #[test]
    fn tests_that_passed_on_the_emulated_processor_are_counted_apart() {
        let log = "\
== a:gate --test-threads=2
test first ... ok
test second ... FAILED
test tests::first ... ok
== a:lib@optimised --test-threads=2
not exercised: a-lib@optimised tests::first: no AVX
not exercised: a-lib@optimised tests::second: no AVX
test tests::first ... ok
";
        let expected = "\
./test instructions: no valgrind
a:gate second: no memory keys
a:lib tests::first: no AVX
a:lib tests::first: not root
not exercised here: 3 tests and steps (no AVX: 1, no memory keys: 1, no valgrind: 1, not root: 1); exercised on the emulated processor only: 2
";
        assert_eq!(report(RECORDS, log), expected);
        let all = "== a:gate\ntest first ... ok\n";
        let expected = "not exercised here: nothing; exercised on the emulated processor only: 1\n";
        assert_eq!(report("a:gate first: no memory keys\n", all), expected);
    }
}
