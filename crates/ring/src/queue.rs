//! Plain queues of fixed-size messages, shared by any number of processes of one trust group.
//!
//! A lane has one producer and one consumer, and a peer can only hurt itself on it. A plain queue
//! has many of both, so a member that writes nonsense hurts all members: it is for processes that
//! trust each other and for the experiments of the papers. The damage a member can do to the others is
//! still bounded: every value is checked before use, every walk has a budget, and a member that
//! is killed at any instruction leaves a queue that the others repair.

mod membership;
pub mod mpmc;
pub mod two_lock;

use crate::Fault;
use handfast_layout::queue::MESSAGE_BYTES;

/// The content of one message.
pub type Message = [u8; MESSAGE_BYTES];

/// A bounded queue, first in first out. No system call unless another member is in the way.
pub trait Queue {
    /// Appends a message.
    ///
    /// # Errors
    /// [`Push::Full`] when no place is free; [`Push::Fault`] when a member wrote nonsense.
    fn try_push(&self, message: &Message) -> Result<(), Push>;

    /// Takes the oldest message.
    ///
    /// # Errors
    /// [`Pop::Empty`] when there is none; [`Pop::Fault`] when a member wrote nonsense.
    fn try_pop(&self) -> Result<Message, Pop>;
}

/// Why a message was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// Every place is taken; try again after a pop.
    Full,
    /// A member broke a rule; the queue is of no use any more.
    Fault(Fault),
}

/// Why no message was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pop {
    /// Nothing is queued.
    Empty,
    /// A member broke a rule; the queue is of no use any more.
    Fault(Fault),
}

/// The members of a queue, and which of them have died.
///
/// A member is a process (of any number of threads) with a number from 1 to
/// [`MEMBERS`](handfast_layout::queue::MEMBERS) that no living process shares. Its number may be
/// given to another process once it has died, and that process first undoes what the dead one
/// left under it: so a number found in shared memory always belongs to a living process or to
/// one whose leftovers nobody else will mistake for their own.
pub trait Members: Send + Sync {
    /// This process's number.
    fn me(&self) -> u32;
    /// Which of the processes that have had this number this one is: differs between a process
    /// and the next one with its number.
    fn incarnation(&self) -> u32 {
        0
    }
    /// Whether the process with this number has died. May take a system call. When it says so,
    /// all that the dead process wrote is visible to the caller.
    fn is_dead(&self, member: u32) -> bool;
}
