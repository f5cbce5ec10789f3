//! Bounded queues over shared memory that never block: the lane, the ring of a stream of bytes, and the plain queues.
//!
//! All are generic over [`handfast_region::Memory`], so the code that loom checks is the code
//! that runs between processes. Reading order: [`lane`], [`arena`], [`stream`], [`queue`].
#![forbid(unsafe_code)]

pub mod arena;
pub mod lane;
pub mod queue;
pub mod stream;

/// A peer wrote something no honest peer writes. The link it came through is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rule that was broken.
    pub rule: Rule,
    /// Offset in the shared region of the word that broke it.
    pub offset: usize,
}

/// Rules for what a peer may write, named in errors and in `spec/layout.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A consumer's position is at most the capacity behind the producer's and never goes back.
    HeadDistance,
    /// A message's length is within the limit of the place it names.
    MessageLength,
    /// An arena reference lies inside the lane's arena.
    ArenaBounds,
    /// A connector has touched all memory that it has an acceptor of another user read or write: the pages are its own.
    Untouched,
    /// A call names a reply slot of the link.
    ReplySlot,
    /// A lane addresses one receiver for ever.
    LaneReceiver,
    /// A reply slot carries a reply.
    ReplyKind,
    /// The description of a part of a message is of a known kind and complete.
    Part,
    /// A right names what its receiver has given, or was not told of for another port.
    RightHandle,
    /// A right is given back at most as often as it was given.
    RightCount,
    /// Statements about return paths follow their protocol.
    Path,
    /// Statements about introductions follow their protocol.
    Introduction,
    /// A port that is served on each CPU names CPUs and receivers that there can be, each once.
    Spread,
    /// A part names a descriptor that was sent before its message, and that no other names.
    Descriptor,
    /// Descriptors come numbered in turn, no more of them unclaimed than a link may have, and no more
    /// are claimed than were sent.
    DescriptorCount,
    /// Memory in a message is a memory file that nobody can change, of the length that is said.
    Memory,
    /// An arena is a memory file that only its owner can write, whole, of the length that is said, and
    /// each number stands for one.
    Arena,
    /// A loan names a block of an arena that is there, no more bytes than it has, and comes once.
    Loan,
    /// A loan is given back once it has been made, and not before.
    LoanReturn,
    /// Control messages are read: the waiting ones are within the limit of one user.
    Unread,
    /// A control message brings the descriptors that its kind has, and no others.
    ControlDescriptor,
    /// A two-lock queue is formatted, and for the number of messages it is attached with.
    QueueFormat,
    /// A lock word of a two-lock queue is free or names a member; no repair has failed under it.
    QueueLock,
    /// An index in a two-lock queue names one of its nodes.
    QueueNode,
    /// The nodes of a two-lock queue form two chains without loops: the queue and the pool.
    QueueChain,
    /// A ring has the format, slots and members that its members were told.
    RingFormat,
    /// A ring slot's state names a member exactly when it is claimed, and a turn that exists.
    RingState,
    /// A ring's position names a slot of its turn or the one before.
    RingTurn,
    /// An operation on a ring is overtaken by others a limited number of times.
    RingProgress,
}

impl Rule {
    /// The fault of a peer that broke the rule by no word of the shared region.
    #[must_use]
    pub const fn broken(self) -> Fault {
        Fault {
            rule: self,
            offset: 0,
        }
    }

    /// The rule in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::HeadDistance => {
                "a lane's head is at most its capacity behind the tail and never goes back"
            }
            Self::MessageLength => "a message's length is within the limit of the place it names",
            Self::ArenaBounds => "an arena reference lies inside the lane's arena",
            Self::Untouched => {
                "a connector touches a page before an acceptor of another user reads or writes it"
            }
            Self::ReplySlot => "a call names a reply slot of the link",
            Self::LaneReceiver => "a lane leads to one receiver until both sides have let go of it",
            Self::ReplyKind => "a reply slot carries a reply",
            Self::Part => "a part of a message is of a known kind and complete",
            Self::RightHandle => {
                "a right names a handle that was given, and the port that the handle was given for"
            }
            Self::RightCount => "a right is given back at most as often as it was given",
            Self::Path => "control messages about return paths follow their protocol",
            Self::Introduction => "control messages about introductions follow their protocol",
            Self::Spread => {
                "a port's receivers, one for each CPU, are named whole, each once, for ever"
            }
            Self::Descriptor => {
                "a descriptor is sent before the one part of a message that names it"
            }
            Self::DescriptorCount => {
                "descriptors are numbered in turn, within the limit of unclaimed ones, and claimed \
                 once sent"
            }
            Self::Memory => {
                "memory in a message is a whole, sealed memory file of the length that the message names"
            }
            Self::Arena => {
                "an arena is a whole memory file that only its owner can write, of the length that its \
                 message names, under a free number"
            }
            Self::Loan => {
                "a loan names an arena that came before, bytes within a block, and comes once"
            }
            Self::LoanReturn => "a loan is given back after it was made, with its own generation",
            Self::Unread => {
                "a user's processes leave no more control messages unread than the limit for one user"
            }
            Self::ControlDescriptor => {
                "a control message brings the descriptors that belong to its kind, and they are closed \
                 in time"
            }
            Self::QueueFormat => "a two-lock queue is formatted for the capacity it is used with",
            Self::QueueLock => "a lock word of a two-lock queue is free or names a member",
            Self::QueueNode => "an index in a two-lock queue names one of its nodes",
            Self::QueueChain => "the nodes of a two-lock queue form two chains without loops",
            Self::RingFormat => "a ring has the format, slots and members that its creator told",
            Self::RingState => {
                "a ring slot's state names a member exactly when it is claimed, and a turn that exists"
            }
            Self::RingTurn => "a ring's position names a slot of its turn or the one before",
            Self::RingProgress => "an operation on a ring is overtaken a limited number of times",
        }
    }
}
