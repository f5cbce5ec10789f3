//! Development tools: the command becomes one that is beside it.

use handfast_testing::{Directory, commands::said};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const TOOLS: [&str; 3] = ["abuse", "bench", "lab"];

/// A directory with a copy of the command.
struct Place(Directory);

impl Place {
    fn new(name: &str) -> Self {
        let place = Self(Directory::new(name));
        // By another program: a file that this process writes, a child of another test may have open when it is to be run.
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_handfast"))
            .arg(place.path("handfast"));
        assert!(copy.status().unwrap().success());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }

    /// Makes a program that says its process number and its arguments.
    fn add(&self, name: &str) {
        let script = r#"printf '#!/bin/sh\necho $$ "$@"\nexit 7\n' >"$0" && chmod +x "$0""#;
        let mut make = Command::new("sh");
        make.args(["-c", script]).arg(self.path(name));
        assert!(make.status().unwrap().success());
    }

    /// The number of the command's process, and its output.
    fn run(&self, arguments: &[&str]) -> (u32, Output) {
        let mut command = Command::new(self.path("handfast"));
        command.args(arguments).env("PATH", self.path("elsewhere"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        (child.id(), child.wait_with_output().unwrap())
    }
}

#[test]
fn a_tool_beside_the_command_has_its_process_arguments_and_status() {
    let place = Place::new("beside");
    for tool in TOOLS {
        place.add(&format!("handfast-{tool}"));
        for (asked, told) in [
            (vec![tool], ""),
            (vec![tool, "--help"], " --help"),
            (vec![tool, "run", "--", "a  b", "-x"], " run -- a  b -x"),
            (vec!["help", tool, "run"], " run --help"),
        ] {
            let (pid, output) = place.run(&asked);
            assert_eq!(output.status.code(), Some(7), "{}", said(&output));
            let output = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output, format!("{pid}{told}\n"));
        }
    }
}

#[test]
fn a_tool_that_is_not_beside_the_command_is_an_error_that_says_how_to_build_it() {
    let place = Place::new("missing");
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    for tool in TOOLS {
        // On the search path, where nobody looks.
        place.add(&format!("elsewhere/handfast-{tool}"));
        let (_, output) = place.run(&[tool, "--help"]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(output.stdout.is_empty());
        let path = place.path(&format!("handfast-{tool}"));
        let build = format!("cargo build --release -p handfast-{tool}");
        assert!(
            said.contains(path.to_str().unwrap()) && said.contains(&build),
            "{said}"
        );
    }
}
