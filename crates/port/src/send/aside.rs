//! State that few rights have. Kept apart, so that a right is small: it is moved from message to message.

use super::SendRight;
use crate::link::spread::Entry;
use crate::options::WaitBy;
use crate::rank;
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_sys::sync::Mutex;
use std::sync::{Arc, OnceLock};

/// See the module text.
#[derive(Default)]
pub(super) struct Aside {
    /// How its callers wait, where that is not as the environment says.
    waiting: Mutex<Option<WaitBy>, rank::SendWaiting>,
    /// The right it has become since its port moved, with its options; `None`, for ever, for a right whose port
    /// stays.
    pub(super) moved: OnceLock<Option<Arc<SendRight>>>,
    /// The right it has become since, where that is many moves on.
    newest: OnceLock<Box<Newest>>,
    /// The right for each CPU, if the port is served on each; `None`, for ever, for those rights themselves.
    pub(super) spread: OnceLock<Option<Box<Spread>>>,
}

pub(super) fn aside(right: &SendRight) -> &Aside {
    right.aside.get_or_init(Box::default)
}

/// How its callers wait.
pub(super) fn waiting(right: &SendRight) -> WaitBy {
    let own = right.aside.get().and_then(|aside| {
        let waiting = aside.waiting.lock();
        *waiting
    });
    own.unwrap_or(right.process().defaults.waiting)
}

pub(super) fn set_waiting(right: &SendRight, waiting: WaitBy) {
    *aside(right).waiting.lock() = Some(waiting);
}

/// The right it has become since its port moved, or that the port stays, if a thread has asked.
pub(super) fn known_moved(right: &SendRight) -> Option<&Option<Arc<SendRight>>> {
    right.aside.get().and_then(|aside| aside.moved.get())
}

/// The last right that it has become of those that were noted ([`is_newest`]).
pub(super) fn newest(right: &SendRight) -> Option<&Arc<SendRight>> {
    right.aside.get()?.newest.get()?.last()
}

/// Notes that it has become that one.
pub(super) fn is_newest(right: &SendRight, newest: &Arc<SendRight>) {
    let all = aside(right).newest.get_or_init(Box::default);
    all.push(newest.clone());
}

impl Aside {
    /// Drops what its right has become, one after the other and not one within the other: others say how many those are.
    #[cold]
    pub(super) fn drop_moved(&mut self) {
        self.newest = OnceLock::new();
        let mut moved = self.moved.take();
        while let Some(Some(right)) = moved {
            // No other has it: the threads that used this right have let go of it.
            let mut right = Arc::into_inner(right);
            let aside = right.as_mut().and_then(|right| right.aside.get_mut());
            moved = aside.and_then(|aside| {
                aside.newest = OnceLock::new();
                aside.moved.take()
            });
        }
    }
}

/// Rights, each noted once and kept: a thread that was given one uses it as long as the list is there. Block `n` has room for
/// two to the power of `n`.
#[derive(Default)]
struct Newest {
    count: AtomicU32,
    blocks: [OnceLock<Block>; BLOCKS],
}

type Block = Box<[OnceLock<Arc<SendRight>>]>;

const BLOCKS: usize = 24;

impl Newest {
    /// The place of the right with this number, from 0 on: its block, and where in there.
    const fn place(number: u32) -> (usize, usize) {
        let block = (number + 1).ilog2();
        (block as usize, (number + 1 - (1 << block)) as usize)
    }

    fn get(&self, number: u32) -> Option<&Arc<SendRight>> {
        let (block, place) = Self::place(number);
        self.blocks.get(block)?.get()?.get(place)?.get()
    }

    fn last(&self) -> Option<&Arc<SendRight>> {
        // Relaxed: a number; what it names is behind its own `OnceLock`.
        self.get(self.count.load(Ordering::Relaxed).checked_sub(1)?)
    }

    /// Where another thread notes one at the same time, one of the two is noted. None is when all blocks are full.
    fn push(&self, right: Arc<SendRight>) {
        let number = self.count.load(Ordering::Relaxed);
        let (block, place) = Self::place(number);
        let Some(block_of) = self.blocks.get(block) else {
            return;
        };
        let make = || (0..1 << block).map(|_| OnceLock::new()).collect();
        let _ = block_of.get_or_init(make)[place].set(right);
        // Relaxed: as in `last`.
        self.count.fetch_max(number + 1, Ordering::Relaxed);
    }
}

/// A right to such a port: the same for each CPU, with that receiver's lanes.
pub(super) struct Spread {
    rights: Box<[SendRight]>,
    /// Index into the rights, plus one, by CPU.
    of_cpu: Box<[u8]>,
}

impl Spread {
    pub(super) fn new(entries: &[Entry], make: impl Fn(Entry) -> SendRight) -> Self {
        let last = entries
            .iter()
            .map(|(cpu, _)| *cpu)
            .max()
            .unwrap_or_default();
        let mut of_cpu = vec![0; last as usize + 1];
        for ((cpu, _), place) in entries.iter().zip(1..) {
            of_cpu[*cpu as usize] = place;
        }
        Self {
            rights: entries.iter().map(|entry| make(*entry)).collect(),
            of_cpu: of_cpu.into(),
        }
    }

    /// The place of the right for `cpu`, from 1 on; 0 where the port has no receiver.
    #[inline]
    pub(super) fn place(&self, cpu: u32) -> u8 {
        self.of_cpu.get(cpu as usize).copied().unwrap_or_default()
    }

    #[inline]
    pub(super) fn right(&self, place: u8) -> Option<&SendRight> {
        self.rights.get(usize::from(place).checked_sub(1)?)
    }

    /// The rights for other receivers, and their places.
    pub(super) fn others(&self, receiver: u32) -> impl Iterator<Item = (u8, &SendRight)> {
        let places = (1..).zip(&self.rights);
        places.filter(move |(_, right)| right.receiver != receiver)
    }
}
