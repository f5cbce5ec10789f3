//! Tests of one process; the members are objects with memories of their own over one region.

mod death;
mod hostile;
mod order;

use super::*;
use core::sync::atomic::{AtomicBool, AtomicU32};
use handfast_region::{Region, Wait};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Not at the start, so that a forgotten offset shows.
const AT: usize = 128;

/// A group: the region, and who is dead.
#[derive(Clone)]
struct Group {
    region: Arc<Region>,
    dead: Arc<[AtomicBool; 64]>,
    capacity: u32,
}

struct Seat {
    number: u32,
    incarnation: u32,
    dead: Arc<[AtomicBool; 64]>,
}

impl Members for Seat {
    fn me(&self) -> u32 {
        self.number
    }
    fn incarnation(&self) -> u32 {
        self.incarnation
    }
    fn is_dead(&self, member: u32) -> bool {
        // SeqCst: a test's own bookkeeping.
        self.dead[member as usize].load(Ordering::SeqCst)
    }
}

impl Group {
    /// A group with an empty queue, which member 63 made.
    fn new(capacity: u32) -> Self {
        let group = Self {
            region: Arc::new(Region::heap(AT + queue_bytes(capacity))),
            dead: Arc::new(core::array::from_fn(|_| AtomicBool::new(false))),
            capacity,
        };
        let memory = Arc::new(Mortal::over(&group.region, None));
        TwoLock::create(memory, AT, capacity, group.seat(63, 0)).unwrap();
        group
    }

    /// The same bytes in a region of its own, and the same dead.
    fn copied(&self) -> Self {
        let region = Region::heap(self.region.len_bytes());
        let mut bytes = vec![0; region.len_bytes()];
        self.region.copy_out(0, &mut bytes);
        region.copy_in(0, &bytes);
        let dead = |number: usize| AtomicBool::new(self.dead[number].load(Ordering::SeqCst));
        Self {
            region: Arc::new(region),
            dead: Arc::new(core::array::from_fn(dead)),
            capacity: self.capacity,
        }
    }

    fn seat(&self, number: u32, incarnation: u32) -> Arc<Seat> {
        let dead = self.dead.clone();
        Arc::new(Seat {
            number,
            incarnation,
            dead,
        })
    }

    fn attach(&self, number: u32, steps: Option<u32>) -> TwoLock<Mortal> {
        let memory = Arc::new(Mortal::over(&self.region, None));
        let seat = self.seat(number, 0);
        let mut queue = TwoLock::attach(memory, AT, self.capacity, seat).unwrap();
        queue.looks = 0;
        queue.memory.live(steps);
        queue
    }

    /// Member `number` does `act` and is killed after `steps` memory operations: `None`. What it
    /// returns when that is enough for it.
    fn kill_in<T>(
        &self,
        number: u32,
        steps: u32,
        act: impl FnOnce(&TwoLock<Mortal>) -> T,
    ) -> Option<T> {
        let queue = self.attach(number, Some(steps));
        let done = mortal(|| act(&queue));
        self.dead[number as usize].store(done.is_none(), Ordering::SeqCst);
        done
    }

    fn word(&self, word: usize) -> u32 {
        self.region.load(AT + word, Ordering::SeqCst)
    }

    /// The nodes from `first` on.
    fn chain(&self, queue: &TwoLock<Mortal>, first: u32) -> Vec<u32> {
        let mut nodes = vec![first];
        loop {
            let last = nodes[nodes.len() - 1];
            match self.region.load(queue.next(last), Ordering::SeqCst) {
                END => return nodes,
                next => nodes.push(next),
            }
            assert!(nodes.len() <= queue.nodes as usize, "a loop");
        }
    }

    /// What the queue holds, looked at from outside.
    fn content(&self) -> Vec<u64> {
        let queue = self.attach(62, None);
        let chain = self.chain(&queue, self.word(HEAD));
        let key = |node: &u32| {
            let mut message = [0; MESSAGE_BYTES];
            self.region.copy_out(queue.message(*node), &mut message);
            key(&message)
        };
        chain[1..].iter().map(key).collect()
    }

    /// A survivor finds exactly `expected`, every node in one place, and the full capacity.
    fn check(&self, expected: &[u64], what: &str) {
        let survivor = self.attach(61, None);
        for lock in [TAIL_LOCK, HEAD_LOCK] {
            survivor.lock(lock).unwrap();
            survivor.unlock(lock);
        }
        assert_eq!(self.content(), expected, "{what}");
        let queued = self.chain(&survivor, self.word(HEAD));
        let free = self.chain(&survivor, self.word(POOL_HEAD));
        assert_eq!(queued.last(), Some(&self.word(TAIL)), "{what}");
        assert_eq!(free.last(), Some(&self.word(POOL_TAIL)), "{what}");
        let mut all = [queued, free].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(1..=survivor.nodes), "{what}");
        let mut expected = expected.to_vec();
        for round in 0..2 {
            while expected.len() < self.capacity as usize {
                let new = 1000 + round * 100 + expected.len() as u64;
                assert_eq!(survivor.try_push(&message(new)), Ok(()), "{what}");
                expected.push(new);
            }
            assert_eq!(survivor.try_push(&message(9)), Err(Push::Full), "{what}");
            for old in expected.drain(..) {
                assert_eq!(survivor.try_pop(), Ok(message(old)), "{what}");
            }
            assert_eq!(survivor.try_pop(), Err(Pop::Empty), "{what}");
        }
    }
}

/// A message all of whose bytes depend on `key`.
fn message(key: u64) -> Message {
    let mut message = [0; MESSAGE_BYTES];
    for (part, bytes) in message.chunks_mut(8).enumerate() {
        let word = key.wrapping_mul([1, 0x9e37_79b9_7f4a_7c15, !0][part]);
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    message
}

/// The key of a whole message.
fn key(whole: &Message) -> u64 {
    let key = u64::from_le_bytes(whole[..8].try_into().unwrap());
    assert_eq!(*whole, message(key), "a torn message");
    key
}

/// Memory that ends its user after a number of operations.
struct Mortal {
    inner: Arc<Region>,
    left: AtomicU32,
}

const FOR_EVER: u32 = u32::MAX;

/// What a killed member unwinds with.
struct Killed;

/// `None` when `act` was killed.
fn mortal<T>(act: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(done) => Some(done),
        Err(reason) if reason.is::<Killed>() => None,
        Err(reason) => resume_unwind(reason),
    }
}

impl Mortal {
    fn over(inner: &Arc<Region>, steps: Option<u32>) -> Self {
        Self {
            inner: inner.clone(),
            left: AtomicU32::new(steps.unwrap_or(FOR_EVER)),
        }
    }

    fn live(&self, steps: Option<u32>) {
        self.left.store(steps.unwrap_or(FOR_EVER), Ordering::SeqCst);
    }

    fn step(&self) {
        match self.left.load(Ordering::SeqCst) {
            FOR_EVER => {}
            // Not a panic: nothing is printed, and the next operation would do the same.
            0 => resume_unwind(Box::new(Killed)),
            left => self.left.store(left - 1, Ordering::SeqCst),
        }
    }
}

impl Memory for Mortal {
    fn load(&self, at: usize, order: Ordering) -> u32 {
        self.step();
        self.inner.load(at, order)
    }
    fn store(&self, at: usize, value: u32, order: Ordering) {
        self.step();
        self.inner.store(at, value, order);
    }
    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32 {
        self.step();
        self.inner.swap(at, value, order)
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
        self.step();
        self.inner.fence();
    }
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        // Killed before, midway, or after.
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.step();
        self.inner.copy_in(at, first);
        self.step();
        self.inner.copy_in(at + first.len(), second);
    }
    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.step();
        self.inner.copy_out(at, bytes);
    }
    fn park(&self, _: usize, _: u32, _: Option<u64>) -> Wait {
        self.step();
        // One thread: whoever is waited for is dead.
        Wait::TimedOut
    }
    fn wake(&self, _: usize, _: u32) -> u32 {
        self.step();
        0
    }
}
