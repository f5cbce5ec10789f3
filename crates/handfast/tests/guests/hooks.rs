//! A waker that has a guest called when it is copied, woken or dropped.

use crate::common::within_patience;
use crate::deeds::Guest;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// An operation of a waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Clone,
    Wake,
    Drop,
}

/// Whose wakers call the guest at one operation, and count.
pub(crate) struct Hooks {
    at: Operation,
    pub(crate) guest: Guest,
    wakes: AtomicU32,
    pub(crate) drops: AtomicU32,
}

const TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_it);

impl Hooks {
    /// Lives as long as the process: a waker may outlive its test.
    pub(crate) fn leak(at: Operation, guest: &Guest) -> &'static Self {
        Box::leak(Box::new(Self {
            at,
            guest: guest.clone(),
            wakes: AtomicU32::new(0),
            drops: AtomicU32::new(0),
        }))
    }

    pub(crate) fn waker(&'static self) -> Waker {
        // SAFETY: the functions of the table take what is given here, which lives as long as the process and may be shared
        // between threads.
        unsafe { Waker::new((&raw const *self).cast(), &TABLE) }
    }

    pub(crate) fn is_woken(&self) -> bool {
        within_patience(|| self.wakes.load(Ordering::SeqCst) > 0)
    }

    fn meets(&self, operation: Operation) {
        if self.at == operation {
            self.guest.act();
        }
    }
}

fn of(data: *const ()) -> &'static Hooks {
    // SAFETY: `Hooks::waker` has made it of a reference that lives as long as the process.
    unsafe { &*data.cast::<Hooks>() }
}

fn clone(data: *const ()) -> RawWaker {
    of(data).meets(Operation::Clone);
    RawWaker::new(data, &TABLE)
}

fn wake(data: *const ()) {
    wake_by_ref(data);
    drop_it(data);
}

fn wake_by_ref(data: *const ()) {
    // Counted also where it panics.
    of(data).wakes.fetch_add(1, Ordering::SeqCst);
    of(data).meets(Operation::Wake);
}

fn drop_it(data: *const ()) {
    of(data).drops.fetch_add(1, Ordering::SeqCst);
    of(data).meets(Operation::Drop);
}
