//! What the models share: memory with chosen orderings weakened, members, and how they run.

use super::super::*;
use core::sync::atomic::Ordering;
use handfast_region::Wait;
use handfast_region::model::ModelMemory;
pub(super) use handfast_region::model::{OVERLAP, must_panic};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

pub(super) const LIMIT: u32 = 3;

/// Who is dead: a word per member.
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

/// Model memory that turns chosen orderings into Relaxed.
pub(super) struct Weak {
    inner: ModelMemory,
    /// Loads, by offset.
    load: fn(usize) -> bool,
    /// Stores, by offset and value.
    store: fn(usize, u32) -> bool,
}

/// What is weakened: nothing.
pub(super) const STRONG: Weakness = Weakness {
    load: |_| false,
    store: |_, _| false,
    exchange: |_, _, _| false,
};

#[derive(Clone, Copy)]
pub(super) struct Weakness {
    pub(super) load: fn(usize) -> bool,
    pub(super) store: fn(usize, u32) -> bool,
    pub(super) exchange: fn(usize, u32, u32) -> bool,
}

impl Memory for Weak {
    fn load(&self, at: usize, order: Ordering) -> u32 {
        let order = if (self.load)(at) { Relaxed } else { order };
        self.inner.load(at, order)
    }
    fn store(&self, at: usize, value: u32, order: Ordering) {
        let weak = (self.store)(at, value);
        self.inner
            .store(at, value, if weak { Relaxed } else { order });
    }
    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32 {
        self.inner.swap(at, value, order)
    }
    fn fetch_or(&self, at: usize, bits: u32, order: Ordering) -> u32 {
        self.inner.fetch_or(at, bits, order)
    }
    fn compare_exchange(&self, at: usize, current: u32, new: u32) -> Result<u32, u32> {
        self.inner.compare_exchange(at, current, new)
    }
    fn fence(&self) {
        self.inner.fence();
    }
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.inner.copy_in(at, bytes);
    }
    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.inner.copy_out(at, bytes);
    }
    fn park(&self, at: usize, expected: u32, deadline_ns: Option<u64>) -> Wait {
        self.inner.park(at, expected, deadline_ns)
    }
    fn wake(&self, at: usize, count: u32) -> u32 {
        self.inner.wake(at, count)
    }
}

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
    let mut inner = ModelMemory::new(&words, &areas);
    inner.relaxed_exchange = weakness.exchange;
    Arc::new(Weak {
        inner,
        load: weakness.load,
        store: weakness.store,
    })
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
/// so a model is started from both ends, its main thread only joins, and who finds the ring full
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
