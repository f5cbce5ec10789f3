//! Processes that are killed, and when the others notice.

use super::{PATIENCE_NS, Session};
use crate::control::Phase;
use crate::plan::Timing;
use crate::process::Child;
use handfast_sys::clock;
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

impl Session {
    /// Stops the server, and kills it when its client has been waiting in a call for a while: nanoseconds until that call
    /// ended; nothing where it did not within `timing`'s window.
    pub fn kill_server(mut self, timing: Timing) -> io::Result<Option<u64>> {
        self.control.set_phase(Phase::Warm);
        sleep(timing.warm);
        let pid = self.servers.last().map(Child::id);
        send(pid, Signal::STOP)?;
        self.wait_for_quiet()?;
        let killed_ns = clock::now_ns();
        send(pid, Signal::KILL)?;
        let slot = self.control.slot(0);
        Ok(noticed(
            &slot.failed_ns,
            killed_ns,
            timing,
            &mut self.servers,
        ))
    }

    /// Kills a client that is connected and silent: nanoseconds until the server had noticed; nothing where it did not
    /// within `timing`'s window. For plans where the server watches.
    pub fn kill_client(mut self, timing: Timing) -> io::Result<Option<u64>> {
        self.control.set_phase(Phase::Warm);
        sleep(timing.warm);
        self.control.set_phase(Phase::Idle);
        self.wait_for_quiet()?;
        let killed_ns = clock::now_ns();
        send(self.clients.first().map(Child::id), Signal::KILL)?;
        let served = &self.control.header().served.0;
        Ok(noticed(
            &served.noticed_ns,
            killed_ns,
            timing,
            &mut self.clients,
        ))
    }

    /// Kills all processes amid their calls, and looks at what is left before that is cleaned up.
    pub fn kill_all<T>(mut self, timing: Timing, look: impl FnOnce(&str) -> T) -> io::Result<T> {
        self.control.set_phase(Phase::Warm);
        sleep(timing.warm);
        for child in self.servers.iter().chain(&self.clients) {
            send(Some(child.id()), Signal::KILL)?;
        }
        // Waited for, too.
        self.servers.clear();
        self.clients.clear();
        Ok(look(&self.bundle.address))
    }

    /// Waits until the first client has made no call for a while.
    fn wait_for_quiet(&self) -> io::Result<()> {
        let calls = &self.control.slot(0).calls;
        let deadline_ns = clock::now_ns() + PATIENCE_NS;
        while clock::now_ns() < deadline_ns {
            // Relaxed, both: statistics.
            let before = calls.load(Ordering::Relaxed);
            sleep(QUIET);
            if before > 0 && calls.load(Ordering::Relaxed) == before {
                return Ok(());
            }
        }
        Err(io::Error::other("the client never waited, or never called"))
    }
}

/// So long a client makes no call before it is taken for asleep; longer than any default spins.
const QUIET: Duration = Duration::from_millis(50);

/// The value of `word`, after `killed_ns`. The dead are waited for meanwhile: to some, a process not waited for has not died.
fn noticed(word: &AtomicU64, killed_ns: u64, timing: Timing, dead: &mut [Child]) -> Option<u64> {
    let deadline_ns = killed_ns + timing.window.as_nanos() as u64;
    loop {
        dead.iter_mut().for_each(|child| {
            child.runs();
        });
        // Relaxed: a statistic.
        match word.load(Ordering::Relaxed) {
            0 if clock::now_ns() > deadline_ns => return None,
            0 => sleep(Duration::from_micros(100)),
            at_ns => return Some(at_ns.saturating_sub(killed_ns)),
        }
    }
}

fn send(pid: Option<u32>, signal: Signal) -> io::Result<()> {
    let pid = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
    Ok(kill_process(pid.ok_or(io::ErrorKind::NotFound)?, signal)?)
}
