//! loom: two threads have work for one timer while the control thread does what is due. Whatever the interleaving, all
//! work is done once the alarm has gone off for the last time.
//!
//! The steps are taken from [`Upkeep`](super::Upkeep), written out with loom's atomics. Time stands still: everything
//! is due at once. The alarm is the kernel's; a lock stands for it. The work is a relaxed word for each thread.

use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use handfast_region::model::must_panic;
use loom::sync::atomic::{AtomicBool, AtomicU64};
use loom::sync::{Arc, Mutex};

const NEVER_NS: u64 = u64::MAX;
const DUE_NS: u64 = 1;
const THREADS: usize = 2;

#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// E20, store half.
    WorkRelease,
    /// E20, load half.
    WorkAcquire,
    /// E21, store half.
    AlarmRelease,
    /// E21, load half.
    AlarmAcquire,
    /// The control thread stores the alarm's time in the place of an exchange.
    Exchange,
    /// The control thread does not set the alarm for what is due next.
    End,
}

struct Upkeep {
    without: Without,
    due_ns: AtomicU64,
    alarm_ns: AtomicU64,
    alarm: Mutex<bool>,
    work: [AtomicBool; THREADS],
}

impl Upkeep {
    fn order(&self, without: Without, order: Ordering) -> Ordering {
        match self.without == without {
            true => Relaxed,
            false => order,
        }
    }

    fn schedule(&self, thread: usize) {
        self.work[thread].store(true, Relaxed);
        let release = self.order(Without::WorkRelease, Release);
        if self.due_ns.fetch_min(DUE_NS, release) > DUE_NS {
            self.alarm_at();
        }
    }

    fn alarm_at(&self) {
        let release = self.order(Without::AlarmRelease, Release);
        if self.alarm_ns.fetch_min(DUE_NS, release) > DUE_NS {
            *self.alarm.lock().unwrap() = true;
        }
    }

    /// The control thread does what is due: `ControlThread::keep_up`. Some of it may be left: `Upkeep::put_off`.
    fn keep_up(&self, done: &mut [bool; THREADS], puts_off: bool) {
        *self.alarm.lock().unwrap() = false;
        match self.without {
            Without::Exchange => self.alarm_ns.store(NEVER_NS, Release),
            _ => {
                let acquire = self.order(Without::AlarmAcquire, Acquire);
                self.alarm_ns.swap(NEVER_NS, acquire);
            }
        }
        let acquire = self.order(Without::WorkAcquire, Acquire);
        if self.due_ns.load(Relaxed) <= DUE_NS && self.due_ns.swap(NEVER_NS, acquire) <= DUE_NS {
            for (done, work) in done.iter_mut().zip(&self.work) {
                *done |= work.load(Relaxed);
            }
        }
        if puts_off {
            self.due_ns.fetch_min(DUE_NS, Relaxed);
        }
        if self.without != Without::End && self.due_ns.load(Relaxed) != NEVER_NS {
            self.alarm_ns.fetch_min(DUE_NS, Release);
            *self.alarm.lock().unwrap() = true;
        }
    }
}

fn check(without: Without) {
    check_where(without, false);
}

/// As [`check`], where some of what is done first is left.
fn check_where(without: Without, puts_off: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let upkeep = Arc::new(Upkeep {
            without,
            due_ns: AtomicU64::new(NEVER_NS),
            // Of work that was done long ago.
            alarm_ns: AtomicU64::new(DUE_NS),
            alarm: Mutex::new(true),
            work: [AtomicBool::new(false), AtomicBool::new(false)],
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let upkeep = upkeep.clone();
                loom::thread::spawn(move || upkeep.schedule(thread))
            })
            .collect();
        let mut done = [false; THREADS];
        upkeep.keep_up(&mut done, puts_off);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        if *upkeep.alarm.lock().unwrap() {
            upkeep.keep_up(&mut done, false);
        }
        assert_eq!(done, [true; THREADS], "work is left");
    });
}

#[test]
fn e20_e21_all_work_is_done() {
    check(Without::Nothing);
}

#[test]
fn e21_all_work_is_done_also_beside_some_that_is_left() {
    check_where(Without::Nothing, true);
}

#[test]
fn e21_without_the_alarm_for_what_is_left_work_is_left() {
    must_panic("work is left", || check_where(Without::End, true));
}

#[test]
fn e20_without_the_release_work_is_left() {
    must_panic("work is left", || check(Without::WorkRelease));
}

#[test]
fn e20_without_the_acquire_work_is_left() {
    must_panic("work is left", || check(Without::WorkAcquire));
}

#[test]
fn e21_without_the_release_work_is_left() {
    must_panic("work is left", || check(Without::AlarmRelease));
}

#[test]
fn e21_without_the_acquire_work_is_left() {
    must_panic("work is left", || check(Without::AlarmAcquire));
}

#[test]
fn e21_with_a_store_in_the_place_of_the_exchange_work_is_left() {
    must_panic("work is left", || check(Without::Exchange));
}
