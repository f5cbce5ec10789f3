//! Results folders as they are found: not to be written, in use, with other things in them.

use handfast_testing::Directory;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `handfast lab`, ended after two minutes.
fn lab(arguments: &[&str], results: &Path) -> Output {
    let mut command = Command::new("timeout");
    command
        .args(["120", env!("CARGO_BIN_EXE_handfast-lab")])
        .args(arguments)
        .arg("--results")
        .arg(results);
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let directory = Directory::new("unwritable");
    let file = directory.0.join("file");
    fs::write(&file, "").unwrap();
    for folder in [file.join("below"), file, "/proc/results".into()] {
        let output = lab(&["run", "000-table-1", "--quick"], &folder);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains(folder.to_str().unwrap()) && said.contains("--results"),
            "{said}"
        );
        assert!(!said.contains("[1/1]"), "{said}");
    }
}

#[test]
fn two_runs_for_one_folder_are_not_at_work_at_once() {
    let directory = Directory::new("two");
    let other = handfast_sys::directory::lock(&directory.0).unwrap();
    let output = lab(&["run", "000-table-1", "--quick"], &directory.0);
    let said_of_both = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said_of_both}");
    assert!(
        said_of_both.contains("another handfast lab run")
            && said_of_both.contains(directory.0.to_str().unwrap()),
        "{said_of_both}"
    );
    drop(other);
    let output = lab(&["run", "000-table-1", "--quick"], &directory.0);
    assert!(output.status.success(), "{}", said(&output));
    let files = fs::read_dir(&directory.0).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["000-table-1.json"]);
}

#[test]
fn a_result_that_cannot_be_kept_is_an_error_that_names_it_and_leaves_nothing() {
    let directory = Directory::new("kept");
    let place = directory.0.join("000-table-1.json");
    fs::create_dir(&place).unwrap();
    let output = lab(&["run", "000-table-1", "--quick"], &directory.0);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(place.to_str().unwrap()), "{said}");
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1);
}

#[test]
fn what_is_no_file_or_too_long_is_named_and_left_out() {
    let directory = Directory::new("odd");
    let path = |name: &str| directory.0.join(name);
    let pipe = Command::new("mkfifo")
        .arg(path("000-table-1.json"))
        .status();
    assert!(pipe.unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", path("000-figure-2.json")).unwrap();
    let long = fs::File::create(path("000-figure-3.json")).unwrap();
    long.set_len(1 << 34).unwrap();
    // A process that reads them to their end is ended.
    let report = lab(&["report", "--out", "-"], &directory.0);
    let list = lab(&["list"], &directory.0);
    for output in [report, list] {
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        for why in [
            "000-table-1.json: not a file",
            "000-figure-2.json: not a file",
            "000-figure-3.json: longer than",
        ] {
            assert!(said.contains(why), "{said}");
        }
    }
}

#[test]
fn the_list_says_which_results_are_broken() {
    let directory = Directory::new("list");
    fs::write(directory.0.join("003-table-1.json"), "{").unwrap();
    let output = lab(&["list"], &directory.0);
    let list = String::from_utf8(output.stdout.clone()).unwrap();
    let line = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("003-table-1").contains("broken"), "{list}");
    assert!(!line("003-figure-2").contains("broken"), "{list}");
    assert!(said(&output).contains("003-table-1.json: no JSON"));
    let output = lab(&["list"], &directory.0.join("003-table-1.json"));
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("not a folder"));
}

#[test]
fn a_page_on_standard_output_is_the_page_alone() {
    let directory = Directory::new("stdout");
    let page = directory.0.join("page.html");
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/results");
    assert!(
        lab(&["report", "--out", page.to_str().unwrap()], &samples)
            .status
            .success()
    );
    let page = fs::read(page).unwrap();
    for out in ["-", "/dev/stdout"] {
        let output = lab(&["report", "--out", out], &samples);
        assert!(output.status.success() && output.stdout == page, "{out}");
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = Command::new(env!("CARGO_BIN_EXE_handfast-lab"));
    unread.args(["report", "--out", "-", "--results"]);
    unread
        .arg(&directory.0)
        .stdout(writer)
        .stderr(Stdio::null());
    assert_eq!(unread.status().unwrap().code(), Some(141));
    let file = directory.0.join("page.html");
    let output = lab(
        &["report", "--svg", "--out", file.to_str().unwrap()],
        &samples,
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("name a folder"));
    let output = lab(&["report", "--svg", "--out", "-"], &samples);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("name a folder"));
}

#[test]
fn what_to_run_is_said_in_one_way() {
    let directory = Directory::new("names");
    for names in [&["--all", "000"][..], &[""], &[]] {
        let arguments = [&["run", "--quick"], names].concat();
        let output = lab(&arguments, &directory.0);
        assert_eq!(output.status.code(), Some(2), "{names:?}");
    }
}
