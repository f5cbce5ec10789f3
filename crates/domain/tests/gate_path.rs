//! The length of a call's path into a domain and back: the instructions that a process makes, and the cache lines that
//! they touch, counted step by step ("Optimizing IPC Performance for Shared-Memory Multiprocessors", section 4: 200
//! instructions and 6 cache lines). The limits are of optimised builds; others print what they count.
#![cfg(all(target_arch = "x86_64", feature = "confine"))]

mod common;

use handfast_domain::{CallContext, Domain, DomainOptions, Table};
use handfast_testing as testing;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Register};
use std::collections::{BTreeSet, HashMap};
use std::hint::black_box;
use std::io::Write;

/// Most instructions of a null call with eight words each way, and most cache lines that they are in, and touch: decision 0028 says
/// which. The lines vary a little with the places of functions and stacks.
const INSTRUCTIONS_MAX: usize = 270;
const CODE_LINES_MAX: usize = 36;
const DATA_LINES_MAX: usize = 32;

#[test]
fn a_child_process_plays_its_role() {
    testing::play(|role, _| match role {
        "calls" => calls(),
        _ => unreachable!(),
    });
}

#[test]
fn a_null_call_takes_few_instructions_and_touches_few_lines() {
    if !common::has_keys() {
        return;
    }
    let path = count();
    if cfg!(debug_assertions) {
        return;
    }
    assert!(path.instructions <= INSTRUCTIONS_MAX, "{path:?}");
    assert!(path.code_lines <= CODE_LINES_MAX, "{path:?}");
    assert!(path.data_lines <= DATA_LINES_MAX, "{path:?}");
}

// ---- The traced process.

const WARM: usize = 100;
/// Calls that are counted.
const CALLS: usize = 3;

fn null((): &(), _: &mut CallContext<'_>) {}

/// Stands between two calls.
#[inline(never)]
extern "C" fn between() {
    black_box(());
}

fn calls() {
    let table = Table::new(|_| ()).entry(null);
    // SAFETY: the function lends nothing and does not go wrong.
    let domain = unsafe { Domain::new(&table, DomainOptions::new()) }.unwrap();
    let words = [1; 8];
    for _ in 0..WARM {
        domain.call(0, black_box(words)).unwrap();
    }
    // SAFETY: nothing is passed. Before the parent hears of this thread, for which it waits as its tracer.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    let thread = rustix::thread::gettid().as_raw_nonzero();
    testing::say(&format!("{thread} {}", between as *const () as usize));
    stop();
    between();
    for _ in 0..CALLS {
        let _ = black_box(domain.call(0, black_box(words)));
        between();
    }
    stop();
}

/// Stops this thread, which the parent traces.
fn stop() {
    // SAFETY: the signal stops a traced process until its tracer lets it go on.
    unsafe { libc::raise(libc::SIGSTOP) };
}

// ---- Its tracer.

/// The path of one call.
#[derive(Clone, Copy, Debug)]
struct Path {
    instructions: usize,
    code_lines: usize,
    data_lines: usize,
}

const LINE_BYTES: u64 = 64;

/// The shortest path of the calls of a process in that role, printed.
#[expect(
    clippy::explicit_write,
    reason = "past the test's own output, which is shown where it fails"
)]
fn count() -> Path {
    let child = testing::start("calls", &[]);
    let said = child.line();
    let (thread, between) = said.split_once(' ').unwrap();
    let paths = steps(thread.parse().unwrap(), between.parse().unwrap());
    assert_eq!(paths.len(), CALLS, "{paths:?}");
    let path = *paths.iter().min_by_key(|path| path.instructions).unwrap();
    writeln!(std::io::stderr(), "counted: a null call: {path:?}").unwrap();
    path
}

/// Steps through that thread of the child from its first stop to its second, and counts what is between two visits to the address.
fn steps(pid: i32, between: u64) -> Vec<Path> {
    let _traced = Traced(pid);
    assert_eq!(wait(pid), libc::SIGSTOP);
    let mut factory = InstructionInfoFactory::new();
    let (mut paths, mut visits) = (Vec::new(), 0);
    let mut decoded = HashMap::new();
    let (mut count, mut code, mut data) = (0, BTreeSet::new(), BTreeSet::new());
    loop {
        let registers = registers(pid);
        if registers.rip == between {
            if visits > 0 {
                paths.push(Path {
                    instructions: count,
                    code_lines: code.len(),
                    data_lines: data.len(),
                });
            }
            visits += 1;
            count = 0;
            code.clear();
            data.clear();
        }
        count += 1;
        let instruction = *(decoded.entry(registers.rip)).or_insert_with(|| {
            let bytes = code_at(pid, registers.rip);
            Decoder::with_ip(64, &bytes, registers.rip, DecoderOptions::NONE).decode()
        });
        let end = registers.rip + instruction.len() as u64 - 1;
        code.extend([registers.rip / LINE_BYTES, end / LINE_BYTES]);
        for used in factory.info(&instruction).used_memory() {
            let value = |register, _, _| Some(value_of(&registers, register));
            let at = used.virtual_address(0, value).unwrap();
            let last = at + used.memory_size().size().max(1) as u64 - 1;
            data.extend([at / LINE_BYTES, last / LINE_BYTES]);
        }
        // SAFETY: the child is stopped, and traced by this thread.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) };
        match wait(pid) {
            libc::SIGTRAP => {}
            libc::SIGSTOP => break,
            other => panic!("stopped by signal {other}"),
        }
    }
    paths
}

/// A thread that is traced. It is let go of in the end: as a traced one, once killed, it would have to be waited for.
struct Traced(i32);

impl Drop for Traced {
    fn drop(&mut self) {
        // SAFETY: nothing is passed. One that has not stopped is not let go of.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

/// The signal by which it has stopped.
fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is valid for a write.
    let found = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    assert!(found == pid && libc::WIFSTOPPED(status), "{found} {status}");
    libc::WSTOPSIG(status)
}

fn registers(pid: i32) -> libc::user_regs_struct {
    // SAFETY: integers.
    let mut registers: libc::user_regs_struct = unsafe { core::mem::zeroed() };
    // SAFETY: the child is stopped, and the registers are valid for a write.
    let got = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers) };
    assert_eq!(got, 0);
    registers
}

/// The longest instruction has 15 bytes.
fn code_at(pid: i32, at: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (word, place) in bytes.chunks_exact_mut(8).zip([at, at + 8]) {
        // SAFETY: the child is stopped. Where there is no memory, an error comes, and the decoder needs no more bytes.
        let read = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, pid, place, 0) };
        word.copy_from_slice(&read.to_le_bytes());
    }
    bytes
}

fn value_of(of: &libc::user_regs_struct, register: Register) -> u64 {
    match register.full_register() {
        Register::RAX => of.rax,
        Register::RBX => of.rbx,
        Register::RCX => of.rcx,
        Register::RDX => of.rdx,
        Register::RSI => of.rsi,
        Register::RDI => of.rdi,
        Register::RBP => of.rbp,
        Register::RSP => of.rsp,
        Register::R8 => of.r8,
        Register::R9 => of.r9,
        Register::R10 => of.r10,
        Register::R11 => of.r11,
        Register::R12 => of.r12,
        Register::R13 => of.r13,
        Register::R14 => of.r14,
        Register::R15 => of.r15,
        Register::FS => of.fs_base,
        Register::GS => of.gs_base,
        // Segments that begin at zero, and addresses that have the instruction pointer in them.
        _ => 0,
    }
}
