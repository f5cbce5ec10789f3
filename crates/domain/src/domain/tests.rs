//! What a call must not write: what all domains and CPUs share.

use super::*;
use crate::pool::Pool;
use crate::server::Server;
use crate::stack::Descriptor;
use crate::table::Call;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicUsize};

/// The shared bytes behind a row: the domain's own state, and all pools. Runs with the domain's rights.
fn shared(row: &Row) -> Vec<u8> {
    fn bytes<T>(first: *const T, count: usize) -> Vec<u8> {
        let first: *const u8 = first.cast();
        let byte = |at| {
            // SAFETY: inside what the row points to; padding of it was zero when it was mapped.
            unsafe { first.wrapping_add(at).read_volatile() }
        };
        (0..count * size_of::<T>()).map(byte).collect()
    }
    let pools = row.stacks_all.load(Relaxed) as usize / PER_CPU;
    let mut all = bytes::<Server>(row.server.load(Relaxed), 1);
    all.extend(bytes::<Pool>(row.pools.load(Relaxed), pools));
    all.extend(bytes::<AtomicU16>(row.flags.load(Relaxed), pools * PER_CPU));
    all
}

static ROW: AtomicUsize = AtomicUsize::new(0);

/// A sum of those bytes.
fn look((): &(), call: &mut Call<'_>) {
    let row: *const Row = core::ptr::with_exposed_provenance(ROW.load(Relaxed));
    // SAFETY: stored by the test, of a domain that lives.
    let row = unsafe { &*row };
    let sum = shared(row).into_iter().fold(0u64, |sum, byte| {
        sum.rotate_left(5).wrapping_mul(31) ^ u64::from(byte)
    });
    call.words()[0] = sum;
}

fn null((): &(), call: &mut Call<'_>) {
    core::hint::black_box(call.words());
}

#[test]
#[cfg_attr(miri, ignore = "miri has no threads' CPUs")]
fn calls_change_nothing_that_cpus_share() {
    let _alone = handfast_testing::alone();
    let unprotected = Options::new().unprotected();
    let all = [Options::new(), unprotected];
    for options in &all[usize::from(!handfast_sys::keys::are_supported())..] {
        let table = Table::new(|_| ()).entry(look).entry(null);
        // SAFETY: the functions lend nothing and do not go wrong.
        let domain = unsafe { Domain::new(&table, options.clone()) }.unwrap();
        let inner = &*domain.inner;
        #[cfg(target_arch = "x86_64")]
        let row = gate::protected::row(inner.number);
        #[cfg(not(target_arch = "x86_64"))]
        let row: Option<&Row> = None;
        let row = row.unwrap_or_else(|| &inner.own_row.as_ref().unwrap().0);
        ROW.store((&raw const *row).expose_provenance(), Relaxed);
        let _ = cpu::pin(&cpu::allowed()[..1]);
        let sum = || domain.call(0, [0; 8]).unwrap()[0];
        sum();
        let before = sum();
        for _ in 0..1_000 {
            domain.call(1, [7; 8]).unwrap();
            domain.call_bytes(1, &mut [7; 8], b"abc", &mut []).unwrap();
        }
        // The flag and the descriptor of this CPU's stack were written, and are as they were.
        assert_eq!(sum(), before);
    }
}

#[test]
fn what_two_cpus_write_shares_no_pair_of_lines() {
    /// Processors fetch lines of 64 bytes in pairs.
    const PAIR: usize = 128;
    // Flags and pools begin at a page boundary.
    assert_eq!(PER_CPU * size_of::<AtomicU16>() % PAIR, 0);
    assert_eq!((size_of::<Pool>() % PAIR, align_of::<Pool>()), (0, PAIR));
    assert!(crate::stack::STRIDE > size_of::<Descriptor>() + PAIR);
    assert_eq!(align_of::<Row>(), PAIR);
}
