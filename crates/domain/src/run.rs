//! The domain's side of a call: runs with the domain's rights, on the claimed stack.

use crate::call::CallContext;
use crate::error::Status;
use crate::flags;
use crate::pool::index_of;
use crate::row::Row;
#[cfg(target_arch = "x86_64")]
use crate::rows;
use crate::server::Server;
use crate::stack::{
    BOUNDED_DEPTH, BYTES_MAX, Buffers, Descriptor, REQUEST_AT, STRIDE, buffers_of, entry_of,
    kind_of, phase,
};
#[cfg(target_arch = "x86_64")]
use crate::thread;
use crate::upkeep;
use core::any::Any;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use handfast_sys::deadline;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Not an entry: the first call, which makes the domain's value.
pub(crate) const INIT: u16 = u16::MAX;
/// Not an entry: gives the memory of idle stacks back; how many are in use is the first word.
pub(crate) const TRIM: u16 = u16::MAX - 1;

/// In the place of a function that may be ended: its thread panicked before already, or is taken to do so for good since a fault ended
/// a panic.
pub(crate) const PANICKING: usize = 1;
const _: () = assert!(align_of::<Descriptor>() > PANICKING);

/// A function with its type, and its value's type, erased.
type Function = unsafe fn(*const (), &mut CallContext<'_>);

/// Calls the function `F`.
///
/// # Safety
/// `value` is a `T`.
#[inline(always)]
unsafe fn apply<T, F: Fn(&T, &mut CallContext<'_>)>(value: *const (), call: &mut CallContext<'_>) {
    const {
        assert!(
            size_of::<F>() == 0,
            "a function by its name, or a closure that captures nothing"
        )
    };
    // SAFETY: the caller says so, and it lives for as long as calls are in the domain.
    let value = unsafe { &*value.cast::<T>() };
    // SAFETY: a value of no bytes, of a type of which the table was given one.
    let function = unsafe { core::ptr::NonNull::<F>::dangling().as_ref() };
    function(value, call);
}

/// Runs the call that `control` and `descriptor` describe. The gate calls it, and nothing unwinds out of it.
///
/// Every instruction here is part of every call: what is rare is elsewhere, and is jumped to, so that the null call needs no frame.
///
/// # Safety
/// The descriptor belongs to stack `number`, which was claimed for the domain of `row`, whose value is a `T`, and this thread has the
/// domain's rights.
pub(crate) unsafe extern "C" fn run<T, F: Fn(&T, &mut CallContext<'_>)>(
    control: u64,
    number: u32,
    row: *const Row,
    descriptor: *mut Descriptor,
) -> u64 {
    // SAFETY: claimed, so nobody else's; the caller vouches for the pointer.
    let descriptor = unsafe { &mut *descriptor };
    // SAFETY: the row of a loaded domain; its call keeps it.
    let row = unsafe { &*row };
    // SAFETY: laid out when the domain was loaded, and there for as long as it is.
    let server = unsafe { &*row.server.load(Relaxed) };
    if !flags::may_enter(&server.state) {
        // SAFETY: as the caller says.
        return unsafe { not_live(control, number, row, descriptor, apply::<T, F>) };
    }
    // One question: words alone, and the first stack of a pool.
    if kind_of(control) | i64::from(index_of(number)) != 0 {
        // SAFETY: as the caller says.
        return unsafe { run_any(control, number, row, descriptor, apply::<T, F>) };
    }
    let value = server.value();
    let mut call = CallContext::with_words(descriptor);
    // SAFETY: the caller vouches for the value.
    let entered = catch_unwind(AssertUnwindSafe(|| unsafe {
        apply::<T, F>(value, &mut call)
    }));
    if let Err(payload) = entered {
        return panicked::<false>(server, descriptor, row, payload);
    }
    if upkeep::has_idle(row, number) {
        return upkeep::look_after(row, number);
    }
    Status::new(Status::DONE, 0).0
}

/// As [`run`], for a number that is no entry.
///
/// # Safety
/// As there.
pub(crate) unsafe extern "C" fn run_other(
    control: u64,
    _number: u32,
    row: *const Row,
    descriptor: *mut Descriptor,
) -> u64 {
    // SAFETY: claimed, so nobody else's; the caller vouches for the pointer.
    let descriptor = unsafe { &mut *descriptor };
    // SAFETY: the row of a loaded domain; its call keeps it.
    let row = unsafe { &*row };
    // SAFETY: laid out when the domain was loaded, and there for as long as it is.
    let server = unsafe { &*row.server.load(Relaxed) };
    let number = entry_of(control);
    let status = match number {
        INIT => server.init(descriptor),
        TRIM => {
            upkeep::trim(row);
            // Without its own.
            descriptor.words[0] = row.in_use() as u64 - 1;
            Status::new(Status::DONE, 0)
        }
        _ => Status::new(Status::NO_ENTRY, number.into()),
    };
    status.0
}

/// A call that finds the domain gone wrong: makes it anew if no other is in it, and goes on then.
///
/// # Safety
/// As [`run`], for whose function `entry` stands.
#[cold]
#[inline(never)]
#[expect(
    improper_ctypes_definitions,
    reason = "Rust's own, which never unwinds"
)]
unsafe extern "C" fn not_live(
    control: u64,
    number: u32,
    row: &Row,
    descriptor: &mut Descriptor,
    entry: Function,
) -> u64 {
    // SAFETY: laid out when the domain was loaded, and there for as long as it is.
    let server = unsafe { &*row.server.load(Relaxed) };
    let stacks = row.all_flags();
    let status = server.settle(descriptor, stacks);
    if status.code() != Status::DONE {
        return status.0;
    }
    if !server.enter_again(descriptor, stacks.tag) {
        // It went wrong in another call already.
        return Status::new(Status::RESETTING, 0).0;
    }
    // SAFETY: as the caller says.
    unsafe { run_any(control, number, row, descriptor, entry) }
}

/// As the end of [`run`], for calls with bytes or a deadline, and on any stack.
///
/// # Safety
/// As [`run`], for whose function `entry` stands.
#[inline(never)]
#[expect(
    improper_ctypes_definitions,
    reason = "Rust's own, which never unwinds"
)]
unsafe extern "C" fn run_any(
    control: u64,
    number: u32,
    row: &Row,
    descriptor: &mut Descriptor,
    entry: Function,
) -> u64 {
    // SAFETY: laid out when the domain was loaded, and there for as long as it is.
    let server = unsafe { &*row.server.load(Relaxed) };
    let is_first = index_of(number) == 0;
    if !is_first {
        upkeep::grow(row, number);
    }
    let kind = kind_of(control);
    let status = if kind > 0 {
        with_bytes::<false>((control, number), server, descriptor, row, entry)
    } else if kind == 0 {
        with_words::<false>(server, descriptor, row, entry)
    } else if is_confined() {
        // The caller says so, and no call of a confined process has one. It would be noted in the thread's memory, with the domain's
        // rights; and the caller says where that is (the FS register).
        Status::new(Status::CONFINED, 0).0
    } else {
        bounded((control, number), server, descriptor, row, entry)
    };
    if !is_first || upkeep::has_idle(row, number) {
        upkeep::look_after(row, number);
    }
    status
}

/// Whether the process is confined, by memory that no caller can write.
fn is_confined() -> bool {
    #[cfg(target_arch = "x86_64")]
    return rows::is_confined();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// A call with a deadline, or within one.
#[inline(never)]
fn bounded(
    (control, number): (u64, u32),
    server: &Server,
    descriptor: &mut Descriptor,
    row: &Row,
    entry: Function,
) -> u64 {
    descriptor.depth |= BOUNDED_DEPTH;
    if buffers_of(control) == 0 {
        with_words::<true>(server, descriptor, row, entry)
    } else {
        with_bytes::<true>((control, number), server, descriptor, row, entry)
    }
}

/// Calls a function of the domain; if `BOUNDED`, it may be ended ([`run_fault`]) from its first instruction to its last,
/// as what is at `place`.
#[inline(always)]
fn enter<const BOUNDED: bool>(
    place: usize,
    function: impl FnOnce(),
) -> Result<(), Box<dyn Any + Send>> {
    if !BOUNDED {
        return catch_unwind(AssertUnwindSafe(function));
    }
    let outer = deadline::set_place(place | usize::from(std::thread::panicking()));
    let entered = catch_unwind(AssertUnwindSafe(function));
    deadline::set_place(outer);
    entered
}

/// Notes what holds again when the function of this call is ended. Returns its place.
#[inline(always)]
fn note<const BOUNDED: bool>(descriptor: &mut Descriptor) -> usize {
    if BOUNDED {
        descriptor.outer = deadline::place();
    }
    core::ptr::from_mut(descriptor).addr()
}

#[inline(always)]
fn with_words<const BOUNDED: bool>(
    server: &Server,
    descriptor: &mut Descriptor,
    row: &Row,
    entry: Function,
) -> u64 {
    let value = server.value();
    let place = note::<BOUNDED>(descriptor);
    let mut call = CallContext::with_words(descriptor);
    // SAFETY: the entry was erased together with the type of this domain's value.
    let entered = enter::<BOUNDED>(place, || unsafe { entry(value, &mut call) });
    match entered {
        Ok(()) => Status::new(Status::DONE, 0).0,
        Err(payload) => panicked::<BOUNDED>(server, descriptor, row, payload),
    }
}

#[cold]
#[inline(never)]
fn panicked<const BOUNDED: bool>(
    server: &Server,
    descriptor: &mut Descriptor,
    row: &Row,
    payload: Box<dyn Any + Send>,
) -> u64 {
    let place = core::ptr::from_mut(descriptor).addr();
    // Its drop runs the function's code, and may take as long, or panic again: one more leak, in a place that leaks its contents.
    if let Err(second) = enter::<BOUNDED>(place, || drop(payload)) {
        core::mem::forget(second);
    }
    server.has_faulted(descriptor, row.all_flags());
    Status::new(Status::PANIC, 0).0
}

/// A call with bytes: copies them in before anybody looks at them, and the reply's out.
#[inline(always)]
fn with_bytes<const BOUNDED: bool>(
    (control, number): (u64, u32),
    server: &Server,
    descriptor: &mut Descriptor,
    row: &Row,
    entry: Function,
) -> u64 {
    let first = row.first_stack.load(Relaxed);
    let stack = first.wrapping_add(number as usize * STRIDE);
    let areas = stack.wrapping_add(REQUEST_AT);
    let buffers_at = buffers_of(control);
    let mine = [server.range(), row.group_range()];
    descriptor.set_phase(phase::COPY);
    if !is_callers(mine, buffers_at, size_of::<Buffers>()) {
        descriptor.set_phase(phase::RUN);
        return Status::new(Status::BUFFER, 0).0;
    }
    let buffers_at: *const Buffers = core::ptr::with_exposed_provenance(buffers_at);
    // SAFETY: the caller's memory; if it cannot be read, the fault ends this call and nothing else. Read once, whole.
    let buffers = unsafe { buffers_at.read_volatile() };
    let len = buffers.request_len;
    if len > BYTES_MAX {
        descriptor.set_phase(phase::RUN);
        return Status::new(Status::TOO_LONG, len as u64).0;
    }
    let room = buffers.reply_room.min(BYTES_MAX);
    if !is_callers(mine, buffers.request, len) || !is_callers(mine, buffers.reply, room) {
        descriptor.set_phase(phase::RUN);
        return Status::new(Status::BUFFER, 0).0;
    }
    let request: *const u8 = core::ptr::with_exposed_provenance(buffers.request);
    // SAFETY: the source as above; the target is this stack's own area, and the length at most its size.
    unsafe { copy(request, areas, len) };
    descriptor.set_phase(phase::RUN);
    descriptor.request_len = len as u32;
    descriptor.reply_len = 0;
    let value = server.value();
    let place = note::<BOUNDED>(descriptor);
    // SAFETY: the areas of this stack; the request's length was checked, the reply's is none.
    let mut call = unsafe { CallContext::with_bytes(descriptor, areas, buffers.sender()) };
    // SAFETY: the entry was erased together with the type of this domain's value.
    let entered = enter::<BOUNDED>(place, || unsafe { entry(value, &mut call) });
    if let Err(payload) = entered {
        return panicked::<BOUNDED>(server, descriptor, row, payload);
    }
    let len = (descriptor.reply_len as usize).min(BYTES_MAX);
    let status = if len > room {
        Status::new(Status::REPLY_TOO_LONG, len as u64)
    } else {
        descriptor.set_phase(phase::COPY);
        let reply: *mut u8 = core::ptr::with_exposed_provenance_mut(buffers.reply);
        // SAFETY: the source is this stack's area; the target the caller's, which lies outside of the domain's
        // memory. If it cannot be written, the fault ends this call and nothing else.
        unsafe { copy(areas.wrapping_add(BYTES_MAX), reply, len) };
        descriptor.set_phase(phase::RUN);
        Status::new(Status::DONE, len as u64)
    };
    status.0
}

/// Whether a range that the caller named lies outside of `mine`, all memory that this thread may touch and the caller may
/// not: the domain must not be made to read or write itself.
#[inline(always)]
fn is_callers(mine: [(usize, usize); 2], at: usize, len: usize) -> bool {
    let Some(end) = at.checked_add(len) else {
        return false;
    };
    let outside = |(start, stop): (usize, usize)| end <= start || at >= stop;
    mine.into_iter().all(outside)
}

/// Copies between the domain's memory and the caller's.
///
/// # Safety
/// The domain's range is valid. The caller's need not be: a fault in here is turned into the end of the call. The
/// caller's other threads may write theirs meanwhile.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: a static of this type.
    let copy = unsafe { (&raw const COPY).read_volatile() };
    // SAFETY: the caller vouches for one range, and the other's fault is caught.
    unsafe { copy(to.cast(), from.cast(), len) };
}

/// The C library's copy, but by an address that is read each time: the compiler must not know which function it is, or it may read again
/// from the caller's memory, where other threads write, in the place of looking at the copy. Never written.
static COPY: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void = libc::memcpy;

/// The call of `descriptor` ended with a signal: its frames are abandoned. Runs with the domain's rights, on the
/// domain's stack, from its top.
///
/// # Safety
/// As [`run`], once for a call in which `run` was interrupted.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe extern "C" fn run_fault(
    descriptor: *mut Descriptor,
    row: *const Row,
    status: u64,
) -> u64 {
    // SAFETY: claimed. The frames that had a reference are abandoned: none of their instructions runs again.
    let descriptor = unsafe { &mut *descriptor };
    // SAFETY: the row of a loaded domain; its call keeps it.
    let row = unsafe { &*row };
    // SAFETY: laid out when the domain was loaded, and there for as long as it is.
    let server = unsafe { &*row.server.load(Relaxed) };
    if deadline::place() & !PANICKING == core::ptr::from_mut(descriptor) as usize {
        // It was in its function; from here on it is not.
        deadline::set_place(descriptor.outer);
    }
    // If it waited for a call of its own, nobody may return from that any more.
    descriptor.call_out = 0;
    // From the top of the stack below, which is not this call's.
    let top = core::ptr::from_mut(descriptor).addr();
    thread::abandon(&(top - STRIDE..top));
    if descriptor.phase == phase::COPY {
        descriptor.set_phase(phase::RUN);
        return Status::new(Status::BUFFER, 0).0;
    }
    server.has_faulted(descriptor, row.all_flags());
    status
}
