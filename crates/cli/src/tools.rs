//! Development tools: programs of the repository (`tools/`) that this command becomes.

use handfast_cli::Outcome;
use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A tool's program is called `handfast-` and this.
const TOOLS: [&str; 3] = ["abuse", "bench", "lab"];

/// Becomes the tool that the arguments ask for, if they do. It is the same process then: signals and the status are the tool's.
pub(crate) fn run_if_asked() -> Outcome {
    let mut words: Vec<_> = env::args_os().skip(1).collect();
    let is_help = words.first().is_some_and(|first| first == "help");
    if is_help {
        words.remove(0);
        words.push(OsString::from("--help"));
    }
    let first = words.first();
    let Some(tool) = TOOLS
        .iter()
        .find(|tool| first.is_some_and(|first| first == *tool))
    else {
        return Ok(());
    };
    // Beside this command only: a program elsewhere is of another build.
    let program = env::current_exe()?.with_file_name(format!("handfast-{tool}"));
    let error = Command::new(&program).args(&words[1..]).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => missing(tool, &program),
        _ => format!("{}: {error}", program.display()),
    }
    .into())
}

fn missing(tool: &str, program: &Path) -> String {
    let folder = program.parent().and_then(Path::file_name);
    let profile = match folder.is_some_and(|folder| folder == "debug") {
        true => "",
        false => " --release",
    };
    format!(
        "{} is not there: {tool} is a development tool of the repository; in a checkout, build it with \
         `cargo build{profile} -p handfast-{tool}`, or install it with `cargo install --path tools/{tool}`",
        program.display()
    )
}
