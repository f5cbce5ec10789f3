//! The known origin of a right, and whether two rights are one.

use super::claimed::Claimed;
use super::{GoingHome, SETTLE_NS, SendRight, Upgrade};
use crate::error::RightError;
use crate::guest;
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
    /// of its user have kept this process waiting lately, and not at all in the control thread, which serves all peers.
    pub(crate) fn handle_at_home(&self, handle: Handle, home: &Link) -> Result<Handle, RightError> {
        let Self::Claimed(claimed) = self else {
            return Ok(handle);
        };
        let until_ns = clock::now_ns() + limit_ns(claimed, home);
        loop {
            if let Some(answer) = claimed.answer() {
                return answer.ok_or(RightError::Dead);
            }
            if guest::is_control() {
                return Err(RightError::Unsettled);
            }
            if clock::now_ns() >= until_ns {
                home.users()
                    .lose_patience(home.peer.uid, whose(claimed, home));
                return Err(RightError::Unsettled);
            }
            clock::nap();
        }
    }

    /// Whether the exporter may still say, in the time that [`Self::handle_at_home`] waits, which handle that is: for a thread that
    /// looks now and then, and has done so since then. The end of that time costs the exporter this process's patience.
    pub(crate) fn is_awaited(&self, home: &Link, since_ns: u64) -> bool {
        let Self::Claimed(claimed) = self else {
            return false;
        };
        if claimed.answer().is_some() || home.is_down() {
            return false;
        }
        let is_in_time = clock::now_ns() < since_ns.saturating_add(limit_ns(claimed, home));
        if !is_in_time {
            home.users()
                .lose_patience(home.peer.uid, whose(claimed, home));
        }
        is_in_time
    }
}

/// How long the word of a right's home is waited for.
fn limit_ns(claimed: &Claimed, home: &Link) -> u64 {
    let of = (home.peer.uid, whose(claimed, home));
    word_ns(home.users(), of, claimed.is_on_word())
}

/// The process that loses this one's patience where its word does not come. On another user's word a home may be this process itself: the
/// home loses nobody's patience then.
fn whose(claimed: &Claimed, home: &Link) -> Name {
    match claimed.is_on_word() {
        true => Name::default(),
        false => home.identity(),
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
