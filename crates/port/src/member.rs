//! Ports that share a receiver: a port is an entry in a table, and one thread serves thousands.

use crate::error::{BindError, Misuse};
use crate::port::Port;
use crate::port::own::OwnRight;
use crate::port::ports;
use crate::rank;
use crate::receive_right::ReceiveRight;
use crate::users::Charge;
use core::sync::atomic::Ordering;
use handfast_proto::rights::ALL_PERMISSIONS;
use handfast_sys::sync::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A port whose messages come to the receiver of another port: [`ReceiveRight::member`]. It has rights, badges, notices and an end of its
/// own, and no thread, name or descriptor; it takes some 500 bytes.
///
/// The port can be sent to another process ([`Right::Member`](crate::Right::Member)), where it shares the receiver that the message comes to, if that
/// [takes such ports](Self::accept_at).
///
/// Dropping the port revokes its rights: their holders are told as for [`ReceiveRight::revoke`]. The port also ends with the port whose
/// receiver it shares.
pub struct MemberPort {
    port: Arc<Port>,
    epoch: u32,
    /// Of all rights that were minted.
    badges: Mutex<BTreeSet<u64>, rank::Minted>,
    /// Of the other user whose process has sent it here, if one has.
    _charge: Option<Charge>,
}

impl ReceiveRight {
    /// Makes a port whose messages and notices come to this receiver, up to 1,048,576 in one process. [`Request::member`](crate::Request::member) tells
    /// which port a message came to. No system call.
    ///
    /// # Errors
    /// [`BindError::Exhausted`] beyond that number. [`BindError::Misuse`] in a forked child, or once the node was shut down.
    pub fn member(&self) -> Result<MemberPort, BindError> {
        let port = self.port();
        port.process.check()?;
        if self.check().is_err() {
            return Err(BindError::Misuse(Misuse::Forked));
        }
        Ok(MemberPort::new(ports::add_member(port, None)?, None))
    }
}

impl MemberPort {
    /// A port that has just been made.
    pub(crate) fn new(port: Arc<Port>, charge: Option<Charge>) -> Self {
        Self {
            epoch: port.process.epoch,
            port,
            badges: Mutex::default(),
            _charge: charge,
        }
    }

    pub(crate) const fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// From now on ports that come in messages ([`Right::Member`](crate::Right::Member)) share the receiver of this port. Before, they are refused, and
    /// end: each takes some 500 bytes of this process, as any sender likes (of another user: 48 in all). The port itself does not move
    /// from then on. No system call.
    pub fn accept_at(receive: &ReceiveRight) {
        if receive.check().is_ok() {
            let at = &receive.port().at;
            // Release: pairs with the Acquire in `moving::depart`.
            at.is_shared.store(true, Ordering::Release);
            // Release: pairs with the Acquire in `moving::arrival`.
            at.takes_members.store(true, Ordering::Release);
        }
    }

    /// The number that [`Request::member`](crate::Request::member) returns for this port. No other port of the process has that number
    /// before this one has ended.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.port.id
    }

    /// Like [`ReceiveRight::mint`]. In a forked child the right is dead.
    #[must_use]
    pub fn mint(&self, badge: u64) -> OwnRight {
        if self.is_own() {
            self.badges.lock().insert(badge);
        }
        OwnRight::to(&self.port, badge, ALL_PERMISSIONS)
    }

    /// Whether it is this process's, and not its parent's: locks of the parent may never be free.
    fn is_own(&self) -> bool {
        self.epoch == handfast_sys::process::fork_epoch()
    }

    /// Whether it is, and has not ended with the port whose receiver it shares.
    pub(crate) fn is_there(&self) -> bool {
        // Acquire: pairs with the Release in `closing::end_members_of`.
        self.is_own() && !self.port.is_closing.load(Ordering::Acquire)
    }
}

impl Drop for MemberPort {
    fn drop(&mut self) {
        if self.is_own() {
            // Release: as in `closing::tell_closing`.
            self.port.is_closing.store(true, Ordering::Release);
            if !ports::remove_member(&self.port) {
                // Its rights have been revoked.
                return;
            }
            let ends = ports::ends(&self.port.process);
            // Rights with any badge may have come with it.
            if self.port.came_from.get().is_some() {
                ends.end_member(&self.port);
            }
            for badge in core::mem::take(self.badges.get_mut()) {
                ends.revoke(&self.port, badge);
            }
        }
    }
}

impl core::fmt::Debug for MemberPort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MemberPort")
            .field("key", &self.port.id)
            .finish()
    }
}

#[cfg(test)]
mod tests;
