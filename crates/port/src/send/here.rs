//! The way of a right to a port that is served in this process ([`crate::served`]), and whether the right is
//! good.

use super::SendRight;
use crate::error::{Gone, SendError};
use crate::port::local::Shortcut;
use core::sync::atomic::Ordering;

impl SendRight {
    /// The same, of one of this process's own.
    pub(crate) fn with_shortcut(mut self, shortcut: Option<Box<Shortcut>>) -> Self {
        self.shortcut = shortcut;
        self
    }

    #[inline(always)]
    pub(crate) fn shortcut(&self) -> Option<&Shortcut> {
        self.shortcut.as_deref()
    }

    /// Whether nothing has happened on the link since the last look that ends this right; if so, what.
    #[inline]
    pub(crate) fn is_as_before(&self) -> Result<(), SendError> {
        // Acquire: pairs with the addition in `disturb`; earlier trouble is looked at.
        let trouble = self.link.trouble.load(Ordering::Acquire);
        // Relaxed: the count is all that is said.
        match self.calm.load(Ordering::Relaxed) == trouble {
            true => Ok(()),
            false => self.look_again(trouble),
        }
    }

    #[cold]
    fn look_again(&self, trouble: u32) -> Result<(), SendError> {
        if let Some(failure) = self.link.failure(self.port) {
            return Err(failure);
        }
        if self.is_revoked() {
            return Err(SendError::Gone(Gone::Right));
        }
        // Relaxed: as above.
        self.calm.store(trouble, Ordering::Relaxed);
        Ok(())
    }
}
