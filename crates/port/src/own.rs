//! Rights of a process to its own ports: minting them, and what becomes of those that come home.

use crate::error::{ConnectError, Gone, Misuse};
use crate::port::Port;
use crate::receive::ReceiveRight;
use crate::request::Seal;
use crate::send::SendRight;
use core::sync::atomic::{AtomicBool, Ordering};
use handfast_proto::rights::{ALL_PERMISSIONS, Map, Target};
use handfast_sys::deadline;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};

/// A right to send to a port of this very process, as [`ReceiveRight::mint`] makes it, to be sent
/// to others or [used here](Self::connect); and what becomes of such a right when it comes back. One atomic step to copy.
#[derive(Clone)]
pub struct OwnRight {
    own: Arc<Own>,
    permissions: u16,
}

/// What all rights of this process to one port with one badge have in common.
pub(crate) struct Own {
    port: Arc<Port>,
    badge: u64,
    is_revoked: AtomicBool,
    /// Its end is counted by badge. Changes under the lock of all of them.
    is_watched: AtomicBool,
}

impl ReceiveRight {
    /// Makes a right to send to this port, which may be sent to any process in a message. Its
    /// receiver is told the badge with each message that comes through it or a copy of it
    /// ([`Request::badge`](crate::Request::badge)); rights got by [`connect`](crate::connect) have
    /// badge zero. No system call, no descriptor.
    ///
    /// Rights to one port with one badge and the same permissions are one right to whoever gets them.
    #[must_use]
    pub fn mint(&self, badge: u64) -> OwnRight {
        self.mint_with(badge, ALL_PERMISSIONS)
    }

    /// As [`Self::mint`], with these permissions, a bit each, and no others: what they mean is the receiver's to say,
    /// which is told them with each message ([`Request::permissions`](crate::Request::permissions)). Holders can take
    /// some away ([`SendRight::attenuate`](crate::SendRight::attenuate)) and add none.
    #[must_use]
    pub fn mint_with(&self, badge: u64, permissions: u16) -> OwnRight {
        let own = OwnRight::minted(self.port().clone(), badge);
        OwnRight { own, permissions }
    }
}

impl OwnRight {
    /// Chosen when it was minted.
    #[must_use]
    pub fn badge(&self) -> u64 {
        self.own.badge
    }

    /// What its holders may ask for.
    #[must_use]
    pub const fn permissions(&self) -> u16 {
        self.permissions
    }

    /// The same right with no permissions but those in `mask`, as far as it has them.
    #[must_use]
    pub fn attenuate(&self, mask: u16) -> Self {
        let permissions = self.permissions & mask;
        Self {
            permissions,
            ..self.clone()
        }
    }

    /// A right by which this process itself sends to its port and calls it, from any thread: with this badge and these
    /// permissions, and else as a right that another process has got. It is revoked with this one; it counts as a right
    /// to the port until it is dropped ([`ReceiveRight::notify_no_senders`]); to send it in a message is to send this
    /// one. Whoever gets it in this process gets it as an [`OwnRight`].
    ///
    /// Its messages take the way of all others, through a link of this process with itself, which up to four ports share:
    /// the first right makes it (some twenty system calls, four descriptors) and the last one ends it. Then no system
    /// call. Does not block.
    ///
    /// ```
    /// # use handfast_port as handfast;
    /// let port = handfast::anonymous()?;
    /// let right = port.mint_with(7, 0b01).connect()?;
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| port.receive().unwrap().reply(b"here").unwrap());
    ///     assert_eq!(&*right.call(b"anybody?").unwrap(), b"here");
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ConnectError::Gone`] when the right was revoked or its port dropped; [`ConnectError::Exhausted`] without
    /// descriptors, memory or links; [`ConnectError::Misuse`] in a forked child.
    pub fn connect(&self) -> Result<SendRight, ConnectError> {
        let port = self.port();
        if is_forked(port) {
            return Err(ConnectError::Misuse(Misuse::Forked));
        }
        // It takes locks of the whole process.
        let _shield = deadline::shield();
        if let Some(home) = port.home.get() {
            let moved = self.is_good().then(|| home.right(Seal::of(self.target())));
            let moved = moved.ok_or(ConnectError::Gone(Gone::Right))?;
            let moved = moved.ok_or(ConnectError::Gone(Gone::Port))?;
            return Ok((*moved).clone());
        }
        port.process.right_to_own(self)
    }

    /// Whether it is to this port.
    #[must_use]
    pub fn is_to(&self, receive: &ReceiveRight) -> bool {
        Arc::ptr_eq(&self.own.port, receive.port())
    }

    fn minted(port: Arc<Port>, badge: u64) -> Arc<Own> {
        if is_forked(&port) {
            return Self::first(port, badge);
        }
        let known = port.clone();
        Self::known(&mut known.notices.own(), port, badge)
    }

    /// One that has come home, and was good when the process had revoked so many. `None`: it has revoked
    /// another since, perhaps this one.
    pub(crate) fn home(port: Arc<Port>, target: Target, revocations: u64) -> Option<Self> {
        let known = port.clone();
        // Under the lock: who revokes it says so before looking here.
        let mut own = known.notices.own();
        let is_good = !port.process.has_revoked_since(revocations);
        is_good.then(|| Self {
            own: Self::known(&mut own, port, target.badge),
            permissions: target.permissions,
        })
    }

    /// One more of those there are.
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
        let mut is_watched = false;
        if !is_forked(&port) {
            port.notices.added();
            is_watched = port.notices.begin(badge, || 1);
        }
        Arc::new(Own {
            port,
            badge,
            is_revoked: AtomicBool::new(false),
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

    /// Whether its port is not this process's any more.
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
    /// Their end is told of from now on. Under the lock.
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

    /// They are revoked, and are to be counted as ended.
    pub(crate) fn revoke(&self) {
        // Release: who looks for what was exported from one of them does so after this.
        self.is_revoked.store(true, Ordering::Release);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // A forked child has its parent's rights by accident, and perhaps a lock nobody will free.
        if is_forked(&self.port) || *self.is_revoked.get_mut() {
            return;
        }
        let _shield = deadline::shield();
        let mut own = self.port.notices.own();
        // There may be another by now.
        let is_this = |known: &Weak<Self>| core::ptr::eq(known.as_ptr(), self);
        if own.get(&self.badge).is_some_and(is_this) {
            own.remove(&self.badge);
        }
        drop(own);
        self.port.rights_ended(1);
        if self.is_watched() {
            self.port.watched_ended([(self.badge, 1)]);
        }
    }
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
