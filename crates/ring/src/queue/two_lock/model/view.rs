//! The members of a model: one region of model memory, seen by each through a view of its own.

use super::super::*;
use handfast_region::model::{Countdown, Hook, Hooked, ModelMemory, Operation};
use loom::sync::atomic::AtomicBool;

/// One member's view of the model memory.
pub(super) type View = Hooked<Arc<ModelMemory>, Life>;

/// May weaken orderings, sleep for ever, and end.
pub(super) struct Life {
    weaken: Weaken,
    /// Sleeps have no deadline: a lost wake-up is a deadlock, which loom reports.
    sleeps_for_ever: bool,
    /// Memory operations left in this member's life.
    pub(super) left: Countdown<'static>,
}

/// Which stores (or loads) of a view lose their ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weaken {
    Nothing,
    /// Q1, Q2: the orderings of a node's link.
    Links,
    /// Q1, Q2: not the stores but the loads of a node's link.
    LinkLoads,
    /// Q3: the orderings that release a lock.
    Locks,
    /// Q5: the ordering of the format.
    Format,
    /// Not an ordering: nobody is woken.
    Wakes,
}

impl Hook for Life {
    fn before(&self, operation: Operation) {
        self.left.before(operation);
    }
    fn order(&self, operation: Operation, order: Ordering) -> Ordering {
        let is_weak = match (self.weaken, operation) {
            (Weaken::LinkLoads, Operation::Load(at)) => at >= NODES,
            (weaken, Operation::Store(at, _) | Operation::Swap(at, _)) => match weaken {
                Weaken::Nothing | Weaken::LinkLoads | Weaken::Wakes => false,
                Weaken::Links => at >= NODES,
                Weaken::Locks => at == HEAD_LOCK || at == TAIL_LOCK,
                Weaken::Format => at == FORMAT,
            },
            _ => false,
        };
        if is_weak { Relaxed } else { order }
    }
    fn deadline(&self, _: Option<u64>) -> Option<u64> {
        None
    }
    fn leaves_out(&self, operation: Operation) -> bool {
        match operation {
            Operation::Park if !self.sleeps_for_ever => {
                loom::thread::yield_now();
                true
            }
            Operation::Wake => self.weaken == Weaken::Wakes,
            _ => false,
        }
    }
}

/// A group of which member 1 may die.
pub(super) struct Seat {
    number: u32,
    first_is_dead: Arc<AtomicBool>,
    /// Q4: whether its death makes its writes visible.
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

/// The state that the members of one model share.
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
        let life = Life {
            weaken,
            sleeps_for_ever: self.sleeps_for_ever,
            left: Countdown::killing(),
        };
        let seat = Seat {
            number,
            first_is_dead: self.first_is_dead.clone(),
            death: self.death,
        };
        (
            Arc::new(Hooked::new(self.inner.clone(), life)),
            Arc::new(seat),
        )
    }

    pub(super) fn attach(&self, number: u32, weaken: Weaken) -> TwoLock<View> {
        let (view, seat) = self.member(number, weaken);
        let mut queue = TwoLock::attach(view, 0, self.capacity, seat).unwrap();
        queue.looks = 0;
        queue
    }
}
