//! The kernel's ways.

use handfast_cli::{Outcome, temporary};
use hdrhistogram::Histogram;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Ends this process when its parent ends.
pub(crate) fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// Echoes 24 bytes at a time from standard input to standard output.
pub(crate) fn serve(role: &str) -> Outcome {
    if !matches!(role, "pipe" | "unix") {
        return Err(format!("no demo role is called {role:?}").into());
    }
    let mut input = std::fs::File::from(rustix::io::dup(std::os::fd::AsFd::as_fd(&io::stdin()))?);
    let mut output = std::fs::File::from(rustix::io::dup(std::os::fd::AsFd::as_fd(&io::stdout()))?);
    let mut bytes = [0; 24];
    loop {
        input.read_exact(&mut bytes)?;
        output.write_all(&bytes)?;
    }
}

/// Round trips through a child that echoes over a pipe pair or a socket.
pub(crate) fn measure(
    role: &str,
    time: Duration,
) -> Result<Histogram<u64>, Box<dyn std::error::Error>> {
    let mut command = Command::new("/proc/self/exe");
    // Its end of file, at the end, is no news.
    command
        .arg0("handfast")
        .args(["demo-child", role, "-"])
        .stderr(Stdio::null());
    let own = if role == "unix" {
        let (own, theirs) = UnixStream::pair()?;
        let theirs = std::os::fd::OwnedFd::from(theirs);
        command.stdin(theirs.try_clone()?).stdout(theirs);
        Some(own)
    } else {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        None
    };
    let going_on = temporary::goes_on();
    let mut child = super::Running(command.spawn()?);
    drop(going_on);
    // The parent's copies of the child's ends, in `command`, would keep them open.
    drop(command);
    let (mut to, mut from): (Box<dyn Write>, Box<dyn Read>) = match own {
        Some(own) => (Box::new(own.try_clone()?), Box::new(own)),
        None => (
            Box::new(child.0.stdin.take().ok_or("no pipe to the child")?),
            Box::new(child.0.stdout.take().ok_or("no pipe from the child")?),
        ),
    };
    let mut latency = Histogram::new_with_bounds(1, 1_000_000_000, 3)?;
    let start = Instant::now();
    let mut bytes = [0; 24];
    while start.elapsed() < time {
        let before = handfast_sys::clock::ticks_ns();
        to.write_all(&[7; 24])?;
        to.flush()?;
        from.read_exact(&mut bytes)?;
        latency.saturating_record(handfast_sys::clock::ticks_ns() - before);
    }
    Ok(latency)
}
