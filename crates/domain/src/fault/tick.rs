//! The signal of a deadline.

use super::{Handler, action, descriptor, domain_of, land, stack_of};
use crate::alone::alone;
use crate::error::Status;
use crate::run::PANICKING;
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};
use handfast_sys::{Errno, clock, deadline, signal};

/// For how long a function is let go on that is found in the C library each time: of its thread's processor time. On a busy
/// machine the thread may stand still there for longer, with a lock that all need.
const PATIENCE_NS: u64 = 100_000_000;

thread_local! {
    /// For the function that was found in the C library last: its deadline, and the time its thread had used when it was found
    /// there first.
    static FOUND: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Where the C library is, if it can be told from the rest: first byte, and the one behind the last.
static LIBRARY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

static DONE: AtomicBool = AtomicBool::new(false);

#[cfg(feature = "confine")]
pub(crate) fn is_installed() -> bool {
    // Relaxed: said by a thread that is alone.
    DONE.load(Relaxed)
}

/// Handles the signal of deadlines from now on; once. `sigaction`, twice.
pub(crate) fn install() -> Result<(), Errno> {
    let _alone = alone();
    // Relaxed, here and below: under the lock.
    if DONE.load(Relaxed) {
        return Ok(());
    }
    let number = signal::deadline_number();
    if signal::has_handler(number)? {
        return Err(Errno::BUSY);
    }
    let (start, end) = library();
    // Relaxed, both: before the handler is installed.
    LIBRARY[0].store(start, Relaxed);
    LIBRARY[1].store(end, Relaxed);
    let action = action(tick as Handler);
    // SAFETY: the action is initialised; its handler is async-signal-safe. Calls that it interrupts are not made again: their
    // end shows that they were waiting.
    if unsafe { libc::sigaction(number, &raw const action, core::ptr::null_mut()) } != 0 {
        return Err(Errno::INVAL);
    }
    DONE.store(true, Relaxed);
    Ok(())
}

extern "C" fn tick(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let place = deadline::place();
    if place == 0 {
        return;
    }
    if clock::now_ns() < deadline::until_ns() {
        return;
    }
    // A panicking thread is in the middle of something that belongs to it; if it panics again, the process may end.
    if std::thread::panicking() && place & PANICKING == 0 {
        return;
    }
    // SAFETY: the kernel passes the context that it restores, to this handler alone.
    let machine = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let Some(row) = domain_of(machine) else {
        return;
    };
    let stack = machine.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
    let number = stack_of(row, stack)
        .filter(|number| descriptor(row, *number) as usize == place & !PANICKING);
    let Some(number) = number else { return };
    if is_in_library(machine) && is_patient() {
        return;
    }
    land(machine, row, number, Status::new(Status::DEADLINE, 0));
}

/// Whether the function has not been found in the C library for long.
fn is_patient() -> bool {
    let (until_ns, used_ns) = (deadline::until_ns(), clock::thread_ns());
    let (of_ns, since_ns) = FOUND.get();
    if of_ns != until_ns {
        FOUND.set((until_ns, used_ns));
        return true;
    }
    used_ns.saturating_sub(since_ns) < PATIENCE_NS
}

/// Whether the C library was interrupted in the middle of something, and not while it waited for the kernel: it may hold a lock that
/// all threads need, the allocator's above all.
fn is_in_library(machine: &libc::ucontext_t) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let [at, result] =
        [libc::REG_RIP, libc::REG_RAX].map(|register| machine.uc_mcontext.gregs[register as usize]);
    // Relaxed, both: stored before there was a handler.
    let [start, end] = [&LIBRARY[0], &LIBRARY[1]].map(|place| place.load(Relaxed));
    let behind = at as usize;
    if !(start..end).contains(&behind) {
        return false;
    }
    if result != -i64::from(libc::EINTR) || behind < start + SYSCALL.len() {
        return true;
    }
    let call: *const [u8; 2] = core::ptr::with_exposed_provenance(behind - SYSCALL.len());
    // SAFETY: code of the library, which can be read.
    unsafe { call.read_unaligned() != SYSCALL }
}

/// Where the library's code is that `malloc` is in; nowhere, when it is this program's own.
fn library() -> (usize, usize) {
    struct Found {
        range: (usize, usize),
        is_own: bool,
    }
    unsafe extern "C" fn look(
        about: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the library describes one of its objects.
        let about = unsafe { &*about };
        // SAFETY: what `library` passed.
        let found = unsafe { &mut *found.cast::<Found>() };
        // SAFETY: so many headers are there.
        let headers =
            unsafe { core::slice::from_raw_parts(about.dlpi_phdr, about.dlpi_phnum.into()) };
        let runs = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
        };
        for header in headers.iter().filter(runs) {
            let start = (about.dlpi_addr + header.p_vaddr) as usize;
            let range = start..start + header.p_memsz as usize;
            if range.contains(&(libc::malloc as *const () as usize)) {
                found.range = (range.start, range.end);
                found.is_own = range.contains(&(tick as *const () as usize));
                return 1;
            }
        }
        0
    }
    let mut found = Found {
        range: (0, 0),
        is_own: false,
    };
    // SAFETY: the function reads its arguments, and nothing else.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    if found.is_own { (0, 0) } else { found.range }
}
