//! One run of a benchmark: its options, its progress bar, what went wrong.

use crate::Args;
use crate::machine::choose_pair;
use crate::plan::{Placement, Plan, Timing};
use crate::process::Child;
use crate::session::{Sample, Session, hogs};
use crate::shared::Piece;
use crate::stats::median;
use crate::systems::{self, Runnable, queues};
use handfast_cli::temporary::Directory;
use handfast_cli::{descriptors, output};
use handfast_sys::cpu;
use handfast_sys::process::descriptor_limit;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

/// The state that all benchmarks share.
pub struct Run {
    /// The options.
    pub args: Args,
    /// How many rounds to take medians over.
    pub rounds: u32,
    /// The chosen CPUs of server and client; equal on a machine with one.
    pub server_cpu: u32,
    /// The client's.
    pub client_cpu: u32,
    /// Printed under the table.
    pub(crate) notes: Vec<String>,
    bar: ProgressBar,
    /// Socket files of killed servers are in there.
    dir: Directory,
    warned: HashSet<String>,
    /// How often each kind of turn failed; [`FAILURES_MAX`] bounds the time a broken system takes.
    failed: HashMap<String, u32>,
    hogs: Vec<Child>,
}

impl Run {
    /// Prepares this process. Run it once, on the main thread, before anything is measured.
    pub fn new(args: &Args) -> io::Result<Self> {
        if let Err(error) = queues::own_namespace() {
            let kept = "messages over the system's limit are left out";
            output::note(format_args!(
                "handfast: no IPC namespace of our own ({error}): {kept}"
            ));
        }
        // A server has two for each of its clients, and so has this process.
        descriptors::raise();
        if let Some(count) = args.cpus {
            use_few(count as usize)?;
        }
        let first = cpu::allowed().first().copied().unwrap_or(0);
        let (server_cpu, client_cpu) = choose_pair().unwrap_or((first, first));
        let dir = Directory::new("handfast-bench-").map_err(io::Error::other)?;
        let bar = ProgressBar::hidden();
        if io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta} left  {msg}");
        // Letters that every terminal has.
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("#>-"));
        Ok(Self {
            args: args.clone(),
            rounds: args.rounds.unwrap_or(if args.quick { 3 } else { 15 }),
            server_cpu,
            client_cpu,
            notes: Vec::new(),
            bar,
            dir,
            warned: HashSet::new(),
            failed: HashMap::new(),
            hogs: Vec::new(),
        })
    }

    /// Warm-up and window: the first with `--quick`, else the second, as `--seconds` changes it.
    pub fn timing(&self, quick: Timing, full: Timing) -> Timing {
        let timing = if self.args.quick { quick } else { full };
        Timing {
            window: self
                .args
                .seconds
                .map_or(timing.window, Duration::from_secs_f64),
            ..timing
        }
    }

    /// Payload sizes: `--payloads`, or these.
    pub(crate) fn payloads(&self, usual: &[u32]) -> Vec<u32> {
        match self.args.payloads.as_slice() {
            [] => usual.to_vec(),
            asked => asked.to_vec(),
        }
    }

    /// As [`Self::payloads`]; payloads that are not whole pieces are left out with a word.
    pub(crate) fn whole_payloads(&mut self, usual: &[u32]) -> Vec<u32> {
        let mut payloads = self.payloads(usual);
        payloads.retain(|len| {
            let whole = (*len as usize).is_multiple_of(size_of::<Piece>());
            if !whole {
                self.warn(format!("payload {len} left out: not a multiple of 64"));
            }
            whole
        });
        payloads
    }

    /// Whether `--only` lets this name through.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.args.only.is_empty() || self.args.only.iter().any(|only| only == name)
    }

    /// Two CPUs; the note and `None` where there is only one.
    pub(crate) fn cross_core(&self) -> Option<Placement> {
        (self.server_cpu != self.client_cpu).then_some(Placement::Pinned {
            server: self.server_cpu,
            client: self.client_cpu,
        })
    }

    /// One CPU for both.
    pub const fn same_core(&self) -> Placement {
        Placement::Pinned {
            server: self.server_cpu,
            client: self.server_cpu,
        }
    }

    /// Two CPUs where there are two.
    pub fn best_placement(&self) -> Placement {
        self.cross_core().unwrap_or(self.same_core())
    }

    /// Starts `--hogs`, each on the CPU `place` gives for its number.
    pub fn start_hogs(&mut self, place: impl Fn(usize) -> Option<u32>) -> io::Result<()> {
        let places: Vec<_> = (0..self.args.hogs as usize).map(place).collect();
        self.hogs = hogs(&places)?;
        Ok(())
    }

    /// Lets them run only where nobody else wants to, or nearly so.
    pub fn nice_hogs(&self) -> io::Result<()> {
        const NICEST: i32 = 19;
        for hog in &self.hogs {
            let pid = rustix::process::Pid::from_raw(hog.id().cast_signed());
            rustix::process::setpriority_process(pid, NICEST)?;
        }
        Ok(())
    }

    /// Ends them.
    pub fn stop_hogs(&mut self) {
        self.hogs.clear();
    }

    /// Announces how many turns there will be.
    pub fn expect(&self, turns: usize) {
        self.bar.set_length(turns as u64);
    }

    /// Measures one turn of `system`; `None`, and a warning once, when it cannot.
    pub fn turn(&mut self, system: &dyn Runnable, plan: &Plan, timing: Timing) -> Option<Sample> {
        self.attempt(system, plan, |session| session.measure(timing))
    }

    /// Starts one turn of `system` and does `what` with it; `None`, and a warning once, when
    /// either fails.
    pub fn attempt<T>(
        &mut self,
        system: &dyn Runnable,
        plan: &Plan,
        what: impl FnOnce(Session) -> io::Result<T>,
    ) -> Option<T> {
        self.attempt_together(system, plan, 1, |mut sessions| match sessions.pop() {
            Some(session) => what(session),
            None => Err(io::ErrorKind::InvalidInput.into()),
        })
    }

    /// As [`Self::attempt`], with `count` turns at once.
    pub fn attempt_together<T>(
        &mut self,
        system: &dyn Runnable,
        plan: &Plan,
        count: usize,
        what: impl FnOnce(Vec<Session>) -> io::Result<T>,
    ) -> Option<T> {
        let named = system.named();
        self.bar.set_message(named.name());
        let row = format!(
            "{} with {} bytes, {} clients",
            named.key(),
            plan.payload_bytes,
            plan.clients
        );
        let kind = format!("{row} {} {:?}", plan.servers, plan.task);
        let failures = self.failed.get(&kind).copied().unwrap_or(0);
        let result = named.supports(plan).and_then(|()| {
            if failures >= FAILURES_MAX {
                return Err("failed too often".to_owned());
            }
            (0..count)
                .map(|_| Session::start(system, plan, self.dir.path()))
                .collect::<io::Result<_>>()
                .and_then(what)
                .map_err(|error| match error.raw_os_error() {
                    Some(libc::EMFILE) => format!(
                        "out of descriptors of this process; raise the hard limit (ulimit -Hn; it is {})",
                        descriptor_limit()
                    ),
                    _ => error.to_string(),
                })
        });
        self.bar.inc(1);
        result
            .inspect_err(|why| {
                self.warn(format!("{row} left out of a round: {why}"));
                *self.failed.entry(kind).or_default() += 1;
            })
            .ok()
    }

    /// Where sockets and other files of the measured processes are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The complaint so far about failed turns of the system with this key.
    pub fn complaint(&self, key: &str) -> Option<&str> {
        let start = format!("{key} with ");
        let mut said = self.warned.iter().map(String::as_str);
        said.find(|text| text.starts_with(&start))
    }

    /// Whether something was left out.
    pub(crate) fn has_warned(&self) -> bool {
        !self.warned.is_empty()
    }

    /// Says something on standard error, once.
    pub fn warn(&mut self, text: String) {
        if self.warned.insert(text.clone()) {
            self.bar
                .suspend(|| output::note(format_args!("handfast: {text}")));
        }
    }

    /// Whether hand-written spinning should execute the pause hint: tries both ways and takes the
    /// faster on this machine, and notes which.
    pub fn choose_pause(&mut self) -> bool {
        let Some(limit) = systems::find("limit") else {
            return true;
        };
        let tries = if self.args.quick { 1 } else { 5 };
        let timing = Timing::ms(5, if self.args.quick { 5 } else { 20 });
        let mut p50s = [const { Vec::new() }; 2];
        for _ in 0..tries {
            for (pause, p50s) in [false, true].into_iter().zip(&mut p50s) {
                let plan = Plan {
                    pause,
                    placement: self.best_placement(),
                    ..Plan::echo()
                };
                let sample = self.turn(limit.as_ref(), &plan, timing);
                p50s.extend(sample.and_then(|sample| sample.quantile_ns(0.5)));
            }
        }
        let [without, with] = p50s.map(|p50s| median(&p50s));
        let [without, with] = [without, with].map(|p50| p50.unwrap_or(f64::INFINITY));
        let pause = with <= without;
        let which = if pause { "with" } else { "without" };
        self.notes.push(format!(
            "`limit` spins {which} the pause hint: {with:.0} ns with it, {without:.0} ns without."
        ));
        self.bar.set_position(0);
        pause
    }

    /// One of the expected turns is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Ends the run and hands the notes over.
    pub fn finish(mut self) -> Vec<String> {
        self.bar.finish_and_clear();
        std::mem::take(&mut self.notes)
    }
}

/// This process, and all that it starts, from now on use the first `count` CPUs of those it may use.
fn use_few(count: usize) -> io::Result<()> {
    let allowed = cpu::allowed();
    match allowed.get(..count) {
        Some(few) => Ok(cpu::pin(few)?),
        None => Err(io::Error::other(format!(
            "--cpus {count}: this process may use {} CPUs",
            allowed.len()
        ))),
    }
}

/// How often a kind of turn may fail before it is no longer tried.
const FAILURES_MAX: u32 = 3;
