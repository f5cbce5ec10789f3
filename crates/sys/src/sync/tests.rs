use super::{Condvar, Mutex, RwLock, check_none_held};
use crate::lock::{Lock, OwnedLock};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

crate::ranks! { 1: Low, Middle, High }

/// Whether a debug build says that locks are taken in the wrong order.
fn is_refused(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

#[test]
fn locks_are_taken_in_the_order_of_their_ranks() {
    let (low, high) = (Mutex::<_, Low>::new(1), RwLock::<_, High>::new(2));
    let (middle, owned) = (Lock::<_, Middle>::new(3), OwnedLock::<_, Middle>::new(4));
    let (one, other) = (low.lock(), middle.lock());
    assert_eq!((*one, *other, *high.read()), (1, 3, 2));
    // One lock of a rank at a time.
    assert_eq!(is_refused(|| drop(owned.lock())), cfg!(debug_assertions));
    drop(other);
    assert_eq!(*owned.lock(), 4);
    let highest = high.write();
    // In any order.
    drop(one);
    for refused in [
        is_refused(|| drop(low.lock())),
        is_refused(|| drop(middle.lock())),
        is_refused(|| drop(owned.lock())),
        is_refused(check_none_held),
    ] {
        assert_eq!(refused, cfg!(debug_assertions));
    }
    // It does not wait.
    let tried = low.try_lock();
    assert!(tried.is_some());
    drop((highest, tried));
    check_none_held();
    drop(low.lock());
}

#[test]
fn whoever_is_alone_in_it_takes_locks_of_one_rank() {
    let (one, other, alone) = (
        Mutex::<_, Middle>::new(1),
        Mutex::<_, Middle>::new(2),
        Mutex::<_, Low>::new(()),
    );
    let turn = alone.lock();
    let both = turn.nest(|| (one.lock(), other.lock()));
    assert_eq!((*both.0, *both.1), (1, 2));
    drop(both);
    let ends = catch_unwind(AssertUnwindSafe(|| turn.nest(|| panic!("in the middle"))));
    assert!(ends.is_err());
    let _one = one.lock();
    assert_eq!(is_refused(|| drop(other.lock())), cfg!(debug_assertions));
}

#[test]
fn a_thread_that_panics_leaves_a_lock_that_others_take() {
    let (lock, changed) = (Mutex::<_, Low>::new(0), Condvar::new());
    let panics = || {
        *lock.lock() += 1;
        panic!("with the lock");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| *changed.wait_while(lock.lock(), |value| *value == 1));
        *lock.lock() += 1;
        changed.notify_all();
        assert_eq!(waits.join().unwrap(), 2);
    });
    let (value, has_timed_out) = changed.wait_timeout(lock.lock(), Duration::from_millis(1));
    assert!(*value == 2 && has_timed_out);
}
