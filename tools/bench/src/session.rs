//! One measurement, from the parent's side: start the processes, walk them through the phases,
//! read their counters at both ends of the window.

mod ends;
pub mod watched;

use crate::control::{Control, Phase, Slot, Tally};
use crate::machine::clock_step_ns;
use crate::plan::{ChildSpec, Plan, Role, Task, Timing};
use crate::process::Child;
use crate::stats;
use crate::systems::child::{counted, histogram};
use crate::systems::{Bundle, Runnable};
use handfast_cli::usage::{Usage, cpu_ns};
use handfast_sys::{AsFd, BorrowedFd, OwnedFd, clock};
use hdrhistogram::Histogram;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The results of one window.
pub struct Sample {
    /// How long the window was.
    pub elapsed_ns: u64,
    /// Calls each client finished in the window; for a stream, one entry: messages received.
    pub calls: Vec<u64>,
    /// Latencies of all clients together.
    pub latencies: Histogram<u64>,
    /// CPU time of the servers in the window.
    pub server_cpu_ns: u64,
    /// CPU time of all clients.
    pub clients_cpu_ns: u64,
    /// Requests the server had served when the window began.
    pub served_before: u64,
    /// Requests the server served in the window.
    pub served: u64,
    /// The work that was asked for, of the server and of clients.
    pub busy_ns: u64,
    /// The longest call that ended in the window or was open at its end.
    pub longest_wait_ns: u64,
}

impl Sample {
    /// Calls of all clients.
    pub fn total(&self) -> u64 {
        self.calls.iter().sum()
    }

    /// Throughput.
    pub fn per_second(&self) -> f64 {
        self.total() as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// CPU time of all processes for each call.
    pub fn cpu_per_call_ns(&self) -> f64 {
        (self.server_cpu_ns + self.clients_cpu_ns) as f64 / self.total().max(1) as f64
    }

    /// A quantile of the latencies; `None` when nothing was recorded.
    pub fn quantile_ns(&self, quantile: f64) -> Option<f64> {
        stats::quantile(&counted(&self.latencies), quantile, clock_step_ns())
    }
}

/// The usage of processes while nothing was asked of them.
pub struct Rest {
    /// The usage of the server.
    pub server: Usage,
    /// The usage of all clients together.
    pub clients: Usage,
}

/// The system's counts of its own waiting so far.
#[derive(Clone, Copy, Default)]
pub struct Told {
    /// System calls of all processes.
    pub syscalls: u64,
    /// Waits of clients that ended asleep.
    pub sleeps: u64,
    /// Looks of clients' limited spins that found nothing.
    pub polls: u64,
}

/// The processes of one measurement, connected and asleep in `Phase::Hold`.
pub struct Session {
    // Dropped in this order: clients end first, the system's resources last.
    clients: Vec<Child>,
    servers: Vec<Child>,
    control: Control,
    streams: bool,
    bundle: Bundle,
}

impl Session {
    /// Starts servers and clients of `system` and waits until all are connected.
    pub(crate) fn start(system: &dyn Runnable, plan: &Plan, dir: &Path) -> io::Result<Self> {
        let mut bundle = system.named().prepare(plan)?;
        let (control_fd, control) = Control::create(plan.clients)?;
        if bundle.address.is_empty() {
            bundle.address = unique_name();
        }
        let mut spec = ChildSpec {
            role: Role::Server(0),
            parent: std::process::id(),
            system: system.named().key().to_owned(),
            plan: plan.clone(),
            fds: Vec::new(),
            address: bundle.address.clone(),
            dir: dir.to_owned(),
        };
        let program = system.named().program();
        let own_fds = std::mem::take(&mut bundle.clients);
        let mut session = Self {
            clients: Vec::with_capacity(plan.clients),
            servers: Vec::with_capacity(plan.servers),
            control,
            streams: plan.task == Task::Stream,
            bundle,
        };
        // The last first: each connects to the next.
        for number in (0..plan.servers).rev() {
            spec.role = Role::Server(number);
            let fds = list(&control_fd, &session.bundle.common, &session.bundle.server);
            session
                .servers
                .push(Child::spawn(program, &mut spec, &fds)?);
            session.wait_until("a server did not get ready", |session| {
                session.control.servers_ready() == session.servers.len()
            })?;
        }
        for index in 0..plan.clients {
            spec.role = Role::Client(index);
            let own = own_fds.get(index).map_or(&[][..], Vec::as_slice);
            let fds = list(&control_fd, &session.bundle.common, own);
            session
                .clients
                .push(Child::spawn(program, &mut spec, &fds)?);
        }
        session.wait_until("a client did not connect", |session| {
            // Acquire: pairs with the client's Release in `take_part`; it is connected.
            let connected = |slot: &Slot| slot.ready.load(Ordering::Acquire) == 1;
            session.control.slots().all(connected)
        })?;
        Ok(session)
    }

    /// Warms up, records for one window, ends the clients.
    pub(crate) fn measure(self, timing: Timing) -> io::Result<Sample> {
        let (sample, _) = self.measure_beside(timing, |_| Ok(()))?;
        Ok(sample)
    }

    /// As `measure`; `look`s at the processes just before the window and just after it.
    pub fn measure_beside<T>(
        mut self,
        timing: Timing,
        look: impl Fn(&Self) -> io::Result<T>,
    ) -> io::Result<(Sample, [T; 2])> {
        self.control.set_phase(Phase::Warm);
        std::thread::sleep(timing.warm);
        let first = look(&self)?;
        let before = self.snapshot()?;
        self.control.set_phase(Phase::Measure);
        let mut after;
        loop {
            std::thread::sleep(timing.window);
            after = self.snapshot()?;
            // A short window can fall whole into another process's time slice: then go on.
            let nothing = after.calls == before.calls && after.served == before.served;
            if !nothing || after.at_ns - before.at_ns > STALL_NS {
                break;
            }
        }
        let looks = [first, look(&self)?];
        let open = self.longest_open_ns(after.at_ns);
        self.control.set_phase(Phase::Stop);
        Ok((self.finish(&before, &after, open)?, looks))
    }

    /// Ends the clients, whose phase is [`Phase::Stop`] already, and says what they did between two snapshots.
    fn finish(
        &mut self,
        before: &Snapshot,
        after: &Snapshot,
        longest_open_ns: u64,
    ) -> io::Result<Sample> {
        let latencies = self.collect()?;
        let calls: Vec<u64> = if self.streams {
            vec![after.served - before.served]
        } else {
            let pairs = after.calls.iter().zip(&before.calls);
            pairs.map(|(after, before)| after - before).collect()
        };
        if calls.iter().all(|calls| *calls == 0) {
            return Err(io::Error::other("no call ended in the window"));
        }
        Ok(Sample {
            elapsed_ns: after.at_ns - before.at_ns,
            calls,
            longest_wait_ns: latencies.max().max(longest_open_ns),
            latencies,
            server_cpu_ns: after.server_cpu_ns - before.server_cpu_ns,
            clients_cpu_ns: after.clients_cpu_ns - before.clients_cpu_ns,
            served_before: before.served,
            served: after.served - before.served,
            busy_ns: after.busy_ns - before.busy_ns,
        })
    }

    /// Lets the clients call for a moment, then watches everybody rest for `window`.
    pub fn rest(mut self, timing: Timing) -> io::Result<Rest> {
        self.control.set_phase(Phase::Warm);
        std::thread::sleep(timing.warm);
        self.control.set_phase(Phase::Idle);
        std::thread::sleep(timing.warm.max(Duration::from_millis(50)));
        let before = self.used()?;
        std::thread::sleep(timing.window);
        let after = self.used()?;
        self.control.set_phase(Phase::Stop);
        self.collect()?;
        Ok(Rest {
            server: after.server.since(before.server),
            clients: after.clients.since(before.clients),
        })
    }

    /// The processes' usage so far.
    pub fn used(&self) -> io::Result<Rest> {
        let all = |children: &[Child]| -> io::Result<Usage> {
            let mut all = Usage::default();
            for child in children {
                let used = Usage::of(child.id())?;
                all.switches += used.switches;
                all.involuntary += used.involuntary;
                all.cpu_ns += used.cpu_ns;
            }
            Ok(all)
        };
        Ok(Rest {
            server: all(&self.servers)?,
            clients: all(&self.clients)?,
        })
    }

    /// The system's counts so far.
    pub fn told(&self) -> Told {
        let clients = || self.control.slots().map(|slot| &slot.tally);
        let sum = |count: fn(&Tally) -> u64| clients().map(count).sum::<u64>();
        let server = &self.control.header().tally.0;
        Told {
            syscalls: server.syscalls.get() + sum(|tally| tally.syscalls.get()),
            sleeps: sum(|tally| tally.sleeps.get()),
            polls: sum(|tally| tally.polls.get()),
        }
    }

    /// Calls the clients have finished so far.
    pub fn calls(&self) -> u64 {
        // Relaxed: a statistic.
        let calls = |slot: &Slot| slot.calls.load(Ordering::Relaxed);
        self.control.slots().map(calls).sum()
    }

    fn snapshot(&self) -> io::Result<Snapshot> {
        let served = &self.control.header().served.0;
        let all = |children: &[Child]| -> io::Result<u64> {
            children.iter().map(|child| cpu_ns(child.id())).sum()
        };
        let load = |counter: &AtomicU64| {
            // Relaxed: a statistic, exact enough at whatever moment it is seen.
            counter.load(Ordering::Relaxed)
        };
        let clients_busy_ns: u64 = self.control.slots().map(|slot| load(&slot.busy_ns)).sum();
        Ok(Snapshot {
            server_cpu_ns: all(&self.servers)?,
            clients_cpu_ns: all(&self.clients)?,
            served: load(&served.messages),
            busy_ns: load(&served.busy_ns) + clients_busy_ns,
            at_ns: clock::now_ns(),
            calls: self.control.slots().map(|slot| load(&slot.calls)).collect(),
        })
    }

    /// How long the oldest call that is open at `now_ns` has been waiting.
    fn longest_open_ns(&self, now_ns: u64) -> u64 {
        let waits = self.control.slots().filter_map(|slot| {
            // Relaxed: statistics; 0 means that no call is open.
            let since = slot.open_since.load(Ordering::Relaxed);
            let offset = slot.clock_offset.load(Ordering::Relaxed);
            (since != 0).then(|| now_ns.saturating_sub(since.saturating_add_signed(offset)))
        });
        waits.max().unwrap_or(0)
    }

    /// Reads what the clients recorded; they end by it.
    fn collect(&mut self) -> io::Result<Histogram<u64>> {
        let mut all = histogram()?;
        let deadline_ns = clock::now_ns() + PATIENCE_NS;
        for client in &mut self.clients {
            let values: Vec<(u64, u64)> = serde_json::from_slice(&client.output(deadline_ns)?)
                .map_err(|_| io::Error::other("a client failed"))?;
            for (value, count) in values {
                all.saturating_record_n(value, count);
            }
        }
        Ok(all)
    }

    fn wait_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> io::Result<()> {
        let deadline_ns = clock::now_ns() + PATIENCE_NS;
        while !done(self) {
            let mut children = self.servers.iter_mut().chain(&mut self.clients);
            let alive = children.all(Child::runs);
            if !alive || clock::now_ns() > deadline_ns {
                return Err(io::Error::other(what));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

/// How long anything but the window itself may take.
const PATIENCE_NS: u64 = 20_000_000_000;

/// How long a window is at the longest extended while no call ends.
const STALL_NS: u64 = 2_000_000_000;

struct Snapshot {
    at_ns: u64,
    calls: Vec<u64>,
    server_cpu_ns: u64,
    clients_cpu_ns: u64,
    served: u64,
    busy_ns: u64,
}

/// Processes that only use CPU, until dropped.
pub(crate) fn hogs(on: &[Option<u32>]) -> io::Result<Vec<Child>> {
    let spawn = |on: &Option<u32>| {
        let mut spec = ChildSpec {
            role: Role::Hog(*on),
            parent: std::process::id(),
            system: String::new(),
            plan: Plan::echo(),
            fds: Vec::new(),
            address: String::new(),
            dir: std::path::PathBuf::new(),
        };
        Child::spawn(None, &mut spec, &[])
    };
    on.iter().map(spawn).collect()
}

fn list<'a>(
    control: &'a OwnedFd,
    common: &'a [OwnedFd],
    own: &'a [OwnedFd],
) -> Vec<BorrowedFd<'a>> {
    std::iter::once(control)
        .chain(common)
        .chain(own)
        .map(AsFd::as_fd)
        .collect()
}

/// A name no other measurement of this user has.
pub fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only uniqueness matters.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("bench-{}-{count}", std::process::id())
}
