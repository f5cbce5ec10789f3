//! `handfast ls`: live servers, read through their links.

use crate::Outcome;
use crate::output::say;
use handfast::Counters;

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
        "{:24} {:>8} {:>6} {:>6} {:>12} {:>12} {:>14} {:>10} {:>10} {:>8}",
        "name",
        "pid",
        "uid",
        "links",
        "calls",
        "sends",
        "bytes in",
        "parks",
        "wakes",
        "state"
    )?;
    for name in names {
        match handfast::connect(&name) {
            Ok(port) => match port.counters() {
                Ok(counters) => print(&name, port.peer(), &counters)?,
                Err(error) => say!("{name:24} {:>8} {error}", port.peer().pid)?,
            },
            Err(handfast::error::ConnectError::ServerDead { .. }) => {
                say!(
                    "{name:24} {:>8} {:>6} {:>83}",
                    "-",
                    "-",
                    "dead (stale socket)"
                )?;
            }
            // No port is called so; its bytes are not for a terminal.
            Err(handfast::error::ConnectError::BadName(_)) => {}
            Err(error) => say!("{name:24} {error}")?,
        }
    }
    Ok(())
}

fn print(name: &str, peer: handfast::Peer, counters: &Counters) -> Outcome {
    let Some((_, row)) = counters.ports.iter().find(|(of, _)| of == name) else {
        return Ok(());
    };
    let value = |column| Counters::value(row, column);
    say!(
        "{name:24} {:>8} {:>6} {:>6} {:>12} {:>12} {:>14} {:>10} {:>10} {:>8}",
        peer.pid,
        peer.uid,
        // Not counting the one this command has made to ask.
        counters.links.len().saturating_sub(1),
        value("calls"),
        value("sends"),
        value("bytes_in"),
        value("parks"),
        value("wakes"),
        "live"
    )
}
