//! The `handfast` command: one module per subcommand, this file only picks one.

mod call;
mod demo;
mod doctor;
mod echo;
mod ls;
mod tools;

use clap::{Parser, Subcommand};
use handfast_cli::{Outcome, command, temporary};
use std::process::ExitCode;

/// Fast local calls between processes: tools.
#[derive(Parser)]
#[command(name = "handfast", version, after_help = MORE)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
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

const MORE: &str = "\
Development tools, each a program beside this one (cargo build --release, in a checkout):
  abuse   Kill, stop, flood and scribble on processes while others call one another, and count what was lost: nothing
  bench   Measure this machine: handfast, the hand-written limit and the kernel's own ways
  lab     Measure what the papers measured, on this machine, and keep what was found

Environment:
  HANDFAST_DIR            where names lie [default: $XDG_RUNTIME_DIR/handfast, else /run/handfast]
  HANDFAST_STRATEGY       how ends wait that do not say so: adaptive, block, spin-block:US, ...
  HANDFAST_SPIN_CAP_US    the longest that adaptive waits spin, in microseconds
  HANDFAST_INTRODUCTIONS  vine: rights to a third process's port go through whoever gave them
  HANDFAST_ISOLATION      keys or process: what keeps domains apart
  HANDFAST_LOG            any value: what is bound, taken over, refused and cut, on stderr";

fn main() -> ExitCode {
    command::main(|| {
        tools::run_if_asked()?;
        run(Cli::parse().command)
    })
}

fn run(command: Command) -> Outcome {
    match command {
        Command::DemoChild(_) => temporary::leave_to_parent(),
        _ => command::say_what_is_ignored(),
    }
    if matches!(command, Command::Demo | Command::Echo(_)) {
        temporary::watch()?;
    }
    match command {
        Command::Demo => demo::run(),
        Command::DemoChild(args) => demo::run_child(&args),
        Command::Echo(args) => echo::run(&args),
        Command::Call(args) => call::run(&args),
        Command::Ls => ls::run(),
        Command::Doctor => doctor::run(),
    }
}
