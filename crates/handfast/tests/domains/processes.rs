//! Domains that are processes: how they live and end, and what holds for all domains.

#[path = "../../../domain/tests/conformance.rs"]
mod conformance;
mod killed;
mod rights;

use crate::common::{self, PATIENCE, within_patience};
use handfast::domain::{
    BYTES_MAX, CallContext, CallError, Domain, DomainOptions, Fault, Heap, Isolation, LoadError,
    NotStarted, Policy, Port, Table,
};
use handfast::error::{DomainError, SendError};
use rustix::process::{Resource, Rlimit};
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The role of a process that has a domain, and says which process that is.
pub(crate) fn parent() {
    let domain = load(DomainOptions::new());
    common::say(&domain.call(WHO, [0; 8]).unwrap()[0].to_string());
    while common::told().is_some() {}
}

/// The role of a program that is started with the marker of a domain's process.
pub(crate) fn ordinary() {
    common::say(&format!("{:?}", std::env::var_os("HANDFAST_DOMAIN")));
}

static SHARED: AtomicU64 = AtomicU64::new(0);

fn value(_: &Heap) -> AtomicU64 {
    AtomicU64::new(0)
}

fn add(sum: &AtomicU64, call: &mut CallContext<'_>) {
    let added = call.words()[0];
    call.words()[0] = sum.fetch_add(added, Ordering::Relaxed) + added;
    call.words()[1] = SHARED.fetch_add(1, Ordering::Relaxed);
}

/// Which process this is, and how many threads and descriptors it has.
fn who(_: &AtomicU64, call: &mut CallContext<'_>) {
    let count = |what| std::fs::read_dir(what).unwrap().count() as u64;
    *call.words() = [
        std::process::id().into(),
        count("/proc/self/task"),
        count("/proc/self/fd"),
        std::env::var_os("HANDFAST_DOMAIN").is_some().into(),
        0,
        0,
        0,
        0,
    ];
}

fn go_wrong(_: &AtomicU64, call: &mut CallContext<'_>) {
    match call.words()[0] {
        PANIC => std::panic::resume_unwind(Box::new(())),
        READ => {
            let at: *const u64 = std::ptr::with_exposed_provenance(call.words()[1] as usize);
            // SAFETY: none: this is the fault.
            call.words()[0] = unsafe { at.read_volatile() };
        }
        OVERFLOW => call.words()[0] = recurse(u64::MAX),
        ABORT => std::process::abort(),
        EXIT => std::process::exit(0),
        // SAFETY: none: this is the fault.
        #[cfg(target_arch = "x86_64")]
        DIVIDE => unsafe {
            std::arch::asm!("xor edx, edx", "div {zero}", zero = in(reg) 0u64, inout("rax") 1u64 => _, out("rdx") _);
        },
        // SAFETY: none: this is the fault.
        #[cfg(target_arch = "x86_64")]
        ILLEGAL => unsafe { std::arch::asm!("ud2") },
        _ => unreachable!(),
    }
}
const PANIC: u64 = 0;
const READ: u64 = 1;
const OVERFLOW: u64 = 2;
const ABORT: u64 = 3;
const EXIT: u64 = 4;
const DIVIDE: u64 = 5;
const ILLEGAL: u64 = 6;

#[expect(unconditional_recursion, reason = "the end of the stack is the point")]
fn recurse(left: u64) -> u64 {
    let frame = black_box([left; 64]);
    recurse(left - 1) + frame[5]
}

/// Answers with what was sent, and words with it.
fn echo(_: &AtomicU64, call: &mut CallContext<'_>) {
    let (request, reply) = call.both();
    let len_bytes = request.len().min(reply.len());
    reply[..len_bytes].copy_from_slice(&request[..len_bytes]);
    call.set_reply_len(len_bytes);
    call.words().rotate_left(1);
}

fn wait(_: &AtomicU64, _: &mut CallContext<'_>) {
    loop {
        std::thread::park();
    }
}

fn table() -> Table<AtomicU64> {
    Table::new(value)
        .entry(add)
        .entry(who)
        .entry(go_wrong)
        .entry(echo)
        .entry(wait)
}
const ADD: u16 = 0;
const WHO: u16 = 1;
const WRONG: u16 = 2;
const ECHO: u16 = 3;
const WAIT: u16 = 4;

fn load_of<T: Sync + 'static>(
    table: &Table<T>,
    options: DomainOptions,
) -> Result<Domain, LoadError> {
    common::directory();
    // SAFETY: the functions lend nothing, and run in a process of their own.
    unsafe { Domain::new(table, options.isolation(Isolation::Process)) }
}

fn load(options: DomainOptions) -> Domain {
    load_of(&table(), options).unwrap()
}

fn first(word: u64) -> [u64; 8] {
    [word, 0, 0, 0, 0, 0, 0, 0]
}

fn pid_of(domain: &Domain) -> u32 {
    domain.call(WHO, [0; 8]).unwrap()[0] as u32
}

fn lives(pid: u32) -> bool {
    // One that has ended and was not waited for has no command.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|command| !command.is_empty())
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn it_is_another_process_with_memory_and_descriptors_of_its_own() {
    // One that children inherit.
    let leaked = rustix::io::dup(std::io::stderr()).unwrap();
    let domain = load(DomainOptions::new());
    assert_eq!(domain.isolation(), Isolation::Process);
    assert!(!domain.is_protected());
    let [pid, threads, descriptors, has_marker, ..] = domain.call(WHO, [0; 8]).unwrap();
    assert!(pid != u64::from(std::process::id()) && lives(pid as u32));
    assert_eq!(has_marker, 0);
    // Its first thread, the control thread, one that serves and one that waits.
    assert!(threads <= 4, "{threads}");
    // Three, the socket, the parent, those of the control thread and of one link, and that of the directory that is read.
    assert!(descriptors <= 20, "{descriptors}");
    let in_child = format!("/proc/{pid}/fd/{}", leaked.as_raw_fd());
    let is_stderr = std::fs::read_link(in_child)
        .is_ok_and(|to| to == std::fs::read_link("/proc/self/fd/2").unwrap());
    assert!(!is_stderr);
    let before = SHARED.load(Ordering::Relaxed);
    assert_eq!(domain.call(ADD, first(3)).unwrap()[..2], [3, 0]);
    assert_eq!(domain.call(ADD, first(4)).unwrap()[..2], [7, 1]);
    assert_eq!(SHARED.load(Ordering::Relaxed), before);
    // A handle to the same.
    assert_eq!(domain.clone().call(ADD, [0; 8]).unwrap()[0], 7);
}

#[test]
fn it_lives_as_long_as_its_parent_keeps_the_domain() {
    let domain = std::thread::spawn(|| load(DomainOptions::new()))
        .join()
        .unwrap();
    let other = domain.clone();
    let pid = pid_of(&domain);
    drop(domain);
    assert_eq!(pid_of(&other), pid);
    drop(other);
    // It has been waited for, too.
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    // A port keeps it.
    let domain = load(DomainOptions::new());
    let pid = pid_of(&domain);
    let port = Port::new(handfast::anonymous().unwrap(), &domain, ECHO).unwrap();
    drop(domain);
    let right = port.connect().unwrap();
    assert_eq!(&*right.call(b"there").unwrap(), b"there");
    drop((right, port));
    assert!(within_patience(|| !lives(pid)));
}

#[test]
fn it_ends_with_its_parent_however_that_ends() {
    for kill in [true, false] {
        let mut parent = common::start("parent", &[]);
        let pid = parent.line().parse().unwrap();
        assert!(lives(pid));
        match kill {
            true => parent.kill(),
            false => parent.finish(),
        }
        assert!(within_patience(|| !lives(pid)));
    }
}

#[test]
fn one_that_was_killed_is_an_error_and_the_next_one_starts_anew() {
    let domain = load(DomainOptions::new());
    for round in 0..5 {
        domain.call(ADD, first(5)).unwrap();
        let pid = pid_of(&domain);
        kill(pid);
        // A call that comes before its death is known may be served.
        assert!(within_patience(
            || domain.call(ADD, first(0)) == Err(CallError::Fault(Fault::Ended))
        ));
        assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 1, "round {round}");
        assert!(pid_of(&domain) != pid);
    }
    // In the middle of a call.
    let pid = pid_of(&domain);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| domain.call(WAIT, [0; 8]));
        let threads = || {
            std::fs::read_dir(format!("/proc/{pid}/task"))
                .unwrap()
                .count()
        };
        // One that waits for the next call.
        assert!(within_patience(|| threads() >= 4));
        kill(pid);
        assert_eq!(waiting.join().unwrap(), Err(CallError::Fault(Fault::Ended)));
    });
    assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 1);
    // By a port, and to stay dead.
    let domain = load(DomainOptions::new().policy(Policy::Dead));
    let port = Port::new(handfast::anonymous().unwrap(), &domain, ECHO).unwrap();
    let right = port.connect().unwrap();
    kill(pid_of(&domain));
    let dead = SendError::Domain(DomainError::Ended);
    assert!(within_patience(|| right.call(b"x").map(drop) == Err(dead)));
    let dead = SendError::Domain(DomainError::Dead);
    assert_eq!(right.call(b"x").map(drop), Err(dead));
    assert_eq!(domain.call(ADD, [0; 8]), Err(CallError::Dead));
}

/// It has no descriptors left when the process of its domain ends.
pub(crate) fn poor_parent() {
    let domain = load(DomainOptions::new());
    let port = Port::new(handfast::anonymous().unwrap(), &domain, ECHO).unwrap();
    let right = port.connect().unwrap();
    let rich = rustix::process::getrlimit(Resource::Nofile);
    let with = |current| {
        let limit = Rlimit { current, ..rich };
        rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    };
    with(Some(3));
    kill(pid_of(&domain));
    let ended = Err(CallError::Fault(Fault::Ended));
    assert!(within_patience(|| domain.call(ADD, first(0)) == ended));
    for _ in 0..3 {
        let error = domain.call(ADD, first(1)).unwrap_err();
        let is_it = matches!(error, CallError::NotStarted(NotStarted::Os { .. }));
        assert!(is_it, "{error:?}");
        let by_port = right.call(b"x").map(drop);
        assert_eq!(by_port, Err(SendError::Domain(DomainError::NotStarted)));
    }
    with(rich.current);
    assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 1);
    assert_eq!(&*right.call(b"x").unwrap(), b"x");
    common::say("served again");
}

#[test]
fn a_process_that_could_not_be_started_again_is_tried_again_by_the_next_call() {
    let mut parent = common::start("poor parent", &[]);
    parent.expect("served again");
    parent.finish();
}

#[test]
fn a_function_that_runs_past_the_deadline_is_ended_with_its_process() {
    let (domain, other) = (load(DomainOptions::new()), load(DomainOptions::new()));
    let short = Duration::from_millis(30);
    let late = Err(CallError::Fault(Fault::Deadline));
    for _ in 0..3 {
        assert_eq!(domain.call_timeout(ADD, first(2), PATIENCE).unwrap()[0], 2);
        let start = Instant::now();
        assert_eq!(domain.call_timeout(WAIT, [0; 8], short), late);
        assert!(start.elapsed() >= short);
        // Made anew, and without a deadline.
        assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 1);
        assert_eq!(domain.call(WHO, [0; 8]).unwrap()[3], 0);
        domain.call(WRONG, first(PANIC)).unwrap_err();
    }
    // Other calls that are in it then are lost, too; other domains go on.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| domain.call(WAIT, [0; 8]));
        let threads = || domain.call(WHO, [0; 8]).unwrap()[1];
        assert!(within_patience(|| threads() >= 5));
        assert_eq!(domain.call_timeout(WAIT, [0; 8], short), late);
        assert_eq!(waiting.join().unwrap(), Err(CallError::Fault(Fault::Ended)));
    });
    assert_eq!(other.call(ADD, first(1)).unwrap()[0], 1);
    // By a port, with and without a limit of its own.
    let port = Port::new(handfast::anonymous().unwrap(), &domain, WAIT).unwrap();
    let right = port.connect().unwrap();
    let late = Err(SendError::Domain(DomainError::Deadline));
    assert_eq!(right.call_timeout(b"", short).map(drop), late);
    let name = common::name("limited");
    let receive = handfast::bind(&name).unwrap();
    let limited = Port::with_limit(receive, &domain, WAIT, 1, short).unwrap();
    for right in [
        limited.connect().unwrap(),
        handfast::connect(&name).unwrap(),
    ] {
        assert_eq!(right.call(b"").map(drop), late);
    }
    let domain = load(DomainOptions::new().policy(Policy::Dead));
    let late = Err(CallError::Fault(Fault::Deadline));
    assert_eq!(domain.call_timeout(WAIT, [0; 8], short), late);
    assert_eq!(domain.call(ADD, [0; 8]), Err(CallError::Dead));
}

#[test]
fn every_fault_has_its_error_and_the_domain_goes_on() {
    let domain = load(DomainOptions::new());
    let mut all = vec![
        (PANIC, 0, Fault::Panic),
        (READ, 0, Fault::Access { address: 0 }),
        (READ, 24, Fault::Access { address: 24 }),
        (OVERFLOW, 0, Fault::StackOverflow),
        (ABORT, 0, Fault::Ended),
        (EXIT, 0, Fault::Ended),
    ];
    if cfg!(target_arch = "x86_64") {
        all.extend([(DIVIDE, 0, Fault::Arithmetic), (ILLEGAL, 0, Fault::Illegal)]);
    }
    for (what, at, fault) in &all {
        domain.call(ADD, first(9)).unwrap();
        let failed = domain.call(WRONG, [*what, *at, 0, 0, 0, 0, 0, 0]);
        assert_eq!(failed, Err(CallError::Fault(*fault)));
        assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 1);
    }
    for (what, at, fault) in all {
        let domain = load(DomainOptions::new().policy(Policy::Dead));
        let failed = domain.call(WRONG, [what, at, 0, 0, 0, 0, 0, 0]);
        assert_eq!(failed, Err(CallError::Fault(fault)));
        assert_eq!(domain.call(ADD, first(1)), Err(CallError::Dead));
    }
}

#[test]
fn words_and_bytes_go_there_together_as_many_as_there_can_be() {
    let domain = load(DomainOptions::new());
    let mut held = domain.hold().unwrap();
    for words in [[0; 8], [1, 2, 3, 4, 5, 6, 7, 8]] {
        for len_bytes in [
            0,
            1,
            4096,
            BYTES_MAX - 90,
            BYTES_MAX - 89,
            BYTES_MAX - 1,
            BYTES_MAX,
        ] {
            let bytes = common::content(len_bytes, 1);
            let mut reply = vec![7; len_bytes + 2];
            let mut there = words;
            assert_eq!(
                domain.call_bytes(ECHO, &mut there, &bytes, &mut reply),
                Ok(len_bytes)
            );
            assert_eq!(
                (&reply[..len_bytes], &reply[len_bytes..]),
                (&bytes[..], &[7, 7][..])
            );
            let mut expected = words;
            expected.rotate_left(1);
            assert_eq!(there, expected);
            let mut there = words;
            let room = &mut reply[..len_bytes];
            assert_eq!(
                held.call_bytes(ECHO, &mut there, &bytes, room),
                Ok(len_bytes)
            );
        }
    }
}

#[test]
fn what_cannot_be_loaded_says_why_and_leaves_nothing() {
    fn at(address: usize) -> u64 {
        let at: *const u64 = std::ptr::with_exposed_provenance(address);
        // SAFETY: none: this is the fault.
        unsafe { at.read_volatile() }
    }
    let children = || {
        let path = format!(
            "/proc/self/task/{}/children",
            rustix::thread::gettid().as_raw_nonzero()
        );
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let load =
        |init: fn(&Heap) -> u64| load_of(&Table::new(init).entry(|_, _| ()), DomainOptions::new());
    let panics = load(|_| std::panic::resume_unwind(Box::new(())));
    assert_eq!(panics.err(), Some(LoadError::Init(Fault::Panic)));
    let faults = load(|_| at(8));
    let fault = Fault::Access { address: 8 };
    assert_eq!(faults.err(), Some(LoadError::Init(fault)));
    let exits = load(|_| std::process::exit(0));
    assert!(matches!(exits.err(), Some(LoadError::Child { .. })));
    assert_eq!(children(), "");
}

#[test]
fn a_program_with_the_marker_and_another_input_is_itself() {
    let mut child = common::start_with("ordinary", &[], |command| {
        command.env("HANDFAST_DOMAIN", "1");
    });
    child.expect("Some(\"1\")");
    child.finish();
}
