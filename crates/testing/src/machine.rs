//! Tests that need more than every machine has.

use std::fs::File;
use std::io::Write;

/// The file that `./test` names for its run, and reads at its end.
const RECORDS: &str = "HANDFAST_NOT_EXERCISED";
/// The test that started this child process.
pub(crate) const TEST: &str = "HANDFAST_TEST_NAME";

/// Records that the calling test leaves out what this machine lacks, all of the test or a part: a line of the form
/// `PACKAGE:TARGET TEST: WHY` in the file that `HANDFAST_NOT_EXERCISED` names, which `./test` prints and counts, or on standard
/// error. Neither passes through the test harness, which keeps for itself what a passing test prints. `why` is as short as
/// `no memory keys`: `./test` counts the tests of each reason.
///
/// To be called from the test's own thread, which has its name, or from a child process that such a thread has started.
///
/// # Panics
/// The file cannot be written.
pub fn not_exercised(why: &str) {
    let record = format!("{} {}: {why}\n", target(), test());
    // One write each: other tests write at the same time.
    match std::env::var_os(RECORDS) {
        Some(path) => {
            let mut file = File::options().append(true).open(path).unwrap();
            file.write_all(record.as_bytes()).unwrap();
        }
        None => {
            let record = format!("not exercised: {record}");
            std::io::stderr().write_all(record.as_bytes()).unwrap();
        }
    }
}

/// The name of the test that this thread runs, or that started this child process.
pub(crate) fn test() -> String {
    let of_parent = std::env::var(TEST).ok();
    let own = || std::thread::current().name().map(str::to_owned);
    of_parent.or_else(own).unwrap_or_else(|| "?".to_owned())
}

/// This test program as `PACKAGE:TARGET`, where unit tests are `lib`; the package is known to children of Cargo alone.
fn target() -> String {
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    // Cargo appends a hash.
    let name = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    match std::env::var("CARGO_PKG_NAME") {
        Ok(package) if package.replace('-', "_") == name => format!("{package}:lib"),
        Ok(package) => format!("{package}:{name}"),
        Err(_) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    /// Runs the test below in a process of its own, in which it records something.
    fn recording(change: impl FnOnce(&mut Command)) -> Output {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "machine::tests::records_something"]);
        program.env("HANDFAST_RECORDING", "1");
        change(&mut program);
        let output = program.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    #[test]
    fn records_something() {
        if std::env::var_os("HANDFAST_RECORDING").is_some() {
            println!("which the harness keeps");
            super::not_exercised("no moon");
        }
    }

    const RECORD: &str = "handfast-testing:lib machine::tests::records_something: no moon\n";

    #[test]
    fn a_passing_test_adds_one_line_to_the_file() {
        let directory = crate::Directory::new("records");
        let file = directory.0.join("file");
        std::fs::write(&file, "").unwrap();
        for count in 1..3 {
            let output = recording(|program| _ = program.env(super::RECORDS, &file));
            assert_eq!(output.stderr, b"");
            assert_eq!(
                std::fs::read_to_string(&file).unwrap(),
                RECORD.repeat(count)
            );
        }
    }

    #[test]
    fn without_a_file_the_line_comes_on_standard_error() {
        let output = recording(|program| _ = program.env_remove(super::RECORDS));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, format!("not exercised: {RECORD}"));
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!said.contains("which the harness keeps"), "{said}");
    }

    #[test]
    fn a_child_process_records_for_the_test_that_started_it() {
        let output = recording(|program| {
            _ = program
                .env(super::TEST, "its_parent")
                .env_remove(super::RECORDS);
        });
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            said,
            "not exercised: handfast-testing:lib its_parent: no moon\n"
        );
    }
}
