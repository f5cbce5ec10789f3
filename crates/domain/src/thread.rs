//! State that a thread needs before it calls: an alternate stack for signals, since no handler can run on a domain's
//! stack.
//! And how deep its calls are nested, where nothing else counts that.

use crate::error::CallError;
#[cfg(target_arch = "x86_64")]
use crate::flags;
use crate::{DEPTH_MAX, alone};
use core::cell::Cell;
use core::sync::atomic::AtomicU16;
use handfast_sys::{deadline, process};
use std::sync::Once;

/// No process's number: this thread has not been prepared.
const NEW: u32 = u32::MAX;

/// The values that each call looks at, side by side.
struct Ready {
    /// The process in which this thread has been prepared.
    epoch: Cell<u32>,
    /// The alternate stack: first byte and length.
    signal_stack: Cell<(usize, usize)>,
}

thread_local! {
    static READY: Ready = const {
        Ready { epoch: Cell::new(NEW), signal_stack: Cell::new((0, 0)) }
    };
}

/// The thread is prepared anew when it calls next.
fn unprepare() {
    READY.with(|own| own.epoch.set(NEW));
}

extern "C" fn forget() {
    alone::after_fork();
    unprepare();
    // Its timers are not inherited.
    deadline::set_until_ns(deadline::NEVER_NS);
    deadline::set_place(0);
}

/// The process that a handle is made in, as [`ready`] wants it: how many forks lie before it.
pub(crate) fn epoch() -> u32 {
    static FORGETS: Once = Once::new();
    process::watch_forks();
    FORGETS.call_once(|| {
        let (before, after) = (alone::before_fork, alone::after_fork);
        // SAFETY: they live for ever, and do what may be done around a fork.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(forget)) };
    });
    process::fork_epoch()
}

/// Whether this thread may call through a handle of `epoch` now, as far as that is known. Three loads.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn is_ready(epoch: u32) -> bool {
    READY.with(|own| own.epoch.get() == epoch && !own.is_on_signal_stack())
}

/// As [`is_ready`], or why not. The first time in a thread, up to four system calls.
pub(crate) fn ready(epoch: u32) -> Result<(), CallError> {
    READY.with(|own| {
        if own.epoch.get() != epoch {
            prepare(own, epoch)?;
        }
        match own.is_on_signal_stack() {
            true => Err(CallError::SignalStack),
            false => Ok(()),
        }
    })
}

impl Ready {
    #[inline(always)]
    fn is_on_signal_stack(&self) -> bool {
        let here = 0u8;
        let (base, len) = self.signal_stack.get();
        (&raw const here as usize).wrapping_sub(base) < len
    }
}

#[cold]
#[inline(never)]
fn prepare(own: &Ready, handle: u32) -> Result<(), CallError> {
    if handle != process::fork_epoch() {
        return Err(CallError::Forked);
    }
    #[cfg(target_arch = "x86_64")]
    own.signal_stack
        .set(signal_stack().map_err(|errno| CallError::NoSignalStack(errno.into()))?);
    own.epoch.set(handle);
    Ok(())
}

/// One of this thread's nested calls through the gate without protection, until it is dropped. The other gate keeps
/// count in its descriptors.
pub(crate) struct Nested(u32);

/// The record of one, for a fault that ends the protected call in which it was made.
#[derive(Clone, Copy)]
struct Frame {
    /// A place on the stack that it was made on.
    place: usize,
    /// The flag of the stack that it has claimed, or null.
    flag: *const AtomicU16,
}

impl Nested {
    /// One call more, if that is not too deep.
    pub(crate) fn enter() -> Option<Self> {
        let (depth, here) = (DEPTH.get(), 0u8);
        let frame = Frame {
            place: (&raw const here).addr(),
            flag: core::ptr::null(),
        };
        (depth < DEPTH_MAX).then(|| {
            FRAMES.with(|frames| frames[depth as usize].set(frame));
            DEPTH.set(depth + 1);
            Self(depth)
        })
    }

    /// Notes its claim.
    pub(crate) fn claims(&self, flag: &AtomicU16) {
        FRAMES.with(|frames| {
            let mut frame = frames[self.0 as usize].get();
            frame.flag = flag;
            frames[self.0 as usize].set(frame);
        });
    }
}

/// The values on this stack are no more, and will not be dropped: ends the calls that were made there.
#[cfg(target_arch = "x86_64")]
pub(crate) fn abandon(stack: &core::ops::Range<usize>) {
    FRAMES.with(|frames| {
        let mut depth = DEPTH.get();
        while let Some(last) = depth.checked_sub(1) {
            let frame = frames[last as usize].get();
            if !stack.contains(&frame.place) {
                break;
            }
            // SAFETY: of a group that the domain called had; its caller has kept it, or lost it with the stack.
            if let Some(flag) = unsafe { frame.flag.as_ref() } {
                flags::release(flag);
            }
            depth = last;
        }
        DEPTH.set(depth);
    });
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static FRAMES: [Cell<Frame>; DEPTH_MAX as usize] = const {
        const NONE: Frame = Frame { place: 0, flag: core::ptr::null() };
        [const { Cell::new(NONE) }; DEPTH_MAX as usize]
    };
}

impl Drop for Nested {
    fn drop(&mut self) {
        DEPTH.set(self.0);
    }
}

/// This thread's alternate stack; one is made if it has none, for as long as the thread lives.
#[cfg(target_arch = "x86_64")]
fn signal_stack() -> Result<(usize, usize), handfast_sys::Errno> {
    use handfast_sys::signal_stack::{self as stacks, SignalStack};
    use std::cell::RefCell;
    struct Own(RefCell<Option<SignalStack>>);
    impl Drop for Own {
        fn drop(&mut self) {
            // This one goes, and one of Rust's is gone since the thread's function has returned: what calls from here on needs another.
            unprepare();
        }
    }
    thread_local! {
        static OWN: Own = const { Own(RefCell::new(None)) };
    }
    if cfg!(miri) {
        return Ok((0, 0));
    }
    if let Some(there) = stacks::current()? {
        // From now on it is dropped.
        let _ = OWN.try_with(|_| ());
        return Ok(there);
    }
    let stack = SignalStack::install()?;
    let range = stack.range();
    let mut stack = Some(stack);
    // While the thread ends there is no place for it: then it stays.
    if OWN.try_with(|own| own.0.replace(stack.take())).is_err() {
        core::mem::forget(stack);
    }
    Ok(range)
}
