//! The alternate stack on which a thread runs signal handlers that ask for it (`SA_ONSTACK`).

use crate::last_errno;
use crate::private::{self, Private};
use core::marker::PhantomData;
use rustix::io::Errno;

/// Room for the frames of the processors with the most registers, and for handlers of some kilobytes.
const LEN_BYTES: usize = 64 << 10;
const GUARD_BYTES: usize = 4 << 10;
/// A stack that somebody else made is good enough from here on (what Rust's threads have).
const ENOUGH_BYTES: usize = 8 << 10;

/// First byte and length of this thread's alternate stack, if it has one of a useful size. `sigaltstack`.
///
/// # Errors
/// None that the kernel documents.
pub fn current() -> Result<Option<(usize, usize)>, Errno> {
    // SAFETY: all-zero bytes are a valid stack_t.
    let mut now: libc::stack_t = unsafe { core::mem::zeroed() };
    // SAFETY: nothing is set; `now` is valid for a write.
    if unsafe { libc::sigaltstack(core::ptr::null(), &raw mut now) } != 0 {
        return Err(last_errno());
    }
    let is_there = now.ss_flags & libc::SS_DISABLE == 0 && now.ss_size >= ENOUGH_BYTES;
    Ok(is_there.then_some((now.ss_sp as usize, now.ss_size)))
}

/// An alternate stack of this thread's; taken away from it on drop, which must happen in the same thread.
///
/// ```compile_fail,E0277
/// let stack = handfast_sys::signal_stack::SignalStack::install().unwrap();
/// std::thread::spawn(move || drop(stack));
/// ```
#[derive(Debug)]
pub struct SignalStack(Private, PhantomData<*const ()>);

impl SignalStack {
    /// Makes one and gives it to this thread, in place of any that it has. `mmap`, `mprotect`, `sigaltstack`.
    ///
    /// # Errors
    /// `ENOMEM` without memory; `EPERM` on an alternate stack.
    pub fn install() -> Result<Self, Errno> {
        let memory = Private::new(LEN_BYTES)?;
        // SAFETY: the lowest page, in memory that is new.
        unsafe { private::close(memory.base(), GUARD_BYTES) }?;
        let own = Self(memory, PhantomData);
        own.set(0)?;
        Ok(own)
    }

    /// First byte and length.
    #[must_use]
    pub fn range(&self) -> (usize, usize) {
        let start = self.0.base().addr().get() + GUARD_BYTES;
        (start, self.0.len_bytes() - GUARD_BYTES)
    }

    fn set(&self, flags: libc::c_int) -> Result<(), Errno> {
        let (start, len_bytes) = self.range();
        let stack = libc::stack_t {
            ss_sp: start as *mut libc::c_void,
            ss_flags: flags,
            ss_size: len_bytes,
        };
        // SAFETY: the memory is this value's, which takes the stack away from the thread before it ends.
        if unsafe { libc::sigaltstack(&raw const stack, core::ptr::null_mut()) } != 0 {
            return Err(last_errno());
        }
        Ok(())
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        // Only if it is still this one.
        if current() == Ok(Some(self.range())) {
            let _ = self.set(libc::SS_DISABLE);
        }
    }
}
