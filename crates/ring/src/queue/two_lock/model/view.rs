//! The members of a model: one region of model memory, seen by each through a view of its own.

use super::super::*;
use handfast_region::Wait;
use handfast_region::model::ModelMemory;
use loom::sync::atomic::AtomicBool;
use std::panic::resume_unwind;

/// One member's view of the model memory: may weaken orderings, sleep for ever, and end.
pub(super) struct View {
    inner: Arc<ModelMemory>,
    weaken: Weaken,
    /// Sleeps have no deadline: a lost wake-up is a deadlock, which loom reports.
    sleeps_for_ever: bool,
    /// Memory operations left in this member's life.
    pub(super) left: core::sync::atomic::AtomicU32,
}

/// Which stores (or loads) of a view lose their ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weaken {
    Nothing,
    /// Q1, Q2: those of a node's link.
    Links,
    /// Q1, Q2: not the stores but the loads of a node's link.
    LinkLoads,
    /// Q3: those that release a lock.
    Locks,
    /// Q5: that of the format.
    Format,
    /// Not an ordering: nobody is woken.
    Wakes,
}

pub(super) const FOR_EVER: u32 = u32::MAX;
pub(super) struct Killed;

impl View {
    fn order(&self, at: usize, order: Ordering) -> Ordering {
        let is_weak = match self.weaken {
            Weaken::Nothing | Weaken::LinkLoads | Weaken::Wakes => false,
            Weaken::Links => at >= NODES,
            Weaken::Locks => at == HEAD_LOCK || at == TAIL_LOCK,
            Weaken::Format => at == FORMAT,
        };
        if is_weak { Relaxed } else { order }
    }

    fn step(&self) {
        match self.left.load(Relaxed) {
            FOR_EVER => {}
            0 => resume_unwind(Box::new(Killed)),
            left => self.left.store(left - 1, Relaxed),
        }
    }
}

impl Memory for View {
    fn load(&self, at: usize, order: Ordering) -> u32 {
        self.step();
        let is_weak = self.weaken == Weaken::LinkLoads && at >= NODES;
        self.inner.load(at, if is_weak { Relaxed } else { order })
    }
    fn store(&self, at: usize, value: u32, order: Ordering) {
        self.step();
        self.inner.store(at, value, self.order(at, order));
    }
    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32 {
        self.step();
        self.inner.swap(at, value, self.order(at, order))
    }
    fn fetch_or(&self, at: usize, bits: u32, order: Ordering) -> u32 {
        self.step();
        self.inner.fetch_or(at, bits, order)
    }
    fn compare_exchange(&self, at: usize, current: u32, new: u32) -> Result<u32, u32> {
        self.step();
        self.inner.compare_exchange(at, current, new)
    }
    fn fence(&self) {
        self.inner.fence();
    }
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.step();
        self.inner.copy_in(at, bytes);
    }
    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.step();
        self.inner.copy_out(at, bytes);
    }
    fn park(&self, at: usize, expected: u32, _: Option<u64>) -> Wait {
        self.step();
        if self.sleeps_for_ever {
            return self.inner.park(at, expected, None);
        }
        loom::thread::yield_now();
        Wait::TimedOut
    }
    fn wake(&self, at: usize, count: u32) -> u32 {
        if self.weaken == Weaken::Wakes {
            return 0;
        }
        self.inner.wake(at, count)
    }
}

/// A group of which member 1 may die.
pub(super) struct Seat {
    number: u32,
    first_is_dead: Arc<AtomicBool>,
    /// Q4: whether its death makes visible what it wrote.
    death: Ordering,
}

impl Members for Seat {
    fn me(&self) -> u32 {
        self.number
    }
    fn is_dead(&self, member: u32) -> bool {
        member == 1 && self.first_is_dead.load(self.death)
    }
}

/// What the members of one model share.
#[derive(Clone)]
pub(super) struct Group {
    inner: Arc<ModelMemory>,
    pub(super) first_is_dead: Arc<AtomicBool>,
    capacity: u32,
    pub(super) death: Ordering,
    pub(super) sleeps_for_ever: bool,
}

impl Group {
    pub(super) fn unmade(capacity: u32) -> Self {
        let nodes = 0..(capacity + EXTRA_NODES) as usize;
        let node = |node: usize| NODES + node * NODE_BYTES;
        let words: Vec<_> = [HEAD_LOCK, HEAD, POOL_TAIL, TAIL_LOCK, TAIL, POOL_HEAD]
            .into_iter()
            .chain([FORMAT, CAPACITY])
            .chain(nodes.clone().map(|number| node(number) + NEXT))
            .collect();
        let areas: Vec<_> = nodes.map(|number| node(number) + MESSAGE).collect();
        Self {
            inner: Arc::new(ModelMemory::new(&words, &areas)),
            first_is_dead: Arc::new(AtomicBool::new(false)),
            capacity,
            death: Acquire,
            sleeps_for_ever: false,
        }
    }

    pub(super) fn new(capacity: u32) -> Self {
        let group = Self::unmade(capacity);
        let (view, seat) = group.member(63, Weaken::Nothing);
        TwoLock::create(view, 0, capacity, seat).unwrap();
        group
    }

    pub(super) fn member(&self, number: u32, weaken: Weaken) -> (Arc<View>, Arc<Seat>) {
        let view = View {
            inner: self.inner.clone(),
            weaken,
            sleeps_for_ever: self.sleeps_for_ever,
            left: FOR_EVER.into(),
        };
        let seat = Seat {
            number,
            first_is_dead: self.first_is_dead.clone(),
            death: self.death,
        };
        (Arc::new(view), Arc::new(seat))
    }

    pub(super) fn attach(&self, number: u32, weaken: Weaken) -> TwoLock<View> {
        let (view, seat) = self.member(number, weaken);
        let mut queue = TwoLock::attach(view, 0, self.capacity, seat).unwrap();
        queue.looks = 0;
        queue
    }
}
