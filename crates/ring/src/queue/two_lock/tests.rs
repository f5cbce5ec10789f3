//! Tests of one process; the members are objects with memories of their own over one region.

mod death;
mod hostile;
mod order;

use super::*;
use core::sync::atomic::AtomicBool;
use handfast_region::Region;
use handfast_region::model::{Countdown, Hook, Hooked, Operation, until_killed};

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
        let memory = mortal_memory(&group.region, None);
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
        let memory = mortal_memory(&self.region, None);
        let seat = self.seat(number, 0);
        let mut queue = TwoLock::attach(memory, AT, self.capacity, seat).unwrap();
        queue.looks = 0;
        queue.memory.hook.0.set(steps);
        queue
    }

    /// Member `number` does `act` and is killed after `steps` memory operations: `None`. Otherwise the result
    /// of `act`, when that many are enough for it.
    fn kill_in<T>(
        &self,
        number: u32,
        steps: u32,
        act: impl FnOnce(&TwoLock<Mortal>) -> T,
    ) -> Option<T> {
        let queue = self.attach(number, Some(steps));
        let done = until_killed(|| act(&queue));
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

    /// The messages in the queue, looked at from outside.
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
type Mortal = Hooked<Arc<Region>, Alone>;

/// The hook of a member in the only thread.
struct Alone(Countdown<'static>);

impl Hook for Alone {
    const PIECE_BYTES: usize = Countdown::PIECE_BYTES;
    fn before(&self, operation: Operation) {
        self.0.before(operation);
    }
    fn leaves_out(&self, operation: Operation) -> bool {
        // The process that is waited for is dead.
        operation == Operation::Park
    }
}

fn mortal_memory(inner: &Arc<Region>, steps: Option<u32>) -> Arc<Mortal> {
    let countdown = Countdown::killing();
    countdown.set(steps);
    Arc::new(Hooked::new(inner.clone(), Alone(countdown)))
}
