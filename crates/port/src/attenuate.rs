//! Rights with fewer permissions than those they are made of: claimed from the exporter as introductions are, by a
//! word that is good at once.

use crate::error::{ConnectError, Gone, Misuse, RightError, SendError};
use crate::introduce;
use crate::introduce::{Named, claim_by};
use crate::link::{IsAwaited, Link};
use crate::notice;
use crate::origin::{Claimed, Origin};
use crate::ports;
use crate::process::Process;
use crate::room::{LaneWait, Waiting};
use crate::send::SendRight;
use crate::vine;
use handfast_layout::lane_control::LaneControl;
use handfast_proto::introductions::Claim;
use std::sync::{Arc, Weak};

impl SendRight {
    /// A right to the same port with the same badge, its permissions reduced to those in `mask`, to be given to others,
    /// or used. The port's process keeps the permissions, so no holder adds any; its receiver gets them with each
    /// message ([`Request::permissions`](crate::Request::permissions)).
    ///
    /// Does not wait for the port's process: tells it in order with this thread's messages to the port. Messages
    /// that other threads send through the new right wait there until this has been received, up to 200 ms. One
    /// message, and a system call if the receiver sleeps.
    ///
    /// # Errors
    /// [`SendError::Full`] without room in the queue, before a port that has moved on the word of another user's process is known to
    /// be at its new home, or when 256 such rights, and reply rights, that the peer has
    /// not answered yet are under way. [`RightError::Indirect`] for a right that goes through another process; where only that
    /// process knows that it does, the right that is returned is good for nothing ([`Gone::Right`] or [`Gone::Port`] when it is used).
    /// [`SendError::Gone`].
    pub fn attenuate(&self, mask: u16) -> Result<Self, SendError> {
        if self.is_forked() {
            return Err(SendError::Misuse(Misuse::Forked));
        }
        self.await_word(Waiting::Always);
        loop {
            let this = self.best();
            match this.attenuate_now(mask) {
                // It has become another meanwhile.
                Err(SendError::Full) if !core::ptr::eq(this, self.best()) => {}
                attenuated => return attenuated,
            }
        }
    }

    /// As [`Self::attenuate`], of a right that may become another by that.
    fn attenuate_now(&self, mask: u16) -> Result<Self, SendError> {
        if let Some(failure) = self.link().failure(self.port()) {
            return Err(failure);
        }
        if self.is_held() {
            // Its port has moved on the word of another user, and the new home has not confirmed that.
            return Err(SendError::Full);
        }
        if self.is_revoked() {
            return Err(SendError::Gone(Gone::Right));
        }
        if matches!(self.origin(), Origin::Vine(_)) {
            return Err(SendError::Right(RightError::Indirect));
        }
        if let Some(by) = self.shortcut() {
            // This process knows itself which permissions those are.
            let right = by.own().attenuate(mask).connect();
            return right.map_err(|error| match error {
                ConnectError::Gone(gone) => SendError::Gone(gone),
                ConnectError::Exhausted(exhausted) => SendError::Exhausted(exhausted),
                _ => SendError::Full,
            });
        }
        let mut lane_wait = LaneWait::default();
        while self.link().lane(self.receiver()).is_none() {
            lane_wait.wait(self, Waiting::Always)?;
        }
        let said = |word| LaneControl::Attenuate { word, mask };
        claim_by(self.process(), self, said).ok_or(SendError::Full)
    }
}

/// Exporter: the peer has a right like the one it names by `by`, attenuated. `None`: that is nothing an honest peer
/// names.
pub(crate) fn attenuated(
    link: &Arc<Link>,
    process: &Process,
    by: u32,
    (mask, bound_now_ns): (u16, Option<u64>),
) -> Option<Claim> {
    let is_bound = bound_now_ns.is_some();
    let now_ns = bound_now_ns.unwrap_or_default();
    loop {
        let revocations = process.revocations.number();
        let target = match introduce::named(link, process, by, now_ns) {
            Named::To(target) => target.attenuated(mask),
            Named::Revoked => return Some(Claim::Revoked),
            Named::Dead => return Some(Claim::Dead),
            // A receiver has waited for these rights; where the port is gone, none waits.
            Named::NotYet(_) | Named::Unclaimed if !is_bound => return Some(Claim::Dead),
            Named::Trail(_) | Named::NotYet(_) | Named::Unclaimed | Named::Unknown => return None,
        };
        let Some(port) = ports::by_id(process, target.port) else {
            return Some(Claim::Dead);
        };
        if vine::is_at(process, port.id) {
            // The right behind it, which this process sends by, has all permissions still.
            return Some(Claim::Dead);
        }
        // Again as often as this process revokes something meanwhile.
        if let Some(granted) = notice::export_again(link, &port, target, revocations) {
            // Beyond its quota, too.
            return Some(granted.map_or(Claim::Revoked, Claim::Granted));
        }
    }
}

/// Recipient: something was claimed.
pub(crate) fn awaits(link: &Link, claimed: &Arc<Claimed>) {
    let mut awaited = link.rights.awaited.lock();
    awaited.push(Arc::downgrade(claimed) as Weak<dyn IsAwaited>);
    if awaited.len() > AWAITED_MAX {
        awaited.retain(|claimed| claimed.upgrade().is_some_and(|claimed| !claimed.is_over()));
    }
}

/// Recipient: takes the answers that are there, which frees their slots.
pub(crate) fn hear_claims(link: &Link) {
    let awaited = {
        let mut awaited = link.rights.awaited.lock();
        core::mem::take(&mut *awaited)
    };
    // Outside of the lock: the last right to one of them may be dropped meanwhile.
    let mut open: Vec<Weak<dyn IsAwaited>> = Vec::new();
    for claimed in awaited {
        if claimed.upgrade().is_some_and(|known| known.is_awaited()) {
            open.push(claimed);
        }
    }
    let mut awaited = link.rights.awaited.lock();
    awaited.append(&mut open);
}

/// As many as there are slots for their answers, and some that are over.
const AWAITED_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::tests::link;
    use crate::link_life;
    use handfast_proto::rights::Target;

    #[test]
    fn a_right_that_goes_through_this_process_is_attenuated_to_nothing() {
        let (process, link, _peer) = link();
        let vine = vine::of(&process).get_or_start(&process).unwrap();
        let handle = notice::export(&link, &vine.port, Target::full(vine.port.id, 5)).unwrap();
        let claim = attenuated(&link, &process, handle, (1, Some(0)));
        assert_eq!(claim, Some(Claim::Dead));
        link_life::end_link(&process, &link);
    }
}
