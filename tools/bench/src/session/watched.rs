//! Measurements with what the kernel counts: of several sessions at once, and of system calls.

use super::{Rest, STALL_NS, Sample, Session, Snapshot};
use crate::control::Phase;
use crate::plan::Timing;
use crate::process::Child;
use handfast_cli::usage::ticks;
use handfast_testing::trace::Tracer;
use std::io;

/// The results of one window, and the kernel's counts meanwhile.
pub struct Watched {
    /// The results.
    pub sample: Sample,
    /// Context switches of all processes of the session.
    pub switches: u64,
    /// Their CPU time in user mode, in ticks: a share of the sample's CPU time.
    pub user_ticks: u64,
    /// Their CPU time in the kernel, likewise.
    pub system_ticks: u64,
}

/// System calls of a session.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// Messages meanwhile: calls of the clients, or messages of a stream.
    pub messages: u64,
    /// The calls of all its processes and threads.
    pub calls: u64,
}

struct Moment {
    snapshot: Snapshot,
    used: Rest,
    user_ticks: u64,
    system_ticks: u64,
}

impl Session {
    /// Warms up all sessions, records them over the same window, ends their clients.
    pub fn measure_together(mut sessions: Vec<Self>, timing: Timing) -> io::Result<Vec<Watched>> {
        let set = |sessions: &[Self], phase| {
            for session in sessions {
                session.control.set_phase(phase);
            }
        };
        let now = |sessions: &[Self]| -> io::Result<Vec<_>> {
            sessions.iter().map(Self::moment).collect()
        };
        set(&sessions, Phase::Warm);
        std::thread::sleep(timing.warm);
        let before = now(&sessions)?;
        set(&sessions, Phase::Measure);
        let mut after;
        loop {
            std::thread::sleep(timing.window);
            after = now(&sessions)?;
            let pairs = || before.iter().zip(&after);
            let is_still = |(before, after): (&Moment, &Moment)| {
                before.snapshot.calls == after.snapshot.calls
                    && before.snapshot.served == after.snapshot.served
            };
            let has_waited = |(before, after): (&Moment, &Moment)| {
                after.snapshot.at_ns - before.snapshot.at_ns > STALL_NS
            };
            if !pairs().any(is_still) || pairs().any(has_waited) {
                break;
            }
        }
        let open: Vec<u64> = sessions
            .iter()
            .zip(&after)
            .map(|(session, after)| session.longest_open_ns(after.snapshot.at_ns))
            .collect();
        set(&sessions, Phase::Stop);
        let moments = before.iter().zip(&after).zip(open);
        sessions
            .iter_mut()
            .zip(moments)
            .map(|(session, ((before, after), open))| {
                let switches = |used: &Rest| used.server.switches + used.clients.switches;
                Ok(Watched {
                    sample: session.finish(&before.snapshot, &after.snapshot, open)?,
                    switches: switches(&after.used).saturating_sub(switches(&before.used)),
                    user_ticks: after.user_ticks.saturating_sub(before.user_ticks),
                    system_ticks: after.system_ticks.saturating_sub(before.system_ticks),
                })
            })
            .collect()
    }

    fn moment(&self) -> io::Result<Moment> {
        let (mut user_ticks, mut system_ticks) = (0, 0);
        for child in self.children() {
            let (user, system) = ticks(child.id())?;
            user_ticks += user;
            system_ticks += system;
        }
        Ok(Moment {
            used: self.used()?,
            user_ticks,
            system_ticks,
            snapshot: self.snapshot()?,
        })
    }

    /// Warms up, counts the system calls of one window, ends the clients.
    pub fn traced(mut self, timing: Timing) -> io::Result<Traced> {
        self.control.set_phase(Phase::Warm);
        std::thread::sleep(timing.warm);
        let ids: Vec<u32> = self.children().map(Child::id).collect();
        let mut tracer = Tracer::processes(&ids)?;
        let before = self.snapshot()?;
        tracer.count(timing.window)?;
        let after = self.snapshot()?;
        let calls = tracer.take_counts().calls();
        drop(tracer);
        self.control.set_phase(Phase::Stop);
        Ok(Traced {
            messages: self.finish(&before, &after, 0)?.total(),
            calls,
        })
    }

    fn children(&self) -> impl Iterator<Item = &Child> {
        self.servers.iter().chain(&self.clients)
    }
}
