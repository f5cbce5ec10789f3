//! The way of a right to a port that is served in this process ([`crate::served`]), and whether the right is
//! good.

use super::{SendRight, moved};
use crate::error::{Gone, SendError};
use crate::port::local::Shortcut;
use core::sync::atomic::Ordering;

/// The same, of one of this process's own.
pub(crate) fn with_shortcut(mut right: SendRight, shortcut: Option<Box<Shortcut>>) -> SendRight {
    right.shortcut = shortcut;
    right
}

#[inline(always)]
pub(crate) fn shortcut(right: &SendRight) -> Option<&Shortcut> {
    right.shortcut.as_deref()
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
    if moved::is_revoked(right) {
        return Err(SendError::Gone(Gone::Right));
    }
    // Relaxed: as above.
    right.calm.store(trouble, Ordering::Relaxed);
    Ok(())
}
