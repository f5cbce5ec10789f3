//! Tasks that one thread does at a time: changes of the gate's table, and of handlers of signals. No fork comes in between, since
//! a child would have half of a change, and a lock that nobody gives back; and no deadline.

use crate::rank;
use core::cell::UnsafeCell;
use handfast_sys::deadline::{self, Shield};
use handfast_sys::sync::{Mutex, MutexGuard};

static LOCK: Mutex<(), rank::Alone> = Mutex::new(());

/// Nobody else changes anything until this is dropped.
pub(crate) struct Alone {
    _lock: MutexGuard<'static, (), rank::Alone>,
    /// Behind the lock: a function is ended when it is free again.
    _shield: Shield,
}

/// Waits until nobody else does.
pub(crate) fn alone() -> Alone {
    let shield = deadline::shield();
    Alone {
        _lock: lock(),
        _shield: shield,
    }
}

fn lock() -> MutexGuard<'static, (), rank::Alone> {
    LOCK.lock()
}

/// The lock, while the thread that has it forks.
struct Forker(UnsafeCell<Option<MutexGuard<'static, (), rank::Alone>>>);
// SAFETY: only the thread that holds the lock looks at it.
unsafe impl Sync for Forker {}

static FORKER: Forker = Forker(UnsafeCell::new(None));

/// In a process that forks, before it does.
pub(crate) extern "C" fn before_fork() {
    let lock = lock();
    // SAFETY: this thread holds the lock.
    unsafe { *FORKER.0.get() = Some(lock) };
}

/// In both processes.
pub(crate) extern "C" fn after_fork() {
    // SAFETY: this thread, or the one that it is a copy of, holds the lock.
    drop(unsafe { (*FORKER.0.get()).take() });
}
