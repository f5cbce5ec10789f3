//! A right that was claimed from its exporter, and the exporter's answer.

use super::SendRight;
use crate::link::IsAwaited;
use crate::link::returns::Own;
use crate::process::Process;
use crate::rank;
use handfast_proto::rights::Handle;
use handfast_sys::sync::Mutex;
use handfast_sys::{clock, process};
use std::sync::Arc;
use std::sync::OnceLock;

/// How long a right that was claimed on another user's word waits for its exporter, which may be a process that never says anything. As
/// long as an exporter waits for an old home.
const HELD_NS: u64 = match cfg!(all(test, not(feature = "simulation"))) {
    true => 100_000_000,
    false => 60_000_000_000,
};

/// The exporter's answer to a claim.
pub(crate) struct Claimed {
    process: Arc<Process>,
    /// It was claimed on the word of another user.
    is_on_word: bool,
    /// Until when nothing is sent by it, and its exporter is waited for, where that is so.
    until_ns: u64,
    awaited: Mutex<Option<Own>, rank::Claimed>,
    handle: OnceLock<Handle>,
}

impl Claimed {
    pub(crate) fn new(process: &Arc<Process>, own: Own, is_on_word: bool) -> Self {
        Self {
            process: process.clone(),
            is_on_word,
            until_ns: clock::ticks_ns() + HELD_NS,
            awaited: Mutex::new(Some(own)),
            handle: OnceLock::new(),
        }
    }

    /// Takes the exporter's answer, if it is there.
    pub(crate) fn settle(&self) {
        let _ = self.handle();
    }

    /// The handle of the claimed right, once the exporter has told it.
    pub(crate) fn handle(&self) -> Option<Handle> {
        if let Some(handle) = self.handle.get() {
            return Some(*handle);
        }
        if self.is_forked() {
            return None;
        }
        let mut place = self.awaited.lock();
        let answer = place.as_ref()?.take_handle()?;
        let own = place.take()?;
        let (link, fault) = (own.link.clone(), answer.err());
        own.free();
        let handle = answer.ok().flatten();
        let handle = handle.map(|handle| *self.handle.get_or_init(|| handle));
        drop(place);
        if let Some(fault) = fault {
            // The thread may hold a lane, or what a receiver waits for.
            link.condemn(fault);
        }
        handle
    }
}

impl Claimed {
    pub(super) const fn is_on_word(&self) -> bool {
        self.is_on_word
    }

    /// Whether it is of this process's parent: the answer comes in memory that is not here.
    pub(super) fn is_forked(&self) -> bool {
        self.process.epoch != process::fork_epoch()
    }

    /// Whether nothing is sent by the right yet: see `Link::is_of_others`. Where its exporter has ended, nothing ever is.
    pub(crate) fn is_held(&self) -> bool {
        self.is_on_word && self.handle().is_none() && {
            let awaited = self.awaited.lock();
            awaited.as_ref().is_some_and(|own| !own.link.is_down())
        }
    }

    /// Whether that has been so for too long.
    pub(crate) fn is_held_in_vain(&self) -> bool {
        self.is_held() && clock::ticks_ns() >= self.until_ns
    }

    /// The exporter's answer, if it is there: `Some(None)` when there is no such right.
    pub(super) fn answer(&self) -> Option<Option<Handle>> {
        match self.handle() {
            None if self.is_over() => {
                // Another thread may have taken it since, which sets the handle under the lock.
                Some(self.handle.get().copied())
            }
            None => None,
            handle => Some(handle),
        }
    }

    /// Whether no answer is awaited any more.
    pub(crate) fn is_over(&self) -> bool {
        let awaited = self.awaited.lock();
        awaited.is_none()
    }
}

impl IsAwaited for Claimed {
    fn is_awaited(&self) -> bool {
        self.handle().is_none() && !Self::is_over(self)
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        let place = self.awaited.get_mut();
        if let Some(own) = place.take() {
            own.forsake();
        }
    }
}

/// Whether nothing has been sent by it for a minute, since its exporter confirms nothing.
pub(crate) fn is_held_in_vain(right: &SendRight) -> bool {
    super::claim(right).is_some_and(|claimed| claimed.is_held_in_vain())
}

/// Whether nothing is sent by it before the exporter has confirmed it.
pub(crate) fn is_held(right: &SendRight) -> bool {
    super::claim(right).is_some_and(|claimed| claimed.is_held())
}

/// Whether the exporter has said that there is no such right.
pub(crate) fn is_in_vain(right: &SendRight) -> bool {
    super::claim(right).is_some_and(|claimed| claimed.answer() == Some(None))
}

/// Whether the exporter has confirmed it.
pub(crate) fn is_confirmed(right: &SendRight) -> bool {
    super::claim(right).is_none_or(|claimed| claimed.handle().is_some())
}

/// Sees to it that what was asked of the exporter, and has been answered, holds nothing any more.
pub(crate) fn settle(right: &SendRight) {
    if let Some(claimed) = super::claim(right) {
        claimed.settle();
    }
}
