//! The two-lock queue: two locks with what they guard, then nodes of one cache line.
//!
//! ```text
//! line 0 head lock, head, pool tail | line 1 tail lock, tail, pool head | line 2 format | nodes
//! ```
//!
//! Nodes are numbered from 1; a link of 0 ends a chain. Every word is written by every member
//! (under the lock of its line, or as the node's links say) and hostile to all of them.

use super::{MEMBERS, MESSAGE_BYTES};
use crate::LINE;

/// The holder of the head lock; see [`MEMBER`] and the bits after it.
pub const HEAD_LOCK: usize = 0;
/// The node before the oldest message. Under the head lock.
pub const HEAD: usize = 4;
/// Last node of the pool. Under the head lock.
pub const POOL_TAIL: usize = 8;
/// The holder of the tail lock.
pub const TAIL_LOCK: usize = LINE;
/// The node of the newest message, or the one in [`HEAD`]. Under the tail lock.
pub const TAIL: usize = LINE + 4;
/// First node of the pool. Under the tail lock.
pub const POOL_HEAD: usize = LINE + 8;
/// [`MAGIC`] once the queue is formatted. Its creator writes.
pub const FORMAT: usize = 2 * LINE;
/// Most messages in the queue. Its creator writes; compared once, never used.
pub const CAPACITY: usize = 2 * LINE + 4;
/// First node.
pub const NODES: usize = 3 * LINE;
/// Bytes of one node.
pub const NODE_BYTES: usize = LINE;

/// In a node: the number of the next one, or [`END`].
pub const NEXT: usize = 0;
/// In a node: the bytes of its message.
pub const MESSAGE: usize = 8;
/// The link of the last node of a chain.
pub const END: u32 = 0;

/// Lock word: number of the member that holds the lock. A free lock is zero in all bits.
pub const MEMBER: u32 = 0x3f;
/// Lock word: somebody may sleep on it. Set by waiters while it is held, cleared by unlocking.
pub const WAITERS: u32 = 0x40;
/// Lock word, alone: a repair found the queue broken; it stays so.
pub const BROKEN: u32 = 0x80;
/// Lock word: from this bit on, which of the processes that have had that number it is.
pub const INCARNATION_SHIFT: u32 = 8;

/// "2LQ" and the version of this layout.
pub const MAGIC: u32 = 0x514c_3201;

/// Nodes beside the messages' nodes: each of the two chains keeps one that carries nothing.
pub const EXTRA_NODES: u32 = 2;
/// Most messages a queue can be made for.
pub const CAPACITY_MAX: u32 = 1 << 24;

/// Bytes of a queue of at most `capacity` messages.
///
/// # Panics
/// If `capacity` is zero or above [`CAPACITY_MAX`].
#[must_use]
pub const fn queue_bytes(capacity: u32) -> usize {
    assert!(capacity > 0 && capacity <= CAPACITY_MAX);
    NODES + (capacity + EXTRA_NODES) as usize * NODE_BYTES
}

const _: () = {
    assert!(
        MEMBERS == MEMBER,
        "every member has a number, and zero is nobody"
    );
    assert!(MEMBER & WAITERS == 0 && (MEMBER | WAITERS) & BROKEN == 0);
    assert!(BROKEN < 1 << INCARNATION_SHIFT);
    assert!(MESSAGE.is_multiple_of(8) && MESSAGE + MESSAGE_BYTES <= NODE_BYTES);
    assert!(NODES.is_multiple_of(NODE_BYTES));
};
