//! Signals: what a domain does wrong becomes the end of its call.
//!
//! The kernel runs a handler with the rights of no domain, whatever it interrupted, and puts the interrupted rights
//! back afterwards. So the handler here looks at nothing of a domain's. It finds by the interrupted rights and stack pointer
//! in which call this thread is, and changes only where the thread goes on: at the gate's
//! landing, on top of the same stack, with the rights it had. The landing decides what the signal was about.
//!
//! Signals that are nobody's fault (they were sent), and faults outside of domains, go to the handler that was there
//! before.
//!
//! The signal of a deadline (`deadline`) ends a call in the same way.

use crate::alone::alone;
use crate::error::Status;
use crate::gate::protected;
use crate::row::Row;
use crate::rows;
use crate::run::PANICKING;
use crate::stack::{Descriptor, GUARD_BYTES, STRIDE, STRIDE_BITS};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use handfast_sys::{Errno, deadline};

mod lent;
mod tick;

pub(crate) use tick::install as install_tick;
#[cfg(feature = "confine")]
pub(crate) use tick::is_installed as handles_deadlines;

/// The signals of faults.
pub(crate) const SIGNALS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// The handlers that were there before, in the order of [`SIGNALS`].
static BEFORE: [AtomicPtr<libc::sigaction>; 4] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; 4];

/// Where the rights lie in the processor state that the kernel saves with a signal.
static RIGHTS_AT: AtomicU32 = AtomicU32::new(0);

/// Handles the signals of faults from now on; once. Four times `sigaction`.
pub(crate) fn install() -> Result<(), Errno> {
    static DONE: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    // Relaxed, here and below: under the lock.
    if DONE.load(Relaxed) {
        return Ok(());
    }
    const STATE_LEAF: u32 = 0xd;
    const RIGHTS: u32 = 9;
    let found = core::arch::x86_64::__cpuid_count(STATE_LEAF, RIGHTS);
    // Relaxed: before any handler is installed.
    RIGHTS_AT.store(found.ebx, Relaxed);
    for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
        let action = action(handle);
        // SAFETY: all-zero bytes are a valid sigaction.
        let mut old: libc::sigaction = unsafe { core::mem::zeroed() };
        // SAFETY: nothing is set; `old` is valid for a write.
        if unsafe { libc::sigaction(signal, core::ptr::null(), &raw mut old) } != 0 {
            return Err(Errno::INVAL);
        }
        // Release: the action, for the handler; it is never freed. Acquire half: `pass_on`.
        before.store(Box::into_raw(Box::new(old)), Release);
        // SAFETY: the action is initialised; its handler is async-signal-safe.
        if unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) } != 0 {
            return Err(Errno::INVAL);
        }
    }
    DONE.store(true, Relaxed);
    Ok(())
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// On the alternate stack, with what was interrupted.
fn action(handler: Handler) -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // No other handler in between: it would run on the same alternate stack.
    // SAFETY: the mask is valid for a write.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    action
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo.
    let about = unsafe { &*info };
    // SAFETY: the kernel passes the context that it restores, to this handler alone.
    let machine = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    // Sent by somebody: no fault.
    let is_fault = about.si_code > 0 && about.si_code != SI_KERNEL
        || signal == libc::SIGSEGV && about.si_code == SI_KERNEL;
    if is_fault && (end_call(signal, about, machine) || lend_stack(signal, about, machine)) {
        return;
    }
    pass_on(signal, info, context);
}

const SI_KERNEL: c_int = 0x80;
const SEGV_PKUERR: c_int = 4;

/// If the signal came from within a domain, lets the thread go on at the landing.
fn end_call(signal: c_int, about: &libc::siginfo_t, machine: &mut libc::ucontext_t) -> bool {
    let Some(row) = domain_of(machine) else {
        return false;
    };
    let stack = machine.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
    // Where the stack pointer leads nowhere, a call with a deadline is known all the same.
    let is_its =
        |number: &usize| descriptor(row, *number) as usize == deadline::place() & !PANICKING;
    let noted = || (0..row.stacks_all.load(Relaxed) as usize).find(is_its);
    let Some(number) = stack_of(row, stack).or_else(noted) else {
        return false;
    };
    // SAFETY: reading a field that the kernel sets for these signals.
    let address = unsafe { about.si_addr() } as usize;
    let code = match signal {
        libc::SIGFPE => Status::ARITHMETIC,
        libc::SIGILL => Status::ILLEGAL,
        libc::SIGBUS => Status::BUS,
        _ if about.si_code == SEGV_PKUERR => Status::KEY,
        _ if is_guard(row, number, address) => Status::OVERFLOW,
        _ => Status::ACCESS,
    };
    let status = Status::new(code, address as u64 & ((1 << 56) - 1));
    land(machine, row, number, status);
    true
}

/// The domain whose rights were interrupted, outside of the gate.
fn domain_of(machine: &libc::ucontext_t) -> Option<&'static Row> {
    let rights = rights_in(machine)?;
    let at = machine.uc_mcontext.gregs[libc::REG_RIP as usize];
    // Relaxed: rows that may change meanwhile, but not this thread's.
    let row = rows::all().find(|row| row.rights.load(Relaxed) == rights && is_loaded(row));
    row.filter(|_| !protected::is_gate(at as usize))
}

fn descriptor(row: &Row, number: usize) -> *mut Descriptor {
    row.first_descriptor
        .load(Relaxed)
        .cast::<u8>()
        .wrapping_add(number * STRIDE)
        .cast()
}

/// Lets the thread go on at the landing, on top of this stack.
fn land(machine: &mut libc::ucontext_t, row: &Row, number: usize, status: Status) {
    let descriptor = descriptor(row, number);
    let row: *const Row = row;
    let registers = &mut machine.uc_mcontext.gregs;
    let mut set = |register: c_int, value: u64| registers[register as usize] = value.cast_signed();
    set(libc::REG_RIP, protected::landing() as u64);
    set(libc::REG_RSP, descriptor as u64);
    set(libc::REG_RBX, descriptor as u64);
    set(libc::REG_RDI, descriptor as u64);
    set(libc::REG_RSI, row as u64);
    set(libc::REG_RBP, row as u64);
    set(libc::REG_RDX, status.0);
    // Interrupts on, nothing else: no backwards moves, no single steps, no alignment checks.
    set(libc::REG_EFL, 0x202);
    reset_floats(machine);
}

/// A handler of the program's that does not ask for the alternate stack was started on a domain's stack, without the
/// rights to it: it gets them for as long as it runs ([`lent`]).
fn lend_stack(signal: c_int, about: &libc::siginfo_t, machine: &mut libc::ucontext_t) -> bool {
    if signal != libc::SIGSEGV || about.si_code != SEGV_PKUERR {
        return false;
    }
    let Some(rights) = rights_in(machine) else {
        return false;
    };
    let stack = machine.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
    // SAFETY: reading a field that the kernel sets for this signal.
    let address = unsafe { about.si_addr() } as usize;
    let is_its = |row: &&Row| {
        is_loaded(row) && stack_of(row, stack).is_some() && stack_of(row, address).is_some()
    };
    if rights != rows::NO_DOMAIN {
        return false;
    }
    let Some(row) = rows::all().find(is_its) else {
        return false;
    };
    // The kernel may refuse to look for this handler; what was interrupted keeps its error number.
    // SAFETY: asks where this thread has its own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: this thread's.
    let before = unsafe { errno.read() };
    let was_interrupted = lent::was_interrupted(row, stack, machine);
    // SAFETY: as above.
    unsafe { errno.write(before) };
    let key = row.stack_key.load(Relaxed);
    was_interrupted && set_rights(machine, rows::lent(key))
}

fn is_loaded(row: &Row) -> bool {
    !row.server.load(Relaxed).is_null()
}

/// The number of the row's stack in which `address` is.
fn stack_of(row: &Row, address: usize) -> Option<usize> {
    let first = row.first_stack.load(Relaxed) as usize;
    let number = address.checked_sub(first)? >> STRIDE_BITS;
    (number < row.stacks_all.load(Relaxed) as usize).then_some(number)
}

fn is_guard(row: &Row, number: usize, address: usize) -> bool {
    let guard = row.first_stack.load(Relaxed) as usize + number * STRIDE;
    (guard..guard + GUARD_BYTES).contains(&address)
}

/// The layout of what the kernel saves of the processor: 512 bytes of the old instruction, a header, and behind it
/// the newer parts.
mod saved {
    pub(super) const CONTROL_WORD: usize = 0;
    pub(super) const TAGS: usize = 4;
    pub(super) const VECTOR_CONTROL: usize = 24;
    /// The kernel's own word, which says that the newer parts follow.
    pub(super) const MAGIC: usize = 464;
    pub(super) const MAGIC_IS: u32 = 0x4650_5853;
    /// Which parts are there.
    pub(super) const PARTS: usize = 512;
    pub(super) const RIGHTS_PART: u64 = 1 << 9;
}

/// A word of the saved processor state.
fn saved<T>(machine: &libc::ucontext_t, at: usize) -> Option<*mut T> {
    let base = machine.uc_mcontext.fpregs.cast::<u8>();
    (!base.is_null()).then(|| base.wrapping_add(at).cast())
}

/// The rights of the interrupted code.
fn rights_in(machine: &libc::ucontext_t) -> Option<u32> {
    // SAFETY: the kernel saved at least the 512 bytes of the old instruction.
    let magic = unsafe { saved::<u32>(machine, saved::MAGIC)?.read_unaligned() };
    let at = RIGHTS_AT.load(Relaxed) as usize;
    if magic != saved::MAGIC_IS || at == 0 {
        return None;
    }
    // SAFETY: the magic word says that the header is there.
    let parts = unsafe { saved::<u64>(machine, saved::PARTS)?.read_unaligned() };
    if parts & saved::RIGHTS_PART == 0 {
        // Its first state: all rights.
        return Some(0);
    }
    // SAFETY: the part is there, at the place the processor names.
    Some(unsafe { saved::<u32>(machine, at)?.read_unaligned() })
}

/// Gives the interrupted code other rights when it goes on.
fn set_rights(machine: &libc::ucontext_t, rights: u32) -> bool {
    let at = RIGHTS_AT.load(Relaxed) as usize;
    let (Some(place), Some(parts)) = (
        saved::<u32>(machine, at),
        saved::<u64>(machine, saved::PARTS),
    ) else {
        return false;
    };
    // SAFETY: `rights_in` has found the header and the part.
    let there = unsafe { parts.read_unaligned() };
    // SAFETY: as above.
    unsafe { parts.write_unaligned(there | saved::RIGHTS_PART) };
    // SAFETY: as above.
    unsafe { place.write_unaligned(rights) };
    true
}

/// Both floating-point units as programs start with them: nothing in the old one, their usual control. A function's changes
/// to them (rounding, traps) were for itself.
fn reset_floats(machine: &libc::ucontext_t) {
    const USUAL: u16 = 0x37f;
    const USUAL_OF_VECTORS: u32 = 0x1f80;
    let places = (
        saved::<u16>(machine, saved::CONTROL_WORD),
        saved::<u16>(machine, saved::TAGS),
        saved::<u32>(machine, saved::VECTOR_CONTROL),
    );
    if let (Some(control), Some(tags), Some(vectors)) = places {
        // SAFETY: within the 512 bytes that are always there.
        unsafe { control.write_unaligned(USUAL) };
        // SAFETY: as above.
        unsafe { tags.write_unaligned(0) };
        // SAFETY: as above.
        unsafe { vectors.write_unaligned(USUAL_OF_VECTORS) };
    }
}

/// Hands a signal to the handler that was there before.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = SIGNALS.iter().position(|known| *known == signal);
    let before = before.and_then(|index| BEFORE.get(index));
    // Acquire: the action that `install` stored.
    let before = before.map_or(core::ptr::null_mut(), |before| before.load(Acquire));
    // SAFETY: stored by `install`, never freed.
    let Some(before) = (unsafe { before.as_ref() }) else {
        return;
    };
    match before.sa_sigaction {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            // SAFETY: the stored action is a valid one.
            unsafe { libc::sigaction(signal, before, core::ptr::null_mut()) };
            // SAFETY: `info` is the kernel's.
            if unsafe { (*info).si_code } <= 0 {
                // It will not come again by itself.
                // SAFETY: takes an integer. It is blocked until this handler returns.
                unsafe { libc::raise(signal) };
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: an action with this flag has such a function.
            let handler = unsafe { core::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: an action without the flag has such a function.
            let handler = unsafe { core::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
            handler(signal);
        }
    }
}
