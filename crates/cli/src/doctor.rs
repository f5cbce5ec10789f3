//! `handfast doctor`: what this machine offers, and what that means for handfast.

use handfast::domain::Isolation;
use handfast_cli::Outcome;
use handfast_cli::output::say;
use handfast_sys::memory::{Access, Mapping, create_sealed};
use handfast_sys::{Errno, clock, cpu, futex, landlock, process, seccomp, socket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) fn run() -> Outcome {
    let machine = handfast_wait::calibration::calibration();
    let line = |what: &str, found: String, means: &str| say!("{what:24} {found:22} {means}");
    let (online, allowed) = (cpu::online(), cpu::available());
    line(
        "CPUs online / allowed",
        format!("{online} / {allowed}"),
        match (online, allowed) {
            (1, _) => "one CPU: handfast never spins here",
            (_, 1) => "spinning can pay, with peers that may use another CPU",
            _ => "spinning can pay",
        },
    )?;
    line(
        "system call",
        format!("{} ns", system_call_ns()),
        "what a wake-up costs at least",
    )?;
    line(
        "T_block",
        format!("{} ns", machine.block_cost_ns),
        "the adaptive strategy spins for 0, T/2, T or 2T",
    )?;
    line(
        "wake-up latency",
        format!("{} ns", machine.wake_latency_ns),
        "what a sleeper adds",
    )?;
    match line_round_trip_ns() {
        Some(ns) => line(
            "cache line round trip",
            format!("{ns} ns"),
            "the floor of a call",
        )?,
        None => line(
            "cache line round trip",
            "not measured".into(),
            "needs two CPUs that have little else to do",
        )?,
    }
    let memory = create_sealed("doctor", 4096);
    line(
        "sealed memory files",
        yes_or(memory.as_ref().err()),
        "required: links are memory files",
    )?;
    line(
        "pidfd of a peer",
        peer_pidfd(),
        "death of a peer whose socket a child still holds",
    )?;
    line(
        "futex_waitv",
        waitv(),
        "a server of several users sleeps in one call",
    )?;
    let fence = if futex::register_fence() { "yes" } else { "no" };
    line(
        "membarrier",
        fence.into(),
        "busy servers and streams need no fence for each message",
    )?;
    line(
        "memory protection keys",
        flag("ospke"),
        "calls into domains in nanoseconds need them",
    )?;
    let (isolation, reason) = Isolation::here();
    line(
        "domains",
        match isolation {
            Isolation::Process => "child processes",
            _ => "by memory keys",
        }
        .to_owned(),
        &match isolation {
            Isolation::Process => format!("{reason}: microseconds a call"),
            _ => reason.to_string(),
        },
    )?;
    line(
        "filters of system calls",
        if seccomp::is_supported() { "yes" } else { "no" }.into(),
        "confined mode needs them",
    )?;
    line(
        "Landlock",
        match landlock::version() {
            0 => "no".into(),
            version => format!("version {version}"),
        },
        &match handfast::domain::confine::check_machine() {
            Ok(()) => "confined mode is possible: domains as a boundary".to_owned(),
            Err(error) => error.to_string(),
        },
    )?;
    line(
        "huge pages for memory",
        huge_pages(),
        "arenas (not used yet)",
    )?;
    let limit = process::descriptor_limit();
    line(
        "descriptors",
        limit.to_string(),
        &format!("about {} links (2 each)", limit / 2),
    )?;
    let directory = handfast::rendezvous::directory();
    line(
        "rendezvous directory",
        directory.display().to_string(),
        writable(&directory),
    )
}

fn yes_or(error: Option<&Errno>) -> String {
    error.map_or_else(|| "yes".to_owned(), |errno| format!("no: {errno}"))
}

fn system_call_ns() -> u64 {
    const CALLS: u64 = 20_000;
    let start = clock::now_ns();
    for _ in 0..CALLS {
        // A real system call on every C library: nothing caches it.
        std::hint::black_box(rustix::process::getppid());
    }
    (clock::now_ns() - start) / CALLS
}

/// Two threads passing one word back and forth; nothing where they do not run at once. The scheduler may have both take
/// turns on one CPU, where a trip takes milliseconds.
fn line_round_trip_ns() -> Option<u64> {
    /// In a burst; so few that some burst is undisturbed on a busy machine.
    const TRIPS: u64 = 20;
    const BURSTS: u32 = 1000;
    const LIMIT_NS: u64 = 500_000_000;
    /// No two CPUs are that far apart.
    const FAR_NS: u64 = 100_000;
    if cpu::available() < 2 {
        return None;
    }
    #[repr(align(128))]
    struct Line(AtomicU64);
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let stop = AtomicBool::new(false);
    let mut best = u64::MAX;
    let end = clock::ticks_ns() + LIMIT_NS;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 1;
            while !stop.load(Ordering::Relaxed) {
                if there.0.load(Ordering::Acquire) == turn {
                    back.0.store(turn, Ordering::Release);
                    turn += 1;
                }
            }
        });
        let mut turn = 0;
        for _ in 0..BURSTS {
            let start = clock::ticks_ns();
            for _ in 0..TRIPS {
                turn += 1;
                there.0.store(turn, Ordering::Release);
                while back.0.load(Ordering::Acquire) != turn {
                    std::hint::spin_loop();
                }
            }
            let now = clock::ticks_ns();
            best = best.min((now - start) / TRIPS);
            if now > end {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    (best < FAR_NS).then_some(best)
}

fn peer_pidfd() -> String {
    match socket::pair() {
        Ok((a, _b)) => yes_or(socket::peer_pidfd(&a).err().as_ref()),
        Err(errno) => format!("no: {errno}"),
    }
}

fn waitv() -> String {
    let Ok(fd) = create_sealed("doctor", 4096) else {
        return "no memory files".into();
    };
    let Ok(mapping) = Mapping::new(&fd, 4096, Access::ReadWrite) else {
        return "no mapping".into();
    };
    let word = mapping.base().cast::<u32>();
    let words = [(word, 1), (word, 1)];
    // SAFETY: the words lie in the mapping, which lives until the end of this function. They
    // differ from what is expected, so the call returns at once.
    match unsafe { futex::wait_any(&words, Some(clock::now_ns())) } {
        Ok(_) => "yes".into(),
        Err(errno) => format!("no: {errno}"),
    }
}

fn flag(name: &str) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let found = info
        .lines()
        .any(|line| line.starts_with("flags") && line.split_whitespace().any(|word| word == name));
    if found { "yes".into() } else { "no".into() }
}

fn huge_pages() -> String {
    let path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let chosen = text
        .split('[')
        .nth(1)
        .and_then(|rest| rest.split(']').next());
    chosen.map_or_else(|| "unknown".into(), |mode| format!("shmem: {mode}"))
}

fn writable(directory: &std::path::Path) -> &'static str {
    match handfast_sys::directory::create(directory) {
        Ok(()) => match handfast_sys::directory::Turn::take(directory) {
            Ok(_) => "usable",
            Err(Errno::NOTDIR) => "is a file: set HANDFAST_DIR",
            Err(_) => "cannot be locked: set HANDFAST_DIR",
        },
        Err(_) => "cannot be made: set HANDFAST_DIR",
    }
}
