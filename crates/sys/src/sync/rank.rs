//! Ranks of locks: a thread takes locks in the order of their ranks.

use core::marker::PhantomData;

/// The place of a lock in the order in which one thread takes locks: while it holds a lock, it waits only for locks of
/// higher ranks. So it never holds two of the same rank, unless it has taken the second by `try_lock`, which does
/// not wait.
///
/// Debug builds check each `lock`, and panic with the name of the lock and the level that is held. In release builds a rank costs nothing.
pub trait Rank {
    /// Higher ones are taken later; at most 127.
    const LEVEL: u8;
    /// The name of the lock in `spec/locks.md`.
    const NAME: &'static str;
}

/// Makes types that are ranks, in rising order, from a level on.
///
/// ```
/// handfast_sys::ranks! { 10: First, Second }
/// # use handfast_sys::sync::Rank;
/// assert!(First::LEVEL < Second::LEVEL);
/// ```
#[macro_export]
macro_rules! ranks {
    ($first:literal: $($name:ident),+ $(,)?) => {
        enum Levels { Before = $first - 1, $($name),+ }
        const _: Levels = Levels::Before;
        $(
            #[derive(Debug)]
            pub(crate) enum $name {}

            impl $crate::sync::Rank for $name {
                const LEVEL: u8 = Levels::$name as u8;
                const NAME: &'static str = stringify!($name);
            }
        )+
    };
}

/// A lock of rank `R` that this thread holds, as its guard says. Dropped by the same thread.
#[derive(Debug)]
pub(crate) struct Held<R: Rank> {
    /// Another one of the same level is held, longer.
    #[cfg(any(debug_assertions, feature = "simulation"))]
    is_second: bool,
    rank: PhantomData<fn() -> R>,
}

/// The thread is about to wait for a lock.
///
/// # Panics
/// In debug builds, where it holds one of the same rank or a higher one.
#[inline(always)]
pub(crate) fn check<R: Rank>() {
    #[cfg(any(debug_assertions, feature = "simulation"))]
    held::check(R::LEVEL, R::NAME);
}

/// The thread is about to call code that may take any lock: the application's code.
///
/// # Panics
/// In debug builds, where it holds a lock with a rank.
#[inline(always)]
pub fn check_none_held() {
    #[cfg(any(debug_assertions, feature = "simulation"))]
    held::check(0, "of an application");
}

/// Runs `work` without checks in debug builds: see [`MutexGuard::nest`](super::MutexGuard::nest).
#[inline(always)]
pub(crate) fn unchecked<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(any(debug_assertions, feature = "simulation"))]
    return held::unchecked(work);
    #[cfg(not(any(debug_assertions, feature = "simulation")))]
    work()
}

impl<R: Rank> Held<R> {
    /// The thread has taken a lock.
    #[inline(always)]
    pub(crate) fn enter() -> Self {
        Self {
            #[cfg(any(debug_assertions, feature = "simulation"))]
            is_second: held::enter(R::LEVEL),
            rank: PhantomData,
        }
    }
}

#[cfg(any(debug_assertions, feature = "simulation"))]
impl<R: Rank> Drop for Held<R> {
    fn drop(&mut self) {
        if !self.is_second {
            held::leave(R::LEVEL);
        }
    }
}

#[cfg(any(debug_assertions, feature = "simulation"))]
mod held {
    use core::cell::Cell;

    thread_local! {
        /// The levels of which the thread holds a lock, a bit each. Without a destructor, as the one below: destructors of other
        /// thread-local values take locks.
        static HELD: Cell<u128> = const { Cell::new(0) };
        static UNCHECKED: Cell<bool> = const { Cell::new(false) };
    }

    /// Checks nothing while `work` runs.
    pub(super) fn unchecked<T>(work: impl FnOnce() -> T) -> T {
        struct Ends(bool);
        impl Drop for Ends {
            fn drop(&mut self) {
                UNCHECKED.set(self.0);
            }
        }
        let _ends = Ends(UNCHECKED.replace(true));
        work()
    }

    fn set(held: u128) {
        HELD.set(held);
        #[cfg(feature = "simulation")]
        crate::simulation::has_lock(held != 0);
    }

    pub(super) fn check(level: u8, name: &str) {
        if HELD.get() >> level != 0 {
            refuse(name);
        }
    }

    #[cold]
    fn refuse(name: &str) {
        // A panic within a panic would end the process.
        if UNCHECKED.get() || std::thread::panicking() {
            return;
        }
        let highest = HELD.get().ilog2();
        panic!(
            "the lock {name} is waited for while one of level {highest} is held, which is not lower: see spec/locks.md"
        );
    }

    /// Whether the level was held before.
    pub(super) fn enter(level: u8) -> bool {
        let before = HELD.get();
        set(before | 1 << level);
        before >> level & 1 != 0
    }

    pub(super) fn leave(level: u8) {
        set(HELD.get() & !(1 << level));
    }
}
