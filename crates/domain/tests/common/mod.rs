//! A domain that goes wrong on request, and children in roles.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

mod machine;

use handfast_domain::{CallContext, CallError, Domain, DomainOptions, Heap, Table};
use handfast_testing::start;
pub(crate) use machine::{has_keys, leave_out};
use std::hint::black_box;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};

/// A value with something in it, and where that is.
pub(crate) struct Value {
    count: AtomicU64,
}

pub(crate) fn value(_: &Heap) -> Value {
    Value {
        count: AtomicU64::new(0),
    }
}

pub(crate) fn add(own: &Value, call: &mut CallContext<'_>) {
    let added = call.words()[0];
    call.words()[0] = own.count.fetch_add(added, Ordering::Relaxed) + added;
}

pub(crate) fn place(own: &Value, call: &mut CallContext<'_>) {
    call.words()[0] = (&raw const own.count).expose_provenance() as u64;
}

pub(crate) fn go_wrong(_: &Value, call: &mut CallContext<'_>) {
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
pub(crate) const PANIC: u64 = 0;
pub(crate) const NULL: u64 = 1;
pub(crate) const READ: u64 = 2;
pub(crate) const WRITE: u64 = 3;
pub(crate) const DIVIDE: u64 = 4;
pub(crate) const ILLEGAL: u64 = 5;
pub(crate) const OVERFLOW: u64 = 6;
pub(crate) const BUS: u64 = 7;
pub(crate) const WILD: u64 = 8;

#[expect(unconditional_recursion, reason = "the end of the stack is the point")]
pub(crate) fn recurse(left: u64) -> u64 {
    let frame = black_box([left; 64]);
    recurse(left - 1) + frame[5]
}

pub(crate) fn table() -> Table<Value> {
    Table::new(value)
        .entry(add)
        .entry(place)
        .entry(go_wrong)
        .entry(run_function)
}
pub(crate) const ADD: u16 = 0;
pub(crate) const PLACE: u16 = 1;
pub(crate) const WRONG: u16 = 2;
pub(crate) const RUN: u16 = 3;

/// Calls the function whose address is the first word.
pub(crate) fn run_function(_: &Value, call: &mut CallContext<'_>) {
    // SAFETY: the tests pass such functions.
    let function = unsafe { std::mem::transmute::<usize, fn()>(call.words()[0] as usize) };
    function();
}

pub(crate) fn load(options: DomainOptions) -> Option<Domain> {
    if !has_keys() {
        return None;
    }
    // SAFETY: the functions lend nothing, and what they do outside is what is tested.
    Some(unsafe { Domain::new(&table(), options) }.unwrap())
}

pub(crate) fn first(words: u64) -> [u64; 8] {
    [words, 0, 0, 0, 0, 0, 0, 0]
}

pub(crate) fn wrong(domain: &Domain, what: u64, at: u64) -> Result<u64, CallError> {
    let got = domain.call(WRONG, [what, at, 0, 0, 0, 0, 0, 0]);
    got.map(|words| words[0])
}

/// How a child in this role ended.
pub(crate) fn end_of(role: &'static str, arguments: &[&str], said: &[&str]) -> ExitStatus {
    let mut child = start(role, arguments);
    for line in said {
        child.expect(line);
    }
    let status = child.process.wait().unwrap();
    assert_eq!(child.said(), None);
    status
}
