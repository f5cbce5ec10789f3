//! A child process that confines itself, and measures on request.

use super::{Case, Seat, load, reading, threads_of};
use crate::CHILD;
use crate::report::Reading;
use handfast::domain::confine::{ConfineOptions, confine};
use handfast_cli::temporary;
use handfast_sys::{clock, cpu};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Behind the name of a system that is measured in such a process.
pub(crate) const SUFFIX: &str = "-confined";
/// The content of its specification, instead of a description of a measurement.
pub(crate) const SPEC: &str = "confined";

/// The measurement to make.
#[derive(Serialize, Deserialize)]
struct Order {
    case: Case,
    system: String,
    window: Duration,
    count: usize,
}

/// 50th and 99th percentile, and calls in a second.
type Found = Option<(Option<f64>, Option<f64>, Option<f64>)>;

/// The process, as its parent sees it; ended on drop.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start() -> io::Result<Self> {
        let _goes_on = temporary::goes_on();
        let mut child = Command::new("/proc/self/exe")
            .args([CHILD, SPEC])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut process = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        let first: Result<(), String> = process.read()?;
        first.map_err(io::Error::other)?;
        Ok(process)
    }

    fn read<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// The child's measurement; `None` when it cannot measure, or has ended.
    pub(super) fn measure(&mut self, seat: &Seat<'_>, count: usize) -> Option<Reading> {
        let order = Order {
            case: seat.case,
            system: seat.system.to_owned(),
            window: seat.window,
            count,
        };
        let order = serde_json::to_string(&order).ok()?;
        writeln!(self.input, "{order}").ok()?;
        let found: Found = self.read().ok()?;
        found.map(|(p50_ns, p99_ns, ops_per_s)| Reading {
            p50_ns,
            p99_ns,
            ops_per_s,
            ..Reading::default()
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child.
pub(crate) fn run() -> io::Result<()> {
    let say = |text: String| {
        let mut output = io::stdout().lock();
        writeln!(output, "{text}")?;
        output.flush()
    };
    clock::calibrate();
    let domain = load().map_err(|error| error.to_string());
    let ready = domain.as_ref().map_err(Clone::clone).and_then(|_| {
        // The limit has two WRPKRU of its own, which nobody needs here.
        let confined = confine(&ConfineOptions::new().overwrite());
        confined.map(drop).map_err(|error| error.to_string())
    });
    say(serde_json::to_string(&ready)?)?;
    let (Ok(domain), Ok(())) = (domain, ready) else {
        return Ok(());
    };
    let cpus = cpu::allowed();
    for line in io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line?)?;
        let systems = super::SYSTEMS.into_iter();
        let system = systems.into_iter().find(|system| *system == order.system);
        let found: Found = system.and_then(|system| {
            let seat = Seat {
                case: order.case,
                system,
                domain: Some(&domain),
                right: None,
                window: order.window,
            };
            let it = reading(&threads_of(&seat, order.count, &cpus)?);
            Some((it.p50_ns, it.p99_ns, it.ops_per_s))
        });
        say(serde_json::to_string(&found)?)?;
    }
    Ok(())
}
