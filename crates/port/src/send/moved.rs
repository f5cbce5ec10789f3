//! The right that a right has become by now.

use super::{Origin, SendRight};
use crate::error::{Gone, SendError};
use crate::link::redirects::{self, Moved};
use crate::link::revoked;
use crate::options::Waiting;
use crate::port::NewHome;
use crate::port::own::OwnRight;
use crate::seal::Seal;
use core::sync::atomic::Ordering;
use handfast_proto::rights::Handle;
use std::sync::Arc;

/// The right to its port's new home that a right of this process stands for, where the port has moved; none if it was revoked, or the
/// port has ended. May wait for room in a lane.
pub(crate) fn moved(own: &OwnRight) -> Option<Arc<SendRight>> {
    let home = own.port().home.get()?;
    own.is_good().then(|| right_by(&**home, own))?
}

/// See [`NewHome::right`].
pub(crate) fn right_by(home: &dyn NewHome, own: &OwnRight) -> Option<Arc<SendRight>> {
    let right = home.right(Seal::of(own.target()))?;
    right.downcast().ok()
}

impl SendRight {
    /// This right, or what it has become since it came (see `door` and `redirect`), or is on this CPU (see
    /// `spread`).
    #[inline]
    pub(crate) fn best(&self) -> &Self {
        let mut best = self;
        // As often as its port has moved: by a loop, since others say how often that is.
        while let Some(next) = best.next() {
            best = next;
        }
        best.here()
    }

    #[inline]
    pub(super) fn next(&self) -> Option<&Self> {
        let direct = match &self.origin {
            Origin::Vine(Some(upgrade)) => upgrade.direct(),
            _ => None,
        };
        direct.or_else(|| self.moved_to())
    }

    /// A right on the word of another user becomes direct when its exporter has confirmed it, and not once a message has gone
    /// through the introducer, which may overtake none: so the first use waits for a moment. A user who lets this process wait
    /// in vain is not waited for again soon.
    #[cold]
    pub(crate) fn await_word(&self, waiting: Waiting) {
        let Origin::Vine(Some(upgrade)) = &self.origin else {
            return;
        };
        if !matches!(waiting, Waiting::Never) && !crate::guest::is_control() {
            upgrade.await_word();
        }
    }

    /// The right it has become since its port moved.
    #[inline]
    pub(super) fn moved_to(&self) -> Option<&Self> {
        if self.link.rights.redirects.has_moved() {
            self.look_moved()
        } else {
            None
        }
    }

    /// The right that the message goes through, if that is not this one any more. `trouble` is the link's count of troubles from
    /// before.
    #[inline(always)]
    pub(crate) fn successor(&self, trouble: u32) -> Result<Option<&Self>, SendError> {
        // After the count was read: a thread that finds the count of a switch also finds the right's successor.
        if let Some(next) = self.moved_to() {
            return Ok(Some(next.best()));
        }
        if let Some(failure) = self.link.failure(self.port) {
            return Err(failure);
        }
        // Relaxed: the count is all that is said. With the same one it was good.
        if self.calm.load(Ordering::Relaxed) != trouble {
            if self.is_revoked() {
                return Err(SendError::Gone(Gone::Right));
            }
            // The port may have got a receiver for each CPU since the look that led here: no other look
            // follows.
            let here = self.here();
            if !core::ptr::eq(here, self) {
                return Ok(Some(here));
            }
            // For rights of others the exporter has not said which ports they are to.
            if matches!(self.origin, Origin::Exporter) {
                self.link.sends_to(self.port);
            }
        }
        if !matches!(self.origin, Origin::Vine(Some(_))) && !self.is_held() {
            // Relaxed: the count is all that is said. One that may become another, or wait, is asked that
            // each time.
            self.calm.store(trouble, Ordering::Relaxed);
        }
        Ok(None)
    }

    /// Whether it is another right now.
    pub(crate) fn has_moved(&self) -> bool {
        self.moved_to().is_some()
    }

    #[cold]
    fn look_moved(&self) -> Option<&Self> {
        if let Some(moved) = self.known_moved() {
            return moved.as_deref();
        }
        let moved = redirects::direct(&self.link, self.handle)?;
        let direct = direct(&moved)?.clone();
        direct.wait_by(self.waiting());
        let moved = self.aside().moved.get_or_init(|| Some(Box::new(direct)));
        moved.as_deref()
    }

    /// The right stays where it is when its port moves.
    pub(crate) fn pin(&self) {
        let _ = self.aside().moved.set(None);
        redirects::stays(&self.link, self.handle);
    }

    pub(crate) const fn port(&self) -> u32 {
        self.port
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// Whether it is known to be revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        revoked::is_revoked(self.link(), self.handle())
    }

    pub(crate) fn is_down(&self) -> bool {
        self.link.is_down()
    }

    #[cold]
    pub(crate) fn poison(&self, fault: handfast_ring::Fault) -> crate::error::PeerFault {
        let fault = self.link.poison(fault);
        self.process().attention.raise();
        fault
    }

    /// Why nothing more can be sent, if so.
    pub(crate) fn failure(&self) -> Option<SendError> {
        self.link.failure(self.port)
    }

    /// Why no call that was made through this right is answered any more, if so.
    #[inline]
    pub(crate) fn failure_of_calls(&self) -> Option<SendError> {
        let failure = self.failure()?;
        let is_elsewhere =
            failure == SendError::Gone(Gone::Port) && redirects::outlives(&self.link, self.handle);
        (!is_elsewhere).then_some(failure)
    }

    /// Sees to it that what was asked of the exporter, and has been answered, holds nothing any more.
    pub(crate) fn settle(&self) {
        if let Origin::Claimed(claimed) = &self.origin {
            claimed.settle();
        }
    }
}

/// The right that a right has become whose port has moved.
fn direct(moved: &Moved) -> Option<&SendRight> {
    moved.direct.get()?.downcast_ref()
}
