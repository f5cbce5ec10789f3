//! The `handfast` command: one module per subcommand, this file only picks one.

mod abuse;
mod bench;
mod call;
mod demo;
mod doctor;
mod echo;
mod lab;
mod ls;

use clap::{Parser, Subcommand};
use handfast_cli::{Outcome, command, temporary};
use std::process::ExitCode;

/// Fast local calls between processes: tools.
#[derive(Parser)]
#[command(name = "handfast", version, after_help = ENVIRONMENT)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Kill, stop, flood and scribble on processes while others call one another, and count what was lost: nothing.
    Abuse(abuse::Args),
    /// One process of `abuse`; started by it only.
    #[command(hide = true)]
    AbuseChild(abuse::Spec),
    /// Measure this machine: handfast, the hand-written limit and the kernel's own ways.
    Bench(bench::Args),
    /// Measure what the papers measured, on this machine, and keep what was found.
    Lab(lab::Args),
    /// One process of a benchmark; started by `bench` only.
    #[command(hide = true)]
    BenchChild(bench::ChildArgs),
    /// Show what handfast does, live, in under 20 seconds.
    Demo,
    /// One process of the demo; started by `demo` only.
    #[command(hide = true)]
    DemoChild(demo::ChildArgs),
    /// Bind NAME and send every call's bytes back, until ended.
    Echo(echo::Args),
    /// Call NAME once and print the reply.
    Call(call::Args),
    /// List servers: names, processes, users, links, counters; and sockets that dead ones have left.
    Ls,
    /// Say what this machine offers and what that means for handfast.
    Doctor,
}

const ENVIRONMENT: &str = "\
Environment:
  HANDFAST_DIR            where names lie [default: $XDG_RUNTIME_DIR/handfast, else /run/handfast]
  HANDFAST_STRATEGY       how ends wait that do not say so: adaptive, block, spin-block:US, ...
  HANDFAST_SPIN_CAP_US    the longest that adaptive waits spin, in microseconds
  HANDFAST_INTRODUCTIONS  vine: rights to a third process's port go through whoever gave them
  HANDFAST_ISOLATION      keys or process: what keeps domains apart
  HANDFAST_LOG            any value: what is bound, taken over, refused and cut, on stderr";

fn main() -> ExitCode {
    command::main(|| run(Cli::parse().command))
}

fn run(command: Command) -> Outcome {
    match command {
        Command::AbuseChild(_) | Command::BenchChild(_) | Command::DemoChild(_) => {
            temporary::leave_to_parent();
        }
        _ => command::say_what_is_ignored(),
    }
    match command {
        Command::Abuse(_)
        | Command::Bench(_)
        | Command::Demo
        | Command::Echo(_)
        | Command::Lab(_) => temporary::watch()?,
        _ => {}
    }
    match command {
        Command::Abuse(args) => abuse::run(&args),
        Command::AbuseChild(spec) => abuse::run_child(&spec),
        Command::Bench(args) => bench::run(&args),
        Command::BenchChild(args) => bench::run_child(&args).map_err(Into::into),
        Command::Lab(args) => lab::run(&args),
        Command::Demo => demo::run(),
        Command::DemoChild(args) => demo::run_child(&args),
        Command::Echo(args) => echo::run(&args),
        Command::Call(args) => call::run(&args),
        Command::Ls => ls::run(),
        Command::Doctor => doctor::run(),
    }
}
