//! Memory that a call must not write: whatever all domains and CPUs share.

use super::*;
use crate::call::CallContext;
#[cfg(target_arch = "x86_64")]
use crate::gate;
use crate::pool::Pool;
use crate::row::Row;
use crate::server::Server;
use crate::stack::Descriptor;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicUsize};

/// The shared bytes behind a row: the domain's own state, and all pools. Runs with the domain's rights.
fn shared(row: &Row) -> Vec<u8> {
    fn bytes<T>(first: *const T, count: usize) -> Vec<u8> {
        let first: *const u8 = first.cast();
        let byte = |at| {
            // SAFETY: inside what the row points to; padding of it was zero when it was mapped.
            unsafe { first.wrapping_add(at).read_volatile() }
        };
        (0..count * size_of::<T>()).map(byte).collect()
    }
    let pools = row.stacks_all.load(Relaxed) as usize / PER_CPU;
    let mut all = bytes::<Server>(row.server.load(Relaxed), 1);
    all.extend(bytes::<Pool>(row.pools.load(Relaxed), pools));
    all.extend(bytes::<AtomicU16>(row.flags.load(Relaxed), pools * PER_CPU));
    all
}

static ROW: AtomicUsize = AtomicUsize::new(0);

/// A sum of the request's bytes.
fn look((): &(), call: &mut CallContext<'_>) {
    let row: *const Row = core::ptr::with_exposed_provenance(ROW.load(Relaxed));
    // SAFETY: stored by the test, of a domain that lives.
    let row = unsafe { &*row };
    let sum = shared(row).into_iter().fold(0u64, |sum, byte| {
        sum.rotate_left(5).wrapping_mul(31) ^ u64::from(byte)
    });
    call.words()[0] = sum;
}

fn null((): &(), call: &mut CallContext<'_>) {
    core::hint::black_box(call.words());
}

/// Whether this machine has memory keys, which is recorded where it has none.
fn has_keys() -> bool {
    let has_keys = handfast_sys::keys::are_supported();
    if !has_keys {
        handfast_testing::not_exercised("no memory keys");
    }
    has_keys
}

#[test]
#[cfg_attr(miri, ignore = "miri has no threads' CPUs")]
fn calls_change_nothing_that_cpus_share() {
    let _alone = handfast_testing::alone();
    let unprotected = DomainOptions::new().unprotected();
    let all = [DomainOptions::new(), unprotected];
    for options in &all[usize::from(!has_keys())..] {
        let table = Table::new(|_| ()).entry(look).entry(null);
        // SAFETY: the functions lend nothing and do not go wrong.
        let domain = unsafe { Domain::new(&table, options.clone()) }.unwrap();
        let row = domain.inner.row().unwrap();
        ROW.store((&raw const *row).expose_provenance(), Relaxed);
        let _ = cpu::pin(&cpu::allowed()[..1]);
        let sum = || domain.call(0, [0; 8]).unwrap()[0];
        sum();
        let before = sum();
        for _ in 0..1_000 {
            domain.call(1, [7; 8]).unwrap();
            domain.call_bytes(1, &mut [7; 8], b"abc", &mut []).unwrap();
        }
        // The flag and the descriptor of this CPU's stack were written, and are as they were.
        assert_eq!(sum(), before);
        // Nor has a trim left something to do.
        domain.trim().unwrap();
        domain.call(1, [7; 8]).unwrap();
        assert_eq!(sum(), before);
    }
}

#[test]
fn what_two_cpus_write_shares_no_pair_of_lines() {
    /// Processors fetch lines of 64 bytes in pairs.
    const PAIR: usize = 128;
    // Flags and pools begin at a page boundary.
    assert_eq!(PER_CPU * size_of::<AtomicU16>() % PAIR, 0);
    assert_eq!((size_of::<Pool>() % PAIR, align_of::<Pool>()), (0, PAIR));
    assert!(crate::stack::STRIDE > size_of::<Descriptor>() + PAIR);
    assert_eq!(align_of::<Row>(), PAIR);
}

/// In every register that a function may leave something in.
#[cfg(target_arch = "x86_64")]
const POISON: u64 = 0x5ec2_e75e_c2e7_0bad;

/// Ends by a fault, with all of them poisoned, those too that it would have to give back otherwise.
#[cfg(target_arch = "x86_64")]
fn spoil((): &(), _: &mut CallContext<'_>) {
    // SAFETY: none: this is the fault.
    unsafe {
        core::arch::asm!(
            "mov rax, {poison}",
            ".irp n, rbx,rbp,rcx,rdx,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15",
            "mov \\n, rax",
            ".endr",
            "ud2",
            poison = const POISON,
            options(noreturn),
        );
    }
}

/// The direction of string instructions, as the domain finds it.
#[cfg(target_arch = "x86_64")]
fn direction((): &(), call: &mut CallContext<'_>) {
    let flags: u64;
    // SAFETY: reads the flags by way of the stack.
    unsafe { core::arch::asm!("pushfq", "pop {}", out(reg) flags) };
    call.words()[0] = flags >> 10 & 1;
}

#[cfg(target_arch = "x86_64")]
fn protected() -> Option<Domain> {
    let table = Table::new(|_| ()).entry(spoil).entry(direction);
    if !has_keys() {
        return None;
    }
    // SAFETY: the functions lend nothing and touch nothing but the call.
    Some(unsafe { Domain::new(&table, DomainOptions::new()) }.unwrap())
}

#[test]
#[cfg(target_arch = "x86_64")]
#[cfg_attr(miri, ignore = "miri has no keys")]
fn a_call_that_a_fault_ends_leaves_nothing_of_the_domain_in_registers() {
    let _alone = handfast_testing::alone();
    let Some(domain) = protected() else { return };
    // Whatever a thread needs for calls.
    domain.trim().unwrap();
    let (row_at, rights) = domain.inner.row_at_and_rights();
    let (mut words, mut found) = (Words::default(), [POISON; 13]);
    // SAFETY: as `gate::protected::cross`; writes thirteen registers to `found`, whose address is on the stack meanwhile.
    unsafe {
        core::arch::asm!(
            "push {found}",
            "call {enter}",
            ".irp n, rax,rcx,rdx,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15",
            "push \\n",
            ".endr",
            "mov rax, qword ptr [rsp + 8*13]",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12",
            "pop qword ptr [rax + 8*\\n]",
            ".endr",
            "add rsp, 8",
            found = in(reg) found.as_mut_ptr(),
            enter = sym gate::protected::enter,
            inlateout("rdi") words.as_mut_ptr() => _,
            inlateout("r8") u64::from(rights) => _,
            inlateout("r12") u64::from(row_at) => _,
            inlateout("r13") 0u64 => _,
            inlateout("r14") u64::from(first_of_cpu()) => _,
            lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
    assert!(!found.contains(&POISON), "{found:x?}");
    // r12, the status: it was this fault. The last one pushed is the first one found.
    assert_eq!(found[3] as u8, Status::ILLEGAL);
    assert!(!words.contains(&POISON));
}

#[test]
#[cfg(target_arch = "x86_64")]
#[cfg_attr(miri, ignore = "miri has no keys")]
fn copies_go_forward_on_whatever_stack_the_call_is() {
    let _alone = handfast_testing::alone();
    let Some(domain) = protected() else { return };
    domain.trim().unwrap();
    // One that is free, one that is not there, and one that has no guard yet.
    for hint in [first_of_cpu(), u32::MAX, PER_CPU as u32 - 1] {
        let (mut words, control) = ([7; 8], 1 << ENTRY_SHIFT);
        // SAFETY: nothing between the two copies anything but by plain instructions.
        unsafe { core::arch::asm!("std") };
        let called = domain.inner.call(control, &mut words, hint);
        // SAFETY: as every function expects it.
        unsafe { core::arch::asm!("cld") };
        called.unwrap();
        assert_eq!(words[0], 0, "{hint}");
    }
}
