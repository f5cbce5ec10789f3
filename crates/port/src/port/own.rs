//! Rights of a process to its own ports: minting them, and handling those that come home.

use crate::port::{Port, notice};
use crate::rank;
use core::sync::atomic::{AtomicBool, Ordering};
use handfast_proto::rights::{Entry, Map, Target};
use handfast_sys::deadline;
use handfast_sys::sync::MutexGuard;
use std::sync::{Arc, Weak};

/// A right to send to a port of this very process, made by [`ReceiveRight::mint`](crate::ReceiveRight::mint) to be sent to others or [used
/// here](Self::connect). A right that comes back to the process is an `OwnRight` again, but by a right of [`connect`](crate::connect) to a name
/// of this process: that link is as one between two processes. A clone costs one atomic operation.
#[derive(Clone)]
pub struct OwnRight {
    own: Arc<Own>,
    permissions: u16,
}

/// The state shared by all rights of this process to one port with one badge.
pub(crate) struct Own {
    port: Arc<Port>,
    badge: u64,
    is_revoked: AtomicBool,
    /// Its end is counted by badge. Changes under the lock of all such rights.
    is_watched: AtomicBool,
}

impl OwnRight {
    /// A right to a port of this process.
    pub(crate) fn to(port: &Arc<Port>, badge: u64, permissions: u16) -> Self {
        Self {
            own: Self::minted(port.clone(), badge),
            permissions,
        }
    }

    /// The badge chosen when the right was minted.
    #[must_use]
    pub fn badge(&self) -> u64 {
        self.own.badge
    }

    /// The permissions of its holders.
    #[must_use]
    pub const fn permissions(&self) -> u16 {
        self.permissions
    }

    /// The same right, its permissions reduced to those in `mask`.
    #[must_use]
    pub fn attenuate(&self, mask: u16) -> Self {
        let permissions = self.permissions & mask;
        Self {
            permissions,
            ..self.clone()
        }
    }

    fn minted(port: Arc<Port>, badge: u64) -> Arc<Own> {
        if is_forked(&port) {
            return Self::first(port, badge);
        }
        let known = port.clone();
        Self::known(&mut table(&known), port, badge)
    }

    /// A right that has come home, and was good when the process had revoked `revocations` rights. `None`: the
    /// process has revoked another since, perhaps this one.
    pub(crate) fn home(port: Arc<Port>, target: Target, revocations: u64) -> Option<Self> {
        let known = port.clone();
        // Under the lock: a revoking thread marks the right before looking here.
        let mut own = table(&known);
        let is_good = !port.process.revocations.have_begun_since(revocations);
        is_good.then(|| Self {
            own: Self::known(&mut own, port, target.badge),
            permissions: target.permissions,
        })
    }

    /// Adds a right to the known ones.
    fn known(own: &mut Map<u64, Weak<Own>>, port: Arc<Port>, badge: u64) -> Arc<Own> {
        match own.entry(badge) {
            Entry::Occupied(mut known) => known.get().upgrade().unwrap_or_else(|| {
                let first = Self::first(port, badge);
                known.insert(Arc::downgrade(&first));
                first
            }),
            Entry::Vacant(place) => {
                let first = Self::first(port, badge);
                place.insert(Arc::downgrade(&first));
                first
            }
        }
    }

    fn first(port: Arc<Port>, badge: u64) -> Arc<Own> {
        let (mut is_over, mut is_watched) = (false, false);
        if !is_forked(&port) {
            is_over = !port.notices.added();
            is_watched = !is_over && port.notices.begin(badge, || 1);
        }
        Arc::new(Own {
            port,
            badge,
            // Its port has ended since it was found: it counts as no right.
            is_revoked: AtomicBool::new(is_over),
            is_watched: AtomicBool::new(is_watched),
        })
    }

    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.own.port
    }

    pub(crate) fn target(&self) -> Target {
        Target {
            port: self.own.port.id,
            badge: self.own.badge,
            permissions: self.permissions,
        }
    }

    /// Whether its port no longer belongs to this process.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        // Relaxed: its peers are told anyway.
        is_forked(self.port()) || self.port().is_closing.load(Ordering::Relaxed)
    }

    /// Whether it has not been revoked.
    #[inline]
    pub(crate) fn is_good(&self) -> bool {
        // Acquire: pairs with the store in `Own::revoke`.
        !self.own.is_revoked.load(Ordering::Acquire)
    }
}

impl Own {
    /// Reports the end of these rights from now on. Under the lock.
    pub(crate) fn watch(&self) {
        self.port.notices.begin(self.badge, || {
            // Relaxed: under the lock, and read by the last one.
            u32::from(!self.is_watched.swap(true, Ordering::Relaxed))
        });
    }

    pub(crate) fn is_watched(&self) -> bool {
        // Relaxed: as above.
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Revokes these rights, which then count as ended.
    pub(crate) fn revoke(&self) {
        // Release: a thread that looks for what was exported from one of them does so after this.
        self.is_revoked.store(true, Ordering::Release);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // A forked child has its parent's rights by accident, and perhaps a lock that nobody will free.
        if is_forked(&self.port) || *self.is_revoked.get_mut() {
            return;
        }
        let _shield = deadline::shield();
        let mut own = table(&self.port);
        // There may be another by now.
        let is_this = |known: &Weak<Self>| core::ptr::eq(known.as_ptr(), self);
        if own.get(&self.badge).is_some_and(is_this) {
            own.remove(&self.badge);
        }
        drop(own);
        if self.is_watched() {
            notice::watched_ended(&self.port, [(self.badge, 1)]);
        }
        notice::rights_ended(&self.port, 1);
    }
}

/// A process's rights to one of its ports, by badge: all with one badge count as one.
pub(crate) type Table = Map<u64, Weak<Own>>;

/// The rights of this process to a port.
pub(crate) fn table(port: &Port) -> MutexGuard<'_, Table, rank::OwnRights> {
    port.own.lock()
}

/// Whether this process is a forked child of the port's.
pub(crate) fn is_forked(port: &Port) -> bool {
    port.process.epoch != handfast_sys::process::fork_epoch()
}

impl core::fmt::Debug for OwnRight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OwnRight")
            .field("port", &self.own.port.name)
            .field("badge", &self.own.badge)
            .field("permissions", &self.permissions)
            .finish()
    }
}
