//! The cost of single operations to one process that has nobody to wait for (paper 000, Table 1).

use crate::shared::Shared;
use crate::systems::queues::SysVQueue;
use crate::systems::semaphores::{SemaphoreSet, Semaphores};
use handfast_layout::{page_align, queue::two_lock::queue_bytes};
use handfast_region::Region;
use handfast_ring::queue::{Queue, two_lock::TwoLock};
use handfast_sys::memory::{Access, Mapping, create_sealed};
use handfast_sys::{clock, members};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// An operation by name, and what `count` of it took, in nanoseconds.
pub type Primitive = (&'static str, fn(u32) -> io::Result<u64>);

/// A message through the two-lock queue.
pub const QUEUE: &str = "enqueue + dequeue";
/// A message through a System V queue.
pub const MESSAGES: &str = "msgsnd + msgrcv";

/// All operations.
pub const ALL: [Primitive; 4] = [
    (QUEUE, queue),
    (MESSAGES, messages),
    ("semaphore V + P (System V)", |count| {
        let set = SemaphoreSet::create(1)?;
        semaphore(Semaphores::SystemV(set.id()), count)
    }),
    ("semaphore V + P (futex)", |count| {
        semaphore(Semaphores::Futex, count)
    }),
];

/// A message through the two-lock queue in shared memory.
fn queue(count: u32) -> io::Result<u64> {
    const CAPACITY: u32 = 2;
    let len_bytes = page_align(queue_bytes(CAPACITY));
    let file = create_sealed("handfast-bench-queue", len_bytes)?;
    let member = members::join(members::create("handfast-bench-members")?)?;
    let mapping = Mapping::new(&file, len_bytes, Access::ReadWrite)?;
    let region = Arc::new(Region::mapped(mapping));
    let failed = |why: &dyn core::fmt::Debug| io::Error::other(format!("{why:?}"));
    let queue = TwoLock::create(region, 0, CAPACITY, member).map_err(|why| failed(&why))?;
    timed(|| {
        for _ in 0..count {
            queue.try_push(&[7; 24]).map_err(|why| failed(&why))?;
            core::hint::black_box(queue.try_pop().map_err(|why| failed(&why))?);
        }
        Ok(())
    })
}

/// A message of 24 bytes through a System V queue.
fn messages(count: u32) -> io::Result<u64> {
    let queue = SysVQueue::create()?;
    timed(|| queue.turn_over(count))
}

fn semaphore(semaphores: Semaphores, count: u32) -> io::Result<u64> {
    let (_file, shared) = Shared::create("handfast-bench-semaphore", 4096)?;
    let word: &Word = shared.at(0);
    timed(|| {
        for _ in 0..count {
            semaphores.up(0, &word.0)?;
            semaphores.down(0, &word.0)?;
        }
        Ok(())
    })
}

#[repr(C)]
struct Word(AtomicU32);

// SAFETY: an atomic integer.
unsafe impl crate::shared::Words for Word {}

fn timed(what: impl FnOnce() -> io::Result<()>) -> io::Result<u64> {
    let start_ns = clock::now_ns();
    what()?;
    Ok(clock::now_ns() - start_ns)
}
