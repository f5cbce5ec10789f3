//! Tools that the models share: memory with chosen orderings weakened, members, and how they run.

use super::super::*;
use core::sync::atomic::Ordering;
use handfast_region::model::{Hook, Hooked, ModelMemory, Operation};
pub(super) use handfast_region::model::{OVERLAP, must_panic};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

pub(super) const LIMIT: u32 = 3;

/// The dead members: a word per member.
#[derive(Clone)]
pub(super) struct Register {
    me: u32,
    dead: Arc<[AtomicU32; 1 + LIMIT as usize]>,
}

impl Register {
    pub(super) fn new() -> Self {
        Self {
            me: 0,
            dead: Arc::new(std::array::from_fn(|_| AtomicU32::new(0))),
        }
    }
    pub(super) fn set(&self, member: u32, dead: u32) {
        self.dead[member as usize].store(dead, Release);
    }
}

impl Members for Register {
    fn me(&self) -> u32 {
        self.me
    }
    fn is_dead(&self, member: u32) -> bool {
        // Acquire: as the kernel does, what the dead one wrote is visible with its death.
        self.dead[member as usize].load(Acquire) == 1
    }
}

/// Nothing is weakened.
pub(super) const STRONG: Weakness = Weakness {
    load: |_| false,
    store: |_, _| false,
    exchange: |_, _, _| false,
};

/// Which orderings are turned into Relaxed.
#[derive(Clone, Copy)]
pub(super) struct Weakness {
    /// Loads, by offset.
    pub(super) load: fn(usize) -> bool,
    /// Stores, by offset and value.
    pub(super) store: fn(usize, u32) -> bool,
    /// Exchanges, by offset, expected and new value.
    pub(super) exchange: fn(usize, u32, u32) -> bool,
}

impl Hook for Weakness {
    fn order(&self, operation: Operation, order: Ordering) -> Ordering {
        let is_weak = match operation {
            Operation::Load(at) => (self.load)(at),
            Operation::Store(at, value) => (self.store)(at, value),
            _ => false,
        };
        if is_weak { Relaxed } else { order }
    }
}

/// Model memory some of whose orderings are weak.
pub(super) type Weak = Hooked<Box<ModelMemory>, Weakness>;

pub(super) fn memory(slots: u32, weakness: Weakness) -> Arc<Weak> {
    let mut words = vec![
        layout::FORMAT,
        layout::SLOTS,
        layout::MEMBER_LIMIT,
        layout::TAIL,
        layout::HEAD,
    ];
    words.extend((0..slots).map(|index| layout::slot(index) + layout::STATE));
    let areas: Vec<_> = (0..slots)
        .map(|index| layout::slot(index) + layout::BYTES)
        .collect();
    let mut inner = Box::new(ModelMemory::new(&words, &areas));
    inner.relaxed_exchange = weakness.exchange;
    Arc::new(Hooked::new(inner, weakness))
}

pub(super) type Member = Ring<Arc<Weak>, Register>;

pub(super) fn attach(memory: &Arc<Weak>, slots: u32, register: &Register, me: u32) -> Member {
    let register = Register {
        me,
        ..register.clone()
    };
    let mut ring = Ring::attach(memory.clone(), 0, (slots, LIMIT), register).unwrap();
    ring.looks = 1;
    ring
}

pub(super) fn message(number: u8) -> Message {
    [number; MESSAGE_BYTES]
}

/// Tries each push twice, since nobody waits in these models. Returns what was pushed.
pub(super) fn push(ring: &Member, numbers: &[u8]) -> Vec<u8> {
    let push = |number: &&u8| {
        (0..2).any(|_| match ring.try_push(&message(**number)) {
            Ok(()) => true,
            Err(full) => {
                assert_eq!(full, Push::Full);
                thread::yield_now();
                false
            }
        })
    };
    numbers.iter().filter(push).copied().collect()
}

/// Tries so many pops. Returns what was popped.
pub(super) fn pop(ring: &Member, tries: usize) -> Vec<u8> {
    let pop = |_| match ring.try_pop() {
        Ok(message) => {
            assert_eq!(message, [message[0]; MESSAGE_BYTES], "a torn message");
            Some(message[0])
        }
        Err(empty) => {
            assert_eq!(empty, Pop::Empty);
            thread::yield_now();
            None
        }
    };
    (0..tries).filter_map(pop).collect()
}

/// Every execution with at most `preemptions` switches away from a thread that could go on, twice:
/// the model is told whether to start its threads in reverse order. loom moves an access before
/// the last one that it conflicts with, and a load of its own thread between the two hides that;
/// so a model is started from both ends, its main thread only joins, and a member that finds the ring full
/// or empty yields.
pub(super) fn explore(preemptions: usize, model: impl Fn(bool) + Sync + Send + Copy + 'static) {
    for reverse in [false, true] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(move || model(reverse));
    }
}

/// Starts the parts at once, in order or in reverse, and returns their results in order.
pub(super) fn together<T: Send + 'static>(
    parts: Vec<Box<dyn FnOnce() -> T + Send>>,
    reverse: bool,
) -> Vec<T> {
    let mut parts: Vec<_> = parts.into_iter().enumerate().collect();
    if reverse {
        parts.reverse();
    }
    let threads: Vec<_> = parts
        .into_iter()
        .map(|(index, part)| (index, thread::spawn(part)))
        .collect();
    let mut results: Vec<_> = threads
        .into_iter()
        .map(|(index, thread)| (index, thread.join().unwrap()))
        .collect();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
