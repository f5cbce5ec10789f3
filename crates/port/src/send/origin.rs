//! The known origin of a right, and whether two rights are one.

use super::{GoingHome, SETTLE_NS, SendRight, Upgrade, moved, spread};
use crate::error::RightError;
use crate::link::returns::Own;
use crate::link::{IsAwaited, Link};
use crate::process::Process;
use crate::rank;
use handfast_proto::rights::Handle;
use handfast_sys::sync::Mutex;
use handfast_sys::{clock, process};
use std::sync::{Arc, OnceLock};

/// How long an exporter's word is waited for, if one of its user has kept this process waiting in vain lately: a thread
/// that answers calls answers others, too.
const SETTLE_AGAIN_NS: u64 = 500_000;
/// The same, for the word of another user's process: other users' calls may wait behind it.
const SETTLE_OTHER_NS: u64 = 10_000_000;

/// How a right has come to this process, as far as that tells what the right is.
#[derive(Clone, Default)]
pub(crate) enum Origin {
    /// From the process of its port.
    #[default]
    Exporter,
    /// The right was claimed from there.
    Claimed(Arc<Claimed>),
    /// The right goes through another process, for now.
    Vine(Option<Arc<Upgrade>>),
    /// The right goes on to the process of its port, in an answer, and comes from another.
    Home(Arc<GoingHome>),
}

/// The exporter's answer to a claim.
pub(crate) struct Claimed {
    process: Arc<Process>,
    /// It was claimed on the word of another user.
    is_on_word: bool,
    awaited: Mutex<Option<Own>, rank::Claimed>,
    handle: OnceLock<Handle>,
}

impl Claimed {
    pub(crate) fn new(process: &Arc<Process>, own: Own, is_on_word: bool) -> Self {
        Self {
            process: process.clone(),
            is_on_word,
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
    /// Whether it is of this process's parent: the answer comes in memory that is not here.
    fn is_forked(&self) -> bool {
        self.process.epoch != process::fork_epoch()
    }

    /// Whether nothing is sent by the right yet: see [`Link::is_of_others`].
    pub(crate) fn is_held(&self) -> bool {
        self.is_on_word && self.is_awaited()
    }

    /// The exporter's answer, if it is there: `Some(None)` when there is no such right.
    fn answer(&self) -> Option<Option<Handle>> {
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

impl Origin {
    /// Whether [`Self::handle_at_home`] would not wait.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Claimed(claimed) => claimed.answer().is_some(),
            _ => true,
        }
    }

    /// The handle that the exporter's own tables have for the right with this handle. Waits a while for its word; less if others
    /// of its user have kept this process waiting lately.
    pub(crate) fn handle_at_home(&self, handle: Handle, home: &Link) -> Result<Handle, RightError> {
        let Self::Claimed(claimed) = self else {
            return Ok(handle);
        };
        let (users, user) = (home.users(), home.peer.uid);
        let limit_ns = match users.is_patient(user, home.identity()) {
            true if user == process::uid() => SETTLE_NS,
            true => SETTLE_OTHER_NS,
            false => SETTLE_AGAIN_NS,
        };
        let until_ns = clock::now_ns() + limit_ns;
        loop {
            if let Some(answer) = claimed.answer() {
                return answer.ok_or(RightError::Dead);
            }
            if clock::now_ns() >= until_ns {
                users.lose_patience(user, home.identity());
                return Err(RightError::Unsettled);
            }
            clock::nap();
        }
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

/// Whether two rights are to the same port with the same badge and permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identity {
    /// They are.
    Same,
    /// They are not.
    Different,
    /// Not known yet: one of them came from a third process, and the port's process has not yet identified it
    /// among its rights. That process does so when it next receives at that port; for a right that goes through
    /// another process, never.
    Unknown,
}

impl SendRight {
    /// Whether this right and `other` are to the same port with the same badge and permissions, by whatever way they
    /// have come. No system call; does not block.
    #[must_use]
    pub fn identity(&self, other: &Self) -> Identity {
        let (this, other) = (moved::best(self), moved::best(other));
        compare(this, other)
    }
}

/// Whether nothing is sent by it before the exporter has confirmed it.
pub(crate) fn is_held(right: &SendRight) -> bool {
    matches!(right.origin(), Origin::Claimed(claimed) if claimed.is_held())
}

/// A right that is not held any more posts at once from now on.
#[inline]
pub(crate) fn posts_at_once(right: &SendRight) {
    if let Origin::Claimed(claimed) = right.origin()
        && claimed.is_on_word
    {
        spread::post_to_receiver(right);
    }
}

/// Whether the exporter has said that there is no such right.
pub(crate) fn is_in_vain(right: &SendRight) -> bool {
    let Origin::Claimed(claimed) = right.origin() else {
        return false;
    };
    claimed.answer() == Some(None)
}

/// Whether the exporter has confirmed it.
pub(crate) fn is_confirmed(right: &SendRight) -> bool {
    match right.origin() {
        Origin::Claimed(claimed) => claimed.handle().is_some(),
        _ => true,
    }
}

fn compare(this: &SendRight, other: &SendRight) -> Identity {
    let is_same_link = Arc::ptr_eq(this.link(), other.link());
    if is_same_link && this.handle() == other.handle() {
        return Identity::Same;
    }
    let of = |right: &SendRight| match right.origin() {
        Origin::Exporter => Some(right.handle()),
        Origin::Claimed(claimed) => claimed.handle(),
        Origin::Vine(_) | Origin::Home(_) => None,
    };
    let is_vine = |right: &SendRight| matches!(right.origin(), Origin::Vine(_));
    match (of(this), of(other)) {
        (Some(one), Some(other)) if is_same_link && one == other => Identity::Same,
        (Some(_), Some(_)) => Identity::Different,
        _ if is_same_link || is_vine(this) || is_vine(other) => Identity::Unknown,
        // A port is in one process only.
        _ => Identity::Different,
    }
}
