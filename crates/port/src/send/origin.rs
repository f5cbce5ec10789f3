//! The known origin of a right, and whether two rights are one.

use super::claimed::Claimed;
use super::{GoingHome, SETTLE_NS, SendRight, Upgrade};
use crate::error::RightError;
use crate::link::Link;
use crate::process::Process;
use crate::users::Users;
use handfast_layout::hello::Process as Name;
use handfast_layout::part::Part;
use handfast_proto::rights::Handle;
use handfast_sys::clock;
use handfast_sys::process;
use std::sync::Arc;

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
        // On another user's word a home may be this process itself: the home loses nobody's patience then.
        let of = match claimed.is_on_word() {
            true => Name::default(),
            false => home.identity(),
        };
        let until_ns = clock::now_ns() + word_ns(users, (user, of), claimed.is_on_word());
        loop {
            if let Some(answer) = claimed.answer() {
                return answer.ok_or(RightError::Dead);
            }
            if clock::now_ns() >= until_ns {
                users.lose_patience(user, of);
                return Err(RightError::Unsettled);
            }
            clock::nap();
        }
    }
}

/// How long this process waits for the word of another one, of this user and name.
pub(crate) fn word_ns(users: &Users, (user, of): (u32, Name), is_on_word: bool) -> u64 {
    match users.is_patient(user, of) {
        true if user == process::uid() && !is_on_word => SETTLE_NS,
        true => SETTLE_OTHER_NS,
        false => SETTLE_AGAIN_NS,
    }
}

/// A right that an introducer, the peer of `link`, has given to this process, which has it on the way home only.
pub(crate) fn going(
    process: &Arc<Process>,
    link: &Arc<Link>,
    vine: SendRight,
    (exporter, number, port): (Name, u64, u32),
) -> SendRight {
    super::with_origin(
        vine,
        Origin::Home(Arc::new(GoingHome::new(
            process,
            link,
            (exporter, number, port),
        ))),
    )
}

/// The part that announces the right to the peer of `to`, if the right is on its way home there.
pub(crate) fn home(right: &SendRight, to: &Link) -> Option<Part> {
    match right.origin() {
        Origin::Home(going) => going.part(to),
        _ => None,
    }
}
