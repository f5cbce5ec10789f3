//! Faults of a protected domain stay on its side.
#![cfg(target_arch = "x86_64")]

mod common;

use common::{
    ADD, BUS, DIVIDE, ILLEGAL, NULL, OVERFLOW, PANIC, PLACE, READ, Value, WILD, WRITE, add, end_of,
    first, load, place, value, wrong,
};
use handfast_domain::{
    CallContext, CallError, DEPTH_MAX, Domain, DomainOptions, Fault, Group, Policy, Table,
};
use handfast_sys::cpu;
use handfast_testing::{self as testing, Random};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Instant;

#[test]
fn a_child_process_plays_its_role() {
    testing::play(|role, arguments| match role {
        "client reads" => client_touches(false),
        "client writes" => client_touches(true),
        "gate" => jump_into_the_gate(arguments[0].parse().unwrap()),
        _ => unreachable!(),
    });
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
    let (Some(domain), Some(other)) = (load(DomainOptions::new()), load(DomainOptions::new()))
    else {
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

/// How this thread calculates with floating point: rounding, and what traps.
fn float_control() -> u32 {
    let mut control = 0u32;
    // SAFETY: writes four bytes.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control) };
    control
}

fn set_float_control(control: u32) {
    // SAFETY: no bits that are reserved.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control) };
}

/// Division by zero traps, and results are rounded up.
fn divide_floats(_: &Value, _: &mut CallContext<'_>) {
    const DIVISION: u32 = 1 << 9;
    const UP: u32 = 2 << 13;
    set_float_control(float_control() & !DIVISION | UP);
    // SAFETY: none: this is the fault.
    unsafe {
        std::arch::asm!("divsd {one}, {zero}", one = inout(xmm_reg) 1.0f64 => _, zero = in(xmm_reg) 0.0f64);
    }
}

#[test]
fn what_a_function_changed_of_floating_point_is_gone_with_it() {
    let _alone = testing::alone();
    if !common::has_keys() {
        return;
    }
    let table = Table::new(value).entry(divide_floats);
    // SAFETY: as in `load`.
    let domain = unsafe { Domain::new(&table, DomainOptions::new()) }.unwrap();
    let before = float_control();
    for _ in 0..3 {
        let got = domain.call(0, [0; 8]);
        assert_eq!(got, Err(CallError::Fault(Fault::Arithmetic)));
        let after = float_control();
        set_float_control(before);
        assert_eq!(after, before);
    }
}

#[test]
fn a_dead_domain_stays_dead_after_any_fault() {
    let _alone = testing::alone();
    for what in [PANIC, NULL, DIVIDE, ILLEGAL, OVERFLOW, WILD] {
        let Some(domain) = load(DomainOptions::new().policy(Policy::Dead)) else {
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
    fn outer(_: &Value, call: &mut CallContext<'_>) {
        // SAFETY: stored below, before the call.
        let inner = unsafe { &*INNER.load(Ordering::SeqCst) };
        for what in [PANIC, NULL, DIVIDE, OVERFLOW] {
            if wrong(inner, what, 0).is_err() {
                call.words()[1] += 1;
            }
        }
        call.words()[2] = inner.call(ADD, first(5)).map_or(0, |words| words[0]);
    }
    let Some(mut inner) = load(DomainOptions::new()) else {
        return;
    };
    INNER.store(&raw mut inner, Ordering::SeqCst);
    let group = Group::new().unwrap();
    for options in [DomainOptions::new(), DomainOptions::new().group(&group)] {
        let table = Table::new(value).entry(outer);
        // SAFETY: as in `load`.
        let domain = unsafe { Domain::new(&table, options) }.unwrap();
        inner.call(ADD, first(1)).unwrap();
        assert_eq!(domain.call(0, [0; 8]).unwrap()[1..3], [4, 5]);
        wrong(&inner, PANIC, 0).unwrap_err();
    }
}

/// Calls another domain, which is not protected, and goes wrong there.
fn call_plain(_: &Value, call: &mut CallContext<'_>) {
    let other = PLAIN.get().unwrap();
    let _ = wrong(other, call.words()[0], 0);
}

static PLAIN: OnceLock<Domain> = OnceLock::new();

#[test]
fn a_fault_in_calls_without_protection_leaves_none_of_them_behind() {
    let _alone = testing::alone();
    if !common::has_keys() {
        return;
    }
    let table = Table::new(value).entry(call_plain);
    // SAFETY: as in `load`.
    let domain = unsafe { Domain::new(&table, DomainOptions::new()) }.unwrap();
    let plain = PLAIN.get_or_init(|| load(DomainOptions::new().unprotected()).unwrap());
    for _ in 0..2 * DEPTH_MAX {
        let got = domain.call(0, first(NULL));
        assert_eq!(got, Err(CallError::Fault(Fault::Access { address: 0 })));
        assert_eq!(plain.stacks_in_use(), Ok(0));
    }
    assert_eq!(plain.call(ADD, first(2)).unwrap()[0], 2);
}

#[test]
fn buffers_of_the_caller_that_are_not_there_are_the_callers_fault() {
    let _alone = testing::alone();
    fn echo(_: &Value, call: &mut CallContext<'_>) {
        let (request, reply) = call.both();
        reply[..request.len()].copy_from_slice(request);
        let len = request.len();
        call.set_reply_len(len);
    }
    if !common::has_keys() {
        return;
    }
    let table = Table::new(value).entry(echo).entry(place).entry(add);
    // SAFETY: as in `load`.
    let domain = unsafe { Domain::new(&table, DomainOptions::new().policy(Policy::Dead)) }.unwrap();
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
    let Some(domain) = load(DomainOptions::new()) else {
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
    let domain = load(DomainOptions::new()).unwrap();
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

#[test]
fn a_client_that_touches_a_domains_memory_faults() {
    let _alone = testing::alone();
    if !common::has_keys() {
        return;
    }
    for role in ["client reads", "client writes"] {
        let status = end_of(role, &[], &["touching"]);
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{role}");
    }
}

/// Jumps to the `number`th WRPKRU of the gate, with all rights in eax.
fn jump_into_the_gate(number: usize) {
    let domain = load(DomainOptions::new()).unwrap();
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
    if !common::has_keys() {
        return;
    }
    assert_eq!(wrpkrus().len(), 2, "the gate's two and no others");
    for number in ["0", "1"] {
        let status = end_of("gate", &[number], &["jumping"]);
        assert_eq!(status.signal(), Some(libc::SIGILL), "{number}");
    }
}
