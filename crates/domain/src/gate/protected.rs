//! The gate with protection, on x86-64.
//!
//! A caller's registers, and whatever they point to, are not trusted once the rights have changed: a stray jump can
//! arrive at any instruction here with any registers. So the row is looked up again behind each `WRPKRU`, in a table
//! that nobody can write, and the rights that were taken are compared with it; the stack is claimed by its flag,
//! which lies in the group's memory; what leads back to the caller is kept there, too; and behind the `WRPKRU` of the
//! way out the rights must be those of no domain, or of one that waits on exactly this stack for this return.
//!
//! In the gate the words are in rdi rsi rbx rbp r8 r9 r10 r11 (on the way back word 2 in r13), the place of the
//! domain's row in r12, buffers and entry in r13, the stack to try first in r14, the caller's rights in r15.

use crate::alone::alone;
use crate::error::Status;
use crate::flags::UNBUILT;
use crate::pool::PER_CPU;
use crate::run::{run_fault, run_other};
use crate::stack::{BOUNDED, BOUNDED_DEPTH, Descriptor, ENTRY_SHIFT, Row, STRIDE_BITS};
use crate::{DEPTH_MAX, Words};
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};
use handfast_sys::{Errno, private};

/// Access to key 0 only: what the kernel starts threads and signal handlers with.
pub(crate) const NO_DOMAIN: u32 = 0x5555_5554;
/// Rows: one for each key. Row 0 stays unused.
const ROWS: usize = 16;
const ROW_BITS: u32 = size_of::<Row>().trailing_zeros();
const _: () = assert!(1 << ROW_BITS == size_of::<Row>());

/// What the gate believes. Read-only but while a domain is loaded or unloaded.
#[repr(C, align(4096))]
struct Table {
    /// The bits of all domains' keys that say "no access".
    denied: AtomicU32,
    /// Which vector registers there are: zero, [`AVX`] or [`AVX512`].
    vectors: AtomicU32,
    padding: [u32; 30],
    rows: [Row; ROWS],
}

/// With AVX, and no more than that.
const AVX: u32 = 1;
/// With AVX-512.
const AVX512: u32 = 2;

struct Page(UnsafeCell<Table>);
// SAFETY: all fields are atomics. While the page is read-only nobody writes them: writers hold the lock of `change`.
unsafe impl Sync for Page {}

static TABLE: Page = Page(UnsafeCell::new(Table {
    denied: AtomicU32::new(0),
    vectors: AtomicU32::new(0),
    padding: [0; 30],
    rows: [const { Row::unused(NO_DOMAIN) }; ROWS],
}));
const _: () = assert!(size_of::<Page>().is_multiple_of(4096));

fn table() -> &'static Table {
    // SAFETY: a static, of which only shared references exist.
    unsafe { &*TABLE.0.get() }
}

/// The row of the domain whose memory has this key.
pub(crate) fn row(key: u32) -> Option<&'static Row> {
    table().rows.get(key as usize).filter(|_| key != 0)
}

/// All rows that may be of domains.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    table().rows.iter().skip(1)
}

/// Changes the table: makes it writable meanwhile. Two system calls.
pub(crate) fn change(key: u32, what: impl FnOnce(&Row)) -> Result<(), Errno> {
    let _alone = alone();
    let page = NonNull::new(TABLE.0.get().cast::<u8>()).ok_or(Errno::INVAL)?;
    let row = row(key).ok_or(Errno::INVAL)?;
    // SAFETY: the table fills whole pages; they become writable.
    unsafe { private::set_writable(page, size_of::<Page>(), true) }?;
    // Relaxed, both: any thread that gets the domain gets it after this.
    table().vectors.store(vectors(), Relaxed);
    what(row);
    let denied = rows()
        .enumerate()
        .filter(|(_, row)| !row.server.load(Relaxed).is_null())
        .fold(0, |denied, (index, row)| {
            denied | no_access(index as u32 + 1) | no_access(row.stack_key.load(Relaxed))
        });
    table().denied.store(denied & !no_access(0), Release);
    // SAFETY: as above; all writers hold the lock.
    unsafe { private::set_writable(page, size_of::<Page>(), false) }
}

/// The bit of the rights that forbids a key's pages.
const fn no_access(key: u32) -> u32 {
    1 << (2 * key)
}

/// The rights of a domain with these keys.
pub(crate) const fn rights(own: u32, stacks: u32) -> u32 {
    const BOTH: u32 = 3;
    NO_DOMAIN & !(BOTH << (2 * own)) & !(BOTH << (2 * stacks))
}

/// The rights to the stacks alone, of a handler of the program's: not those of any domain, so that nobody takes what it does
/// for the domain's.
pub(crate) const fn lent(stacks: u32) -> u32 {
    let own = rights(stacks, stacks);
    // The second bit of a key says no more than the first.
    own | (own & NO_DOMAIN) << 1
}

/// Whether this thread has some domain's rights. Only where there is one that is protected.
pub(crate) fn is_inside() -> bool {
    let rights: u32;
    // SAFETY: reads a register; protected domains are loaded only where the processor has it.
    unsafe {
        core::arch::asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    // Relaxed: as in the gate.
    !rights & table().denied.load(Relaxed) != 0
}

fn vectors() -> u32 {
    let wide = std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512vl")
        && std::arch::is_x86_feature_detected!("avx512bw");
    match (wide, std::arch::is_x86_feature_detected!("avx")) {
        (true, _) => AVX512,
        (_, true) => AVX,
        _ => 0,
    }
}

/// Crosses into the domain with number `domain` and back. The words are the call's, and then its result's.
///
/// # Safety
/// The domain is loaded and stays loaded; the buffers in `control` are the caller's, or none.
#[inline(always)]
pub(crate) unsafe fn cross(
    domain: u32,
    rights: u32,
    control: u64,
    hint: u32,
    words: &mut Words,
) -> Status {
    // SAFETY: the caller vouches for the domain and the buffers.
    Status(unsafe { enter(words, control, hint, domain << ROW_BITS, rights) })
}

/// Clears what vector registers may hold of the side that is left: with AVX here, with more or less at label `rare`,
/// which goes on at `more` or `back`.
macro_rules! clear_vectors {
    ($rare:literal, $more:literal, $back:literal) => {
        concat!(
            "cmp dword ptr [rip + {table} + {vectors}], {avx}\n",
            "jne ",
            $rare,
            "f\n",
            $more,
            ":\n",
            // Whatever is above these 16 bytes becomes zero, too.
            "vpxor xmm0, xmm0, xmm0\n",
            "vpxor xmm1, xmm1, xmm1\n",
            "vpxor xmm2, xmm2, xmm2\n",
            "vpxor xmm3, xmm3, xmm3\n",
            "vpxor xmm4, xmm4, xmm4\n",
            "vpxor xmm5, xmm5, xmm5\n",
            "vpxor xmm6, xmm6, xmm6\n",
            "vpxor xmm7, xmm7, xmm7\n",
            "vpxor xmm8, xmm8, xmm8\n",
            "vpxor xmm9, xmm9, xmm9\n",
            "vpxor xmm10, xmm10, xmm10\n",
            "vpxor xmm11, xmm11, xmm11\n",
            "vpxor xmm12, xmm12, xmm12\n",
            "vpxor xmm13, xmm13, xmm13\n",
            "vpxor xmm14, xmm14, xmm14\n",
            "vpxor xmm15, xmm15, xmm15\n",
            $back,
            ":\n",
        )
    };
}

/// The rare ways to do that; changes r14.
macro_rules! clear_vectors_rarely {
    ($rare:literal, $sse:literal, $more:literal, $back:literal) => {
        concat!(
            $rare,
            ":\n",
            "jb ",
            $sse,
            "f\n",
            "vpxord xmm16, xmm16, xmm16\n",
            "vpxord xmm17, xmm17, xmm17\n",
            "vpxord xmm18, xmm18, xmm18\n",
            "vpxord xmm19, xmm19, xmm19\n",
            "vpxord xmm20, xmm20, xmm20\n",
            "vpxord xmm21, xmm21, xmm21\n",
            "vpxord xmm22, xmm22, xmm22\n",
            "vpxord xmm23, xmm23, xmm23\n",
            "vpxord xmm24, xmm24, xmm24\n",
            "vpxord xmm25, xmm25, xmm25\n",
            "vpxord xmm26, xmm26, xmm26\n",
            "vpxord xmm27, xmm27, xmm27\n",
            "vpxord xmm28, xmm28, xmm28\n",
            "vpxord xmm29, xmm29, xmm29\n",
            "vpxord xmm30, xmm30, xmm30\n",
            "vpxord xmm31, xmm31, xmm31\n",
            // No way to clear a mask register is free: each second one by another unit of the processor.
            "xor r14d, r14d\n",
            "kxorq k0, k0, k0\n",
            "kmovq k1, r14\n",
            "kxorq k2, k2, k2\n",
            "kmovq k3, r14\n",
            "kxorq k4, k4, k4\n",
            "kmovq k5, r14\n",
            "kxorq k6, k6, k6\n",
            "kmovq k7, r14\n",
            "jmp ",
            $more,
            "b\n",
            $sse,
            ":\n",
            "xorps xmm0, xmm0\n",
            "xorps xmm1, xmm1\n",
            "xorps xmm2, xmm2\n",
            "xorps xmm3, xmm3\n",
            "xorps xmm4, xmm4\n",
            "xorps xmm5, xmm5\n",
            "xorps xmm6, xmm6\n",
            "xorps xmm7, xmm7\n",
            "xorps xmm8, xmm8\n",
            "xorps xmm9, xmm9\n",
            "xorps xmm10, xmm10\n",
            "xorps xmm11, xmm11\n",
            "xorps xmm12, xmm12\n",
            "xorps xmm13, xmm13\n",
            "xorps xmm14, xmm14\n",
            "xorps xmm15, xmm15\n",
            "jmp ",
            $back,
            "b\n",
        )
    };
}

/// The gate.
#[unsafe(naked)]
unsafe extern "C" fn enter(
    words: *mut Words,
    control: u64,
    hint: u32,
    row_at: u32,
    rights: u32,
) -> u64 {
    naked_asm!(
        // ---- The caller's side.
        ".cfi_startproc",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        // Where the words are, for the way back.
        "push rdi",
        ".cfi_adjust_cfa_offset 56",
        "mov r12d, ecx",
        "mov r13, rsi",
        "mov r14d, edx",
        "xor ecx, ecx",
        "rdpkru",
        // The caller's rights: what it gets back.
        "mov r15d, eax",
        // Is it a domain itself? Then it has some right that others have not.
        "not eax",
        "test eax, dword ptr [rip + {table} + {denied}]",
        "jnz 90f",

        // ---- The words into registers, and take the domain's rights.
        "20:",
        "mov eax, r8d",
        "mov rsi, qword ptr [rdi + 8]",
        // Not rdx and rcx, which WRPKRU wants to be zero.
        "mov rbx, qword ptr [rdi + 16]",
        "mov rbp, qword ptr [rdi + 24]",
        "mov r8, qword ptr [rdi + 32]",
        "mov r9, qword ptr [rdi + 40]",
        "mov r10, qword ptr [rdi + 48]",
        "mov r11, qword ptr [rdi + 56]",
        "mov rdi, qword ptr [rdi]",
        "xor ecx, ecx",
        "xor edx, edx",
        // Named for whoever looks for instructions that change rights ([`changes`]).
        ".globl handfast_domain_gate_in",
        ".hidden handfast_domain_gate_in",
        "handfast_domain_gate_in:",
        "wrpkru",

        // ---- From here on no register is trusted but what is looked up again.
        "and r12d, {rows_mask} << {row_bits}",
        "lea rdx, [rip + {table} + {rows}]",
        // rdx: the row. Its rights must be those that were taken.
        "add rdx, r12",
        "cmp eax, dword ptr [rdx + {rights}]",
        "jne 99f",
        // Copies in the domain go forward, whatever the caller's went: behind the check, so that nobody gets past it.
        "cld",

        // ---- Claim a stack: the one that the caller names, if there is such a one and it is free.
        "mov ecx, r14d",
        "mov r12d, dword ptr [rdx + {tag}]",
        "mov r14, qword ptr [rdx + {flags}]",
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
        "mov dword ptr [rcx + {number}], eax",
        "mov qword ptr [rcx + {flag}], r14",
        "mov qword ptr [rcx + {caller_stack}], rsp",
        // And, above it, the depth.
        "mov qword ptr [rcx + {caller_rights}], r15",
        "mov qword ptr [rcx + {control}], r13",
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
        // Nothing leads further up from here, for whoever unwinds.
        ".cfi_remember_state",
        ".cfi_undefined rip",
        // Over what is left of the caller's.
        "mov rbx, rcx",
        "mov rbp, rdx",
        // What is left of the caller in registers is not the domain's to see.
        clear_vectors!("70", "76", "71"),
        // The other registers hold the words and what the gate itself has put there.
        "mov rdi, rcx",
        "mov rsi, rdx",
        // In registers what was just stored: it need not be waited for.
        "mov ecx, eax",
        "mov rdx, r13",
        // Which entry? The table's, or none.
        "mov rax, r13",
        "shr rax, {entry_shift}",
        "cmp eax, dword ptr [rsi + {entries_len}]",
        "jae 45f",
        "mov r8, qword ptr [rsi + {entries}]",
        "call qword ptr [r8 + 8*rax]",

        // ---- The way back. rsp: the descriptor; rax: the status.
        "50:",
        "mov rbx, rsp",
        "mov r12, rax",
        "mov rdi, qword ptr [rbx + {words}]",
        "mov rsi, qword ptr [rbx + {words} + 8]",
        "mov r13, qword ptr [rbx + {words} + 16]",
        "mov rbp, qword ptr [rbx + {words} + 24]",
        "mov r8, qword ptr [rbx + {words} + 32]",
        "mov r9, qword ptr [rbx + {words} + 40]",
        "mov r10, qword ptr [rbx + {words} + 48]",
        "mov r11, qword ptr [rbx + {words} + 56]",
        // What is left of the domain in registers is not the caller's to see.
        clear_vectors!("73", "77", "74"),
        "mov r15, qword ptr [rbx + {flag}]",
        "mov rsp, qword ptr [rbx + {caller_stack}]",
        ".cfi_restore_state",
        "mov eax, dword ptr [rbx + {caller_rights}]",
        // P1 stack, release half: as `flags::release`; every store of this processor is one.
        "mov word ptr [r15], 0",

        // ---- Give the rights back. eax: what they were; rbp: word 3.
        "60:",
        "xor ecx, ecx",
        "xor edx, edx",
        ".globl handfast_domain_gate_out",
        ".hidden handfast_domain_gate_out",
        "handfast_domain_gate_out:",
        "wrpkru",
        // Those of no domain, or else of one that waits here.
        "not eax",
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
        "mov rax, r12",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        ".cfi_adjust_cfa_offset -56",
        "ret",
        ".cfi_adjust_cfa_offset 56",

        // ---- Rare: more, or fewer, vector registers.
        clear_vectors_rarely!("70", "72", "76", "71"),
        clear_vectors_rarely!("73", "75", "77", "74"),

        // ---- Rare: no entry.
        "45:",
        "call {run_other}",
        "jmp 50b",

        // ---- Rare: the caller has a domain's rights. Which domain's?
        "90:",
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
        "jmp 20b",
        // rcx: its row. It must be on one of its stacks; there it notes where it waits.
        "92:",
        "mov rax, rsp",
        "sub rax, qword ptr [rcx + {first_stack}]",
        "shr rax, {stride_bits}",
        "mov edx, dword ptr [rcx + {stacks_all}]",
        "cmp rax, rdx",
        "jae 93f",
        "shl rax, {stride_bits}",
        "add rax, qword ptr [rcx + {first_descriptor}]",
        // One deeper than it is itself.
        "mov ecx, dword ptr [rax + {depth}]",
        "inc ecx",
        "cmp ecx, {depth_max}",
        "jae 94f",
        "95:",
        "shl rcx, 32",
        "or r15, rcx",
        "mov qword ptr [rax + {call_out}], rsp",
        "jmp 20b",
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
        "mov eax, r15d",
        "jmp 60b",

        // ---- Rare: back to a domain. Which one's rights are these?
        "80:",
        "not eax",
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
        control = const offset_of!(Descriptor, control),
        flag = const offset_of!(Descriptor, flag),
        call_out = const offset_of!(Descriptor, call_out),
        caller_rights = const offset_of!(Descriptor, caller_rights),
        number = const offset_of!(Descriptor, number),
        depth = const offset_of!(Descriptor, depth),
        depth_max = const DEPTH_MAX,
        bounded_depth_bit = const BOUNDED_DEPTH.trailing_zeros(),
        bounded_bit = const BOUNDED.trailing_zeros(),
        too_deep = const Status::TOO_DEEP,
        avx = const AVX,
        no_stack = const Status::STACKS,
        foreign_stack = const Status::FOREIGN_STACK,
    )
}

unsafe extern "C" {
    fn handfast_domain_landing();
    fn handfast_domain_gate_end();
    fn handfast_domain_gate_in();
    fn handfast_domain_gate_out();
}

/// The gate's two instructions that change rights. Behind each of them follows the check of what it did.
pub(crate) fn changes() -> [usize; 2] {
    [handfast_domain_gate_in, handfast_domain_gate_out]
        .map(|place: unsafe extern "C" fn()| place as usize)
}

/// The pages of the table: first byte, and the one behind the last.
pub(crate) fn table_range() -> (usize, usize) {
    let start = TABLE.0.get().addr();
    (start, start + size_of::<Page>())
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
