//! What a protected domain does wrong stays on its side.
#![cfg(target_arch = "x86_64")]

use handfast_domain::{Call, CallError, Domain, Fault, Group, Heap, Options, Policy, Table};
use handfast_sys::{cpu, keys};
use handfast_testing::{self as testing, Random, start};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

#[test]
fn a_child_process_plays_its_role() {
    testing::play(|role, arguments| match role {
        "client reads" => client_touches(false),
        "client writes" => client_touches(true),
        "gate" => jump_into_the_gate(arguments[0].parse().unwrap()),
        "own fault" => own_fault(),
        "sent" => sent(),
        "exit" => exit_inside(),
        "thread exit" => end_thread_inside(),
        "fork" => fork_inside(),
        "stack outside" => overflow_outside(),
        _ => unreachable!(),
    });
}

/// A value with something in it, and where that is.
struct Value {
    count: AtomicU64,
}

fn value(_: &Heap) -> Value {
    Value {
        count: AtomicU64::new(0),
    }
}

fn add(own: &Value, call: &mut Call<'_>) {
    let added = call.words()[0];
    call.words()[0] = own.count.fetch_add(added, Ordering::Relaxed) + added;
}

fn place(own: &Value, call: &mut Call<'_>) {
    call.words()[0] = (&raw const own.count).expose_provenance() as u64;
}

fn go_wrong(_: &Value, call: &mut Call<'_>) {
    match call.words()[0] {
        PANIC => std::panic::resume_unwind(Box::new(())),
        // SAFETY: none: this is the fault.
        NULL => unsafe { std::ptr::null_mut::<u64>().write_volatile(1) },
        READ => {
            let at: *const u64 = std::ptr::with_exposed_provenance(call.words()[1] as usize);
            // SAFETY: none: this is the fault.
            call.words()[0] = unsafe { at.read_volatile() };
        }
        WRITE => {
            let at: *mut u64 = std::ptr::with_exposed_provenance_mut(call.words()[1] as usize);
            // SAFETY: none: this is the fault.
            unsafe { at.write_volatile(7) };
        }
        DIVIDE => {
            // SAFETY: none: this is the fault.
            unsafe {
                std::arch::asm!("xor edx, edx", "div {zero}", zero = in(reg) 0u64, inout("rax") 1u64 => _, out("rdx") _);
            }
        }
        ILLEGAL => {
            // SAFETY: none: this is the fault.
            unsafe { std::arch::asm!("ud2") };
        }
        OVERFLOW => call.words()[0] = recurse(u64::MAX),
        BUS => {
            let at: *const u8 = std::ptr::with_exposed_provenance(call.words()[1] as usize);
            // SAFETY: none: this is the fault.
            call.words()[0] = unsafe { at.read_volatile() }.into();
        }
        // A non-canonical address: the processor does not say where.
        _ => {
            let at: *const u8 = std::ptr::with_exposed_provenance(1 << 62);
            // SAFETY: none: this is the fault.
            call.words()[0] = unsafe { at.read_volatile() }.into();
        }
    }
}
const PANIC: u64 = 0;
const NULL: u64 = 1;
const READ: u64 = 2;
const WRITE: u64 = 3;
const DIVIDE: u64 = 4;
const ILLEGAL: u64 = 5;
const OVERFLOW: u64 = 6;
const BUS: u64 = 7;
const WILD: u64 = 8;

#[expect(unconditional_recursion, reason = "the end of the stack is the point")]
fn recurse(left: u64) -> u64 {
    let frame = black_box([left; 64]);
    recurse(left - 1) + frame[5]
}

fn table() -> Table<Value> {
    Table::new(value)
        .entry(add)
        .entry(place)
        .entry(go_wrong)
        .entry(run_function)
}
const ADD: u16 = 0;
const PLACE: u16 = 1;
const WRONG: u16 = 2;
const RUN: u16 = 3;

/// Calls the function whose address is the first word.
fn run_function(_: &Value, call: &mut Call<'_>) {
    // SAFETY: the tests pass such functions.
    let function = unsafe { std::mem::transmute::<usize, fn()>(call.words()[0] as usize) };
    function();
}

fn load(options: Options) -> Option<Domain> {
    if !keys::are_supported() {
        eprintln!("no memory keys here: not tested");
        return None;
    }
    // SAFETY: the functions lend nothing, and what they do outside is what is tested.
    Some(unsafe { Domain::new(&table(), options) }.unwrap())
}

fn first(words: u64) -> [u64; 8] {
    [words, 0, 0, 0, 0, 0, 0, 0]
}

fn wrong(domain: &Domain, what: u64, at: u64) -> Result<u64, CallError> {
    let got = domain.call(WRONG, [what, at, 0, 0, 0, 0, 0, 0]);
    got.map(|words| words[0])
}

/// A page whose file has no such page.
fn page_without_file() -> u64 {
    let fd = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: a new mapping, of a file without a byte, which is looked at by the fault only.
    let at = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            4096,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::SHARED,
            &fd,
            0,
        )
    };
    at.unwrap().expose_provenance() as u64
}

#[test]
fn every_kind_of_fault_has_its_error_and_the_domain_goes_on() {
    let _alone = testing::alone();
    let (Some(domain), Some(other)) = (load(Options::new()), load(Options::new())) else {
        return;
    };
    let others = other.call(PLACE, [0; 8]).unwrap()[0];
    let hole = page_without_file();
    let cases = [
        (PANIC, 0, Fault::Panic),
        (NULL, 0, Fault::Access { address: 0 }),
        (READ, others, Fault::Key { address: others }),
        (WRITE, others, Fault::Key { address: others }),
        (READ, 24, Fault::Access { address: 24 }),
        (DIVIDE, 0, Fault::Arithmetic),
        (ILLEGAL, 0, Fault::Illegal),
        (OVERFLOW, 0, Fault::StackOverflow),
        (BUS, hole, Fault::Bus),
        (WILD, 0, Fault::Access { address: 0 }),
    ];
    for round in 0..20 {
        for (what, at, fault) in cases {
            domain.call(ADD, first(9)).unwrap();
            assert_eq!(
                wrong(&domain, what, at),
                Err(CallError::Fault(fault)),
                "round {round}"
            );
            assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 1);
        }
    }
    assert_eq!(
        other.call(ADD, first(1)).unwrap()[0],
        1,
        "the other one is as it was"
    );
}

#[test]
fn a_dead_domain_stays_dead_after_any_fault() {
    let _alone = testing::alone();
    for what in [PANIC, NULL, DIVIDE, ILLEGAL, OVERFLOW, WILD] {
        let Some(domain) = load(Options::new().policy(Policy::Dead)) else {
            return;
        };
        wrong(&domain, what, 0).unwrap_err();
        assert_eq!(domain.call(ADD, first(1)), Err(CallError::Dead));
    }
}

#[test]
fn a_fault_in_a_nested_call_is_an_error_of_that_call() {
    let _alone = testing::alone();
    static INNER: AtomicPtr<Domain> = AtomicPtr::new(std::ptr::null_mut());
    fn outer(_: &Value, call: &mut Call<'_>) {
        // SAFETY: stored below, before the call.
        let inner = unsafe { &*INNER.load(Ordering::SeqCst) };
        for what in [PANIC, NULL, DIVIDE, OVERFLOW] {
            if wrong(inner, what, 0).is_err() {
                call.words()[1] += 1;
            }
        }
        call.words()[2] = inner.call(ADD, first(5)).map_or(0, |words| words[0]);
    }
    let Some(mut inner) = load(Options::new()) else {
        return;
    };
    INNER.store(&raw mut inner, Ordering::SeqCst);
    let group = Group::new().unwrap();
    for options in [Options::new(), Options::new().group(&group)] {
        let table = Table::new(value).entry(outer);
        // SAFETY: as in `load`.
        let domain = unsafe { Domain::new(&table, options) }.unwrap();
        inner.call(ADD, first(1)).unwrap();
        assert_eq!(domain.call(0, [0; 8]).unwrap()[1..3], [4, 5]);
        wrong(&inner, PANIC, 0).unwrap_err();
    }
}

#[test]
fn buffers_of_the_caller_that_are_not_there_are_the_callers_fault() {
    let _alone = testing::alone();
    fn echo(_: &Value, call: &mut Call<'_>) {
        let (request, reply) = call.both();
        reply[..request.len()].copy_from_slice(request);
        let len = request.len();
        call.set_reply_len(len);
    }
    if !keys::are_supported() {
        return;
    }
    let table = Table::new(value).entry(echo).entry(place).entry(add);
    // SAFETY: as in `load`.
    let domain = unsafe { Domain::new(&table, Options::new().policy(Policy::Dead)) }.unwrap();
    let mut reply = [0; 8];
    let inside = domain.call(PLACE, [0; 8]).unwrap()[0] as usize;
    for at in [24, inside, 1 << 62, usize::MAX - 3] {
        let bytes: *const u8 = std::ptr::with_exposed_provenance(at);
        // SAFETY: none: the domain must not believe it. Nothing else looks at it.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, 2) };
        let got = domain.call_bytes(0, &mut [0; 8], bytes, &mut reply);
        assert_eq!(got, Err(CallError::Buffer), "{at:#x}");
        let room: *mut u8 = std::ptr::with_exposed_provenance_mut(at);
        // SAFETY: as above.
        let room = unsafe { std::slice::from_raw_parts_mut(room, 2) };
        let got = domain.call_bytes(0, &mut [0; 8], b"ab", room);
        assert_eq!(got, Err(CallError::Buffer), "{at:#x}");
    }
    // Not even its own policy takes that for the domain's fault.
    assert_eq!(domain.call_bytes(0, &mut [0; 8], b"ab", &mut reply), Ok(2));
}

#[test]
fn faults_on_all_cpus_lose_no_stack() {
    let _alone = testing::alone();
    let Some(domain) = load(Options::new()) else {
        return;
    };
    let length = testing::campaign(2);
    let mut random = Random::seeded("random faults");
    let seeds: Vec<u64> = (0..6).map(|_| random.next()).collect();
    let (calls, faults) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (index, seed) in seeds.into_iter().enumerate() {
            let (domain, calls, faults) = (domain.clone(), &calls, &faults);
            scope.spawn(move || {
                let cpus = cpu::allowed();
                let _ = cpu::pin(&[cpus[index % cpus.len()]]);
                let mut random = Random::of(seed);
                let start = Instant::now();
                while start.elapsed() < length {
                    for _ in 0..1_000 {
                        let got = match random.below(60) {
                            what @ (PANIC | NULL | DIVIDE | ILLEGAL | OVERFLOW | WILD) => {
                                wrong(&domain, what, 0)
                            }
                            _ => domain.call(ADD, first(1)).map(|words| words[0]),
                        };
                        let is_fault = match got {
                            Ok(_) | Err(CallError::Resetting) => 0,
                            Err(CallError::Fault(_)) => 1,
                            Err(error) => panic!("{error}"),
                        };
                        faults.fetch_add(is_fault, Ordering::Relaxed);
                    }
                    calls.fetch_add(1_000, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{calls:?} calls, {faults:?} faults");
    assert!(faults.into_inner() > 100);
    // A stack that was not given back would keep its pages.
    while domain.call(ADD, first(0)).is_err() {}
    domain.trim().unwrap();
    let left = domain.group().resident_pages().unwrap();
    let cpus = cpu::configured() as usize;
    assert!(left <= cpus * 40, "{left} pages");
}

// ---- Isolation.

fn client_touches(write: bool) {
    let domain = load(Options::new()).unwrap();
    let at: *mut u64 =
        std::ptr::with_exposed_provenance_mut(domain.call(PLACE, [0; 8]).unwrap()[0] as usize);
    testing::say("touching");
    if write {
        // SAFETY: none: this is the fault.
        unsafe { at.write_volatile(1) };
    } else {
        // SAFETY: none: this is the fault.
        unsafe { at.read_volatile() };
    }
    testing::say("not reached");
}

/// How a child in this role ended.
fn end_of(role: &'static str, arguments: &[&str], said: &[&str]) -> ExitStatus {
    let mut child = start(role, arguments);
    for line in said {
        child.expect(line);
    }
    let status = child.process.wait().unwrap();
    assert_eq!(child.said(), None);
    status
}

#[test]
fn a_client_that_touches_a_domains_memory_faults() {
    let _alone = testing::alone();
    if !keys::are_supported() {
        return;
    }
    for role in ["client reads", "client writes"] {
        let status = end_of(role, &[], &["touching"]);
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{role}");
    }
}

/// Jumps to the `number`th WRPKRU of the gate, with all rights in eax.
fn jump_into_the_gate(number: usize) {
    let domain = load(Options::new()).unwrap();
    domain.call(ADD, first(1)).unwrap();
    let at = wrpkrus()[number];
    testing::say("jumping");
    // SAFETY: none: this is the fault.
    unsafe {
        std::arch::asm!(
            "xor eax, eax",
            "xor ecx, ecx",
            "xor edx, edx",
            "xor r12d, r12d",
            "jmp rdi",
            in("rdi") at,
            options(noreturn),
        );
    }
}

/// Where WRPKRU instructions are in this program's own code.
fn wrpkrus() -> Vec<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let own = std::env::current_exe().unwrap();
    let mut found = Vec::new();
    for line in maps
        .lines()
        .filter(|line| line.contains("r-xp") && line.ends_with(own.to_str().unwrap()))
    {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        let start: *const u8 = std::ptr::with_exposed_provenance(start);
        // SAFETY: this program's code, which is readable and does not change.
        let code = unsafe { std::slice::from_raw_parts(start, end - start.addr()) };
        // Not in this form anywhere in this program's code, where it would be found, too.
        let wanted = black_box([0x10, 0x02, 0xf0]).map(|byte: u8| byte - 1);
        let is_it = |bytes: &&[u8]| **bytes == wanted;
        found.extend(
            code.windows(3)
                .enumerate()
                .filter(|(_, bytes)| is_it(bytes))
                .map(|(at, _)| start.addr() + at),
        );
    }
    found
}

#[test]
fn a_jump_into_the_middle_of_the_gate_ends_in_its_trap() {
    let _alone = testing::alone();
    if !keys::are_supported() {
        return;
    }
    assert_eq!(wrpkrus().len(), 2, "the gate's two and no others");
    for number in ["0", "1"] {
        let status = end_of("gate", &[number], &["jumping"]);
        assert_eq!(status.signal(), Some(libc::SIGILL), "{number}");
    }
}

// ---- Signals.

static SEEN: AtomicU32 = AtomicU32::new(0);
static CALLED: AtomicPtr<Domain> = AtomicPtr::new(std::ptr::null_mut());
static FROM_HANDLER: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    // Little: Rust's threads have alternate stacks of 8 KiB.
    let frame = black_box([1u8; 200]);
    SEEN.fetch_add(u32::from(frame[199]), Ordering::SeqCst);
    let domain = CALLED.load(Ordering::SeqCst);
    // SAFETY: stored by a test that waits for the handler.
    if let Some(domain) = unsafe { domain.as_ref() } {
        let code = match domain.call(ADD, first(1)) {
            Ok(_) => 1,
            Err(CallError::SignalStack) => 2,
            Err(CallError::ForeignStack) => 3,
            Err(_) => 4,
        };
        FROM_HANDLER.store(code, Ordering::SeqCst);
    }
}

fn handle(signal: libc::c_int, flags: libc::c_int) {
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = flags;
    // SAFETY: the handler does what is async-signal-safe.
    let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

fn raise_user() {
    // SAFETY: takes an integer.
    unsafe { libc::raise(libc::SIGUSR1) };
}

fn raise_user_2() {
    // SAFETY: takes an integer.
    unsafe { libc::raise(libc::SIGUSR2) };
}

#[test]
fn handlers_run_during_calls_on_either_stack() {
    let _alone = testing::alone();
    let Some(domain) = load(Options::new()) else {
        return;
    };
    handle(libc::SIGUSR1, 0);
    handle(libc::SIGUSR2, libc::SA_ONSTACK);
    domain.call(ADD, first(3)).unwrap();
    for function in [raise_user as fn(), raise_user_2] {
        let before = SEEN.load(Ordering::SeqCst);
        domain.call(RUN, first(function as usize as u64)).unwrap();
        assert_eq!(SEEN.load(Ordering::SeqCst), before + 1);
    }
    assert_eq!(
        domain.call(ADD, first(1)).unwrap()[0],
        4,
        "nothing was reset"
    );
    // A handler that calls a domain itself.
    let mut other = load(Options::new()).unwrap();
    CALLED.store(&raw mut other, Ordering::SeqCst);
    domain
        .call(RUN, first(raise_user_2 as fn() as usize as u64))
        .unwrap();
    assert_eq!(FROM_HANDLER.load(Ordering::SeqCst), 2);
    raise_user();
    assert_eq!(FROM_HANDLER.load(Ordering::SeqCst), 1);
    CALLED.store(std::ptr::null_mut(), Ordering::SeqCst);
    assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 5);
}

#[test]
fn a_storm_of_signals_disturbs_no_call() {
    let _alone = testing::alone();
    let Some(domain) = load(Options::new()) else {
        return;
    };
    handle(libc::SIGUSR1, 0);
    handle(libc::SIGUSR2, libc::SA_ONSTACK);
    let stop = AtomicBool::new(false);
    // SAFETY: asks for this thread's own number.
    let own = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                for signal in [libc::SIGUSR1, libc::SIGUSR2] {
                    // SAFETY: the thread outlives this scope.
                    unsafe { libc::pthread_kill(own, signal) };
                }
            }
        });
        for round in 1..=200_000 {
            assert_eq!(domain.call(ADD, first(1)).map(|words| words[0]), Ok(round));
        }
        stop.store(true, Ordering::SeqCst);
    });
}

fn own_fault() {
    let domain = load(Options::new()).unwrap();
    domain.call(ADD, first(1)).unwrap();
    testing::say("faulting");
    // SAFETY: none: this is the fault.
    unsafe { std::ptr::null_mut::<u32>().write_volatile(1) };
}

fn sent() {
    let domain = load(Options::new()).unwrap();
    testing::say("sending");
    fn raise() {
        // SAFETY: takes an integer.
        unsafe { libc::raise(libc::SIGFPE) };
    }
    let _ = domain.call(RUN, first(raise as fn() as usize as u64));
    testing::say("not reached");
}

fn overflow_outside() {
    let domain = load(Options::new()).unwrap();
    domain.call(ADD, first(1)).unwrap();
    testing::say("overflowing");
    black_box(recurse(u64::MAX));
}

#[test]
fn faults_outside_of_domains_end_the_process_as_ever() {
    let _alone = testing::alone();
    if !keys::are_supported() {
        return;
    }
    assert_eq!(
        end_of("own fault", &[], &["faulting"]).signal(),
        Some(libc::SIGSEGV)
    );
    // Sent by somebody, during a call: nobody's fault.
    assert_eq!(
        end_of("sent", &[], &["sending"]).signal(),
        Some(libc::SIGFPE)
    );
    // Rust's own handler is still there, and says what it says before it aborts.
    assert_eq!(
        end_of("stack outside", &[], &["overflowing"]).signal(),
        Some(libc::SIGABRT)
    );
}

// ---- Processes.

fn exit_inside() {
    let domain = load(Options::new()).unwrap();
    fn exit() {
        std::process::exit(42);
    }
    testing::say("exiting");
    let _ = domain.call(RUN, first(exit as fn() as usize as u64));
}

fn end_thread_inside() {
    let domain = load(Options::new()).unwrap();
    fn end() {
        // SAFETY: none: it is what is tested.
        unsafe { libc::pthread_exit(std::ptr::null_mut()) };
    }
    testing::say("ending");
    let _ = domain.call(RUN, first(end as fn() as usize as u64));
    testing::say("not reached");
}

static CHILD: AtomicU32 = AtomicU32::new(0);

fn fork_inside() {
    let domain = load(Options::new()).unwrap();
    domain.call(ADD, first(5)).unwrap();
    fn fork() {
        // SAFETY: the child makes calls and exits.
        let child = unsafe { libc::fork() };
        CHILD.store(child.cast_unsigned(), Ordering::SeqCst);
    }
    let got = domain.call(RUN, first(fork as fn() as usize as u64));
    let child = CHILD.load(Ordering::SeqCst);
    if child == 0 {
        // The call it was in ends; further ones fail; a domain of its own works.
        let ended = got.is_ok();
        let failed = domain.call(ADD, first(1)) == Err(CallError::Forked);
        let own = load(Options::new()).is_some_and(|own| own.call(ADD, first(2)).is_ok());
        let still = domain.call(ADD, first(1)) == Err(CallError::Forked);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!(ended && failed && own && still))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(child.cast_signed(), &raw mut status, 0) };
    testing::say(&format!("{status}"));
    testing::say(&format!(
        "{:?}",
        domain.call(ADD, first(1)).map(|words| words[0])
    ));
}

#[test]
fn a_process_may_end_or_fork_during_a_call() {
    let _alone = testing::alone();
    if !keys::are_supported() {
        return;
    }
    assert_eq!(end_of("exit", &[], &["exiting"]).code(), Some(42));
    // No caller is left that could be told.
    let status = end_of("thread exit", &[], &["ending"]);
    assert_eq!(status.signal(), Some(libc::SIGABRT));
    assert!(end_of("fork", &[], &["0", "Ok(6)"]).success());
}

#[test]
fn threads_without_an_alternate_stack_get_one() {
    let _alone = testing::alone();
    extern "C" fn thread(domain: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the domain outlives the thread.
        let domain = unsafe { &*domain.cast::<Domain>() };
        let got = wrong(domain, NULL, 0);
        let again = domain.call(ADD, first(1));
        let is_good = got == Err(CallError::Fault(Fault::Access { address: 0 })) && again.is_ok();
        usize::from(is_good) as *mut libc::c_void
    }
    let Some(mut domain) = load(Options::new()) else {
        return;
    };
    for _ in 0..50 {
        let mut id: libc::pthread_t = 0;
        // SAFETY: the function and what it is given live until the join.
        let made = unsafe {
            libc::pthread_create(
                &raw mut id,
                std::ptr::null(),
                thread,
                (&raw mut domain).cast(),
            )
        };
        assert_eq!(made, 0);
        let mut result = std::ptr::null_mut();
        // SAFETY: the thread just made.
        unsafe { libc::pthread_join(id, &raw mut result) };
        assert_eq!(result.addr(), 1);
    }
}
