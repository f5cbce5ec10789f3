//! The program as a shell uses it: unread, interrupted, without a place for its files.

use handfast_testing::Directory;
use handfast_testing::commands::{
    ends_by_signals, ends_without_a_word, leaves_no_names, names_a_bad_place, unread,
};
use std::process::Command;

const BENCH: &str = env!("CARGO_BIN_EXE_handfast-bench");
const IDLE: [&str; 4] = ["idle", "--quick", "--clients", "1"];

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(BENCH);
    command.args(arguments);
    command
}

#[test]
fn a_benchmark_whose_output_nobody_reads_ends_without_a_word() {
    ends_without_a_word(bench(&IDLE).args(["--rounds", "1"]));
    ends_without_a_word(&mut bench(&["--help"]));
}

#[test]
fn a_benchmark_leaves_nothing_where_the_names_are() {
    let directory = Directory::new("names");
    leaves_no_names(&mut bench(&IDLE), &directory.0);
}

#[test]
fn a_benchmark_that_can_complain_to_nobody_goes_on() {
    // UDP leaves the long ones out with a word; so does the start, without permission for a namespace.
    let mut command = bench(&["rtt", "--quick", "--rounds", "1", "--only", "udp"]);
    command.args(["--payloads", "24,65536"]).stderr(unread());
    assert_eq!(command.output().unwrap().status.code(), Some(0));
}

#[test]
fn an_interrupted_benchmark_ends_by_the_signal_and_leaves_nothing() {
    for bench in ["scale", "idle"] {
        let directory = Directory::new(bench);
        ends_by_signals(BENCH, &[bench], &directory.0, 1);
    }
}

#[test]
fn a_place_for_temporary_files_that_is_none_is_named() {
    let directory = Directory::new("place");
    names_a_bad_place(BENCH, &IDLE, &directory.0);
}
