//! loom: the owner of a lock enters it while other threads take the ownership away (E10), and hands
//! over to a thread that falls asleep, or to a task (E7, in `handover` and `takers`).
//!
//! The owner is the light thread of the asymmetric fence: see `handfast_region::model`.

use super::{FREE, HELD, How, Word, Words, enter, leave};
use core::cell::Cell;
use core::sync::atomic::Ordering;
use handfast_region::model::{Membarrier, OVERLAP, Points, every_point, must_fail};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;

mod handover;
mod takers;

const OWNER: u32 = 1;
const OTHER: u32 = 2;

/// The words of a lock whose owner is known, and its value.
struct Model {
    words: [AtomicU32; 3],
    value: UnsafeCell<u32>,
    barrier: Arc<Membarrier>,
    without: Without,
}

#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// The other thread's fence.
    Membarrier,
    /// The owner's order: it looks whether the lock is held before it says that it is inside.
    Order,
}

impl Model {
    fn new(barrier: Arc<Membarrier>, without: Without) -> Self {
        let words = [0, OWNER, 0].map(AtomicU32::new);
        let value = UnsafeCell::new(0);
        Self {
            words,
            value,
            barrier,
            without,
        }
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        &self.words[word as usize]
    }

    /// Counts in the value; loom reports it when two threads do so at once.
    fn change_value(&self) {
        self.value.with_mut(|value| {
            // SAFETY: loom has just checked that no other thread accesses the cell.
            unsafe { *value += 1 };
        });
    }
}

/// The words as one of the threads uses them; the owner has points where the fence may fall.
struct Thread<'a> {
    model: &'a Model,
    points: Option<&'a Points>,
    held_back: Cell<bool>,
}

impl<'a> Thread<'a> {
    fn new(model: &'a Model, points: Option<&'a Points>) -> Self {
        let held_back = Cell::new(false);
        Self {
            model,
            points,
            held_back,
        }
    }

    fn operation(&self) {
        self.points
            .iter()
            .for_each(|points| points.before_operation());
    }
}

impl Words for Thread<'_> {
    fn load(&self, word: Word, order: Ordering) -> u32 {
        self.operation();
        let value = self.model.word(word).load(order);
        if self.held_back.take() {
            self.operation();
            self.model.word(Word::Inside).store(1, Ordering::Relaxed);
        }
        value
    }

    fn store(&self, word: Word, value: u32, order: Ordering) {
        if self.model.without == Without::Order && (word, value) == (Word::Inside, 1) {
            self.held_back.set(true);
            return;
        }
        self.operation();
        self.model.word(word).store(value, order);
    }

    fn take(&self, how: u32) -> bool {
        self.operation();
        self.model
            .word(Word::Held)
            .compare_exchange(FREE, how, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn thread(&self) -> u32 {
        if self.points.is_some() { OWNER } else { OTHER }
    }

    fn fence_light(&self) {}

    fn fence_own_threads(&self) {
        assert!(self.points.is_none(), "the owner has no need of it");
        if self.model.without != Without::Membarrier {
            self.model.barrier.call();
        }
    }

    fn prepare_fence(&self) {}

    fn give_way(&self, _: u32) {
        self.points.iter().for_each(|points| points.spin());
        loom::thread::yield_now();
    }
}

/// Both threads take the lock twice if they can, and change the value.
fn owner_against_another(without: Without) {
    every_point(2, move |barrier, points| {
        let model = Arc::new(Model::new(barrier.clone(), without));
        let (theirs, calls) = (model.clone(), barrier.clone());
        let owner = loom::thread::spawn(move || {
            let points = Points::new(calls, points);
            let words = Thread::new(&theirs, Some(&points));
            let mut changes = 0;
            for _ in 0..2 {
                if let Some(how) = enter(&words) {
                    theirs.change_value();
                    leave(&words, how);
                    changes += 1;
                }
            }
            (changes, points.finish())
        });
        let words = Thread::new(&model, None);
        let mut changes = 0;
        for _ in 0..2 {
            if let Some(how) = enter(&words) {
                assert_eq!(how, How::Held);
                model.change_value();
                leave(&words, how);
                changes += 1;
            }
        }
        barrier.over();
        let (theirs, operations) = owner.join().unwrap();
        // SAFETY: the other thread has ended.
        let value = model.value.with(|value| unsafe { *value });
        assert_eq!(value, changes + theirs);
        operations
    });
}

#[test]
fn e10_one_holder_while_the_ownership_is_taken_away() {
    owner_against_another(Without::Nothing);
}

/// Both try at once; not both in vain, since each would then rely on the other.
#[test]
fn e10_of_two_that_try_at_once_one_gets_it() {
    every_point(3, move |barrier, points| {
        let model = Arc::new(Model::new(barrier.clone(), Without::Nothing));
        let (theirs, calls) = (model.clone(), barrier.clone());
        let owner = loom::thread::spawn(move || {
            let points = Points::new(calls, points);
            let got = enter(&Thread::new(&theirs, Some(&points))).is_some();
            (got, points.finish())
        });
        let got = enter(&Thread::new(&model, None)).is_some();
        barrier.over();
        let (theirs, operations) = owner.join().unwrap();
        assert!(got != theirs, "neither has it, or both");
        operations
    });
}

#[test]
fn e10_without_the_fence_of_the_other_thread_there_are_two_holders() {
    must_fail(OVERLAP, || owner_against_another(Without::Membarrier));
}

#[test]
fn e10_without_the_owners_order_there_are_two_holders() {
    must_fail(OVERLAP, || owner_against_another(Without::Order));
}

#[test]
fn e9_the_next_holder_sees_what_the_last_one_did() {
    loom::model(|| {
        let model = Arc::new(Model::new(Arc::default(), Without::Nothing));
        let theirs = model.clone();
        let take_once = |model: &Model| {
            let words = Thread::new(model, None);
            if words.take(HELD) {
                model.change_value();
                leave(&words, How::Held);
            }
        };
        let other = loom::thread::spawn(move || take_once(&theirs));
        take_once(&model);
        other.join().unwrap();
    });
}
