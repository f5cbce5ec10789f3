//! The program that `handfast bench` becomes.

use handfast_bench::{CHILD, run, run_child};
use std::process::ExitCode;

fn main() -> ExitCode {
    handfast_cli::command::tool(CHILD, run, run_child)
}
