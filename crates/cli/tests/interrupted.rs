//! Commands that a signal ends: they end by it, and leave no process and no file.

use handfast_testing::Directory;
use handfast_testing::commands::{
    Running, ends_by_signals, files, processes, removes_what_killed_ones_left, wait_until,
};
use rustix::process::{Pid, Signal};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

const HANDFAST: &str = env!("CARGO_BIN_EXE_handfast");

#[test]
fn an_interrupted_command_ends_by_the_signal_and_leaves_nothing() {
    let directory = Directory::new("interrupted");
    ends_by_signals(HANDFAST, &["demo"], &directory.0, 1);
    // It has no other process.
    ends_by_signals(HANDFAST, &["echo", "interrupted"], &directory.0, 0);
}

#[test]
fn a_signal_to_all_processes_at_once_is_no_failure_of_any() {
    let directory = Directory::new("all");
    for _ in 0..20 {
        let mut running = Running::start(HANDFAST, &["demo"], &directory.0);
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
    let ignoring = "--ignore-signal=HUP";
    let mut running = Running::start_with(ignoring, HANDFAST, &["echo", "on"], &directory.0);
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
    removes_what_killed_ones_left(HANDFAST, &["demo"], &directory.0);
}
