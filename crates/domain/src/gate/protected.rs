//! The gate with protection, on x86-64.
//!
//! A caller's registers, and whatever they point to, are not trusted once the rights have changed: a stray jump can
//! arrive at any instruction here with any registers. So the row is looked up again behind each `WRPKRU`, in a table
//! that nobody can write, and the rights that were taken are compared with it; the stack is claimed by its flag,
//! which lies in the group's memory; the way back to the caller is kept there, too; and behind the `WRPKRU` of the
//! way out the rights must be those of no domain, or of one that waits on exactly this stack for this return.
//!
//! A stack and the rights of its domain can be named by any thread. So a domain that calls another gives that call a ticket, a number
//! that is new each time: it is kept in the memory of both, and in registers between the two, so that nobody else knows it. The way out
//! has it in the upper half of rax, where `WRPKRU` does not look.
//!
//! In the gate the words are in rdi rsi rbx rbp r8 r9 r10 r11 (on the way back word 2 in r13), the place of the
//! domain's row in r12, buffers and entry in r13, the stack to try first in r14, the caller's rights in r15.
//!
//! The cost of a call beyond its two `WRPKRU` is mostly the number of its instructions: nothing behind a `WRPKRU` begins before that
//! is done, and the claim's locked exchange takes less than what is behind it.

use crate::error::Status;
use crate::flags::UNBUILT;
use crate::pool::{PER_CPU, STACKS_MAX};
use crate::row::Row;
use crate::rows::{AVX, AVX512, ROW_BITS, ROWS, TABLE, Table};
use crate::run::{run_fault, run_other};
use crate::server::Server;
use crate::stack::{BOUNDED, BOUNDED_DEPTH, DEPTH, Descriptor, ENTRY_SHIFT, STRIDE_BITS, TICKET};
use crate::{DEPTH_MAX, Words};
use core::arch::{asm, naked_asm};
use core::mem::offset_of;
use vectors::{clear_vectors, clear_vectors_rarely};

mod vectors;

/// The place of a domain's row, as the gate wants it. Not zero.
pub(crate) const fn row_at(domain: u32) -> u32 {
    domain << ROW_BITS
}

/// Crosses into the domain whose row is there ([`row_at`]), and back. The words are the call's, and then its result's.
/// With `FROM_OUTSIDE` a call from a domain is not made ([`Status::INSIDE`]).
///
/// # Safety
/// The domain is loaded and stays loaded; the buffers in `control` are the caller's, or none.
#[inline(always)]
pub(crate) unsafe fn cross<const FROM_OUTSIDE: bool>(
    row_at: u32,
    rights: u32,
    control: u64,
    hint: u32,
    words: &mut Words,
) -> Status {
    let rights = u64::from(rights) | u64::from(FROM_OUTSIDE) << FROM_OUTSIDE_BIT;
    let status: u64;
    // SAFETY: the caller vouches for the domain and the buffers. The gate wants its arguments in these registers, keeps rbx, rbp and the
    // stack, and changes what any function may, and r12 to r15.
    unsafe {
        asm!(
            "call {enter}",
            enter = sym enter,
            inlateout("rdi") core::ptr::from_mut(words) => _,
            inlateout("r8") rights => _,
            inlateout("r12") u64::from(row_at) => status,
            inlateout("r13") control => _,
            inlateout("r14") u64::from(hint) => _,
            lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
    Status(status)
}

/// Numbers of stacks have so many bits.
const NUMBER_BITS: u32 = (STACKS_MAX - 1).ilog2() + 1;

/// Above the rights that the gate is told.
const FROM_OUTSIDE_BIT: u32 = u32::BITS;

/// The gate. Called as [`cross`] does: with where the words are in rdi, the domain's rights in r8 (above them
/// [`FROM_OUTSIDE_BIT`]), the place of its row in r12,
/// buffers and entry in r13, the stack to try first in r14. Returns the status in r12.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn enter() {
    naked_asm!(
        // ---- The caller's side.
        ".cfi_startproc",
        "push rbx",
        "push rbp",
        // Where the words are, for the way back.
        "push rdi",
        ".cfi_adjust_cfa_offset 24",
        "xor ecx, ecx",
        // And zero in edx.
        "rdpkru",
        // The caller's rights, for the way back.
        "mov r15d, eax",
        // Is it a domain itself? Then it has some right that others have not.
        "not eax",
        "test eax, dword ptr [rip + {table} + {denied}]",
        "jnz 90f",

        // ---- The words into registers, and take the domain's rights. WRPKRU wants ecx and edx to be zero, as they are.
        "20:",
        "mov eax, r8d",
        "mov rsi, qword ptr [rdi + 8]",
        "mov rbx, qword ptr [rdi + 16]",
        "mov rbp, qword ptr [rdi + 24]",
        "mov r8, qword ptr [rdi + 32]",
        "mov r9, qword ptr [rdi + 40]",
        "mov r10, qword ptr [rdi + 48]",
        "mov r11, qword ptr [rdi + 56]",
        "mov rdi, qword ptr [rdi]",
        // Named for code that looks for instructions that change rights ([`changes`]).
        ".globl handfast_domain_gate_in",
        ".hidden handfast_domain_gate_in",
        "handfast_domain_gate_in:",
        "wrpkru",

        // ---- From here on no register is trusted but what is looked up again.
        "and r12d, {rows_mask} << {row_bits}",
        "lea rdx, [rip + {table} + {rows}]",
        // rdx: the row. Its rights must be the rights that were taken.
        "add rdx, r12",
        "cmp eax, dword ptr [rdx + {rights}]",
        "jne 99f",

        // ---- Claim a stack: the one that the caller names, if there is such a one and it is free.
        "mov ecx, r14d",
        "mov r12d, dword ptr [rdx + {tag}]",
        "mov r14, qword ptr [rdx + {flags}]",
        // Copies in the domain go forward, whatever the caller's went. Not behind the claim, which it would wait for, but in front of all
        // ways to one.
        "cld",
        "cmp ecx, dword ptr [rdx + {stacks_all}]",
        "jae 30f",
        "xor eax, eax",
        // P1 stack, claim half: as `flags::claim`. P2 drain: as there.
        "lock cmpxchg word ptr [r14 + 2*rcx], r12w",
        "jne 30f",

        // ---- Claimed: rcx is its number. Keep what leads back.
        "25:",
        "lea r14, [r14 + 2*rcx]",
        "mov eax, ecx",
        "shl rcx, {stride_bits}",
        // rcx: the descriptor.
        "add rcx, qword ptr [rdx + {first_descriptor}]",
        "mov qword ptr [rcx + {flag}], r14",
        "mov qword ptr [rcx + {caller_stack}], rsp",
        // And, above it, the depth.
        "mov qword ptr [rcx + {caller_rights}], r15",
        "mov qword ptr [rcx + {words}], rdi",
        "mov qword ptr [rcx + {words} + 8], rsi",
        "mov qword ptr [rcx + {words} + 16], rbx",
        "mov qword ptr [rcx + {words} + 24], rbp",
        "mov qword ptr [rcx + {words} + 32], r8",
        "mov qword ptr [rcx + {words} + 40], r9",
        "mov qword ptr [rcx + {words} + 48], r10",
        "mov qword ptr [rcx + {words} + 56], r11",

        // ---- Onto the domain's stack. It grows down from the descriptor.
        "mov rsp, rcx",
        // Nothing leads further up from here, for an unwinder.
        ".cfi_remember_state",
        ".cfi_undefined rip",
        // The caller's values that remain in registers are not the domain's to see.
        clear_vectors!("70", "76", "71"),
        // The other registers hold the words and the gate's own values. Among the arguments ([`Entry`]), the row and the
        // descriptor are where they belong; the number and the control word follow.
        "mov esi, eax",
        "mov rdi, r13",
        // Which entry? The table's, or none.
        "shr r13, {entry_shift}",
        "cmp r13d, dword ptr [rdx + {entries_len}]",
        "jae 45f",
        "mov rax, qword ptr [rdx + {entries}]",
        "call qword ptr [rax + 8*r13]",

        // ---- The way back. rsp: the descriptor; rax: the status.
        "50:",
        "mov r12, rax",
        // The domain's values that remain in registers are not the caller's to see: any not overwritten below are cleared here.
        clear_vectors!("73", "77", "74"),
        "mov rdi, qword ptr [rsp + {words}]",
        "mov rsi, qword ptr [rsp + {words} + 8]",
        "mov r13, qword ptr [rsp + {words} + 16]",
        "mov rbp, qword ptr [rsp + {words} + 24]",
        "mov r8, qword ptr [rsp + {words} + 32]",
        "mov r9, qword ptr [rsp + {words} + 40]",
        "mov r10, qword ptr [rsp + {words} + 48]",
        "mov r11, qword ptr [rsp + {words} + 56]",
        "mov r15, qword ptr [rsp + {flag}]",
        // And, above them, the ticket.
        "mov rax, qword ptr [rsp + {caller_rights}]",
        "mov rsp, qword ptr [rsp + {caller_stack}]",
        ".cfi_restore_state",
        // P1 stack, release half: as `flags::release`; every store of this processor is one.
        "mov word ptr [r15], r14w",

        // ---- Give the rights back. eax: what they were, the ticket above; rbp: word 3.
        "60:",
        "xor ecx, ecx",
        "xor edx, edx",
        ".globl handfast_domain_gate_out",
        ".hidden handfast_domain_gate_out",
        "handfast_domain_gate_out:",
        "wrpkru",
        // The rights of no domain, or else of one that waits here.
        "not rax",
        "test eax, dword ptr [rip + {table} + {denied}]",
        "jnz 80f",
        "61:",
        "pop rcx",
        "mov qword ptr [rcx], rdi",
        "mov qword ptr [rcx + 8], rsi",
        "mov qword ptr [rcx + 16], r13",
        "mov qword ptr [rcx + 24], rbp",
        "mov qword ptr [rcx + 32], r8",
        "mov qword ptr [rcx + 40], r9",
        "mov qword ptr [rcx + 48], r10",
        "mov qword ptr [rcx + 56], r11",
        "pop rbp",
        "pop rbx",
        ".cfi_adjust_cfa_offset -24",
        "ret",
        ".cfi_adjust_cfa_offset 24",

        // ---- Rare: fewer vector registers.
        clear_vectors_rarely!("70", "76", "71"),
        clear_vectors_rarely!("73", "77", "74"),

        // ---- Rare: no entry.
        "45:",
        "call {run_other}",
        "jmp 50b",

        // ---- Rare: the caller has a domain's rights. Which domain's? Or is it not to call then?
        "90:",
        "bt r8, {from_outside_bit}",
        "jc 98f",
        "mov edx, {rows_mask}",
        "91:",
        "mov ecx, edx",
        "shl ecx, {row_bits}",
        "lea rax, [rip + {table} + {rows}]",
        "add rcx, rax",
        "cmp r15d, dword ptr [rcx + {rights}]",
        "je 92f",
        "dec edx",
        "jnz 91b",
        // No domain's: a thread that had rights to this key when it was another's. It gets all others back.
        "or r15d, dword ptr [rip + {table} + {denied}]",
        "97:",
        "xor ecx, ecx",
        "xor edx, edx",
        "jmp 20b",
        // rcx: its row. It must be on one of its stacks; there it notes where it waits.
        "92:",
        "mov rbx, rcx",
        "mov r9, rsp",
        "sub r9, qword ptr [rcx + {first_stack}]",
        "shr r9, {stride_bits}",
        "mov edx, dword ptr [rcx + {stacks_all}]",
        "cmp r9, rdx",
        "jae 93f",
        // r9: the stack's number; rbp: its descriptor.
        "mov rbp, r9",
        "shl rbp, {stride_bits}",
        "add rbp, qword ptr [rcx + {first_descriptor}]",
        // One deeper than it is itself.
        "mov ecx, dword ptr [rbp + {depth}]",
        "and ecx, {depth_and_bounded}",
        "inc ecx",
        "cmp ecx, {depth_max}",
        "jae 94f",
        // And a ticket: the time and the stack, mixed with two numbers that only this domain knows.
        "95:",
        "mov rbx, qword ptr [rbx + {server}]",
        "rdtsc",
        "shl rdx, 32",
        "or rax, rdx",
        "shl rax, {number_bits}",
        "or rax, r9",
        "xor rax, qword ptr [rbx + {secrets}]",
        "mov rdx, rax",
        "shr rdx, 30",
        "xor rax, rdx",
        "mov rdx, 0xbf58476d1ce4e5b9",
        "imul rax, rdx",
        "mov rdx, rax",
        "shr rdx, 27",
        "xor rax, rdx",
        "mov rdx, 0x94d049bb133111eb",
        "imul rax, rdx",
        "mov rdx, rax",
        "shr rdx, 31",
        "xor rax, rdx",
        "add rax, qword ptr [rbx + {secrets} + 8]",
        // The upper bits of the sum.
        "shr rax, 32",
        "and eax, {ticket_mask}",
        "or ecx, eax",
        "mov dword ptr [rbp + {ticket}], ecx",
        "mov qword ptr [rbp + {call_out}], rsp",
        "shl rcx, 32",
        "or r15, rcx",
        "jmp 97b",
        // Too deep, or its call has a deadline: then so has this one.
        "94:",
        "btr ecx, {bounded_depth_bit}",
        "jnc 96f",
        "bts r13, {bounded_bit}",
        "cmp ecx, {depth_max}",
        "jb 95b",
        "96:",
        "mov r12d, {too_deep}",
        "jmp 61b",
        // The caller has another way to call from a domain.
        "98:",
        "mov r12d, {inside}",
        "jmp 61b",
        // It is elsewhere: no call is made.
        "93:",
        "mov r12d, {foreign_stack}",
        "jmp 61b",

        // ---- Rare: the stack that was named is not free. Each of the others once, from there on.
        "30:",
        "movq xmm0, r13",
        "mov r13d, dword ptr [rdx + {stacks}]",
        "cmp ecx, r13d",
        "jb 31f",
        "32:",
        "xor ecx, ecx",
        "31:",
        "sub r13d, 1",
        "jb 36f",
        "xor eax, eax",
        // P1 stack, P2 drain: as above.
        "lock cmpxchg word ptr [r14 + 2*rcx], r12w",
        "je 35f",
        "cmp ax, {unbuilt}",
        "jne 33f",
        // Nor are those behind it: on to the next CPU's.
        "or ecx, {per_cpu_mask}",
        "33:",
        "inc ecx",
        "cmp ecx, dword ptr [rdx + {stacks}]",
        "jb 31b",
        "jmp 32b",
        "35:",
        "movq r13, xmm0",
        "jmp 25b",
        // None.
        "36:",
        "mov r12d, {no_stack}",
        "mov r13, rbx",
        "mov rax, r15",
        "jmp 60b",

        // ---- Rare: back to a domain. Which one's rights are these?
        "80:",
        "not rax",
        "mov edx, {rows_mask}",
        "81:",
        "mov ecx, edx",
        "shl ecx, {row_bits}",
        "lea rbx, [rip + {table} + {rows}]",
        "add rcx, rbx",
        "cmp eax, dword ptr [rcx + {rights}]",
        "je 82f",
        "dec edx",
        "jnz 81b",
        "jmp 99f",
        // rcx: its row. It must be in a call on this stack, and wait for this return.
        "82:",
        // The ticket, without what the call's own function has put there.
        "mov rbx, rax",
        "shr rbx, 32",
        "btr ebx, {bounded_depth_bit}",
        "mov rax, rsp",
        "sub rax, qword ptr [rcx + {first_stack}]",
        "shr rax, {stride_bits}",
        "mov edx, dword ptr [rcx + {stacks_all}]",
        "cmp rax, rdx",
        "jae 99f",
        "mov rdx, qword ptr [rcx + {flags}]",
        "movzx edx, word ptr [rdx + 2*rax]",
        "cmp edx, dword ptr [rcx + {tag}]",
        "jne 99f",
        "shl rax, {stride_bits}",
        "add rax, qword ptr [rcx + {first_descriptor}]",
        "cmp qword ptr [rax + {call_out}], rsp",
        "jne 99f",
        "cmp dword ptr [rax + {ticket}], ebx",
        "jne 99f",
        "mov qword ptr [rax + {call_out}], 0",
        "jmp 61b",

        // ---- Somebody jumped into the middle.
        "99:",
        "ud2",

        // ---- A call that a signal ended comes here ([`landing`]), with rbx, rsp and the rights of the domain.
        ".globl handfast_domain_landing",
        ".hidden handfast_domain_landing",
        "handfast_domain_landing:",
        ".cfi_undefined rip",
        "call {run_fault}",
        "jmp 50b",
        ".cfi_endproc",
        ".globl handfast_domain_gate_end",
        ".hidden handfast_domain_gate_end",
        "handfast_domain_gate_end:",
        table = sym TABLE,
        run_other = sym run_other,
        entry_shift = const ENTRY_SHIFT,
        entries = const offset_of!(Row, entries),
        entries_len = const offset_of!(Row, entries_len),
        run_fault = sym run_fault,
        denied = const offset_of!(Table, denied),
        vectors = const offset_of!(Table, vectors),
        rows = const offset_of!(Table, rows),
        rows_mask = const ROWS - 1,
        row_bits = const ROW_BITS,
        rights = const offset_of!(Row, rights),
        tag = const offset_of!(Row, tag),
        stacks = const offset_of!(Row, stacks),
        stacks_all = const offset_of!(Row, stacks_all),
        flags = const offset_of!(Row, flags),
        first_stack = const offset_of!(Row, first_stack),
        first_descriptor = const offset_of!(Row, first_descriptor),
        stride_bits = const STRIDE_BITS,
        per_cpu_mask = const PER_CPU - 1,
        unbuilt = const UNBUILT as i16,
        words = const offset_of!(Descriptor, words),
        caller_stack = const offset_of!(Descriptor, caller_stack),
        flag = const offset_of!(Descriptor, flag),
        call_out = const offset_of!(Descriptor, call_out),
        caller_rights = const offset_of!(Descriptor, caller_rights),
        depth = const offset_of!(Descriptor, depth),
        depth_max = const DEPTH_MAX,
        depth_and_bounded = const (DEPTH | BOUNDED_DEPTH).cast_signed(),
        ticket = const offset_of!(Descriptor, ticket),
        ticket_mask = const TICKET,
        server = const offset_of!(Row, server),
        secrets = const offset_of!(Server, secrets),
        number_bits = const NUMBER_BITS,
        bounded_depth_bit = const BOUNDED_DEPTH.trailing_zeros(),
        bounded_bit = const BOUNDED.trailing_zeros(),
        too_deep = const Status::TOO_DEEP,
        avx = const AVX,
        avx512 = const AVX512,
        no_stack = const Status::STACKS,
        foreign_stack = const Status::FOREIGN_STACK,
        inside = const Status::INSIDE,
        from_outside_bit = const FROM_OUTSIDE_BIT,
    )
}

unsafe extern "C" {
    fn handfast_domain_landing();
    fn handfast_domain_gate_end();
    #[cfg(feature = "confine")]
    fn handfast_domain_gate_in();
    #[cfg(feature = "confine")]
    fn handfast_domain_gate_out();
}

/// The gate's two instructions that change rights. A check of the effect follows behind each of them.
#[cfg(feature = "confine")]
pub(crate) fn changes() -> [usize; 2] {
    [handfast_domain_gate_in, handfast_domain_gate_out]
        .map(|place: unsafe extern "C" fn()| place as usize)
}

/// Where a call goes on that a signal has ended, with rbx and rsp at its descriptor, rdi and rsi there and at its row,
/// rdx its status, and the rights of its domain.
pub(crate) fn landing() -> usize {
    handfast_domain_landing as *const () as usize
}

/// Whether `at` is an instruction of the gate.
pub(crate) fn is_gate(at: usize) -> bool {
    let start = enter as *const () as usize;
    (start..handfast_domain_gate_end as *const () as usize).contains(&at)
}
