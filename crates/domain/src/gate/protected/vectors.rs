//! The gate's steps on vector registers, as text of its assembly.

/// Clears what vector registers may hold of the side that is left: with AVX-512 here, with less at label `rare`, which goes on
/// at `less` or `back`. Leaves r14 zero.
macro_rules! clear_vectors {
    ($rare:literal, $less:literal, $back:literal) => {
        concat!(
            // In a register, so that comparing and jumping are one step of the processor's.
            "mov r14d, {avx512}\n",
            "cmp dword ptr [rip + {table} + {vectors}], r14d\n",
            "jb ",
            $rare,
            "f\n",
            "xor r14d, r14d\n",
            // First: no way to clear a mask register is free. Each second one by another unit of the processor.
            "kxorq k0, k0, k0\n",
            "kmovq k1, r14\n",
            "kxorq k2, k2, k2\n",
            "kmovq k3, r14\n",
            "kxorq k4, k4, k4\n",
            "kmovq k5, r14\n",
            "kxorq k6, k6, k6\n",
            "kmovq k7, r14\n",
            ".irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n",
            "vpxord xmm\\n, xmm\\n, xmm\\n\n",
            ".endr\n",
            $less,
            ":\n",
            // Whatever is above these 16 bytes becomes zero, too.
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n",
            "vpxor xmm\\n, xmm\\n, xmm\\n\n",
            ".endr\n",
            $back,
            ":\n",
        )
    };
}

/// The rarer ways to do that.
macro_rules! clear_vectors_rarely {
    ($rare:literal, $less:literal, $back:literal) => {
        concat!(
            $rare,
            ":\n",
            "cmp dword ptr [rip + {table} + {vectors}], {avx}\n",
            "mov r14d, 0\n",
            "je ",
            $less,
            "b\n",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n",
            "xorps xmm\\n, xmm\\n\n",
            ".endr\n",
            "jmp ",
            $back,
            "b\n",
        )
    };
}

pub(super) use {clear_vectors, clear_vectors_rarely};
