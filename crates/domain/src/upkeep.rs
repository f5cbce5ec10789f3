//! Upkeep of pools: stacks are built when the built ones run out, and give their memory back when they are idle.
//!
//! A call that takes the last built stack of a pool builds more; a call that sees that many have not been used for a while gives
//! their memory back.

use crate::error::Status;
use crate::flags::{self, PASSING, UNBUILT};
use crate::pool::{PER_CPU, Pool};
use crate::row::Row;
use crate::stack::{GUARD_BYTES, STRIDE};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use handfast_sys::private;

/// After a call on the first stack of a pool: whether [`look_after`] has something to do. One word of the pool's, which nobody writes
/// while its calls use that stack only.
#[inline(always)]
pub(crate) fn has_idle(row: &Row, number: u32) -> bool {
    // As in `Row::pool_of`, of a number that can be divided: an address that needs no calculation.
    const EACH: usize = size_of::<Pool>() / PER_CPU;
    let pools = row.pools.load(Relaxed);
    // SAFETY: the first stack of a pool, in front of which there is a pool for each so many.
    let pool = unsafe { pools.byte_add(number as usize * EACH) };
    // SAFETY: laid out with the group, which outlives the row.
    let pool = unsafe { &*pool };
    pool.has_idle()
}

/// After a call on any stack. Returns the status of one that went well.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn look_after(row: &Row, number: u32) -> u64 {
    let pool = row.pool_of(number);
    let number = number as usize;
    let index = number % PER_CPU;
    if pool.count(index as u32 + 1) {
        give_back(row, pool, number - index, pool.take_peak());
        pool.restart_count();
    }
    Status::new(Status::DONE, 0).0
}

/// Before a call's function runs on stack `number`, which is not the first: a call that takes the last built stack of a pool builds as many again.
#[cold]
#[inline(never)]
pub(crate) fn grow(row: &Row, number: u32) {
    let pool = row.pool_of(number);
    let number = number as usize;
    let index = number % PER_CPU;
    let Some(places) = pool.grow(index) else {
        return;
    };
    let first = number - index;
    for next in first + places.start..first + places.end {
        // SAFETY: a stack of this group.
        let stack = unsafe { row.first_stack.load(Relaxed).add(next * STRIDE) };
        let Some(stack) = NonNull::new(stack) else {
            return;
        };
        // SAFETY: the guard of a stack that is not built, so nobody uses it.
        if unsafe { private::close(stack, GUARD_BYTES) }.is_err() {
            // The kernel has no room: it and those behind it stay unbuilt.
            return;
        }
        // The guard is there for any thread that claims it.
        flags::release(row.flag(next));
    }
}

/// Gives the memory of the idle stacks of one pool back, from stack `keep` on.
fn give_back(row: &Row, pool: &Pool, first: usize, keep: u32) {
    for index in pool.forget_idle(keep) {
        let number = first + index as usize;
        let flag = row.flag(number);
        if !flags::claim(flag, PASSING) {
            // Relaxed: a hint. The call that uses it next marks it, if it is built meanwhile.
            if flag.load(Relaxed) != UNBUILT {
                pool.mark(index + 1);
            }
            continue;
        }
        // SAFETY: a stack of this group, behind its guard.
        let used = unsafe {
            row.first_stack
                .load(Relaxed)
                .add(number * STRIDE + GUARD_BYTES)
        };
        if let Some(used) = NonNull::new(used) {
            // SAFETY: just claimed, so nobody relies on what is in it.
            unsafe { private::give_back(used, STRIDE - GUARD_BYTES) };
        }
        flags::release(flag);
    }
}

/// Gives the memory of all idle stacks back, but for the first of each CPU.
pub(crate) fn trim(row: &Row) {
    let cpus = row.stacks.load(Relaxed) / PER_CPU as u32;
    for cpu in 0..cpus {
        let pool = row.pool_of(cpu * PER_CPU as u32);
        pool.mark(PER_CPU as u32);
        give_back(row, pool, cpu as usize * PER_CPU, 1);
    }
}
