//! What every adapter does: read its task, follow the phases of a measurement, count, report.
//!
//! An adapter is a program that `handfast lab run peers` starts in the place of its own children, told the same and
//! measured the same: it maps the page of phases and counters, and a client of it writes the latencies that it saw to
//! standard output. Reading order: [`run`] is an adapter's `main`; [`Seat`] what it is told; [`Calls`] a client's loop.

mod calls;
/// The lab's own: what both sides map cannot differ.
#[allow(dead_code, reason = "the lab's side")]
#[path = "../../../tools/bench/src/control.rs"]
mod control;
mod seat;
#[allow(dead_code, reason = "the lab's side")]
#[path = "../../../tools/bench/src/shared.rs"]
mod shared;

pub use calls::{Calls, LINE, line, sum};
pub use seat::Seat;

use std::error::Error;
use std::process::ExitCode;

/// What adapters return.
pub type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The two sides of an adapter.
pub struct Adapter {
    /// What it is and of which version, as found out by this very program.
    pub version: fn() -> String,
    /// Answers each request with its own bytes, until killed. Calls [`Seat::ready`] as soon as clients may connect.
    pub serve: fn(&Seat) -> Result,
    /// Connects, makes [`Calls`] and ends with them.
    pub client: fn(&Seat) -> Result,
}

/// An adapter's `main`: `version` says what it is, `bench-child SPEC` takes part in a measurement.
pub fn run(adapter: &Adapter) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match *arguments.as_slice() {
        ["version"] => {
            let version = (adapter.version)();
            println!(
                "{}",
                serde_json::json!({"layout": control::LAYOUT, "version": version})
            );
            Ok(())
        }
        ["bench-child", spec] => Seat::take(spec).and_then(|seat| {
            let side = if seat.is_server {
                adapter.serve
            } else {
                adapter.client
            };
            side(&seat)
        }),
        _ => Err("usage: version | bench-child SPEC; started by handfast lab".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", std::env::args().next().unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}
