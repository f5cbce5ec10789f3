//! Handlers of the program's that the kernel has started on a domain's stack, since they do not ask for the alternate one.
//!
//! Such a handler has the rights of no domain, so the first thing it does on its stack is a fault; then it is lent the rights to the
//! stacks for as long as it runs. A stack pointer says nothing: anybody can point it there. The proof that a domain was interrupted in this
//! thread is the frame that the kernel has put on that stack, where only the domain and the kernel can write. The frame
//! has the domain's rights, and this thread's alternate stack, which no two threads share; and it counts once, so that what is
//! left of it afterwards is worth nothing.
//!
//! The handler that looks for it has no rights either, and takes none: the kernel reads for it (`process_vm_readv`). Where a filter of
//! system calls forbids that, nothing is lent.

use super::{is_loaded, saved, stack_of};
use crate::row::Row;
use crate::rows;
use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

/// The front of the kernel's `rt_sigframe`.
#[repr(C)]
struct Frame {
    restorer: u64,
    flags: u64,
    /// Zero in a new frame, and read by nobody.
    link: u64,
    alternate_stack: u64,
    alternate_flags: u64,
    alternate_len: u64,
    /// As [`libc::mcontext_t`] has them.
    registers: [u64; 23],
    state: u64,
}

const WORDS: usize = size_of::<Frame>() / 8;
/// How far the kernel's alignment of frames makes them lie apart, and where in that they begin.
const STEP: usize = 16;
const BEGINS_AT: usize = 8;
/// In the place of the link: it has been lent for.
const LENT: u64 = u64::from_ne_bytes(*b"handfast");

/// Whether this thread was interrupted in a domain, on the stack of `row` that `stack` is in, above that; once for each time.
pub(super) fn was_interrupted(row: &Row, stack: usize, machine: &libc::ucontext_t) -> bool {
    let own = &machine.uc_stack;
    let (Some(number), false) = (stack_of(row, stack), own.ss_sp.is_null()) else {
        return false;
    };
    let end = super::descriptor(row, number).addr();
    let mut words = [0u64; 4 * WORDS];
    let mut at = stack.next_multiple_of(STEP) - STEP + BEGINS_AT;
    if at < stack {
        at += STEP;
    }
    while at + size_of::<Frame>() <= end {
        let len = words.len().min((end - at) / 8);
        let Some(words) = words.get_mut(..len) else {
            return false;
        };
        if !read(at, words) {
            return false;
        }
        let from = at;
        for start in (0..=len - WORDS).step_by(STEP / 8) {
            let here = from + 8 * start;
            let Some(words) = words.get(start..start + WORDS) else {
                return false;
            };
            // Spent words may lie where the handler has not written yet.
            let is_new = words[offset_of!(Frame, link) / 8] == 0;
            if is_new && is_frame(words, here, (row, number), own) {
                return spend(here);
            }
            at = here + STEP;
        }
    }
    false
}

/// Whether these words, at `here`, are a frame of this thread's that interrupted a domain on that stack, or a handler that it was lent to.
fn is_frame(words: &[u64], here: usize, (row, number): (&Row, usize), own: &libc::stack_t) -> bool {
    const REGISTERS: usize = offset_of!(Frame, registers) / 8;
    let (stack, state) = (
        words[REGISTERS + libc::REG_RSP as usize] as usize,
        words[offset_of!(Frame, state) / 8] as usize,
    );
    if words[offset_of!(Frame, alternate_stack) / 8] != own.ss_sp.addr() as u64
        || words[offset_of!(Frame, alternate_len) / 8] != own.ss_size as u64
        || !(here..stack).contains(&state)
        || stack_of(row, stack) != Some(number)
        || stack_of(row, state + saved::PARTS) != Some(number)
    {
        return false;
    }
    let rights_at = super::RIGHTS_AT.load(Relaxed) as usize;
    let [mut magic, mut parts, mut rights] = [[0u64]; 3];
    let is_read = read(state + saved::MAGIC, &mut magic)
        && read(state + saved::PARTS, &mut parts)
        && read(state + rights_at, &mut rights);
    is_read
        && magic[0] as u32 == saved::MAGIC_IS
        && parts[0] & saved::RIGHTS_PART != 0
        && rows::all().filter(|row| is_loaded(row)).any(|row| {
            let lent = rows::lent(row.stack_key.load(Relaxed));
            [row.rights.load(Relaxed), lent].contains(&(rights[0] as u32))
        })
}

/// Marks the frame there: its loan of rights is spent.
fn spend(frame: usize) -> bool {
    let mark = [LENT];
    let own = libc::iovec {
        iov_base: mark.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: size_of_val(&mark),
    };
    let its = libc::iovec {
        iov_base: core::ptr::with_exposed_provenance_mut(frame + offset_of!(Frame, link)),
        iov_len: size_of_val(&mark),
    };
    let process = own_process();
    // SAFETY: the kernel writes a word of a frame that it does not read again.
    let done = unsafe { libc::process_vm_writev(process, &raw const own, 1, &raw const its, 1, 0) };
    done == size_of_val(&mark).cast_signed()
}

/// The words that lie there, whatever this thread's rights are. One system call.
fn read(at: usize, words: &mut [u64]) -> bool {
    let len = size_of_val(words);
    let own = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: len,
    };
    let its = libc::iovec {
        iov_base: core::ptr::with_exposed_provenance_mut(at),
        iov_len: len,
    };
    let process = own_process();
    // SAFETY: the kernel writes to the words, which are the caller's; the words it reads may be anything.
    let done = unsafe { libc::process_vm_readv(process, &raw const own, 1, &raw const its, 1, 0) };
    done == len.cast_signed()
}

/// One system call.
fn own_process() -> libc::pid_t {
    // SAFETY: no arguments.
    unsafe { libc::getpid() }
}
