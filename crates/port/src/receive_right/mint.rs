//! Rights to send to a port, made by its receive right.

use super::ReceiveRight;
use crate::port::own::OwnRight;
use handfast_proto::rights::ALL_PERMISSIONS;
use std::sync::Arc;

impl ReceiveRight {
    /// Makes a right to send to this port, which may be sent to any process in a message. The port's
    /// receiver is told the badge with each message that comes through the right or a copy of it
    /// ([`Request::badge`](crate::Request::badge)); rights made by [`connect`](crate::connect) have
    /// badge zero. No system call, no descriptor.
    ///
    /// Rights to one port with one badge and the same permissions arrive as one right at their receiver.
    #[must_use]
    pub fn mint(&self, badge: u64) -> OwnRight {
        self.mint_with(badge, ALL_PERMISSIONS)
    }

    /// Like [`Self::mint`], with exactly these permissions, a bit each. The receiver defines their meaning, and gets
    /// them with each message ([`Request::permissions`](crate::Request::permissions)). Holders can take permissions away
    /// ([`SendRight::attenuate`](crate::SendRight::attenuate)) and add none.
    #[must_use]
    pub fn mint_with(&self, badge: u64, permissions: u16) -> OwnRight {
        OwnRight::to(self.port(), badge, permissions)
    }
}

impl OwnRight {
    /// Whether this is a right to that port.
    #[must_use]
    pub fn is_to(&self, receive: &ReceiveRight) -> bool {
        Arc::ptr_eq(self.port(), receive.port())
    }
}
