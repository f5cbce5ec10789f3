//! Rights with fewer permissions than those they are made of: claimed from the exporter as introductions are, by a
//! word that is good at once.

use crate::error::{Gone, Misuse, RightError, SendError};
use crate::introduce::claim_by;
use crate::link::lanes;
use crate::options::Waiting;
use crate::send::{self, LaneWait, Origin, SendRight, claimed, ended, route};
use handfast_layout::lane_control::LaneControl;

impl SendRight {
    /// A right to the same port with the same badge, its permissions reduced to those in `mask`, to be given to others,
    /// or used. The port's process keeps the permissions, so no holder can add any; the port's receiver gets them with each
    /// message ([`Request::permissions`](crate::Request::permissions)).
    ///
    /// Does not wait for the port's process, and tells it in order with this thread's messages to the port. Messages
    /// that other threads send through the new right wait there until the port's process has received that, up to 200 ms. Costs one
    /// message, and a system call if the receiver sleeps.
    ///
    /// # Errors
    /// [`SendError::Full`] without room in the queue, before a port that has moved on the word of another user's process is known to
    /// be at its new home, or when 256 such rights, and reply rights, that the peer has
    /// not answered yet are under way. [`RightError::Indirect`] for a right that goes through another process; where only that
    /// process knows that, the returned right is dead ([`Gone::Right`] or [`Gone::Port`] when it is used).
    /// [`SendError::Gone`].
    pub fn attenuate(&self, mask: u16) -> Result<Self, SendError> {
        if send::is_forked(self) {
            return Err(SendError::Misuse(Misuse::Forked));
        }
        route::await_word(self, Waiting::Always);
        loop {
            let this = route::best(self);
            match attenuate_now(this, mask) {
                // It has become another meanwhile.
                Err(SendError::Full) if !core::ptr::eq(this, route::best(self)) => {}
                attenuated => return attenuated,
            }
        }
    }
}

/// As [`SendRight::attenuate`], of a right that may become another by that.
fn attenuate_now(right: &SendRight, mask: u16) -> Result<SendRight, SendError> {
    if let Some(failure) = right.link().failure(right.port()) {
        return Err(failure);
    }
    if claimed::is_held(right) {
        // Its port has moved on the word of another user, and the new home has not confirmed that.
        return Err(SendError::Full);
    }
    if ended::is_revoked(right) {
        return Err(SendError::Gone(Gone::Right));
    }
    if matches!(right.origin(), Origin::Vine(_)) {
        return Err(SendError::Right(RightError::Indirect));
    }
    if let Some(by) = route::shortcut(right) {
        // This process knows itself which permissions those are.
        return by.own().attenuate(mask).reach();
    }
    let mut lane_wait = LaneWait::default();
    while lanes::to(right.link(), right.receiver()).is_none() {
        lane_wait.wait(right, Waiting::Always)?;
    }
    let said = |word| LaneControl::Attenuate { word, mask };
    claim_by(right.process(), right, said).ok_or(SendError::Full)
}
