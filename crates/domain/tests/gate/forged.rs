//! A return that nobody but a nested call may make, made by another thread; and the gate entered by hand.
#![allow(dead_code, reason = "each test binary uses a part")]

use crate::common::first;
use handfast_domain::{CallContext, Domain, DomainOptions, Heap, Table};
use handfast_testing::say;
use std::arch::naked_asm;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// The rights of no domain.
const NO_DOMAIN: u64 = 0x5555_5554;
const DONE: u64 = 0;
/// From the number of an entry to its control word.
pub(crate) const ENTRY: u64 = 1 << 48;
/// A stack that no other call here is on: the second one of the first CPU.
pub(crate) const HINT: u64 = 1;

/// The rights of a domain whose memory and stacks have this key.
pub(crate) const fn rights(key: u64) -> u64 {
    NO_DOMAIN & !(3 << (2 * key))
}

/// Where the gate has the row of the domain with this key.
pub(crate) const fn row_at(key: u64) -> u64 {
    key * 128
}

/// The state that the gate wants to find.
#[repr(C)]
pub(crate) struct Forged {
    pub(crate) row_at: u64,
    pub(crate) rights: u64,
    pub(crate) control: u64,
    pub(crate) hint: u64,
    /// The bases of FS and GS.
    pub(crate) base: u64,
}

/// Enters the gate at the instruction that takes a domain's rights, as if its own code before that had run. Returns the status.
#[unsafe(naked)]
pub(crate) extern "C" fn enter_by_hand(words: *mut [u64; 8], forged: *const Forged) -> u64 {
    naked_asm!(
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rbx",
        "push rbp",
        "rdgsbase rax",
        "push rax",
        "rdfsbase rax",
        "push rax",
        "mov rax, [rsi + 32]",
        "test rax, rax",
        "jz 3f",
        "wrfsbase rax",
        "wrgsbase rax",
        "3:",
        // Where the gate's caller goes on, and what it keeps.
        "lea rax, [rip + 2f]",
        "push rax",
        "push rbx",
        "push rbp",
        "push rdi",
        "mov r12, [rsi]",
        "mov rax, [rsi + 8]",
        "mov r13, [rsi + 16]",
        "mov r14, [rsi + 24]",
        "mov r15d, 0x55555554",
        "mov rsi, [rdi + 8]",
        "mov rbx, [rdi + 16]",
        "mov rbp, [rdi + 24]",
        "mov r8, [rdi + 32]",
        "mov r9, [rdi + 40]",
        "mov r10, [rdi + 48]",
        "mov r11, [rdi + 56]",
        "mov rdi, [rdi]",
        "xor ecx, ecx",
        "xor edx, edx",
        "jmp handfast_domain_gate_in",
        "2:",
        "mov rax, r12",
        "pop rcx",
        "wrfsbase rcx",
        "pop rcx",
        "wrgsbase rcx",
        "pop rbp",
        "pop rbx",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "ret",
    )
}

/// Goes to the gate's way out with these rights, on this stack, with a result of eight ones.
#[unsafe(naked)]
extern "C" fn leave_by_hand(stack: u64, others: u64) {
    naked_asm!(
        "mov rsp, rdi",
        "mov rax, rsi",
        // Whatever else the gate looks at, a guess.
        "mov rcx, 0x1111111100000000",
        "or rax, rcx",
        "movq xmm1, rcx",
        "mov edi, 1",
        "mov esi, 1",
        "mov r13d, 1",
        "mov ebp, 1",
        "mov r8d, 1",
        "mov r9d, 1",
        "mov r10d, 1",
        "mov r11d, 1",
        "xor r12d, r12d",
        "xor ecx, ecx",
        "xor edx, edx",
        "jmp handfast_domain_gate_out",
    )
}

/// Enters the second domain at its own instruction, and says that it was called by the first one, from this stack.
#[unsafe(naked)]
extern "C" fn enter_for_another(stack: u64, others: u64) {
    naked_asm!(
        "mov rsp, rdi",
        "mov r15, rsi",
        "mov r12d, {row_at}",
        "mov eax, {own_rights}",
        // The entry that says yes.
        "mov r13, {control}",
        "mov r14d, {hint}",
        "xor ecx, ecx",
        "xor edx, edx",
        "jmp handfast_domain_gate_in",
        row_at = const row_at(2),
        own_rights = const rights(2),
        control = const ENTRY,
        hint = const HINT,
    )
}

const SECRET: u64 = 41;
static CHECKER: OnceLock<Domain> = OnceLock::new();
/// Where the vault's call has its descriptor: its words are the first thing there.
static DESCRIPTOR: AtomicUsize = AtomicUsize::new(0);
static DISTANCE: AtomicUsize = AtomicUsize::new(0);
static IS_WAITING: AtomicUsize = AtomicUsize::new(0);
/// In a descriptor: the stack pointer of the call that waits.
const CALL_OUT: usize = 80;

struct Vault {
    secret: AtomicU64,
}

/// The secret, for whoever knows what the other domain checks.
fn open(vault: &Vault, call: &mut CallContext<'_>) {
    DESCRIPTOR.store(call.words().as_ptr().expose_provenance(), SeqCst);
    let asked = call.words()[0];
    let answer = CHECKER.get().unwrap().call(0, first(asked)).unwrap();
    let is_right = answer[0] == 1;
    call.words()[0] = if is_right {
        vault.secret.load(SeqCst)
    } else {
        0
    };
}

/// Takes its time, and says no. The first call finds out what an attacker knows from a run before: how far below the
/// descriptor the call waits.
fn check(_: &(), call: &mut CallContext<'_>) {
    call.words()[0] = 0;
    let place = DESCRIPTOR.load(SeqCst);
    if DISTANCE.load(SeqCst) == 0 {
        let (memory, mut stack) = (std::fs::File::open("/proc/self/mem").unwrap(), [0; 8]);
        memory
            .read_exact_at(&mut stack, (place + CALL_OUT) as u64)
            .unwrap();
        DISTANCE.store(place - usize::from_ne_bytes(stack), SeqCst);
        return;
    }
    IS_WAITING.store(1, SeqCst);
    while IS_WAITING.load(SeqCst) == 1 {
        std::hint::spin_loop();
    }
}

fn yes(_: &(), call: &mut CallContext<'_>) {
    call.words()[0] = 1;
}

/// The vault waits for the checker on one thread; another one returns in its place.
pub(crate) fn forged_return(at: &str, confine: impl FnOnce()) {
    let vault = Table::new(|_: &Heap| Vault {
        secret: AtomicU64::new(SECRET),
    });
    let checker = Table::new(|_: &Heap| ()).entry(check).entry(yes);
    // SAFETY: the functions lend nothing, and what they touch outside is whole at any instruction.
    let vault = unsafe { Domain::new(&vault.entry(open), DomainOptions::new()) }.unwrap();
    // SAFETY: as above.
    let checker = unsafe { Domain::new(&checker, DomainOptions::new()) }.unwrap();
    CHECKER.set(checker).unwrap();
    assert_eq!(vault.call(0, first(0)), Ok([0; 8]));
    confine();
    let attack = match at {
        "out" => leave_by_hand as extern "C" fn(u64, u64),
        _ => enter_for_another,
    };
    std::thread::spawn(move || {
        while IS_WAITING.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        let stack = DESCRIPTOR.load(SeqCst) - DISTANCE.load(SeqCst);
        say("waiting");
        attack(stack as u64, rights(1));
    });
    let got = vault.call(0, first(0));
    // On whatever thread.
    say(&format!("{got:?}"));
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// How an entry by hand ended.
pub(crate) const fn is_done(status: u64) -> bool {
    status & 0xff == DONE
}
