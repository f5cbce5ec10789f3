//! The gate without protection: the reference of the one with it. It claims a stack for its descriptor and its
//! argument areas, and runs the domain's function on the caller's own.

use crate::Words;
use crate::error::Status;
use crate::flags;
use crate::pool::PER_CPU;
use crate::row::Row;
use crate::run::run_other;
use crate::stack::{STRIDE, entry_of};
use crate::thread::Nested;
use core::sync::atomic::Ordering::Relaxed;

/// Crosses into the domain of `row` and back.
///
/// # Safety
/// `row` is the row of a loaded domain, which stays loaded; the buffers in `control` are the caller's, or none.
pub(crate) unsafe fn cross(
    row: &Row,
    control: u64,
    hint: u32,
    words: &mut Words,
    nested: &Nested,
) -> Status {
    let Some(number) = claim(row, hint) else {
        return Status::new(Status::STACKS, 0);
    };
    let first = row.first_descriptor.load(Relaxed);
    let pointer = first
        .cast::<u8>()
        .wrapping_add(number as usize * STRIDE)
        .cast::<crate::stack::Descriptor>();
    // SAFETY: the descriptor of a stack that was just claimed.
    let descriptor = unsafe { &mut *pointer };
    let flag = row.flag(number as usize);
    nested.claims(flag);
    descriptor.words = *words;
    descriptor.flag = flag;
    let entry = row.entry(entry_of(control)).unwrap_or(run_other);
    // SAFETY: claimed for this domain; without protection everybody has its rights.
    let status = unsafe { entry(control, number, row, pointer) };
    // SAFETY: as above; `run` is done with it.
    *words = unsafe { (*pointer).words };
    flags::release(flag);
    Status(status)
}

/// Takes the stack that the hint names, or else the next free one.
fn claim(row: &Row, hint: u32) -> Option<u32> {
    let tag = row.tag.load(Relaxed) as u16;
    let flag = |number: u32| row.flag(number as usize);
    let stacks = row.stacks.load(Relaxed);
    if hint < row.stacks_all.load(Relaxed) && flags::claim(flag(hint), tag) {
        return Some(hint);
    }
    let mut number = if hint < stacks { hint } else { 0 };
    // At most every stack once.
    for _ in 0..stacks {
        if flags::claim(flag(number), tag) {
            return Some(number);
        }
        // Relaxed: a hint that those behind it are not built either.
        if flag(number).load(Relaxed) == flags::UNBUILT {
            number |= PER_CPU as u32 - 1;
        }
        number += 1;
        if number >= stacks {
            number = 0;
        }
    }
    None
}
