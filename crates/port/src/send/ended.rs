//! Whether a right has ended, and why.

use super::SendRight;
use crate::error::{Gone, PeerFault, SendError};
use crate::link::{redirects, revoked};
use core::sync::atomic::Ordering;
use handfast_ring::Fault;

/// Whether it is known to be revoked.
pub(crate) fn is_revoked(right: &SendRight) -> bool {
    revoked::is_revoked(right.link(), right.handle())
}

pub(crate) fn is_down(right: &SendRight) -> bool {
    right.link.is_down()
}

#[cold]
pub(crate) fn poison(right: &SendRight, fault: Fault) -> PeerFault {
    let fault = right.link.poison(fault);
    right.process().attention.raise();
    fault
}

/// Why nothing more can be sent, if so.
pub(crate) fn failure(right: &SendRight) -> Option<SendError> {
    right.link.failure(right.port)
}

/// Why no call that was made through this right is answered any more, if so.
#[inline]
pub(crate) fn failure_of_calls(right: &SendRight) -> Option<SendError> {
    let failure = failure(right)?;
    let is_elsewhere =
        failure == SendError::Gone(Gone::Port) && redirects::outlives(&right.link, right.handle);
    (!is_elsewhere).then_some(failure)
}

/// Whether nothing has happened on the link since the last look that ends this right; if so, what.
#[inline]
pub(crate) fn is_as_before(right: &SendRight) -> Result<(), SendError> {
    // Acquire: pairs with the addition in `disturb`; earlier trouble is looked at.
    let trouble = right.link.trouble.load(Ordering::Acquire);
    // Relaxed: the count is all that is said.
    match right.calm.load(Ordering::Relaxed) == trouble {
        true => Ok(()),
        false => look_again(right, trouble),
    }
}

#[cold]
fn look_again(right: &SendRight, trouble: u32) -> Result<(), SendError> {
    if let Some(failure) = right.link.failure(right.port) {
        return Err(failure);
    }
    if is_revoked(right) {
        return Err(SendError::Gone(Gone::Right));
    }
    // Relaxed: as above.
    right.calm.store(trouble, Ordering::Relaxed);
    Ok(())
}
