//! Calls with random faults, of every kind and on all CPUs, and what is left of them.
//!
//! `HANDFAST_CALLS` says how many (ten million take minutes), `HANDFAST_SEED` which.
#![cfg(target_arch = "x86_64")]

mod common;

use common::{
    ADD, BUS, DIVIDE, ILLEGAL, NULL, OVERFLOW, PANIC, PLACE, READ, RUN, Value, WILD, WRONG, add,
    first, load, value,
};
use handfast_domain::{CallContext, CallError, Domain, DomainOptions, Fault, Group, Table};
use handfast_sys::cpu;
use handfast_sys::keys::Key;
use handfast_testing::{self as testing, Random};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The outcomes of the ways to go wrong: of [`common::go_wrong`]'s, which are numbered up to [`WILD`], and one more.
const KINDS: [u64; 8] = [PANIC, NULL, READ, DIVIDE, ILLEGAL, OVERFLOW, BUS, DEADLINE];
const DEADLINE: u64 = WILD + 1;

fn spin() {
    loop {
        black_box(0);
    }
}

fn kind_of(fault: Fault) -> u64 {
    match fault {
        Fault::Panic => PANIC,
        Fault::Access { .. } => NULL,
        Fault::Key { .. } => READ,
        Fault::Arithmetic => DIVIDE,
        Fault::Illegal => ILLEGAL,
        Fault::StackOverflow => OVERFLOW,
        Fault::Bus => BUS,
        Fault::Deadline => DEADLINE,
        _ => unreachable!("none of them is a process"),
    }
}

/// All that the calls are made with.
struct Stage {
    /// Two that share stacks, and one that is called from within.
    domains: [Domain; 2],
    inner: Domain,
    outer: Domain,
    /// An address of the first one's, one of the inner one's, and one whose file is too short.
    places: [u64; 2],
    hole: u64,
}

static STAGE: OnceLock<Stage> = OnceLock::new();

/// Calls the inner one as the words say.
fn call_inner(_: &Value, call: &mut CallContext<'_>) {
    let inner = &STAGE.get().unwrap().inner;
    let [what, at, micros, ..] = *call.words();
    call.words()[3] = match go(inner, what, at, Duration::from_micros(micros)) {
        Err(CallError::Fault(fault)) => 1 + kind_of(fault),
        Ok(()) => 0,
        Err(error) => {
            assert_eq!(error, CallError::Resetting);
            RESETTING
        }
    };
}

/// The outer domain's word for a call that was refused meanwhile.
const RESETTING: u64 = 100;

fn echo(_: &Value, call: &mut CallContext<'_>) {
    let (request, reply) = call.both();
    reply[..request.len()].copy_from_slice(request);
    let len = request.len();
    call.set_reply_len(len);
}

fn stage() -> Option<&'static Stage> {
    let hole = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: a new mapping, of a file without a byte, which is looked at by the fault only.
    let hole = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            4096,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::SHARED,
            &hole,
            0,
        )
    };
    let inner = load(DomainOptions::new())?;
    let group = Group::new().unwrap();
    let table = Table::new(value).entry(call_inner).entry(add).entry(echo);
    // SAFETY: the functions lend nothing, and what they do outside is what is tested.
    let outer = unsafe { Domain::new(&table, DomainOptions::new().group(&group)) }.unwrap();
    let domains = [(); 2].map(|()| load(DomainOptions::new().group(&group)).unwrap());
    let places = [&domains[0], &inner].map(|domain| domain.call(PLACE, [0; 8]).unwrap()[0]);
    let hole = hole.unwrap().expose_provenance() as u64;
    Some(STAGE.get_or_init(|| Stage {
        domains,
        inner,
        outer,
        places,
        hole,
    }))
}

/// No way to go wrong, from here on.
const GOOD: u64 = DEADLINE + 1;

/// Goes wrong in that way, or adds to the domain's value.
fn go(domain: &Domain, what: u64, at: u64, timeout: Duration) -> Result<(), CallError> {
    match what {
        DEADLINE => domain.call_timeout(RUN, first(spin as fn() as usize as u64), timeout),
        _ if what <= WILD => domain.call(WRONG, [what, at, 0, 0, 0, 0, 0, 0]),
        _ if what.is_multiple_of(8) => domain.call_timeout(ADD, first(1), Duration::from_secs(60)),
        _ => domain.call(ADD, first(1)),
    }
    .map(drop)
}

/// Faults seen on one CPU, by kind, and those of calls within calls.
#[derive(Default)]
struct Seen {
    faults: [AtomicU64; KINDS.len()],
    inner: [AtomicU64; KINDS.len()],
}

fn count(seen: &[AtomicU64], kind: u64) {
    let place = KINDS.iter().position(|known| *known == kind);
    seen[place.unwrap()].fetch_add(1, Ordering::Relaxed);
}

/// So many calls of one thread.
fn calls(stage: &Stage, count_of: u64, seed: u64, seen: &Seen) {
    let mut random = Random::of(seed);
    let (mut bytes, mut held) = (vec![0; 70_000], None);
    for _ in 0..count_of {
        let kind = match random.below(600) {
            80..84 => DEADLINE,
            rare @ 0..80 => rare % DEADLINE,
            _ => GOOD + random.below(50),
        };
        let timeout = Duration::from_micros(random.below(200));
        let domain = &stage.domains[random.below(2) as usize];
        let at = if kind == BUS {
            stage.hole
        } else {
            stage.places[1]
        };
        let got = match random.below(20) {
            0 => {
                let kind = random.below(3 * DEADLINE);
                let at = if kind == BUS {
                    stage.hole
                } else {
                    stage.places[0]
                };
                let words = [kind, at, timeout.subsec_micros().into(), 0, 0, 0, 0, 0];
                let got = stage.outer.call(0, words);
                got.map(|words| match words[3] {
                    0 | RESETTING => {}
                    kind => count(&seen.inner, kind - 1),
                })
            }
            1 => {
                let len_bytes = random.below(65_537) as usize >> random.below(17);
                let (request, reply) = bytes.split_at_mut(len_bytes.min(35_000));
                let got = stage.outer.call_bytes(2, &mut [0; 8], request, reply);
                got.map(|len_bytes| assert_eq!(len_bytes, request.len()))
            }
            2 => {
                let held = held.get_or_insert_with(|| domain.hold().unwrap());
                let got = match kind {
                    0..=WILD => held.call(WRONG, [kind, at, 0, 0, 0, 0, 0, 0]),
                    _ => held.call(ADD, first(1)),
                };
                got.map(drop)
            }
            3 => {
                held = None;
                Ok(())
            }
            _ => go(domain, kind, at, timeout),
        };
        match got {
            Ok(()) | Err(CallError::Resetting) => {}
            Err(CallError::Fault(fault)) => count(&seen.faults, kind_of(fault)),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(rights(), NO_DOMAIN, "of the thread");
}

const NO_DOMAIN: u32 = 0x5555_5554;

fn rights() -> u32 {
    let rights: u32;
    // SAFETY: reads a register that is there where domains are.
    unsafe { std::arch::asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _) };
    rights
}

/// Of one stack with its areas, but for the guard.
const STACK_PAGES: usize = 60;

/// The resources of a process that a call could leave behind.
#[derive(Debug, PartialEq)]
struct Left {
    stacks: [u64; 2],
    held: usize,
    keys: usize,
    descriptors: usize,
    timers: usize,
    mappings: usize,
    pages: usize,
}

fn left(stage: &Stage) -> Left {
    let all = [
        &stage.domains[0],
        &stage.domains[1],
        &stage.inner,
        &stage.outer,
    ];
    for domain in all {
        assert!(testing::within_patience(|| {
            domain.call(1, [0; 8]).is_ok()
        }));
        domain.trim().unwrap();
    }
    let held: Vec<_> = std::iter::from_fn(|| stage.domains[0].hold().ok()).collect();
    let keys: Vec<_> = std::iter::from_fn(|| Key::allocate().ok()).collect();
    let lines = |path, part: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter(|line| line.contains(part)).count()
    };
    let pages = |domain: &Domain| domain.group().resident_pages().unwrap();
    Left {
        stacks: [&stage.inner, &stage.outer].map(|domain| domain.stacks_in_use().unwrap()),
        held: held.len(),
        keys: keys.len(),
        descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        timers: lines("/proc/self/timers", "ID:"),
        mappings: lines("/proc/self/maps", ""),
        pages: pages(&stage.inner) + pages(&stage.outer),
    }
}

#[test]
fn random_faults_on_all_cpus_leave_nothing_behind() {
    if !common::has_keys() {
        return;
    }
    let stage = stage().unwrap();
    let asked = std::env::var("HANDFAST_CALLS").ok();
    let total: u64 = asked.map_or(100_000, |text| text.parse().unwrap());
    let cpus = cpu::allowed();
    let seen: Vec<Seen> = cpus.iter().map(|_| Seen::default()).collect();
    let mut random = Random::seeded("campaign of faults");
    let threads = 2 * cpus.len();
    let mut run = |total: u64| {
        let seeds: Vec<u64> = (0..threads).map(|_| random.next()).collect();
        std::thread::scope(|scope| {
            let start = |(index, seed): (usize, u64)| {
                let (cpu, seen) = (cpus[index % cpus.len()], &seen[index % cpus.len()]);
                scope.spawn(move || {
                    cpu::pin(&[cpu]).unwrap();
                    calls(stage, total.div_ceil(threads as u64), seed, seen);
                })
            };
            let all: Vec<_> = seeds.into_iter().enumerate().map(start).collect();
            // To their very end.
            all.into_iter().for_each(|thread| thread.join().unwrap());
        });
    };
    // Memory that is there for good after the first calls: the allocator's, the threads'.
    run(20_000);
    let before = left(stage);
    run(total);
    let after = left(stage);
    println!("{before:?}\n{after:?}");
    for (seen, cpu) in seen.iter().zip(&cpus) {
        println!("CPU {cpu}: {:?}, within {:?}", seen.faults, seen.inner);
        let mut all = seen.faults.iter();
        assert!(
            all.all(|count| count.load(Ordering::Relaxed) > 0),
            "CPU {cpu}"
        );
    }
    assert_eq!(after.stacks, [0, 0]);
    // Stacks that were built stay so, each between two guards; one for each CPU and those that were held keep their memory.
    let kept = 2 * (cpus.len() + threads);
    assert!(after.mappings <= before.mappings + 8 * kept);
    assert!(after.pages <= kept * STACK_PAGES);
    let (mappings, pages) = (before.mappings, before.pages);
    let exactly = Left {
        mappings,
        pages,
        ..after
    };
    assert_eq!(exactly, before);
}
