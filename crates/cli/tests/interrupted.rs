//! Commands that a signal ends: they end by it, and leave no process and no file.

use handfast_testing::Directory;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The command, with these dispositions of signals: whoever runs the tests may ignore some, as `nohup` does.
fn handfast(signals: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM", signals]);
    command.arg(env!("CARGO_BIN_EXE_handfast"));
    command
}

/// A command whose files, and those of its processes, lie in `directory`; ended with this.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str], directory: &Path) -> Self {
        let mut command = handfast("--default-signal=INT,TERM,HUP");
        command
            .args(arguments)
            .env("TMPDIR", directory)
            .env("HANDFAST_DIR", directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "not in a minute: {what}");
        // Sleep: the interval of a poll with an end.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    // Each user who binds has a lock in there for good.
    let is_lock = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_bytes().starts_with(b"~~"))
    };
    paths.filter(|path| !is_lock(path)).collect()
}

/// Processes that were started with files in `directory`, and have not ended.
fn processes(directory: &Path) -> Vec<String> {
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

const COMMANDS: [&[&str]; 6] = [
    &["demo"],
    &["echo", "interrupted"],
    &["bench", "scale"],
    &["bench", "idle"],
    &["abuse", "--minutes", "1", "--seed", "1"],
    &["lab", "run", "000-figure-10", "--results", "/nonexistent"],
];

#[test]
fn an_interrupted_command_ends_by_the_signal_and_leaves_nothing() {
    for (number, arguments) in COMMANDS.iter().enumerate() {
        let directory = Directory::new(&number.to_string());
        let results = directory.0.join("results");
        let arguments: Vec<_> = arguments
            .iter()
            .map(|&word| match word {
                "/nonexistent" => results.to_str().unwrap(),
                word => word,
            })
            .collect();
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let mut running = Running::start(&arguments, &directory.0);
            let others = usize::from(arguments[0] != "echo");
            wait_until("files and processes of its own", || {
                !left(&directory.0).is_empty() && processes(&directory.0).len() > others
            });
            running.signal(signal);
            let status = running.0.wait().unwrap();
            assert_eq!(
                status.signal(),
                Some(signal.as_raw()),
                "{arguments:?}: {status}"
            );
            assert_eq!(left(&directory.0), [] as [PathBuf; 0], "{arguments:?}");
            // The kernel is given a moment to take leave of those that it kills with their parent.
            wait_until("no process of its", || processes(&directory.0).is_empty());
            assert_eq!(left(&directory.0), [] as [PathBuf; 0], "{arguments:?}");
        }
    }
}

/// The files in a directory, except results.
fn left(directory: &Path) -> Vec<PathBuf> {
    let mut left = files(directory);
    left.retain(|path| !path.ends_with("results"));
    left
}

#[test]
fn a_signal_to_all_processes_at_once_is_no_failure_of_any() {
    let directory = Directory::new("all");
    for _ in 0..20 {
        let mut running = Running::start(&["demo"], &directory.0);
        wait_until("a server that is called", || {
            processes(&directory.0).len() > 1 && !files(&directory.0).is_empty()
        });
        let all = Pid::from_child(&running.0);
        // As a terminal does.
        rustix::process::kill_process_group(all, Signal::INT).unwrap();
        let status = running.0.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
        wait_until("no process of its", || processes(&directory.0).is_empty());
        assert_eq!(files(&directory.0), [] as [PathBuf; 0]);
    }
}

#[test]
fn a_signal_that_is_ignored_ends_nothing() {
    let directory = Directory::new("ignored");
    let mut command = handfast("--ignore-signal=HUP");
    command
        .args(["echo", "on"])
        .env("HANDFAST_DIR", &directory.0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    wait_until("its name", || !files(&directory.0).is_empty());
    running.signal(Signal::HUP);
    running.signal(Signal::INT);
    // Both had come: the one that counts ended it.
    let status = running.0.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
}

#[test]
fn what_killed_commands_left_is_removed_by_the_next() {
    let directory = Directory::new("killed");
    for arguments in [
        &["demo"][..],
        &[
            "abuse",
            "--minutes",
            "0.0001",
            "--seed",
            "1",
            "--users",
            "off",
        ],
    ] {
        let mut running = Running::start(arguments, &directory.0);
        wait_until("files", || !files(&directory.0).is_empty());
        running.signal(Signal::KILL);
        running.0.wait().unwrap();
        wait_until("no process of its", || processes(&directory.0).is_empty());
        assert!(!files(&directory.0).is_empty());
        // Its number may be another's by now, for as long as that lives.
        wait_until("nothing left", || {
            let mut again = Running::start(arguments, &directory.0);
            again.0.wait().unwrap();
            files(&directory.0).is_empty()
        });
    }
}
