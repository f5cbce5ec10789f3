//! The asymmetric fence under loom, which has none.
//!
//! `membarrier` promises: every other thread passes a full fence at *some* point of its program
//! between the start and the end of the call (the kernel's text: the interrupted threads run
//! `smp_mb()`; a thread that does not run passed one when it was switched out). So a behaviour of
//! the real call is a behaviour of this program, for some point `p` of the light thread: the
//! caller fences, asks, waits for the answer, and fences; the light thread waits at `p` for the
//! question, fences, and answers. A model is therefore run once for every `p` ([`every_point`]), and
//! for every non-decreasing pair of points when the call may come twice.
//!
//! * Waiting at `p` takes no behaviour away from the executions in which the fence falls at `p`:
//!   there, everything after `p` comes after the call's start anyway.
//! * Executions without a call belong to the last point, after the light thread's last
//!   operation, where nothing is waited for earlier; at any other point the light thread goes on
//!   when the caller sleeps, or is done ([`Membarrier::over`]).
//! * The question and its answer order nothing that the interrupt does not: the call's start
//!   before the fence, the fence before the call's end.
//! * Only the one light thread passes a fence; in truth all do. A model has less order, not more.
//! * Calls past the second are answered after the light thread's last operation only.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use loom::sync::atomic::fence;
use loom::sync::{Arc, Condvar, Mutex};

/// One caller and one light thread.
#[derive(Default)]
pub struct Membarrier {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    asked: u32,
    answered: u32,
    idle: bool,
    over: bool,
}

impl Membarrier {
    /// The call.
    pub fn call(&self) {
        // SeqCst: the call's own first fence.
        fence(Ordering::SeqCst);
        let mut state = self.state.lock().unwrap();
        state.asked += 1;
        self.changed.notify_all();
        while state.answered < state.asked {
            state = self.changed.wait(state).unwrap();
        }
        drop(state);
        // SeqCst: its last.
        fence(Ordering::SeqCst);
    }

    /// The caller calls no more.
    pub fn over(&self) {
        self.state.lock().unwrap().over = true;
        self.changed.notify_all();
    }

    /// The caller is about to sleep, or goes on.
    pub(super) fn idle(&self, on: bool) {
        self.state.lock().unwrap().idle = on;
        self.changed.notify_all();
    }

    /// The light thread's fence: waits until it is asked for, or will not be, or not soon. `false`
    /// then.
    fn answer(&self, at_end: bool) -> bool {
        let mut state = self.state.lock().unwrap();
        while state.answered == state.asked && !state.over && (at_end || !state.idle) {
            state = self.changed.wait(state).unwrap();
        }
        if state.answered == state.asked {
            return false;
        }
        // SeqCst: the interrupt's.
        fence(Ordering::SeqCst);
        state.answered += 1;
        self.changed.notify_all();
        true
    }
}

/// The light thread's count of its operations, and where its fences fall.
pub struct Points {
    barrier: Arc<Membarrier>,
    at: [u32; 2],
    next: Cell<usize>,
    operations: Cell<u32>,
}

impl Points {
    /// Fences before the operations numbered `at`, from zero.
    #[must_use]
    pub fn new(barrier: Arc<Membarrier>, at: [u32; 2]) -> Self {
        Self {
            barrier,
            at,
            next: Cell::new(0),
            operations: Cell::new(0),
        }
    }

    /// To be called before each operation of the light thread on shared words.
    pub fn before_operation(&self) {
        while self.at.get(self.next.get()) == Some(&self.operations.get()) {
            self.next.set(self.next.get() + 1);
            self.barrier.answer(false);
        }
        self.operations.set(self.operations.get() + 1);
    }

    /// The light thread waits for something that may itself wait for its fence: answers, if asked.
    pub fn spin(&self) {
        let state = self.barrier.state.lock().unwrap();
        let asked = state.answered < state.asked;
        drop(state);
        if asked {
            self.barrier.answer(false);
        }
    }

    /// After the last operation: answers until the caller is done. Returns how many operations
    /// there were.
    pub fn finish(&self) -> u32 {
        while self.barrier.answer(true) {}
        self.operations.get()
    }
}

/// Checks `model` under loom, with a bound on preemptions, for every non-decreasing pair of points of its light thread. It
/// returns how many operations that thread made (see [`Points::finish`]).
pub fn every_point(
    preemptions: usize,
    model: impl Fn(Arc<Membarrier>, [u32; 2]) -> u32 + Send + Sync + 'static,
) {
    let model = std::sync::Arc::new(model);
    let operations = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    // Relaxed, all: one thread runs all of a model.
    let last = || operations.load(Ordering::Relaxed);
    let (mut first, mut runs) = (0, 0);
    while first <= last() {
        let mut second = first;
        while second <= last() {
            let (model, operations) = (model.clone(), operations.clone());
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(preemptions);
            builder.check(move || {
                let made = model(Arc::default(), [first, second]);
                operations.fetch_max(made, Ordering::Relaxed);
            });
            (second, runs) = (second + 1, runs + 1);
        }
        first += 1;
    }
    println!("{runs} pairs of points, {} operations", last());
    assert!(last() > 0, "the light thread did nothing");
}
