//! The `handfast` command: one module per subcommand, this file only picks one.

mod bench;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Fast local calls between processes: tools.
#[derive(Parser)]
#[command(name = "handfast", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure this machine: handfast, the hand-written limit and the kernel's own ways.
    Bench(bench::Args),
    /// One process of a benchmark; started by `bench` only.
    #[command(hide = true)]
    BenchChild(bench::ChildArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::BenchChild(args) => bench::run_child(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("handfast: {error}");
            ExitCode::FAILURE
        }
    }
}
