//! Traces that a crossing leaves behind: in registers, in memory that others write, in the pools.
#![cfg(target_arch = "x86_64")]

#[path = "common/machine.rs"]
mod machine;

use handfast_domain::{CallContext, Domain, DomainOptions, Table};
use handfast_sys::cpu;
use handfast_testing::{self as testing, start};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_child_process_plays_its_role() {
    testing::play(|role, _| match role {
        "writes" => writes(),
        _ => unreachable!(),
    });
}

/// The options of each gate that there is here; whether it protects.
fn gates() -> Vec<(DomainOptions, bool)> {
    let plain = (DomainOptions::new().unprotected(), false);
    if machine::has_keys() {
        vec![(DomainOptions::new(), true), plain]
    } else {
        vec![plain]
    }
}

fn load<T: Sync + 'static>(table: &Table<T>, options: DomainOptions) -> Domain {
    // SAFETY: the functions of these tests lend nothing and do not go wrong.
    unsafe { Domain::new(table, options) }.unwrap()
}

/// In every word of every poisoned register.
const POISON: u64 = 0x5ec2_e75e_c2e7_0bad;

/// All vector and mask registers, as wide as they are: 32 of 64 bytes and eight of 8, or 16 of 32.
type Vectors = [u64; 32 * 8 + 8];

fn is_widest() -> bool {
    std::arch::is_x86_feature_detected!("avx512bw")
}

#[inline(never)]
fn poison() {
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor can; all registers that change are named.
        unsafe {
            std::arch::asm!(
                "vmovq xmm0, {poison}", "vpunpcklqdq xmm0, xmm0, xmm0", "vinsertf128 ymm0, ymm0, xmm0, 1",
                "vmovaps ymm1, ymm0", "vmovaps ymm2, ymm0", "vmovaps ymm3, ymm0", "vmovaps ymm4, ymm0",
                "vmovaps ymm5, ymm0", "vmovaps ymm6, ymm0", "vmovaps ymm7, ymm0", "vmovaps ymm8, ymm0",
                "vmovaps ymm9, ymm0", "vmovaps ymm10, ymm0", "vmovaps ymm11, ymm0", "vmovaps ymm12, ymm0",
                "vmovaps ymm13, ymm0", "vmovaps ymm14, ymm0", "vmovaps ymm15, ymm0",
                "mov r8, {poison}", "mov r9, {poison}", "mov r10, {poison}", "mov r11, {poison}",
                "mov rdi, {poison}", "mov rsi, {poison}",
                poison = in(reg) POISON,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _, out("rdi") _, out("rsi") _,
                clobber_abi("sysv64"),
            );
        }
    }
    if is_widest() {
        // SAFETY: as above.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm0, {poison}",
                ".irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                "vmovdqa64 zmm\\n, zmm0",
                ".endr",
                ".irp n, 0,1,2,3,4,5,6,7",
                "kmovq k\\n, {poison}",
                ".endr",
                poison = in(reg) POISON,
                clobber_abi("sysv64"),
            );
        }
    }
}

#[inline(never)]
fn vectors() -> Vectors {
    let mut all: Vectors = [0; 32 * 8 + 8];
    if is_widest() {
        // SAFETY: the processor can; writes 32 registers of 64 bytes and eight of 8 to an array of that size.
        unsafe {
            std::arch::asm!(
                ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                "vmovdqu64 [{at} + 64 * \\n], zmm\\n",
                ".endr",
                ".irp n, 0,1,2,3,4,5,6,7",
                "kmovq [{at} + 2048 + 8 * \\n], k\\n",
                ".endr",
                at = in(reg) all.as_mut_ptr(),
                options(nostack),
            );
        }
    } else if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor can; writes the sixteen registers to an array of that size.
        unsafe {
            std::arch::asm!(
                "vmovups [{at}], ymm0", "vmovups [{at} + 32], ymm1", "vmovups [{at} + 64], ymm2",
                "vmovups [{at} + 96], ymm3", "vmovups [{at} + 128], ymm4", "vmovups [{at} + 160], ymm5",
                "vmovups [{at} + 192], ymm6", "vmovups [{at} + 224], ymm7", "vmovups [{at} + 256], ymm8",
                "vmovups [{at} + 288], ymm9", "vmovups [{at} + 320], ymm10", "vmovups [{at} + 352], ymm11",
                "vmovups [{at} + 384], ymm12", "vmovups [{at} + 416], ymm13", "vmovups [{at} + 448], ymm14",
                "vmovups [{at} + 480], ymm15",
                at = in(reg) all.as_mut_ptr(),
                options(nostack),
            );
        }
    }
    all
}

fn poisoned(vectors: &Vectors) -> u64 {
    vectors.iter().filter(|word| **word == POISON).count() as u64
}

/// How many words of poison the domain finds in registers, and on its stack above it.
fn look((): &(), call: &mut CallContext<'_>) {
    let found = poisoned(&vectors());
    let top: *const u64 = (&raw const *call.words()).cast();
    let here = 0u64;
    let mut at: *const u64 = &raw const here;
    let mut on_stack = 0;
    while at < top && top.addr() - at.addr() < 4096 {
        // SAFETY: the stack of this call, from a local up to the words at its top.
        if unsafe { at.read_volatile() } == POISON {
            on_stack += 1;
        }
        at = at.wrapping_add(1);
    }
    *call.words() = [found, on_stack, 0, 0, 0, 0, 0, 0];
}

fn leave((): &(), _: &mut CallContext<'_>) {
    poison();
}

#[test]
fn poisoned_registers_are_not_seen_on_the_other_side() {
    let _alone = testing::alone();
    if !std::arch::is_x86_feature_detected!("avx") {
        return testing::not_exercised("no AVX");
    }
    for (options, is_protected) in gates() {
        let domain = load(&Table::new(|_| ()).entry(look).entry(leave), options);
        let (mut there, mut back) = (0, 0);
        for _ in 0..100 {
            let mut words = [0; 8];
            poison();
            domain.call_in_place(0, &mut words).unwrap();
            there += words[0] + if is_protected { words[1] } else { 0 };
            let mut words = [0; 8];
            domain.call_in_place(1, &mut words).unwrap();
            back += poisoned(&vectors());
        }
        // Without protection they are: the test sees what it looks for.
        assert_eq!(
            (there == 0, back == 0),
            (is_protected, is_protected),
            "{there} {back}"
        );
    }
}

fn null((): &(), call: &mut CallContext<'_>) {
    black_box(call.words());
}

/// A call whose only effect on statics would be a counter, which nobody may have.
fn writes() {
    let domain = load(&Table::new(|_| ()).entry(null), DomainOptions::new());
    let mut held = domain.hold().unwrap();
    let cpus = cpu::allowed();
    cpu::pin(&cpus[..1]).unwrap();
    let mut words = [1; 8];
    let mut calls = |count: u32| {
        for _ in 0..count {
            domain.call_in_place(0, &mut words).unwrap();
            held.call_in_place(0, &mut words).unwrap();
            domain
                .call_bytes(0, &mut words, b"some bytes", &mut [0; 8])
                .unwrap();
        }
    };
    calls(100);
    // Everything that is read below has been read before: a first time may change something.
    let ranges = statics();
    black_box(sum(&ranges));
    let before = sum(&ranges);
    calls(1_000);
    testing::say(if sum(&ranges) == before {
        "nothing"
    } else {
        "something"
    });
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    COUNTER.fetch_add(1, Ordering::Relaxed);
    testing::say(if sum(&ranges) == before {
        "nothing"
    } else {
        "something"
    });
}

/// Where this program's own variables are.
fn statics() -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let mut found: Vec<(usize, usize)> = Vec::new();
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        let follows = found.last().is_some_and(|last| last.1 == start);
        let is_own = rest.ends_with(own) || follows && rest.split_whitespace().count() == 4;
        if is_own && rest.starts_with("rw-p") {
            found.push((start, end));
        }
    }
    assert!(!found.is_empty());
    found
}

fn sum(ranges: &[(usize, usize)]) -> u64 {
    let words = ranges
        .iter()
        .flat_map(|(start, end)| (*start..*end).step_by(8));
    words.fold(0u64, |sum, at| {
        let word: *const u64 = std::ptr::with_exposed_provenance(at);
        // SAFETY: this program's own variables; no other thread writes them meanwhile.
        let word = unsafe { word.read_volatile() };
        sum.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word
    })
}

#[test]
fn a_call_writes_no_variable_of_the_program() {
    let _alone = testing::alone();
    if !machine::has_keys() {
        return;
    }
    let mut child = start("writes", &[]);
    child.expect("nothing");
    // And would have been seen.
    child.expect("something");
    child.finish();
}

#[test]
fn pools_grow_under_concurrency_and_shrink_again() {
    struct Inside(AtomicU64);
    fn stay(own: &Inside, call: &mut CallContext<'_>) {
        black_box([1u8; 40_000]);
        own.0.fetch_add(1, Ordering::SeqCst);
        while own.0.load(Ordering::SeqCst) < call.words()[0] {
            std::thread::yield_now();
        }
    }
    fn reset(own: &Inside, _: &mut CallContext<'_>) {
        own.0.store(0, Ordering::SeqCst);
    }
    const THREADS: u64 = 40;
    let _alone = testing::alone();
    for (options, is_protected) in gates() {
        let init = |_: &handfast_domain::Heap| Inside(AtomicU64::new(0));
        let domain = load(&Table::new(init).entry(stay).entry(reset), options);
        let busy = || {
            domain.call(1, [0; 8]).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    // With bytes, so that the areas are touched without protection, too.
                    scope.spawn(|| {
                        let mut words = [THREADS; 8];
                        domain
                            .call_bytes(0, &mut words, &[1; 40_000], &mut [])
                            .unwrap();
                    });
                }
            });
            domain.group().resident_pages().unwrap()
        };
        let grown = busy();
        let each = if is_protected { 20 } else { 10 };
        assert!(grown as u64 >= THREADS * each, "{grown}");
        // Calls of each CPU, one at a time, give back what they do not use.
        let after_each = cpu::allowed().into_iter().map(|cpu| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    cpu::pin(&[cpu]).unwrap();
                    for _ in 0..20_000 {
                        domain.call(1, [0; 8]).unwrap();
                    }
                });
            });
            (cpu, domain.group().resident_pages().unwrap())
        });
        let after_each: Vec<_> = after_each.collect();
        let shrunk = after_each.last().unwrap().1;
        let pools = cpu::allowed().len();
        assert!(
            shrunk <= grown / 3 && shrunk <= pools * 40,
            "pages: {grown}, after the calls of each CPU {after_each:?}, protected: {is_protected}"
        );
        // Nobody calls: by hand.
        busy();
        domain.trim().unwrap();
        assert!(domain.group().resident_pages().unwrap() <= pools * 40);
    }
}

/// The direction of string instructions, as the domain finds it.
fn direction((): &(), call: &mut CallContext<'_>) {
    let flags: u64;
    // SAFETY: reads the flags by way of the stack.
    unsafe { std::arch::asm!("pushfq", "pop {}", out(reg) flags) };
    call.words()[0] = flags >> 10 & 1;
}

#[test]
fn the_callers_string_direction_is_not_the_domains() {
    if !machine::has_keys() {
        return;
    }
    let table = Table::new(|_| ()).entry(direction);
    let domain = load(&table, DomainOptions::new());
    let mut words = [7; 8];
    domain.call_in_place(0, &mut words).unwrap();
    // SAFETY: nothing between the two copies anything but by plain instructions.
    unsafe { std::arch::asm!("std") };
    let result = domain.call_in_place(0, &mut words);
    // SAFETY: as every function expects it.
    unsafe { std::arch::asm!("cld") };
    result.unwrap();
    // Backwards, a copy of the domain's would write over what lies before its target.
    assert_eq!(words[0], 0);
}
