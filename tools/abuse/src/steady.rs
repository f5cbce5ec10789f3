//! The well-behaved processes, as their parent sees them: started, heard, paused, ended in good order.

use crate::child::{Child, Spec};
use crate::client::Report;
use crate::leaks::{Heap, Holdings};
use crate::tally::Tally;
use crate::{ATTACKERS, CLIENTS, LOOK, SERVERS, WARM, server, victim};
use handfast_cli::Outcome;
use std::path::Path;
use std::time::{Duration, Instant};

/// A well-behaved process.
pub(super) struct Steady {
    pub(super) who: String,
    pub(super) child: Child,
    pub(super) before: Holdings,
    /// Its heap when its holdings were counted first.
    pub(super) heap: Heap,
    /// A client's last word, and when it came.
    pub(super) report: Report,
    heard: Instant,
    hangs: bool,
}

impl Steady {
    fn start(who: &str, spec: &Spec, directory: &Path) -> std::io::Result<Self> {
        Ok(Self {
            who: who.to_owned(),
            child: Child::start(spec, directory, &[], None)?,
            before: Holdings::default(),
            heap: Heap::default(),
            report: Report::default(),
            heard: Instant::now(),
            hangs: false,
        })
    }

    /// Has it give back memory that it does not use, and say what is in use.
    pub(super) fn trim(&mut self, patience: Duration) -> Heap {
        self.child.tell("trim");
        let end = Instant::now() + patience;
        while Instant::now() < end {
            let line = self.child.line(LOOK).unwrap_or_default();
            match Heap::said(&line) {
                Some(heap) => return heap,
                None => self.heard(&line),
            }
        }
        Heap::default()
    }

    fn heard(&mut self, line: &str) {
        // All else is its panic, which ends it.
        if let Ok(report) = serde_json::from_str(line) {
            (self.report, self.heard) = (report, Instant::now());
        }
    }

    /// Hears what a client has said.
    fn listen(&mut self, patience: Duration) {
        while let Some(line) = self.child.line(patience) {
            self.heard(&line);
        }
    }

    /// Looks whether a client, or a call of its, goes on for longer than any may.
    fn look(&mut self, patience: Duration, tally: &Tally) {
        let open = Duration::from_micros(self.report.open_us);
        if !self.hangs && (open > patience || self.heard.elapsed() > patience) {
            self.hangs = true;
            let heard = self.heard.elapsed();
            tally.hang(&format!(
                "{}: a call for {open:?}, heard of {heard:?} ago",
                self.who
            ));
        }
    }
}

/// Starts the well-behaved processes.
pub(super) fn start(
    seed: u64,
    limit: Duration,
    directory: &Path,
) -> Result<(Vec<Steady>, Vec<Steady>), Box<dyn std::error::Error>> {
    let mut servers = Vec::new();
    // The first one passes calls on to the other.
    for at in (0..SERVERS.len()).rev() {
        let spec = Spec::new("server", seed, &SERVERS[at..]);
        let mut steady = Steady::start(SERVERS[at], &spec, directory)?;
        if !server::is_ready(&mut steady.child) {
            return Err("a server does not start".into());
        }
        servers.push(steady);
    }
    let limit = limit.as_millis().to_string();
    let attackers = ATTACKERS.to_string();
    let words: Vec<_> = [&*limit, &*attackers].into_iter().chain(SERVERS).collect();
    let clients = (0..CLIENTS).map(|number| {
        let spec = Spec::new("steady", seed.wrapping_add(number << 32), &words);
        Steady::start(&format!("client {number}"), &spec, directory)
    });
    Ok((servers, clients.collect::<Result<_, _>>()?))
}

/// Has a stranger be introduced to each of the servers, which make their doors then, for good.
pub(super) fn introduce(seed: u64, directory: &Path) -> Outcome {
    let mut guest = Child::start(
        &Spec::new("server", seed, &["prey-0"]),
        directory,
        &[],
        None,
    )?;
    server::is_ready(&mut guest);
    let stage = victim::Stage::USE.to_string();
    for name in SERVERS {
        let words = ["prey-0", name, &stage, "0", "prey-1"];
        let mut client = Child::start(&Spec::new("client", seed, &words), directory, &[], None)?;
        let _ = client.line(WARM);
        std::thread::sleep(WARM / 10);
        client.kill();
    }
    guest.kill();
    Ok(())
}

/// Hears the clients until then.
pub(super) fn look_after(clients: &mut [Steady], end: Instant, limit: Duration, tally: &Tally) {
    while Instant::now() < end {
        for client in &mut *clients {
            client.listen(LOOK);
            client.look(limit * 3, tally);
        }
    }
}

/// Has the clients make no calls, and waits until none is under way.
pub(super) fn pause(clients: &mut [Steady], limit: Duration, tally: &Tally) {
    for client in &mut *clients {
        client.child.tell("pause");
        client.report.paused = false;
    }
    let end = Instant::now() + limit * 4;
    while !clients
        .iter()
        .all(|client| client.report.paused || client.hangs)
        && Instant::now() < end
    {
        look_after(clients, Instant::now() + LOOK, limit, tally);
    }
}

/// Has the well-behaved end, each in good order.
pub(super) fn end(servers: Vec<Steady>, clients: &mut [Steady], limit: Duration, tally: &Tally) {
    for client in &mut *clients {
        client.child.close_input();
        client.listen(limit);
        finish(&client.who, &mut client.child, limit, tally);
    }
    for mut server in servers {
        server.child.close_input();
        finish(&server.who, &mut server.child, limit, tally);
    }
}

fn finish(who: &str, child: &mut Child, limit: Duration, tally: &Tally) {
    match child.wait(limit) {
        Some(status) if status.success() => {}
        Some(status) => tally.crash(&format!("{who} ended with {status}")),
        None => tally.hang(&format!("{who} does not come to an end")),
    }
}
