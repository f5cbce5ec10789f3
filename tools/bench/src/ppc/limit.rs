//! The limit of `ppc`: two `WRPKRU` and a stack switch around a call with eight words, written by hand. It checks
//! nothing, claims nothing and clears nothing.

use core::arch::naked_asm;
use handfast_sys::Errno;
use handfast_sys::keys::Key;
use handfast_sys::private::Private;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) type Words = [u64; 8];

/// A stack under a key, for one thread.
pub(crate) struct Limit {
    rights: u32,
    /// Where the stack begins, and the words lie.
    top: u64,
    /// Before the key.
    _memory: Private,
    _key: Key,
}

/// The rights of everybody else; in memory, as everything that two gates share.
static OUTSIDE: AtomicU32 = AtomicU32::new(0x5555_5554);

const STACK_BYTES: usize = 64 << 10;

impl Limit {
    pub(crate) fn new() -> Result<Self, Errno> {
        let key = Key::allocate()?;
        let memory = Private::new(STACK_BYTES)?;
        memory.protect(&key)?;
        let top = memory.base().addr().get() + STACK_BYTES - size_of::<Words>();
        Ok(Self {
            rights: OUTSIDE.load(Ordering::Relaxed) & !(3 << (2 * key.number())),
            top: top as u64,
            _memory: memory,
            _key: key,
        })
    }

    /// Runs `function` with the words on the stack under the key.
    #[inline(always)]
    pub(crate) fn call(&mut self, function: extern "C" fn(&mut Words), words: &mut Words) {
        // SAFETY: the stack that it runs the function on is this value's alone.
        unsafe { enter(words, self.top, function, self.rights) };
    }
}

#[unsafe(naked)]
unsafe extern "C" fn enter(
    words: *mut Words,
    top: u64,
    function: extern "C" fn(&mut Words),
    rights: u32,
) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push rdi",
        "mov r13, rsi",
        "mov r14, rdx",
        "mov eax, ecx",
        // Words 2 and 3 would be in the way of WRPKRU in rdx and rcx.
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
        "wrpkru",
        "mov [r13 - 8], rsp",
        "mov [r13], rdi",
        "mov [r13 + 8], rsi",
        "mov [r13 + 16], rbx",
        "mov [r13 + 24], rbp",
        "mov [r13 + 32], r8",
        "mov [r13 + 40], r9",
        "mov [r13 + 48], r10",
        "mov [r13 + 56], r11",
        "lea rsp, [r13 - 16]",
        "mov rdi, r13",
        "call r14",
        "mov rsp, [r13 - 8]",
        "mov rdi, [r13]",
        "mov rsi, [r13 + 8]",
        "mov rbx, [r13 + 16]",
        "mov rbp, [r13 + 24]",
        "mov r8, [r13 + 32]",
        "mov r9, [r13 + 40]",
        "mov r10, [r13 + 48]",
        "mov r11, [r13 + 56]",
        "mov eax, [rip + {outside}]",
        "xor ecx, ecx",
        "xor edx, edx",
        "wrpkru",
        "pop rcx",
        "mov [rcx], rdi",
        "mov [rcx + 8], rsi",
        "mov [rcx + 16], rbx",
        "mov [rcx + 24], rbp",
        "mov [rcx + 32], r8",
        "mov [rcx + 40], r9",
        "mov [rcx + 48], r10",
        "mov [rcx + 56], r11",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        outside = sym OUTSIDE,
    )
}
