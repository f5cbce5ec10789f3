//! A port at one of its homes.

use super::*;

/// The port at one home.
pub(super) struct Instance {
    pub(super) home: usize,
    pub(super) state: State,
    /// Rights to it that are counted.
    pub(super) rights: i64,
    pub(super) has_new: bool,
}

pub(super) enum State {
    Receiving,
    /// Its message is on its way, or has arrived.
    Leaving {
        to: usize,
        has_arrived: bool,
    },
    Trail(Box<Follow>),
    Ended,
}

pub(super) struct Follow {
    pub(super) to: App,
    pub(super) by_badge: BTreeMap<u64, App>,
    pub(super) trail: Trail,
}

/// The meaning of a word.
pub(super) enum Named {
    To(Target),
    Dead,
    NotYet,
    Unknown,
}

impl Instance {
    pub(super) const fn new(home: usize) -> Self {
        Self {
            home,
            state: State::Receiving,
            rights: 0,
            has_new: false,
        }
    }
}
