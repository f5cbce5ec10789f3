//! The plan of faults: what is done to whom, by random numbers of one seed, and what became of it.

use crate::child::{self, Child, Spec};
use crate::kinds::{Fault, KINDS};
use crate::talk::some_us;
use crate::tally::Tally;
use crate::victim::{FORKED_HANDLE, Stage};
use handfast_sys::{OwnedFd, clock};
use handfast_testing::Random;
use rustix::process::{Resource, Rlimit, Signal};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a process may take to get where it is to be killed.
const READY: Duration = Duration::from_secs(10);
/// Signals of a storm.
const STORM: u64 = 2000;
const SIGNALS: [Signal; 4] = [Signal::USR1, Signal::USR2, Signal::URG, Signal::CHILD];
/// As far as a clock is off, in seconds.
const CLOCK_OFF_S: u64 = 3 * 365 * 86_400;

/// One of the attacking threads, with one victim at a time.
pub(crate) struct Attacker<'a> {
    /// From which its servers have their names.
    pub(crate) number: usize,
    pub(crate) random: Random,
    pub(crate) directory: PathBuf,
    /// The names of the well-behaved servers.
    pub(crate) servers: &'a [String],
    /// All well-behaved processes.
    pub(crate) steady: Vec<(String, OwnedFd)>,
    /// The deadline of the calls of newcomers.
    pub(crate) limit: Duration,
    pub(crate) tally: &'a Tally,
    pub(crate) stop: &'a AtomicBool,
    /// To whom the present fault is done.
    pub(crate) whom: String,
}

impl Attacker<'_> {
    pub(crate) fn run(mut self) {
        // Each of them once, in the first round; then by weight.
        let own = KINDS.iter().skip(self.number).step_by(crate::ATTACKERS);
        own.for_each(|(fault, ..)| self.strike(*fault));
        let all: u64 = KINDS.iter().map(|(_, weight, _)| weight).sum();
        // Relaxed: no more than a flag.
        while !self.stop.load(Relaxed) {
            let mut place = self.random.below(all);
            for (fault, weight, _) in KINDS {
                if place < weight {
                    self.strike(fault);
                    break;
                }
                place -= weight;
            }
        }
    }

    fn strike(&mut self, fault: Fault) {
        let begun_ns = clock::now_ns();
        self.whom.clear();
        let done = match fault {
            Fault::StopSteady | Fault::SignalSteady => self.strike_steady(fault),
            Fault::Visitor => self.visit(),
            _ => self.strike_victim(fault),
        };
        let whom = std::mem::take(&mut self.whom);
        self.tally
            .under_way(fault, whom, (begun_ns, clock::now_ns()));
        if let Some(what) = done {
            self.tally.fault(fault, what);
        }
    }

    /// Starts the victim, lets it come to its place, does the fault, and kills it. Returns the name of the deed, in
    /// a word.
    fn strike_victim(&mut self, fault: Fault) -> Option<&'static str> {
        let (spec, what) = self.spec(fault);
        self.whom = format!("{} {}", spec.role, spec.words.join(" "));
        let mut limits = Vec::new();
        if fault == Fault::FewDescriptors {
            limits.push((Resource::Nofile, 4 + self.random.below(40)));
        }
        if fault == Fault::LittleMemory {
            limits.push(match self.random.below(3) {
                // The most a file may have: of memory, too.
                0 => (Resource::Fsize, self.random.below(64 << 20)),
                _ => (Resource::As, (16 << 20) + self.random.below(1 << 30)),
            });
        }
        let clock = (fault == Fault::Clock).then(|| self.random.below(CLOCK_OFF_S));
        let started = Child::start(&spec, &self.directory, &limits, clock);
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                self.tally.not_possible(fault, &error.to_string());
                return None;
            }
        };
        // A few do not even come so far.
        let early = self.random.below(10) == 0;
        let begun = match early {
            true => {
                let patience = some_us(&mut self.random, 15);
                self.listen(&mut child, patience, false)
            }
            false => self.listen(&mut child, READY, true),
        };
        if begun {
            self.harass(fault, &mut child);
        }
        let by_itself = match fault {
            // A name that is bound may be taken over, the parent is there still.
            Fault::Links => {
                child.close_input();
                child.wait(READY)
            }
            _ => None,
        };
        let ended = by_itself.or(self.end(child));
        self.judge(&spec, ended, fault == Fault::LittleMemory);
        Some(what)
    }

    /// The victim, and the name of the deed.
    fn spec(&mut self, fault: Fault) -> (Spec, &'static str) {
        let seed = self.random.next();
        let which = self.random.below(self.servers.len() as u64) as usize;
        let (one, other) = (
            &self.servers[which],
            &self.servers[(which + 1) % self.servers.len()],
        );
        let (prey, foul) = (
            format!("prey-{}", self.number),
            format!("foul-{}", self.number),
        );
        let serves = matches!(fault, Fault::KillServer | Fault::StopServer)
            || matches!(
                fault,
                Fault::FewDescriptors | Fault::LittleMemory | Fault::Clock
            ) && self.random.below(3) == 0;
        let stage = match fault {
            Fault::KillClient => self.random.below(Stage::COUNT),
            _ => Stage::COUNT - 1,
        };
        let before = self.random.below(50).to_string();
        let links = (100 + self.random.below(1000)).to_string();
        let of = |role: &str, words: &[&str]| Spec::new(role, seed, words);
        let spec = match fault {
            _ if serves => of("server", &[&prey, other]),
            Fault::MuteServer => of("mute", &[&prey]),
            Fault::ScribbleClient => of("scribbler", &[one, other]),
            Fault::ScribbleServer => of("foul", &[&foul]),
            Fault::Handshake => of("hellos", &[one, "bytes"]),
            Fault::BadFile => of("hellos", &[one, "files"]),
            Fault::FakeServer => of("fake", &[&foul]),
            Fault::Control => of("control", &[one, "few"]),
            Fault::DescriptorFlood => of("control", &[one, "flood"]),
            Fault::ConnectFlood => of("connects", &[one]),
            Fault::SlowReader => of("slow", &[one]),
            Fault::ForkStorm => of("forks", &[one, &prey]),
            Fault::Links => of("links", &[one, &links]),
            _ => of("client", &[one, other, &stage.to_string(), &before, &prey]),
        };
        let what = match (fault, Stage::of(stage)) {
            (Fault::KillClient, stage) => stage.name(),
            _ => "",
        };
        (spec, what)
    }

    /// Does to a process what is done while it lives.
    fn harass(&mut self, fault: Fault, child: &mut Child) {
        let hold = match fault {
            Fault::KillClient => some_us(&mut self.random, 17),
            Fault::KillServer => Duration::from_millis(5 + self.random.below(300)),
            Fault::Links => Duration::from_millis(self.random.below(1000)),
            _ => Duration::from_millis(50 + self.random.below(400)),
        };
        match fault {
            Fault::StopClient | Fault::StopServer | Fault::SlowReader => {
                for _ in 0..1 + self.random.below(4) {
                    child.signal(Signal::STOP);
                    std::thread::sleep(some_us(&mut self.random, 18));
                    // Half of them die asleep.
                    if self.random.below(8) == 0 {
                        return;
                    }
                    child.signal(Signal::CONT);
                    let between = some_us(&mut self.random, 16);
                    self.listen(child, between, false);
                }
            }
            Fault::SignalVictim => {
                for _ in 0..STORM {
                    child.signal(SIGNALS[self.random.below(4) as usize]);
                }
            }
            Fault::FewDescriptors | Fault::LittleMemory => {
                self.listen(child, hold / 2, false);
                // Less than it has already.
                let (resource, most) = match fault {
                    Fault::FewDescriptors => (Resource::Nofile, 12),
                    _ => (Resource::As, 64 << 20),
                };
                let limit = self.random.below(most);
                child.limit(
                    resource,
                    Rlimit {
                        current: Some(limit),
                        maximum: Some(limit),
                    },
                );
                self.listen(child, hold / 2, false);
            }
            _ => {
                self.listen(child, hold, false);
            }
        }
    }

    /// Hears what a child says, until it is where it is to be, or for so long. `false`: it has ended, or was not there.
    fn listen(&self, child: &mut Child, patience: Duration, until_here: bool) -> bool {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(line) = child.line(left) else {
                return !until_here && !child.has_ended();
            };
            match line.split_once(' ') {
                _ if until_here && (line == "here" || line == "ready") => return true,
                Some(("words", count)) => self.tally.words(count),
                Some(("links", count)) => self.tally.links(count),
                Some(("calls", count)) => self.tally.calls(count),
                Some(("refused", _)) => self.tally.refused(),
                Some(("wrong", what)) => self.tally.wrong(what),
                Some(("panicked", what)) => self.tally.reason(what),
                Some(("lost", what)) => self.tally.lost(what),
                Some(("forked", status)) if status.ends_with(&FORKED_HANDLE.to_string()) => {
                    self.tally.wrong("a forked child used what is its parent's");
                }
                _ => {}
            }
        }
    }

    fn end(&self, mut child: Child) -> Option<ExitStatus> {
        if child.has_ended() {
            // It may have said why.
            self.listen(&mut child, Duration::from_millis(100), false);
        }
        let ended = child.kill();
        if ended.is_none() {
            self.tally.kill();
        }
        ended
    }

    /// Nobody ends by a panic or a fault, whatever was done to it.
    fn judge(&self, spec: &Spec, ended: Option<ExitStatus>, without_memory: bool) {
        // A stack that cannot grow is a fault of the kernel's, and scribblers may scribble on themselves.
        let may_fault = without_memory || matches!(spec.role.as_str(), "scribbler" | "foul");
        if let Some(status) = ended
            && child::is_crash(status)
            && !(may_fault && status.code().is_none())
        {
            self.tally
                .crash(&format!("{} {:?}: {status}", spec.role, spec.words));
        }
    }

    fn strike_steady(&mut self, fault: Fault) -> Option<&'static str> {
        let which = self.random.below(self.steady.len() as u64) as usize;
        let (who, pidfd) = &self.steady[which];
        self.whom.push_str(who);
        let signal = |signal| rustix::process::pidfd_send_signal(pidfd, signal).is_ok();
        if fault == Fault::StopSteady {
            signal(Signal::STOP);
            std::thread::sleep(some_us(&mut self.random, 16));
            signal(Signal::CONT);
        } else {
            for _ in 0..STORM {
                signal(SIGNALS[self.random.below(4) as usize]);
            }
        }
        Some("")
    }

    /// A well-behaved process comes, calls and goes.
    fn visit(&mut self) -> Option<&'static str> {
        let which = self.random.below(self.servers.len() as u64) as usize;
        let limit = self.limit.as_millis().to_string();
        let words = [&*self.servers[which], &*limit];
        let spec = Spec::new("visitor", self.random.next(), &words);
        let mut child = Child::start(&spec, &self.directory, &[], None).ok()?;
        // It may take as long for each of its calls, and does not; its output ends with it.
        let patience = self.limit * 3;
        self.listen(&mut child, patience, false);
        match child.wait(patience) {
            Some(status) if status.success() => {}
            Some(status) => self.tally.crash(&format!("a newcomer: {status}")),
            None => self.tally.hang("a newcomer does not come to an end"),
        }
        Some("")
    }
}
