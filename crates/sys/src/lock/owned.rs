//! The lock that is nearly always one thread's.

use crate::sync::{Held, Rank, check};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

/// A lock that its first user takes without a locked instruction, as long as no other thread
/// comes: a receiver's poller is nearly always one thread's.
///
/// The first thread to take it becomes its *owner*: it says that it is inside with a plain store
/// and looks whether the lock is held by another. Another thread takes the lock, makes every
/// thread of the process pass a fence, and looks whether the owner is inside; if not, the
/// ownership ends for good and from then on all threads take it with a locked instruction. The
/// fence costs a few microseconds, once.
///
/// When several threads try at once while the lock is free, one gets it: an owner that meets
/// another thread midway waits for its verdict.
#[derive(Debug)]
pub struct OwnedLock<T, R: Rank> {
    words: State,
    rank: PhantomData<fn() -> R>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, of which there is one at a time (E9, E10).
unsafe impl<T: Send, R: Rank> Sync for OwnedLock<T, R> {}

/// The right to the value of an [`OwnedLock`]; gives it back on drop, also in a panic (the value
/// is then as the panic left it).
#[derive(Debug)]
pub struct OwnedGuard<'a, T, R: Rank> {
    lock: &'a OwnedLock<T, R>,
    _held: Held<R>,
    how: How,
    /// Others may look at the value through it only if they may share that.
    value: PhantomData<&'a mut T>,
    /// Its thread gives it back: to leave by the owner's way is for the owner.
    ///
    /// ```compile_fail,E0277
    /// handfast_sys::ranks! { 1: Only }
    /// let lock = handfast_sys::lock::OwnedLock::<_, Only>::new(0);
    /// let guard = lock.try_lock();
    /// std::thread::scope(|scope| scope.spawn(move || drop(guard)));
    /// ```
    of_thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives out nothing but `&T`, and is given back by its own thread.
unsafe impl<T: Sync, R: Rank> Sync for OwnedGuard<'_, T, R> {}

impl<T, R: Rank> OwnedLock<T, R> {
    /// An unheld lock without an owner.
    pub const fn new(value: T) -> Self {
        let words = State {
            held: AtomicU32::new(FREE),
            owner: AtomicU32::new(NOBODY_YET),
            inside: AtomicU32::new(0),
        };
        let value = UnsafeCell::new(value);
        Self {
            words,
            rank: PhantomData,
            value,
        }
    }

    /// Takes the lock if nobody holds it. May yield for as long as the fence of another thread
    /// takes.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<OwnedGuard<'_, T, R>> {
        enter(&self.words).map(|how| OwnedGuard {
            lock: self,
            _held: Held::enter(),
            how,
            value: PhantomData,
            of_thread: PhantomData,
        })
    }

    /// Takes the lock; yields while another thread holds it, and sleeps between its looks once that has taken long.
    ///
    /// # Panics
    /// In debug builds, where the thread holds a lock whose [rank](Rank) is not lower.
    pub fn lock(&self) -> OwnedGuard<'_, T, R> {
        check::<R>();
        let mut looks = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            looks += 1;
            give_way(looks);
        }
    }
}

impl<T: Default, R: Rank> Default for OwnedLock<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T, R: Rank> Deref for OwnedGuard<'_, T, R> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one while it lives (E9, E10).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, R: Rank> DerefMut for OwnedGuard<'_, T, R> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one while it lives (E9, E10), and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, R: Rank> Drop for OwnedGuard<'_, T, R> {
    #[inline(always)]
    fn drop(&mut self) {
        leave(&self.lock.words, self.how);
    }
}

/// Lets other threads run, after so many looks in vain. The thread that is waited for may be kept from running for long, and yields would
/// keep it from that for longer.
fn give_way(looks: u32) {
    const YIELDS: u32 = 50;
    const NAP: Duration = Duration::from_micros(50);
    match looks <= YIELDS {
        true => crate::cpu::yield_now(),
        false => crate::clock::sleep(NAP),
    }
}

/// The words of the lock; the model has its own.
trait Words {
    fn load(&self, word: Word, order: Ordering) -> u32;
    fn store(&self, word: Word, value: u32, order: Ordering);
    /// Makes [`Word::Held`] `how` if it is [`FREE`]. Acquire.
    fn take(&self, how: u32) -> bool;
    /// A number of this thread; neither [`NOBODY_YET`] nor [`ENDED`].
    fn thread(&self) -> u32;
    /// Keeps the compiler from moving accesses across it.
    fn fence_light(&self);
    /// Makes every thread of the process pass a full fence.
    fn fence_own_threads(&self);
    /// Makes the first of these fences as short as the others.
    fn prepare_fence(&self);
    /// Lets other threads run, after so many looks in vain.
    fn give_way(&self, looks: u32);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    /// [`FREE`]; [`HELD`] while a thread has taken the lock with a locked instruction; [`ASKING`]
    /// while one finds out whether the owner is inside.
    Held,
    /// Number of the owner's thread; [`NOBODY_YET`], or [`ENDED`].
    Owner,
    /// One while the owner is inside. Only it writes this.
    Inside,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const ASKING: u32 = 2;

const NOBODY_YET: u32 = 0;
const ENDED: u32 = u32::MAX;

/// How the lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// By its owner.
    Inside,
    /// By anybody.
    Held,
}

/// Takes the lock if nobody holds it.
#[inline(always)]
fn enter(words: &impl Words) -> Option<How> {
    // Relaxed: only this thread makes it its own number, and the look below decides.
    if words.load(Word::Owner, Ordering::Relaxed) == words.thread() {
        // Relaxed: this thread's own word. Taken twice by one thread, it is held.
        if words.load(Word::Inside, Ordering::Relaxed) != 0 {
            return None;
        }
        // E10 owner, enter half. A plain store, then a compiler fence: the fence of the other
        // thread, in `enter_shared`, acts as a full one here. Either we see the lock taken or the
        // ownership ended, or the other thread sees us inside.
        words.store(Word::Inside, 1, Ordering::Relaxed);
        words.fence_light();
        // Acquire, both: what a holder before us did is visible.
        if words.load(Word::Held, Ordering::Acquire) == FREE
            && words.load(Word::Owner, Ordering::Acquire) != ENDED
        {
            return Some(How::Inside);
        }
        if await_verdict(words) {
            return Some(How::Inside);
        }
        words.store(Word::Inside, 0, Ordering::Release);
    }
    enter_shared(words)
}

/// The owner has said that it is inside and found the lock taken: whether it is its own after all,
/// once a thread that asks has made up its mind. Backing off instead would make both fail when that
/// thread sees us inside, and each would then rely on the other.
#[cold]
fn await_verdict(words: &impl Words) -> bool {
    let mut looks = 0;
    loop {
        // Acquire, both: as in `enter`.
        match words.load(Word::Held, Ordering::Acquire) {
            FREE => return words.load(Word::Owner, Ordering::Acquire) != ENDED,
            ASKING => {}
            _ => return false,
        }
        looks += 1;
        words.give_way(looks);
    }
}

#[cold]
fn enter_shared(words: &impl Words) -> Option<How> {
    loop {
        // Relaxed: looked at again below.
        let owner = words.load(Word::Owner, Ordering::Relaxed);
        let asks = owner != ENDED && owner != NOBODY_YET && owner != words.thread();
        if asks {
            // The owner waits while the question lasts.
            words.prepare_fence();
        }
        if !words.take(if asks { ASKING } else { HELD }) {
            return None;
        }
        // Relaxed: changed only by the thread that has taken the lock.
        if words.load(Word::Owner, Ordering::Relaxed) != owner {
            // Somebody has become the owner, or is it no more.
            leave(words, How::Held);
            continue;
        }
        if owner == NOBODY_YET {
            // Relaxed: as above.
            words.store(Word::Owner, words.thread(), Ordering::Relaxed);
        }
        if asks {
            // E10 owner, revoke half. Pairs with the compiler fence in `enter`.
            words.fence_own_threads();
            // Acquire: what the owner did inside is visible once it says it has left.
            if words.load(Word::Inside, Ordering::Acquire) != 0 {
                leave(words, How::Held);
                return None;
            }
            // Release, both: the owner that sees the second sees the first.
            words.store(Word::Owner, ENDED, Ordering::Release);
            words.store(Word::Held, HELD, Ordering::Release);
        }
        return Some(How::Held);
    }
}

#[inline(always)]
fn leave(words: &impl Words, how: How) {
    match how {
        // E10 owner, leave. Release: our changes are visible to a thread that sees us outside.
        How::Inside => words.store(Word::Inside, 0, Ordering::Release),
        // E9 lock, release half. Release: our changes are visible to the next holder. Take half:
        // `State::take`.
        How::Held => words.store(Word::Held, FREE, Ordering::Release),
    }
}

/// The words themselves.
#[derive(Debug, Default)]
struct State {
    held: AtomicU32,
    owner: AtomicU32,
    inside: AtomicU32,
}

impl State {
    #[inline(always)]
    fn word(&self, word: Word) -> &AtomicU32 {
        match word {
            Word::Held => &self.held,
            Word::Owner => &self.owner,
            Word::Inside => &self.inside,
        }
    }
}

impl Words for State {
    #[inline(always)]
    fn load(&self, word: Word, order: Ordering) -> u32 {
        self.word(word).load(order)
    }

    #[inline(always)]
    fn store(&self, word: Word, value: u32, order: Ordering) {
        self.word(word).store(value, order);
    }

    #[inline(always)]
    fn take(&self, how: u32) -> bool {
        // E9 lock, take half. Acquire: what the last holder did to the value is visible. Release
        // half: `leave`. Relaxed on failure: nothing is taken.
        self.held
            .compare_exchange(FREE, how, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline(always)]
    fn thread(&self) -> u32 {
        super::thread_number()
    }

    #[inline(always)]
    fn fence_light(&self) {
        crate::futex::fence_light();
    }

    fn fence_own_threads(&self) {
        crate::futex::fence_own_threads();
    }

    fn prepare_fence(&self) {
        crate::futex::prepare_fence();
    }

    fn give_way(&self, looks: u32) {
        give_way(looks);
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    crate::ranks! { 1: Only }

    /// The processor time of this thread.
    fn used() -> Duration {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is valid for a write.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        assert_eq!(result, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// A thread that asked was kept from its answer for half a second on a busy machine. The owner yielded for as long, a hundred
    /// thousand times (`forged::claims`, once in five runs beside other work).
    #[test]
    #[cfg_attr(miri, ignore = "no clock of a thread")]
    fn an_owner_that_waits_for_a_long_verdict_sleeps() {
        let lock = OwnedLock::<_, Only>::new(0);
        // Owned by this thread from now on.
        drop(lock.lock());
        lock.words.store(Word::Held, ASKING, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Sleep: stands for what keeps a thread that asks from its answer.
                std::thread::sleep(Duration::from_millis(300));
                lock.words.store(Word::Held, FREE, Ordering::Release);
            });
            let before = used();
            *lock.lock() += 1;
            let used = used() - before;
            assert!(used < Duration::from_millis(150), "{used:?}");
        });
    }
}
