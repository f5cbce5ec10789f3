//! Plain shared queues: 24-byte messages, any number of pushing and popping processes.
//!
//! For experiments, and for programs that want a queue and nothing else. A queue has no name, no replies and no
//! waiting: it is two descriptors that its creator passes on (by inheritance or over a Unix socket), and
//! operations on a full or empty queue fail at once. Members trust each other (a member that writes nonsense spoils the queue for all),
//! but no member is needed: the others go on after a member was killed at any instruction.

use crate::error::{Exhausted, Misuse, Os, PeerFault};
use crate::rank;
use handfast_layout::queue::{
    MEMBERS, MESSAGE_BYTES, mpmc as ring_layout, two_lock as lock_layout,
};
use handfast_port::Resource;
use handfast_region::Region;
use handfast_ring::queue::two_lock::{NoQueue, TwoLock};
use handfast_ring::queue::{self, mpmc::Ring};
use handfast_sys::members::{self, Membership};
use handfast_sys::memory::{Access, Mapping, create_sealed, is_sealed};
use handfast_sys::sync::Mutex;
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, process};
use std::sync::Arc;

/// Bytes of one message.
pub const QUEUE_MESSAGE_BYTES: usize = MESSAGE_BYTES;

/// How a queue is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueKind {
    /// Two locks, one for each end, and a pool of nodes (Michael and Scott; paper 000, section 2.2). Strictly
    /// first in, first out. A member that is stopped while it holds a lock stops that end of the queue; a member that is killed
    /// does not. A message that a dead member had popped is lost.
    TwoLock,
    /// A bounded ring whose slots are claimed one by one: no member waits for another. First in,
    /// first out by claim; while a push is under way at the oldest place, the queue is empty for
    /// others. The capacity is a power of two.
    Ring,
}

/// A plain shared queue. Threads share it by reference; a process has one handle to a queue.
pub struct SharedQueue {
    queue: Box<dyn queue::Queue + Send + Sync>,
    /// Kept for those it is passed on to.
    memory: OwnedFd,
    members: Arc<Membership>,
    epoch: u32,
    file: File,
}

/// This process's place in a ring's group.
struct Member(Arc<Membership>);

/// Why a plain queue was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The kind cannot have this capacity: it is zero, over the limit, or not a power of two although the kind
    /// needs one.
    #[error(
        "the capacity of a queue of this kind is 1 to {limit} messages (of a ring: a power of two); choose one in that range"
    )]
    Capacity {
        /// Most messages.
        limit: u32,
    },
    /// The descriptors do not belong to a queue of this kind and capacity.
    #[error(
        "the descriptors are not those of a queue of this kind and capacity; pass the kind and capacity that its creator used"
    )]
    Other,
    /// The limit of processes that have the queue open is reached.
    #[error("{limit} processes, the limit, have the queue open already; end one of them")]
    Members {
        /// How many.
        limit: u64,
    },
    /// This process has the queue open already; share that handle.
    #[error("this process has the queue open already; share that handle")]
    Open,
    /// Descriptors or memory ran out.
    #[error(transparent)]
    Exhausted(Exhausted),
    /// The sandbox forbids memory files.
    #[error("{0}: this sandbox forbids memory files; allow memfd_create in its filter")]
    NoMemoryFiles(Os),
    /// A member wrote what no honest member writes.
    #[error(transparent)]
    Fault(PeerFault),
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
    /// Anything else.
    #[error(transparent)]
    Os(Os),
}

/// Why a message was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// Every place is taken.
    #[error("the queue is full; try again once messages have been taken")]
    Full,
    /// A member wrote what no honest member writes; the queue is of no use any more.
    #[error(transparent)]
    Fault(PeerFault),
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
}

/// Why no message was popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PopError {
    /// Nothing is queued.
    #[error("the queue is empty; try again later")]
    Empty,
    /// A member wrote what no honest member writes; the queue is of no use any more.
    #[error(transparent)]
    Fault(PeerFault),
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
}

/// Device and inode of a memory file.
type File = (u64, u64);

/// Queues this process has a handle to.
static OPEN: Mutex<Vec<(File, u32)>, rank::OpenQueues> = Mutex::new(Vec::new());

impl SharedQueue {
    /// Makes an empty queue of `capacity` messages. Two memory files, about ten system calls.
    ///
    /// # Errors
    /// [`QueueError::Capacity`] for a capacity that the kind cannot have; [`QueueError::Exhausted`] without
    /// memory or descriptors.
    pub fn create(kind: QueueKind, capacity: u32) -> Result<Self, QueueError> {
        let os = |call| move |errno| Resource::of(call, errno);
        let len_bytes = kind.len_bytes(capacity)?;
        let memory = create_sealed("handfast queue", len_bytes).map_err(os("memfd_create"))?;
        let members = members::create("handfast queue members").map_err(os("memfd_create"))?;
        Self::open(kind, capacity, (memory, members), true)
    }

    /// A handle to the queue with these [descriptors](Self::descriptors), made with the same kind and capacity. Repairs
    /// the state that a dead process left under the member number that this process gets. About ten system calls; in a two-lock
    /// queue that repair waits for the locks.
    ///
    /// # Errors
    /// [`QueueError::Other`] when the descriptors do not belong to such a queue; [`QueueError::Members`] when
    /// 63 processes have the queue open; [`QueueError::Open`] when this process has it open.
    pub fn attach(
        kind: QueueKind,
        capacity: u32,
        memory: OwnedFd,
        members: OwnedFd,
    ) -> Result<Self, QueueError> {
        Self::open(kind, capacity, (memory, members), false)
    }

    fn open(
        kind: QueueKind,
        capacity: u32,
        (memory, members): (OwnedFd, OwnedFd),
        is_new: bool,
    ) -> Result<Self, QueueError> {
        let os = |call| move |errno| Resource::of(call, errno);
        // First: this takes the descriptor, whose closing would end an existing membership.
        let members = members::join(members).map_err(|errno| match errno {
            Errno::AGAIN => QueueError::Members {
                limit: MEMBERS.into(),
            },
            Errno::INVAL | Errno::BADF => QueueError::Other,
            errno => Resource::of("fcntl(F_SETLK)", errno).into(),
        })?;
        let len_bytes = kind.len_bytes(capacity)?;
        if !is_sealed(&memory, len_bytes).unwrap_or(false) {
            return Err(QueueError::Other);
        }
        let file = handfast_sys::memory::identity(&memory).map_err(os("fstat"))?;
        let epoch = process::fork_epoch();
        let mut open = OPEN.lock();
        if open.contains(&(file, epoch)) {
            return Err(QueueError::Open);
        }
        let mapping = Mapping::new(&memory, len_bytes, Access::ReadWrite).map_err(os("mmap"))?;
        let region = Arc::new(Region::mapped(mapping));
        let member = members.clone();
        let queue: Box<dyn queue::Queue + Send + Sync> = match kind {
            QueueKind::TwoLock => {
                let made = if is_new {
                    TwoLock::create(region, 0, capacity, member)
                } else {
                    TwoLock::attach(region, 0, capacity, member)
                };
                Box::new(made.map_err(|none| match none {
                    NoQueue::NotAMember => QueueError::Misuse(Misuse::Forked),
                    NoQueue::Fault(fault) => QueueError::Fault(fault.into()),
                })?)
            }
            QueueKind::Ring => {
                if is_new {
                    queue::mpmc::create(&*region, 0, capacity, MEMBERS);
                }
                let ring = Ring::attach(region, 0, (capacity, MEMBERS), Member(member));
                Box::new(ring.map_err(|fault| QueueError::Fault(fault.into()))?)
            }
        };
        open.push((file, epoch));
        Ok(Self {
            queue,
            memory,
            members,
            epoch,
            file,
        })
    }

    /// The descriptors to pass on: the memory and the file of the members. The second keeps count of living
    /// members by locks that the kernel drops when a process closes *any* descriptor of the file: a process
    /// that has a handle must not close a duplicate of it.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.memory.as_fd(), self.members.descriptor()]
    }

    /// Appends a message. One copy; no system call unless another member is in the way. Blocks
    /// only in a [two-lock queue](QueueKind::TwoLock), while another member has the lock; for a millisecond if that member has
    /// died.
    ///
    /// # Errors
    /// [`PushError`]; nothing was appended then.
    pub fn try_push(&self, message: &[u8; QUEUE_MESSAGE_BYTES]) -> Result<(), PushError> {
        self.check().map_err(PushError::Misuse)?;
        self.queue.try_push(message).map_err(|not| match not {
            queue::Push::Full => PushError::Full,
            queue::Push::Fault(fault) => PushError::Fault(fault.into()),
        })
    }

    /// Takes the oldest message. Costs as much as [`Self::try_push`].
    ///
    /// # Errors
    /// [`PopError`]; nothing was taken then.
    pub fn try_pop(&self) -> Result<[u8; QUEUE_MESSAGE_BYTES], PopError> {
        self.check().map_err(PopError::Misuse)?;
        self.queue.try_pop().map_err(|not| match not {
            queue::Pop::Empty => PopError::Empty,
            queue::Pop::Fault(fault) => PopError::Fault(fault.into()),
        })
    }

    fn check(&self) -> Result<(), Misuse> {
        if self.epoch == process::fork_epoch() {
            Ok(())
        } else {
            Err(Misuse::Forked)
        }
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        let mut open = OPEN.lock();
        open.retain(|known| *known != (self.file, self.epoch));
    }
}

impl QueueKind {
    fn len_bytes(self, capacity: u32) -> Result<usize, QueueError> {
        let limit = match self {
            Self::TwoLock => lock_layout::CAPACITY_MAX,
            Self::Ring => ring_layout::SLOTS_MAX,
        };
        let fits = capacity > 0
            && capacity <= limit
            && (self == Self::TwoLock || capacity.is_power_of_two());
        if !fits {
            return Err(QueueError::Capacity { limit });
        }
        Ok(match self {
            Self::TwoLock => lock_layout::queue_bytes(capacity),
            Self::Ring => ring_layout::len_bytes(capacity),
        })
    }
}

impl queue::Members for Member {
    fn me(&self) -> u32 {
        self.0.number()
    }

    fn is_dead(&self, member: u32) -> bool {
        self.0.is_dead(member)
    }
}

impl core::fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedQueue")
            .field("memory", &self.memory)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl From<Resource> for QueueError {
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Exhausted(exhausted) => Self::Exhausted(exhausted),
            Resource::NoMemoryFiles(os) => Self::NoMemoryFiles(os),
            Resource::Os(os) => Self::Os(os),
        }
    }
}
