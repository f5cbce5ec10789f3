//! Commands as tests run them: nobody reads them, signals end them, and nothing of them stays.

use crate::within_patience;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A pipe that nobody reads.
#[must_use]
pub fn unread() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

/// The text on its standard error.
#[must_use]
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A command whose output nobody reads ends without a word.
pub fn ends_without_a_word(command: &mut Command) {
    let output = command.stdout(unread()).output().unwrap();
    assert_eq!(said(&output), "", "{command:?}");
    let status = output.status.code();
    assert!(matches!(status, Some(0 | 141)), "{command:?}: {status:?}");
}

/// A command whose output nobody reads leaves nothing in `names`, where the names are.
pub fn leaves_no_names(command: &mut Command, names: &Path) {
    let output = command.env("HANDFAST_DIR", names).stdout(unread()).output();
    assert_eq!(said(&output.unwrap()), "", "{command:?}");
    let left = files(names);
    assert!(left.is_empty(), "{command:?} left {left:?}");
}

/// A command that needs a place for temporary files, and is given one below `directory` that is none, names it.
pub fn names_a_bad_place(program: &str, arguments: &[&str], directory: &Path) {
    let long = directory.join("d".repeat(60));
    fs::create_dir(&long).unwrap();
    let missing = directory.join("missing");
    for place in [&long, &missing] {
        let output = Command::new(program)
            .args(arguments)
            .env("HANDFAST_DIR", directory)
            .env("TMPDIR", place)
            .output()
            .unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(place.to_str().unwrap()), "{said}");
        assert!(said.contains("set TMPDIR"), "{said}");
    }
}

/// A command in a process group of its own, ended with this.
pub struct Running(pub Child);

impl Running {
    /// Starts one whose files, and those of its processes, lie in `directory`. Its signals have the dispositions that `env` makes of
    /// `signals`: whoever runs the tests may ignore some, as `nohup` does.
    #[must_use]
    pub fn start_with(signals: &str, program: &str, arguments: &[&str], directory: &Path) -> Self {
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT,TERM", signals, program])
            .args(arguments)
            .env("TMPDIR", directory)
            .env("HANDFAST_DIR", directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        Self(command.spawn().unwrap())
    }

    /// As [`Self::start_with`]; none is ignored.
    #[must_use]
    pub fn start(program: &str, arguments: &[&str], directory: &Path) -> Self {
        Self::start_with(
            "--default-signal=INT,TERM,HUP",
            program,
            arguments,
            directory,
        )
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until it is so, a minute at the longest.
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(within_patience(is_so), "not in a minute: {what}");
}

/// The files in a directory, except locks: each user who binds has one in there for good.
#[must_use]
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_lock = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_bytes().starts_with(b"~~"))
    };
    paths.filter(|path| !is_lock(path)).collect()
}

/// Processes that were started with files in `directory`, and have not ended.
#[must_use]
pub fn processes(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().unwrap().as_bytes();
    let is_ours = |process: &PathBuf| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment
            .windows(directory.len())
            .any(|part| part == directory)
    };
    let all = files(Path::new("/proc")).into_iter().filter(is_ours);
    all.map(|process| fs::read_to_string(process.join("cmdline")).unwrap_or_default())
        .collect()
}

/// A command that an interrupt, an end or a hang-up meets ends by the signal, and leaves no process and no file in `directory` but
/// `results`. The signal comes once it has more than `others` processes.
pub fn ends_by_signals(program: &str, arguments: &[&str], directory: &Path, others: usize) {
    let left = || {
        let mut left = files(directory);
        left.retain(|path| !path.ends_with("results"));
        left
    };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut running = Running::start(program, arguments, directory);
        wait_until("files and processes of its own", || {
            !left().is_empty() && processes(directory).len() > others
        });
        running.signal(signal);
        let status = running.0.wait().unwrap();
        assert_eq!(
            status.signal(),
            Some(signal.as_raw()),
            "{arguments:?}: {status}"
        );
        assert_eq!(left(), [] as [PathBuf; 0], "{arguments:?}");
        // The kernel is given a moment to take leave of those that it kills with their parent.
        wait_until("no process of its", || processes(directory).is_empty());
        assert_eq!(left(), [] as [PathBuf; 0], "{arguments:?}");
    }
}

/// The next run of a command removes the leftovers of one that was killed.
pub fn removes_what_killed_ones_left(program: &str, arguments: &[&str], directory: &Path) {
    let mut running = Running::start(program, arguments, directory);
    wait_until("files", || !files(directory).is_empty());
    running.signal(Signal::KILL);
    running.0.wait().unwrap();
    wait_until("no process of its", || processes(directory).is_empty());
    assert!(!files(directory).is_empty());
    // Its number may be another's by now, for as long as that lives.
    wait_until("nothing left", || {
        let mut again = Running::start(program, arguments, directory);
        again.0.wait().unwrap();
        files(directory).is_empty()
    });
}
