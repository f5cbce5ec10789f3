//! The answers of the rota.

use super::Key;

/// The handling of a request found in an active lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take it.
    Serve,
    /// Leave it in the lane, tell the client, and stop polling the lane.
    Defer,
}

/// The handling of a lane that rang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rang {
    /// Poll it.
    Poll,
    /// It waits its turn.
    Queued,
    /// It was active or queued already.
    Nothing,
}

/// A waiter that has become active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Serve its request; the reply will have to wake it.
    Request(Key),
    /// Its reply is there already: wake it.
    Reply(Key),
}

/// When to wake a client found asleep at its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// Now: it was admitted asleep, or there is room.
    Now,
    /// Its lane was queued; admission wakes it.
    Later,
}
