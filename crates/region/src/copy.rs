//! Copies between private memory and memory a peer may write, and the store-load fence.
//!
//! A peer may write the shared side while it is being read. The copies are therefore volatile
//! accesses or inline assembly, which the compiler may neither repeat, split into reads it relies
//! on to agree, nor assume stable. docs/limits.md states what Rust's memory model says about this.

/// Copies blocks of 64 bytes from `from` to `to` by this instruction for each store, and this one at the end.
#[cfg(target_arch = "x86_64")]
macro_rules! copy_blocks_by {
    ($store:literal, $end:literal, $from:expr, $to:expr, $len_bytes:expr) => {
        core::arch::asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            concat!($store, " [{to}], {a}"),
            concat!($store, " [{to} + 16], {b}"),
            concat!($store, " [{to} + 32], {c}"),
            concat!($store, " [{to} + 48], {d}"),
            "add {from}, 64",
            "add {to}, 64",
            "sub {len}, 64",
            "jnz 2b",
            $end,
            from = inout(reg) $from => _,
            to = inout(reg) $to => _,
            len = inout(reg) $len_bytes => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        )
    };
}

mod past;

pub(crate) use past::copy_past_caches;

/// Copies `len_bytes` bytes; the ranges do not overlap (one is private, one is shared).
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len_bytes` bytes. One of them may be written
/// by another process meanwhile; by protocol no thread of this process writes either.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len_bytes: usize) {
    if cfg!(miri) {
        // miri: plain, so that a copy the protocol should have excluded is reported as a race.
        // SAFETY: the caller vouches for both ranges.
        return unsafe { core::ptr::copy_nonoverlapping(from, to, len_bytes) };
    }
    if len_bytes >= STRING_MOVE_MIN {
        // SAFETY: the caller vouches for both ranges.
        unsafe { copy_long(from, to, len_bytes) };
    } else {
        // SAFETY: the caller vouches for both ranges.
        unsafe { copy_words(from, to, len_bytes) };
    }
}

/// Copies 64 bytes into registers: eight volatile loads, which the compiler may put to use as they are.
///
/// # Safety
/// `from` is valid for reads and aligned. Another process may write there meanwhile.
#[inline(always)]
pub(crate) unsafe fn line(from: *const [u64; 8]) -> [u64; 8] {
    let words = from.cast::<u64>();
    core::array::from_fn(|word| {
        // SAFETY: `word` is below eight, and the caller vouches for so many words.
        let word = unsafe { words.add(word) };
        // SAFETY: as above.
        unsafe { word.read_volatile() }
    })
}

/// From here on one string instruction, with its start-up of some 30 ns, is faster than sixteen
/// bytes at a time.
const STRING_MOVE_MIN: usize = if cfg!(target_arch = "x86_64") {
    2048
} else {
    usize::MAX
};

/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_words(from: *const u8, to: *mut u8, len_bytes: usize) {
    let mut at = 0;
    if len_bytes >= 64 {
        at = len_bytes & !63;
        // SAFETY: `at` is a multiple of 64 above zero and at most `len_bytes`; the caller vouches
        // for the ranges.
        unsafe { copy_blocks(from, to, at) };
    }
    // By the bits of the length instead of a loop, whose end no processor foresees.
    if len_bytes & 32 != 0 {
        // SAFETY: 32 bytes are left at `at`, by the length's bits.
        unsafe { copy_32(from.wrapping_add(at), to.wrapping_add(at)) };
        at += 32;
    }
    if len_bytes & 16 != 0 {
        // SAFETY: as above, 16.
        unsafe { copy_16(from.wrapping_add(at), to.wrapping_add(at)) };
        at += 16;
    }
    if len_bytes & 8 != 0 {
        // SAFETY: as above, 8.
        unsafe { copy_8(from.wrapping_add(at), to.wrapping_add(at)) };
        at += 8;
    }
    while at < len_bytes {
        // SAFETY: `at < len_bytes`, so the source offset is in range.
        let source = unsafe { from.add(at) };
        // SAFETY: as above for the destination.
        let target = unsafe { to.add(at) };
        // SAFETY: one byte is in range on the source.
        let byte = unsafe { source.read_volatile() };
        // SAFETY: as above for the destination.
        unsafe { target.write_volatile(byte) };
        at += 1;
    }
}

/// Copies blocks of 64 bytes, with as few stores as the processor has: each waits in its store buffer
/// until the line has come from the peer. Assembly for the reason given at [`copy_long`].
///
/// # Safety
/// As [`copy`]; `len_bytes` is a multiple of 64 and not zero.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_blocks(from: *const u8, to: *mut u8, len_bytes: usize) {
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the caller vouches for the ranges, and the processor can.
        unsafe { copy_blocks_wide(from, to, len_bytes) };
    } else {
        // SAFETY: the caller vouches for the ranges.
        unsafe { copy_blocks_narrow(from, to, len_bytes) };
    }
}

/// `vzeroupper` clears the upper halves of the registers 0 to 15, all of which are therefore outputs: the function this is
/// inlined into may keep values of its own there, when it was compiled for AVX. It leaves the registers from 16 on and the
/// masks of AVX-512 as they are.
///
/// # Safety
/// As [`copy_blocks`], on a processor with AVX.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_blocks_wide(from: *const u8, to: *mut u8, len_bytes: usize) {
    // SAFETY: reads and writes exactly `len_bytes` bytes of the two ranges the caller vouches for.
    unsafe {
        core::arch::asm!(
            "2:",
            "vmovups ymm0, [{from}]",
            "vmovups ymm1, [{from} + 32]",
            "vmovups [{to}], ymm0",
            "vmovups [{to} + 32], ymm1",
            "add {from}, 64",
            "add {to}, 64",
            "sub {len}, 64",
            "jnz 2b",
            "vzeroupper",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len_bytes => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack),
        );
    }
}

/// # Safety
/// As [`copy_blocks`].
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn copy_blocks_narrow(from: *const u8, to: *mut u8, len_bytes: usize) {
    // SAFETY: reads and writes exactly `len_bytes` bytes of the two ranges the caller vouches for.
    unsafe { copy_blocks_by!("movups", "", from, to, len_bytes) };
}

/// Copies blocks of 64 bytes.
///
/// # Safety
/// As [`copy`]; `len_bytes` is a multiple of 64.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_blocks(from: *const u8, to: *mut u8, len_bytes: usize) {
    for at in (0..len_bytes).step_by(32) {
        // SAFETY: `at + 32 <= len_bytes`.
        unsafe { copy_32(from.wrapping_add(at), to.wrapping_add(at)) };
    }
}

/// Copies 32 bytes of any alignment, with few stores for the reason given at [`copy_blocks`].
/// Assembly because the compiler sends a volatile access of unaligned words through the stack, which
/// takes longer than all the rest.
///
/// # Safety
/// As [`copy`] with a length of 32.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_32(from: *const u8, to: *mut u8) {
    // SAFETY: reads and writes exactly the 32 bytes the caller vouches for.
    unsafe {
        core::arch::asm!(
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// As [`copy_32`], 16 bytes.
///
/// # Safety
/// As [`copy`] with a length of 16.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_16(from: *const u8, to: *mut u8) {
    // SAFETY: reads and writes exactly the 16 bytes the caller vouches for.
    unsafe {
        core::arch::asm!(
            "movups {a}, [{from}]",
            "movups [{to}], {a}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// As [`copy_32`], eight bytes.
///
/// # Safety
/// As [`copy`] with a length of eight.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_8(from: *const u8, to: *mut u8) {
    // SAFETY: reads and writes exactly the eight bytes the caller vouches for.
    unsafe {
        core::arch::asm!(
            "mov {word}, [{from}]",
            "mov [{to}], {word}",
            from = in(reg) from,
            to = in(reg) to,
            word = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies 32 bytes of any alignment.
///
/// # Safety
/// As [`copy`] with a length of 32.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn copy_32(from: *const u8, to: *mut u8) {
    // SAFETY: the first half of what the caller vouches for.
    unsafe { copy_16(from, to) };
    // SAFETY: the second half.
    unsafe { copy_16(from.wrapping_add(16), to.wrapping_add(16)) };
}

/// Copies 16 bytes of any alignment.
///
/// # Safety
/// As [`copy`] with a length of 16.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn copy_16(from: *const u8, to: *mut u8) {
    // SAFETY: the first half of what the caller vouches for.
    unsafe { copy_8(from, to) };
    // SAFETY: the second half.
    unsafe { copy_8(from.wrapping_add(8), to.wrapping_add(8)) };
}

/// Copies eight bytes of any alignment.
///
/// # Safety
/// As [`copy`] with a length of eight.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn copy_8(from: *const u8, to: *mut u8) {
    /// Eight bytes of any alignment.
    #[derive(Clone, Copy)]
    #[repr(C, packed)]
    struct Packed(u64);
    // SAFETY: eight bytes are in range on the source; `Packed` has alignment one.
    let word = unsafe { from.cast::<Packed>().read_volatile() };
    // SAFETY: as above for the destination.
    unsafe { to.cast::<Packed>().write_volatile(word) };
}

/// # Safety
/// As [`copy`].
#[cfg(target_arch = "x86_64")]
unsafe fn copy_long(from: *const u8, to: *mut u8, len_bytes: usize) {
    // SAFETY: the string move reads and writes exactly `len_bytes` bytes of the two ranges the
    // caller vouches for; the direction flag is clear by the calling convention. Assembly is
    // opaque to the compiler, so a racing peer cannot contradict its assumptions.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len_bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As [`copy`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_long(from: *const u8, to: *mut u8, len_bytes: usize) {
    // SAFETY: the caller vouches for both ranges.
    unsafe { copy_words(from, to, len_bytes) };
}

/// The value, of which the compiler does not know that it is the same.
///
/// Where a word is compared with a value, the compiler goes on with the word, which it has at hand, as if it
/// were that value. The place of the next slot then depends on a line that is on its way, and so lines
/// come one after the other where many could be under way.
#[inline(always)]
pub(crate) fn unknown(value: u32) -> u32 {
    #[cfg(not(miri))]
    let value = {
        let mut word = u64::from(value);
        // WHY UNSAFE: streams are three times as fast; `black_box` sends the value through the stack.
        // SAFETY: no instruction; a register keeps its value.
        unsafe {
            core::arch::asm!("/* {word} */", word = inout(reg) word, options(pure, nomem, nostack, preserves_flags));
        }
        word as u32
    };
    value
}

/// Orders every earlier store before every later load.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // WHY UNSAFE: a locked read-modify-write of the stack costs 6 ns where the fence
        // instruction the compiler would choose costs 16.
        // SAFETY: or-ing zero changes nothing. Without `nostack` the compiler keeps nothing below the stack
        // pointer here, and without `nomem` it treats this as a barrier for all memory.
        unsafe { core::arch::asm!("lock or dword ptr [rsp - 8], 0") };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;

    type CopyBlocks = unsafe fn(*const u8, *mut u8, usize);

    #[test]
    fn blocks_are_copied_whole_and_nothing_beside_them() {
        let mut ways: Vec<CopyBlocks> = vec![copy_blocks_narrow];
        if std::arch::is_x86_feature_detected!("avx") {
            ways.push(copy_blocks_wide);
        }
        let source: Vec<u8> = (0..600).map(|at| at as u8 ^ (at >> 8) as u8).collect();
        for copy_blocks in ways {
            for len_bytes in (64..=512).step_by(64) {
                // With any alignment, between bytes that stay as they are.
                let mut target = vec![0xee; 600];
                let to = target[7..].as_mut_ptr();
                // SAFETY: both ranges are as long, and ours.
                unsafe { copy_blocks(source[3..].as_ptr(), to, len_bytes) };
                assert_eq!(target[7..7 + len_bytes], source[3..3 + len_bytes]);
                assert!(target[..7].iter().all(|byte| *byte == 0xee));
                assert!(target[7 + len_bytes..].iter().all(|byte| *byte == 0xee));
            }
        }
    }
}
