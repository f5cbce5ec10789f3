//! Application code that the library calls: wakers, subscribers of `tracing`, closures. It may panic, and it may call the
//! library.
//!
//! A panic in such code ends only the code's own work. Wakers run without any lock: where there may be one, they wait until
//! it is free ([`later`]). In the control thread nothing waits for an event that only that thread brings about
//! ([`is_control`]).

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::task::Waker;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

thread_local! {
    /// Wakers that wait until a lock is free; nothing where they need not. Without a destructor, as the one below: destructors of
    /// other thread-local values drop rights and ports.
    static LATER: RefCell<ManuallyDrop<Option<Vec<Woken>>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
    /// This is the control thread.
    static IS_CONTROL: Cell<bool> = const { Cell::new(false) };
}

/// A value of the application, whose drop is code of the application: it runs without any lock, and panics alone.
pub(crate) struct Value<T>(Option<T>);

impl<T> Value<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> Deref for Value<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => unreachable!("taken out by the drop alone"),
        }
    }
}

impl<T> Drop for Value<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        guarded(|| drop(value)).unwrap_or_default();
    }
}

/// A waker that is to be called.
pub(crate) enum Woken {
    Own(Value<Waker>),
    Shared(Arc<Value<Waker>>),
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

/// Before a look whether there are wakers to be called.
///
/// # Panics
/// In debug builds, where this thread holds a lock and they would be called at once; also where there are none.
pub(crate) fn check_may_wake() {
    if cfg!(debug_assertions) && LATER.with(|later| later.borrow().is_none()) {
        handfast_sys::sync::check_none_held();
    }
}

/// Calls a waker; within [`later`], at its end.
pub(crate) fn wake(woken: Woken) {
    let now = LATER.with(|later| match later.borrow_mut().as_mut() {
        Some(later) => {
            later.push(woken);
            None
        }
        None => Some(woken),
    });
    now.map(call).unwrap_or_default();
}

fn call(woken: Woken) {
    guarded(|| match woken {
        Woken::Own(mut waker) => waker.0.take().map(Waker::wake).unwrap_or_default(),
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
        let is_outermost = LATER.with(|later| {
            let mut later = later.borrow_mut();
            let is_first = later.is_none();
            later.get_or_insert_default();
            is_first
        });
        Self { is_outermost }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if self.is_outermost {
            let waited = LATER.with(|later| later.borrow_mut().take());
            waited.into_iter().flatten().for_each(call);
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
                wake(Woken::Own(Value::new(Waker::from(counts.clone()))));
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

    /// Wakes within `later` when it is dropped, and counts how often it was woken by then.
    struct Wakes(Arc<Counts>, Arc<AtomicU32>);

    impl Drop for Wakes {
        fn drop(&mut self) {
            later(|| {
                wake(Woken::Own(Value::new(Waker::from(self.0.clone()))));
                self.1
                    .store(self.0.0.load(Ordering::Relaxed), Ordering::Relaxed);
            });
        }
    }

    thread_local! {
        static LAST: Cell<Option<Wakes>> = const { Cell::new(None) };
    }

    #[test]
    fn wakers_wait_also_where_a_thread_is_ending() {
        let counts = Arc::new(Counts(0.into(), false));
        let within = Arc::new(AtomicU32::new(9));
        let wakes = Wakes(counts.clone(), within.clone());
        let thread = std::thread::spawn(move || {
            LAST.set(Some(wakes));
            // Registered after that, a destructor of the list would run before.
            later(|| {});
        });
        thread.join().unwrap();
        let count = |of: &AtomicU32| of.load(Ordering::Relaxed);
        assert_eq!((count(&within), count(&counts.0)), (0, 1));
    }

    struct AtDrop(Arc<AtomicU32>);

    impl Drop for AtDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("this drop panics");
        }
    }

    #[test]
    fn a_drop_that_panics_ends_nothing_but_itself() {
        let drops = Arc::new(AtomicU32::new(0));
        drop([(); 2].map(|()| Value::new(AtDrop(drops.clone()))));
        assert_eq!(drops.load(Ordering::Relaxed), 2);
    }
}
