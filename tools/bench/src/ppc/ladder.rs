//! A protected call taken apart: hand-written calls with eight words, each with one piece more than the one before.
//!
//! The first has the words in registers and in a frame, as all of them; then come two `WRPKRU`, another stack (that is
//! the limit of `ppc`), a flag that is claimed and given back, and the clearing of vector registers on both ways. What
//! a domain has beside these is checks, the way to its function, and what catches its panics.

use super::limit::Words;
use core::arch::naked_asm;
use handfast_sys::Errno;
use handfast_sys::keys::Key;
use handfast_sys::private::Private;

/// A hand-written call by name, with memory of its own.
pub(crate) struct Step {
    enter: Enter,
    rights: u32,
    /// Where the words lie; the stack grows down from there.
    frame: u64,
    /// Before the key.
    _memory: Private,
    _key: Key,
}

/// # Safety
/// `frame` is in the middle of memory that is nobody else's and that `rights` allow, with [`FRAME_BYTES`] behind it.
type Enter = unsafe extern "C" fn(&mut Words, u64, extern "C" fn(&mut Words), u32);

const STACK_BYTES: usize = 64 << 10;
/// The words, and the flag on a line of its own.
const FRAME_BYTES: usize = 128;
/// Access to key 0 only: what threads start with.
const OUTSIDE: u32 = 0x5555_5554;

impl Step {
    /// `None` for a name that is no step.
    pub(crate) fn new(name: &str) -> Option<Result<Self, Errno>> {
        let wide = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512bw");
        let enter: Enter = match (name, wide, std::arch::is_x86_feature_detected!("avx")) {
            ("step-words", ..) => words,
            ("step-rights", ..) => rights,
            ("step-stack", ..) => stack,
            ("step-claim", ..) => claim,
            ("step-clear", true, _) => clear_avx512,
            ("step-clear", _, true) => clear_avx,
            ("step-clear", ..) => clear_sse,
            _ => return None,
        };
        Some(Self::with(enter, name != "step-words"))
    }

    fn with(enter: Enter, is_protected: bool) -> Result<Self, Errno> {
        let key = Key::allocate()?;
        let memory = Private::new(STACK_BYTES)?;
        if is_protected {
            memory.protect(&key)?;
        }
        let frame = memory.base().addr().get() + STACK_BYTES - FRAME_BYTES;
        Ok(Self {
            enter,
            rights: OUTSIDE & !(3 << (2 * key.number())),
            frame: frame as u64,
            _memory: memory,
            _key: key,
        })
    }

    /// Runs `function` with the words in the frame.
    #[inline(always)]
    pub(crate) fn call(&mut self, function: extern "C" fn(&mut Words), words: &mut Words) {
        // SAFETY: the memory is this value's alone, and the rights are those to it.
        unsafe { (self.enter)(words, self.frame, function, self.rights) };
    }
}

/// A call with what `before` puts behind the words' way into registers, `into` behind their way into the frame, `back`
/// behind the function, and `after` behind the words' way out of the frame. r13: the frame; r14: the function.
macro_rules! step {
    ($name:ident, $before:expr, $into:expr, $back:expr, $after:expr) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name(
            words: &mut Words,
            frame: u64,
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
                // The stack has eight bytes too few on it for a call.
                "sub rsp, 8",
                "mov r13, rsi",
                "mov r14, rdx",
                "mov eax, ecx",
                "mov rsi, [rdi + 8]",
                "mov rbx, [rdi + 16]",
                "mov rbp, [rdi + 24]",
                "mov r8, [rdi + 32]",
                "mov r9, [rdi + 40]",
                "mov r10, [rdi + 48]",
                "mov r11, [rdi + 56]",
                "mov rdi, [rdi]",
                $before,
                "mov [r13], rdi",
                "mov [r13 + 8], rsi",
                "mov [r13 + 16], rbx",
                "mov [r13 + 24], rbp",
                "mov [r13 + 32], r8",
                "mov [r13 + 40], r9",
                "mov [r13 + 48], r10",
                "mov [r13 + 56], r11",
                $into,
                "mov rdi, r13",
                "call r14",
                $back,
                "mov rdi, [r13]",
                "mov rsi, [r13 + 8]",
                "mov rbx, [r13 + 16]",
                "mov rbp, [r13 + 24]",
                "mov r8, [r13 + 32]",
                "mov r9, [r13 + 40]",
                "mov r10, [r13 + 48]",
                "mov r11, [r13 + 56]",
                $after,
                "add rsp, 8",
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
            )
        }
    };
}

macro_rules! take_rights {
    () => {
        "xor ecx, ecx\nxor edx, edx\nwrpkru"
    };
}
macro_rules! give_back_rights {
    () => {
        concat!("mov eax, 0x55555554\n", take_rights!())
    };
}
macro_rules! onto_stack {
    () => {
        "mov [r13 - 8], rsp\nlea rsp, [r13 - 16]"
    };
}
macro_rules! off_stack {
    () => {
        "mov rsp, [r13 - 8]"
    };
}
macro_rules! take_claim {
    () => {
        "mov edx, 1\nxor eax, eax\nlock cmpxchg word ptr [r13 + 64], dx"
    };
}
macro_rules! give_back_claim {
    () => {
        "mov word ptr [r13 + 64], 0"
    };
}
macro_rules! clear_sse {
    () => {
        concat!(
            "xorps xmm0, xmm0\nxorps xmm1, xmm1\nxorps xmm2, xmm2\nxorps xmm3, xmm3\n",
            "xorps xmm4, xmm4\nxorps xmm5, xmm5\nxorps xmm6, xmm6\nxorps xmm7, xmm7\n",
            "xorps xmm8, xmm8\nxorps xmm9, xmm9\nxorps xmm10, xmm10\nxorps xmm11, xmm11\n",
            "xorps xmm12, xmm12\nxorps xmm13, xmm13\nxorps xmm14, xmm14\nxorps xmm15, xmm15\n",
        )
    };
}
macro_rules! clear_avx {
    () => {
        concat!(
            "vpxor xmm0, xmm0, xmm0\nvpxor xmm1, xmm1, xmm1\nvpxor xmm2, xmm2, xmm2\n",
            "vpxor xmm3, xmm3, xmm3\nvpxor xmm4, xmm4, xmm4\nvpxor xmm5, xmm5, xmm5\n",
            "vpxor xmm6, xmm6, xmm6\nvpxor xmm7, xmm7, xmm7\nvpxor xmm8, xmm8, xmm8\n",
            "vpxor xmm9, xmm9, xmm9\nvpxor xmm10, xmm10, xmm10\nvpxor xmm11, xmm11, xmm11\n",
            "vpxor xmm12, xmm12, xmm12\nvpxor xmm13, xmm13, xmm13\n",
            "vpxor xmm14, xmm14, xmm14\nvpxor xmm15, xmm15, xmm15\n",
        )
    };
}
macro_rules! clear_avx512 {
    () => {
        concat!(
            // The masks by two units of the processor in turn, as the gate does.
            "xor eax, eax\n",
            "vpxord xmm16, xmm16, xmm16\nvpxord xmm17, xmm17, xmm17\n",
            "vpxord xmm18, xmm18, xmm18\nvpxord xmm19, xmm19, xmm19\n",
            "vpxord xmm20, xmm20, xmm20\nvpxord xmm21, xmm21, xmm21\n",
            "vpxord xmm22, xmm22, xmm22\nvpxord xmm23, xmm23, xmm23\n",
            "vpxord xmm24, xmm24, xmm24\nvpxord xmm25, xmm25, xmm25\n",
            "vpxord xmm26, xmm26, xmm26\nvpxord xmm27, xmm27, xmm27\n",
            "vpxord xmm28, xmm28, xmm28\nvpxord xmm29, xmm29, xmm29\n",
            "vpxord xmm30, xmm30, xmm30\nvpxord xmm31, xmm31, xmm31\n",
            "kxorq k0, k0, k0\nkmovq k1, rax\nkxorq k2, k2, k2\nkmovq k3, rax\n",
            "kxorq k4, k4, k4\nkmovq k5, rax\nkxorq k6, k6, k6\nkmovq k7, rax\n",
            clear_avx!(),
        )
    };
}

step!(words, "", "", "", "");
step!(rights, take_rights!(), "", "", give_back_rights!());
step!(
    stack,
    take_rights!(),
    onto_stack!(),
    off_stack!(),
    give_back_rights!()
);
step!(
    claim,
    concat!(take_rights!(), "\n", take_claim!()),
    onto_stack!(),
    concat!(give_back_claim!(), "\n", off_stack!()),
    give_back_rights!()
);
macro_rules! clearing_step {
    ($name:ident, $clear:ident) => {
        step!(
            $name,
            concat!(take_rights!(), "\n", take_claim!()),
            concat!(onto_stack!(), "\n", $clear!()),
            concat!($clear!(), give_back_claim!(), "\n", off_stack!()),
            give_back_rights!()
        );
    };
}
clearing_step!(clear_sse, clear_sse);
clearing_step!(clear_avx, clear_avx);
clearing_step!(clear_avx512, clear_avx512);

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [&str; 5] = [
        "step-words",
        "step-rights",
        "step-stack",
        "step-claim",
        "step-clear",
    ];

    extern "C" fn reverse(words: &mut Words) {
        words.reverse();
    }

    #[test]
    fn every_step_brings_the_words_there_and_back() {
        if !handfast_sys::keys::are_supported() {
            return;
        }
        for name in STEPS {
            let mut step = Step::new(name).unwrap().unwrap();
            let mut words = [1, 2, 3, 4, 5, 6, 7, 8];
            for expected in [[8, 7, 6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6, 7, 8]] {
                step.call(reverse, &mut words);
                assert_eq!(words, expected, "{name}");
            }
        }
        assert!(Step::new("limit").is_none());
    }
}
