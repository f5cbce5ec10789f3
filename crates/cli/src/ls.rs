//! `handfast ls`: live servers, read through their links.

use handfast::error::{ConnectError, SendError};
use handfast::{Counters, SendRight};
use handfast_cli::Outcome;
use handfast_cli::output::say;
use std::thread::{self, JoinHandle};

pub(crate) fn run() -> Outcome {
    let directory = handfast::rendezvous::directory();
    let mut names: Vec<String> = match std::fs::read_dir(&directory) {
        Ok(entries) => entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(format!("{}: {error}", directory.display()).into()),
    };
    names.sort();
    say!(
        "{:24} {:>8} {:>6} {:>6} {:>12} {:>12} {:>14} {:>14} {:>10} {:>10} {:>8} {:>8}",
        "name",
        "pid",
        "uid",
        "links",
        "calls",
        "sends",
        "bytes in",
        "bytes out",
        "parks",
        "wakes",
        "faults",
        "state"
    )?;
    for names in names.chunks(ASKED_AT_ONCE) {
        let ask = |name: &String| {
            let name = name.clone();
            thread::spawn(move || ask(name))
        };
        let asked: Vec<_> = names.iter().map(ask).collect();
        // All of them, before the first right is let go.
        let answers: Result<Vec<_>, _> = asked.into_iter().map(JoinHandle::join).collect();
        for (name, answer) in &answers.map_err(|_| "a thread of this command has panicked")? {
            print(name, answer)?;
        }
    }
    Ok(())
}

/// A server that is stopped takes as long as a connection may, so all are asked at once; but for
/// the descriptors of this command, three each.
const ASKED_AT_ONCE: usize = 128;

/// A right, and what its process says of itself: the link of the right is counted there.
type Answer = Result<(SendRight, Result<Counters, SendError>), ConnectError>;

fn ask(name: String) -> (String, Answer) {
    let answer = handfast::connect(&name).map(|port| {
        let counters = port.counters();
        (port, counters)
    });
    (name, answer)
}

fn print(name: &str, answer: &Answer) -> Outcome {
    match answer {
        Ok((port, Ok(counters))) => print_live(name, port.peer(), counters),
        Ok((port, Err(error))) => say!("{name:24} {:>8} {error}", port.peer().pid),
        Err(ConnectError::ServerDead { .. }) => say!(
            "{name:24} {:>8} {:>6} {:>107}",
            "-",
            "-",
            "dead (stale socket)"
        ),
        // No port is called so; its bytes are not for a terminal.
        Err(ConnectError::BadName(_)) => Ok(()),
        Err(error) => say!("{name:24} {error}"),
    }
}

fn print_live(name: &str, peer: handfast::Peer, counters: &Counters) -> Outcome {
    let Some((_, row)) = counters.ports.iter().find(|(of, _)| of == name) else {
        return Ok(());
    };
    let value = |column| Counters::value(row, column);
    say!(
        "{name:24} {:>8} {:>6} {:>6} {:>12} {:>12} {:>14} {:>14} {:>10} {:>10} {:>8} {:>8}",
        peer.pid,
        peer.uid,
        // Not counting the one this command has made to ask.
        counters.links.len().saturating_sub(1),
        value("calls"),
        value("sends"),
        value("bytes_in"),
        value("bytes_out"),
        value("parks"),
        value("wakes"),
        value("faults"),
        "live"
    )
}
