//! A few seconds of `handfast abuse`: every kind of fault once, and a table.

use handfast_testing::Directory;
use handfast_testing::commands::{
    ends_by_signals, names_a_bad_place, removes_what_killed_ones_left,
};
use std::os::unix::process::CommandExt;
use std::process::Command;

const ABUSE: &str = env!("CARGO_BIN_EXE_handfast-abuse");

#[test]
fn a_short_abuse_loses_nothing_and_leaves_nothing() {
    let arguments = [
        "--minutes",
        "0.05",
        "--seed",
        "1",
        "--stall-s",
        "30",
        "--users",
        "off",
    ];
    let output = Command::new(ABUSE).args(arguments).output();
    let output = output.unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{table}\n{said}");
    assert!(table.starts_with("handfast abuse --minutes 0.05 --seed 1\n"));
    let number = |what: &str| {
        let line = table
            .lines()
            .find(|line| line.trim_start().starts_with(what));
        let number = line.and_then(|line| line.split_whitespace().last());
        number.and_then(|number| number.parse::<u64>().ok())
    };
    for none in [
        "lost",
        "answered wrongly",
        "hangs",
        "crashes",
        "leaks of files",
    ] {
        assert_eq!(number(none), Some(0), "{none}: {table}");
    }
    for some in [
        "scribbling client",
        "fork storm",
        "processes killed",
        "calls to servers that live",
    ] {
        assert!(number(some) > Some(0), "{some}: {table}");
    }
}

#[test]
fn times_that_make_no_sense_are_refused() {
    for arguments in [
        ["--minutes", "0"],
        ["--minutes", "nan"],
        ["--minutes=-1", "--seed=1"],
        ["--minutes", "1e300"],
        ["--stall-s", "0"],
        ["--stall-s", "18446744073709551615"],
    ] {
        let mut abuse = Command::new(ABUSE);
        let output = abuse.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

/// Not as root, a user has no others to be.
#[test]
fn without_users_it_says_so_and_why() {
    if !rustix::process::geteuid().is_root() {
        return handfast_testing::not_exercised("not root");
    }
    let mut abuse = Command::new(ABUSE);
    abuse.args(["--users", "only"]).uid(3106).gid(3106);
    let output = abuse.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("users: skipped: this process is not root"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1), "asked for, and not possible");
}

#[test]
fn attacks_that_nobody_knows_are_an_error_that_names_those_there_are() {
    let mut abuse = Command::new(ABUSE);
    let output = abuse
        .args(["--users", "only", "--attack", "none"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no attack is called \"none\"") && said.contains("strangers"),
        "{said}"
    );
}

#[test]
fn too_few_descriptors_are_an_error_that_names_their_number() {
    let script = format!("ulimit -n 64; exec {ABUSE} --minutes 0.01");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("64 descriptors") && said.contains("4096"),
        "{said}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn an_interrupted_abuse_ends_by_the_signal_and_leaves_nothing() {
    let directory = Directory::new("interrupted");
    ends_by_signals(ABUSE, &["--minutes", "1", "--seed", "1"], &directory.0, 1);
}

const SHORT: [&str; 4] = ["--seed", "1", "--users", "off"];

#[test]
fn what_killed_ones_left_is_removed_by_the_next() {
    let directory = Directory::new("killed");
    let arguments = [&["--minutes", "0.0001"][..], &SHORT].concat();
    removes_what_killed_ones_left(ABUSE, &arguments, &directory.0);
}

#[test]
fn a_place_for_temporary_files_that_is_none_is_named() {
    let directory = Directory::new("place");
    let arguments = ["--minutes", "0.01", "--users", "off"];
    names_a_bad_place(ABUSE, &arguments, &directory.0);
}
