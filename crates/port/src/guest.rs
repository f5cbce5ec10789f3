//! Application code that the library calls: wakers, subscribers of `tracing`, closures. It may panic, and it may call the
//! library.
//!
//! A panic in such code ends only the code's own work. Wakers run without any lock: where there may be one, they wait until
//! it is free ([`later`]). In the control thread nothing waits for an event that only that thread brings about
//! ([`is_control`]).

use core::cell::{Cell, RefCell};
use core::task::Waker;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

thread_local! {
    /// Wakers that wait until a lock is free; nothing where they need not.
    static LATER: RefCell<Option<Vec<Woken>>> = const { RefCell::new(None) };
    /// This is the control thread.
    static IS_CONTROL: Cell<bool> = const { Cell::new(false) };
}

/// A waker that is to be called.
pub(crate) enum Woken {
    Own(Waker),
    Shared(Arc<Waker>),
}

/// Runs code of the application, which may panic: then there is nothing. The panic hook has been told.
///
/// # Panics
/// In debug builds, where this thread holds a lock: that code may call the library.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    handfast_sys::sync::check_none_held();
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(payload) => {
            // The drop of the payload may be another panic.
            core::mem::forget(payload);
            None
        }
    }
}

/// Says something to the subscriber of `tracing`, which is the application's.
macro_rules! tell {
    ($level:ident, $($said:tt)+) => {
        $crate::guest::guarded(|| tracing::$level!($($said)+)).unwrap_or_default()
    };
}
pub(crate) use tell;

/// Calls a waker; within [`later`], at its end.
pub(crate) fn wake(woken: Woken) {
    let mut woken = Some(woken);
    // A thread that is ending has no such list.
    let _ = LATER.try_with(|later| {
        if let Some(later) = later.borrow_mut().as_mut() {
            later.extend(woken.take());
        }
    });
    woken.map(call).unwrap_or_default();
}

fn call(woken: Woken) {
    guarded(|| match woken {
        Woken::Own(waker) => waker.wake(),
        Woken::Shared(waker) => waker.wake_by_ref(),
    });
}

/// Has the wakers that `work` calls run after it, when its locks are free.
pub(crate) fn later<T>(work: impl FnOnce() -> T) -> T {
    let _calls = Calls::begin();
    work()
}

/// Calls those that have waited, also when what they have waited for has panicked.
struct Calls {
    is_outermost: bool,
}

impl Calls {
    fn begin() -> Self {
        let begins = |later: &RefCell<Option<Vec<Woken>>>| {
            let mut later = later.borrow_mut();
            let is_first = later.is_none();
            later.get_or_insert_default();
            is_first
        };
        let is_outermost = LATER.try_with(begins).unwrap_or_default();
        Self { is_outermost }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if self.is_outermost {
            let waited = LATER.try_with(RefCell::take);
            waited.ok().flatten().into_iter().flatten().for_each(call);
        }
    }
}

/// From now on this is the control thread.
pub(crate) fn becomes_control() {
    IS_CONTROL.set(true);
}

/// Whether this is the control thread. Blocking calls fail there with
/// [`Misuse::ControlThread`](crate::error::Misuse::ControlThread): no other thread would end the wait.
pub(crate) fn is_control() -> bool {
    IS_CONTROL.try_with(Cell::get).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    struct Counts(AtomicU32, bool);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1, "this waker panics");
        }
    }

    #[test]
    fn wakers_wait_for_the_end_of_what_holds_locks_and_panic_alone() {
        let counts = [false, true, false].map(|panics| Arc::new(Counts(0.into(), panics)));
        let count = || counts.each_ref().map(|of| of.0.load(Ordering::Relaxed));
        let wake_all = || {
            for counts in &counts {
                wake(Woken::Own(Waker::from(counts.clone())));
            }
        };
        later(|| {
            later(wake_all);
            assert_eq!(count(), [0; 3]);
        });
        assert_eq!(count(), [1; 3]);
        wake_all();
        assert_eq!(count(), [2; 3]);
        let panicked = guarded(|| {
            later(|| {
                wake_all();
                assert!(counts.is_empty(), "after that");
            });
        });
        assert_eq!((panicked, count()), (None, [3; 3]));
    }
}
