//! `ppc`: protected procedure calls into a domain of the same process (paper 002, section 3).
//!
//! `limit` is two `WRPKRU` and a stack switch around the same function, written by hand and without checks.
//! `handfast-domain` claims a stack from the pool of its CPU, `handfast-domain-held` has one of its own;
//! `handfast-domain-port` calls the domain by a right to a port it serves, with bytes instead of words. Where the machine has no memory keys,
//! a domain is a process, which those calls reach by messages: `handfast-process-domain`, and the others in the same way. Threads of
//! this process, one on each CPU; figures are of bursts of calls, so that what other programs take falls out of the
//! median. Systems named `-confined` run in a child process that has confined itself, in turn with the others.

pub(crate) mod confined;
#[cfg(target_arch = "x86_64")]
pub(crate) mod ladder;
#[cfg(target_arch = "x86_64")]
mod limit;

use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use crate::stats::{median, ratio};
use handfast::SendRight;
use handfast::domain::{
    CallContext, Domain, DomainOptions, Held, Isolation, LoadError, Port, Table, Words,
};
use handfast_sys::{clock, cpu};
use std::hint::black_box;
use std::io;
use std::sync::Barrier;
use std::time::Duration;

/// All systems, the limit first.
pub(crate) const SYSTEMS: [&str; 14] = [
    "limit",
    "handfast-domain",
    "handfast-domain-confined",
    "handfast-domain-held",
    "handfast-domain-held-confined",
    "handfast-domain-port",
    "handfast-process-domain",
    "handfast-process-domain-held",
    "handfast-process-domain-port",
    "plain-call",
    "syscall",
    "syscall-confined",
    // Whose arguments the filter looks at.
    "syscall-checked",
    "syscall-checked-confined",
];

const PAYLOADS: [u32; 6] = [8, 64, 512, 4096, 16_384, 65_536];

/// Calls between two looks at the clock.
const BURST: u32 = 256;
/// System calls take longer, and so do long payloads.
const BURST_LONG: u32 = 16;

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let mut cases = null_cases(run);
    cases.push((Case::Cold, 1));
    let payloads = run.payloads(&PAYLOADS);
    cases.extend(payloads.iter().map(|len| (Case::Bytes(*len as usize), 1)));
    Ok(measure_parts(run, &SYSTEMS, &cases)?.rows())
}

/// Null calls, on one to all CPUs or as many threads as `--clients` says.
pub fn null_cases(run: &Run) -> Vec<(Case, usize)> {
    let threads: Vec<usize> = match run.args.clients.as_slice() {
        [] => (1..=cpu::allowed().len()).collect(),
        asked => asked.iter().map(|count| *count as usize).collect(),
    };
    threads
        .into_iter()
        .map(|count| (Case::Null, count))
        .collect()
}

/// Measures these systems in these cases, each with its number of threads. Ratios are to `limit`, if it comes first.
pub fn measure_parts(
    run: &mut Run,
    systems: &[&'static str],
    cases: &[(Case, usize)],
) -> io::Result<Board> {
    clock::calibrate();
    let cpus = cpu::allowed();
    let domain = match load() {
        Ok(domain) => Some(domain),
        Err(error) => {
            run.warn(format!("no rows of domains: {error}"));
            None
        }
    };
    let is_confined = |system: &&str| system.ends_with(confined::SUFFIX);
    let confined = systems
        .iter()
        .any(is_confined)
        .then(confined::Process::start);
    let mut confined = confined.and_then(|started| {
        started
            .inspect_err(|error| run.warn(format!("no rows of a confined process: {error}")))
            .ok()
    });
    let port = domain.as_ref().and_then(|domain| {
        let port = Port::new(handfast::anonymous().ok()?, domain, 1).ok()?;
        let right = port.connect().ok()?;
        Some((port, right))
    });
    let window = if run.args.quick { 2 } else { 10 };
    let window = run
        .args
        .seconds
        .map_or(Duration::from_millis(window), Duration::from_secs_f64);
    run.expect(cases.len() * run.rounds as usize);

    let mut board = Board::default();
    for _ in 0..run.rounds {
        for (case, count) in cases {
            let mut limit = None;
            for system in systems.iter().copied() {
                let is_limit = system == "limit";
                if !(is_limit || run.wants(system)) || !case.has(system) {
                    continue;
                }
                let seat = Seat {
                    case: *case,
                    system,
                    domain: domain.as_ref(),
                    right: port.as_ref().map(|(_, right)| right),
                    window,
                };
                let found = match system.strip_suffix(confined::SUFFIX) {
                    Some(inner) => confined.as_mut().and_then(|process| {
                        process.measure(
                            &Seat {
                                system: inner,
                                ..seat
                            },
                            *count,
                        )
                    }),
                    None => threads_of(&seat, *count, &cpus).map(|bursts| reading(&bursts)),
                };
                let Some(reading) = found else {
                    continue;
                };
                if is_limit {
                    limit = reading.p50_ns;
                }
                let key = Key {
                    case: case.name(),
                    system,
                    payload_bytes: case.payload(),
                    clients: Some(*count),
                };
                let reading = Reading {
                    ratio_to_limit: ratio(reading.p50_ns, limit),
                    ..reading
                };
                if run.wants(system) {
                    board.add(key, reading);
                }
            }
            run.step();
        }
    }
    run.notes.push(
        "ratio: p50 / p50 of `limit`; with a payload, of a `limit` that copies it once. p50, p99: of bursts of calls, \
         for each call. ops/s: of all threads at the pace of their median bursts. null-cold: the caches hold \
         something else before each call, and the clock is part of the time. What `-confined` costs: its p50 / the \
         p50 of the system without."
            .to_owned(),
    );
    Ok(board)
}

/// The target of the call.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Case {
    /// Eight words each way.
    Null,
    /// As that, with other data in the caches.
    Cold,
    /// So many bytes each way.
    Bytes(usize),
}

impl Case {
    fn name(self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Cold => "null-cold".to_owned(),
            Self::Bytes(_) => "payload".to_owned(),
        }
    }

    const fn payload(self) -> Option<usize> {
        match self {
            Self::Bytes(len) => Some(len),
            _ => None,
        }
    }

    fn has(self, system: &str) -> bool {
        match self {
            Self::Bytes(_) => !(system == "plain-call" || system.starts_with("syscall")),
            _ => true,
        }
    }

    fn burst(self, system: &str) -> u32 {
        match self {
            Self::Cold => 1,
            Self::Bytes(len) if len > 1024 => BURST_LONG,
            _ if system.starts_with("syscall") => BURST_LONG,
            _ => BURST,
        }
    }
}

/// The functions of the domain.
fn load() -> Result<Domain, LoadError> {
    fn null((): &(), call: &mut CallContext<'_>) {
        black_box(call.words());
    }
    fn echo((): &(), call: &mut CallContext<'_>) {
        let (request, reply) = call.both();
        let len = request.len();
        reply[..len].copy_from_slice(request);
        call.set_reply_len(len);
    }
    let table = Table::new(|_| ()).entry(null).entry(echo);
    // SAFETY: the functions lend nothing and touch nothing but the call.
    unsafe { Domain::new(&table, DomainOptions::new()) }
}

extern "C" fn plain(words: &mut Words) {
    black_box(words);
}

/// The instructions to one thread of a measurement.
#[derive(Clone, Copy)]
struct Seat<'a> {
    case: Case,
    system: &'static str,
    domain: Option<&'a Domain>,
    right: Option<&'a SendRight>,
    window: Duration,
}

/// Nanoseconds of each call, for each burst of each thread. `None` where the machine has no such system.
fn threads_of(seat: &Seat<'_>, count: usize, cpus: &[u32]) -> Option<Vec<Vec<f64>>> {
    let barrier = Barrier::new(count);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|index| {
                let (barrier, seat) = (&barrier, *seat);
                let own = cpus.get(index % cpus.len().max(1)).copied();
                scope.spawn(move || {
                    // Without it the figures are of threads that move.
                    let _ = cpu::pin(own.as_slice());
                    seat.measure(barrier)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().ok()?)
            .collect()
    })
}

impl Seat<'_> {
    fn measure(&self, barrier: &Barrier) -> Option<Vec<f64>> {
        // Before the others are waited for: all of them fail, or none.
        let mut made = self.prepare();
        barrier.wait();
        match made.as_mut()? {
            #[cfg(target_arch = "x86_64")]
            Prepared::Limit(limit) => match self.case {
                Case::Bytes(len) => {
                    let (request, mut reply) = (vec![1u8; len], vec![0; len]);
                    Some(self.bursts(|words| {
                        limit.call(plain, words);
                        reply.copy_from_slice(black_box(&request));
                        black_box(&reply);
                    }))
                }
                _ => Some(self.bursts(|words| limit.call(plain, words))),
            },
            #[cfg(target_arch = "x86_64")]
            Prepared::Step(step) => Some(self.bursts(|words| step.call(plain, words))),
            Prepared::Domain(domain) => match self.case {
                Case::Bytes(len) => {
                    let (request, mut reply) = (vec![1u8; len], vec![0; len]);
                    Some(self.bursts(|words| {
                        black_box(domain.call_bytes(1, words, &request, &mut reply).is_ok());
                    }))
                }
                _ => Some(self.bursts(|words| {
                    black_box(domain.call_in_place(0, words).is_ok());
                })),
            },
            Prepared::Held(held) => match self.case {
                Case::Bytes(len) => {
                    let (request, mut reply) = (vec![1u8; len], vec![0; len]);
                    Some(self.bursts(|words| {
                        black_box(held.call_bytes(1, words, &request, &mut reply).is_ok());
                    }))
                }
                _ => Some(self.bursts(|words| {
                    black_box(held.call_in_place(0, words).is_ok());
                })),
            },
            Prepared::Port(right) => {
                // Without a payload as many bytes as there are words in.
                let len = self.case.payload().unwrap_or(size_of::<Words>());
                let (request, mut reply) = (vec![1u8; len], vec![0; len]);
                Some(self.bursts(|_| {
                    black_box(right.call_into(black_box(&request), &mut reply).is_ok());
                }))
            }
            Prepared::Plain(function) => Some(self.bursts(|words| function(words))),
            Prepared::Syscall => Some(self.bursts(|_| {
                // A real one on every C library: nothing caches it.
                black_box(rustix::process::getppid());
            })),
            Prepared::Checked => Some(self.bursts(|_| {
                // Refused by the kernel, after the filter.
                // SAFETY: no page.
                let _ = black_box(unsafe {
                    rustix::mm::munmap(std::ptr::without_provenance_mut(4096), 0)
                });
            })),
        }
    }

    fn prepare(&self) -> Option<Prepared> {
        match self.system {
            #[cfg(target_arch = "x86_64")]
            "limit" => limit::Limit::new().ok().map(Prepared::Limit),
            #[cfg(target_arch = "x86_64")]
            step if step.starts_with("step-") => ladder::Step::new(step)?.ok().map(Prepared::Step),
            "handfast-domain" | "handfast-process-domain" => {
                self.domain_of_name().cloned().map(Prepared::Domain)
            }
            "handfast-domain-held" | "handfast-process-domain-held" => {
                self.domain_of_name()?.hold().ok().map(Prepared::Held)
            }
            "handfast-domain-port" | "handfast-process-domain-port" => {
                self.domain_of_name()?;
                self.right.cloned().map(Prepared::Port)
            }
            "plain-call" => Some(Prepared::Plain(black_box(plain))),
            "syscall" => Some(Prepared::Syscall),
            "syscall-checked" => Some(Prepared::Checked),
            _ => None,
        }
    }

    /// The domain, where it is of the kind that the system's name says.
    fn domain_of_name(&self) -> Option<&Domain> {
        let is_process = self.system.starts_with("handfast-process-");
        let is_that = |domain: &&Domain| (domain.isolation() == Isolation::Process) == is_process;
        self.domain.filter(is_that)
    }

    /// Calls for as long as the window lasts.
    fn bursts(&self, mut call: impl FnMut(&mut Words)) -> Vec<f64> {
        let burst = self.case.burst(self.system);
        let mut evictor = Evictor::new(self.case == Case::Cold);
        let mut words = [1; 8];
        let mut found = Vec::with_capacity(1 << 12);
        let end = clock::ticks_ns() + self.window.as_nanos() as u64;
        // One place where it is called, so that it becomes part of the loop. The first calls do not count.
        let mut early = BURST_LONG.div_ceil(burst);
        loop {
            evictor.run();
            let start = clock::ticks_ns();
            for _ in 0..burst {
                call(black_box(&mut words));
            }
            black_box(words);
            let now = clock::ticks_ns();
            if early > 0 {
                early -= 1;
                continue;
            }
            found.push(now.saturating_sub(start) as f64 / f64::from(burst));
            if now > end {
                return found;
            }
        }
    }
}

enum Prepared {
    #[cfg(target_arch = "x86_64")]
    Limit(limit::Limit),
    #[cfg(target_arch = "x86_64")]
    Step(ladder::Step),
    Domain(Domain),
    Held(Held),
    Port(SendRight),
    Plain(extern "C" fn(&mut Words)),
    Syscall,
    Checked,
}

/// Puts something else into the caches of this core.
struct Evictor(Vec<u64>);

impl Evictor {
    /// More than the two caches that a core has to itself.
    const LEN_BYTES: usize = 4 << 20;

    fn new(is_wanted: bool) -> Self {
        let len = if is_wanted {
            Self::LEN_BYTES / size_of::<u64>()
        } else {
            0
        };
        Self(vec![1; len])
    }

    fn run(&mut self) {
        const LINE: usize = 8;
        for line in self.0.chunks_mut(LINE) {
            line[0] = black_box(line[0] + 1);
        }
    }
}

fn reading(bursts: &[Vec<f64>]) -> Reading {
    let all: Vec<f64> = bursts.concat();
    let pace = |thread: &Vec<f64>| median(thread).map(|ns| 1e9 / ns);
    let mut sorted = all.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    Reading {
        p50_ns: median(&all),
        p99_ns: sorted.get(sorted.len() * 99 / 100).copied(),
        ops_per_s: bursts.iter().map(pace).sum(),
        ..Reading::default()
    }
}
