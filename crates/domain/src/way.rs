//! The way to a domain that is a process. The crate that has ports makes it.

use crate::Words;
use crate::stack::Sender;
use core::time::Duration;
use handfast_sys::{OwnedFd, clock};
use std::sync::OnceLock;

/// The way to a child.
pub trait Way: Send + Sync {
    /// Calls the child, and returns the status ([`Domain::cross_for`](crate::Domain::cross_for)) and how many bytes it has written for the reply.
    ///
    /// # Errors
    /// [`Lost`] when there is no reply, and none will come.
    fn call(&self, crossing: &mut Crossing<'_>) -> Result<(u64, usize), Lost>;
}

/// No reply came from the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The child is gone, or breaks the protocol.
    Child,
    /// The child did not answer before the deadline.
    Late,
    /// As many calls are under way as there are places.
    Full,
    /// An attachment of the message cannot be sent to the child; the child has not received the message.
    Refused,
}

/// A call as it crosses, for both sides.
#[derive(Debug)]
pub struct Crossing<'a> {
    /// The number of the function.
    pub entry: u16,
    /// The port's statement about the message's sender.
    pub sender: Sender,
    /// The words, there and back.
    pub words: &'a mut Words,
    /// The bytes of the request, and room for the bytes of the reply; a call without them has none of either.
    pub bytes: Option<(&'a [u8], &'a mut [u8])>,
    /// The time at which its caller gives the call up, by the monotonic clock.
    pub deadline_ns: Option<u64>,
}

impl Crossing<'_> {
    /// How long its caller still waits; `None` if it waits forever.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let left_ns = |deadline_ns: u64| deadline_ns.saturating_sub(clock::now_ns());
        self.deadline_ns.map(left_ns).map(Duration::from_nanos)
    }
}

/// Whether this program can have domains as processes.
#[must_use]
pub fn are_possible() -> bool {
    CONNECT.get().is_some()
}

/// The way to the port behind a descriptor, in the child with a process number, or the step that failed.
pub(crate) type Connect = fn(&OwnedFd, u32) -> Result<Box<dyn Way>, &'static str>;

static CONNECT: OnceLock<Connect> = OnceLock::new();

/// Domains can be processes from now on.
pub(crate) fn open(connect: Connect) {
    // The first one stays.
    let _ = CONNECT.set(connect);
}

/// How children are reached, if domains can be processes.
pub(crate) fn connect() -> Option<Connect> {
    CONNECT.get().copied()
}
