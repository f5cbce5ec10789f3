//! Copies leave alone what the code around them keeps in registers. Only an optimised build keeps anything there:
//! `cargo test --release -p handfast-region --test registers` (`./test` does, also for the processor of the machine).

#![cfg(all(target_arch = "x86_64", not(miri)))]

use handfast_region::{Memory, Region};

const NUMBERS: usize = 8192;
/// Longer copies are string moves.
const PIECE_BYTES: usize = 1024;

/// The sum and the sum of squares of the region's numbers, copied out piece by piece.
#[target_feature(enable = "avx,avx2,fma")]
fn sums_by_wide_registers(region: &Region) -> (f64, f64) {
    sums(region)
}

#[target_feature(enable = "avx512f")]
fn sums_by_widest_registers(region: &Region) -> (f64, f64) {
    sums(region)
}

/// Four numbers at a time, for which the compiler takes a register of 32 bytes that stays in use across the copies.
#[inline(always)]
fn sums(region: &Region) -> (f64, f64) {
    let (mut sum, mut squares) = ([0.0; 16], [0.0; 16]);
    let mut piece = [0; PIECE_BYTES];
    for at in (0..NUMBERS * 8).step_by(PIECE_BYTES) {
        region.copy_out(at, &mut piece);
        let (numbers, _) = piece.as_chunks::<8>();
        let (numbers, _) = numbers.as_chunks::<16>();
        for sixteen in numbers {
            for (lane, bytes) in sixteen.iter().enumerate() {
                let number = f64::from_le_bytes(*bytes);
                sum[lane] += number;
                squares[lane] += number * number;
            }
        }
    }
    (sum.iter().sum(), squares.iter().sum())
}

/// Soundness finding 1: safe code that was compiled for AVX lost the upper halves of its registers in a copy.
#[test]
fn what_a_caller_keeps_in_wide_registers_survives_a_copy() {
    let region = Region::heap(NUMBERS * 8);
    let numbers: Vec<u8> = (0..NUMBERS)
        .flat_map(|number| (number as f64).to_le_bytes())
        .collect();
    region.copy_in(0, &numbers);
    let last = (NUMBERS - 1) as f64;
    let sum = last * (last + 1.0) / 2.0;
    let squares = sum * (2.0 * last + 1.0) / 3.0;
    assert_eq!(sums(&region), (sum, squares));
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has what the function was compiled for.
        let sums = unsafe { sums_by_wide_registers(&region) };
        assert_eq!(sums, (sum, squares));
    } else {
        handfast_testing::not_exercised("no AVX2");
    }
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: as above.
        let sums = unsafe { sums_by_widest_registers(&region) };
        assert_eq!(sums, (sum, squares));
    } else {
        handfast_testing::not_exercised("no AVX-512");
    }
}
