//! Quotas: the resources of this process that one peer may hold, and the work it may cause.

use crate::guest;
use crate::rank;
use handfast_proto::introductions::PROVISIONS_MAX;
use handfast_proto::rights::EXPORTS_MAX;
use handfast_sys::socket::Peer;
use handfast_sys::sync::RwLock;
use std::sync::Arc;

/// The resources that a peer of this process may take. A peer keeps the resources it has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quotas {
    /// Rights to ports of this process that a peer may have at once, some 35 bytes each; revoked ones count until the peer
    /// has given them back. Beyond that, giving the peer a right fails
    /// ([`RightError::Exhausted`](crate::error::RightError::Exhausted)), its connections are refused, and rights that it
    /// claims or attenuates are dead ([`Gone::Right`](crate::error::Gone::Right)). At most 1,048,576, which is also the
    /// default. The number of rights that a peer has is in the counters of its link ([`Counters`](crate::Counters)).
    pub rights: u32,
    /// Rights to ports of this process that a peer may have passed on to others that have not claimed them, some 100 bytes each.
    /// A further one has no effect: for its recipient the port is gone ([`Gone::Port`](crate::error::Gone::Port)). At most 65,536
    /// for all peers together, three quarters of them for one user; 65,536 is also the default.
    pub provisions: u32,
    /// Control messages of a peer, most of them wake-ups, that this process takes in a second. Further ones wait for
    /// the next tenth of a second, and delay the peer's wake-ups as long. The default, 50,000, takes about a tenth
    /// of a processor; at least 10.
    pub control_messages_per_s: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            rights: EXPORTS_MAX,
            provisions: PROVISIONS_MAX as u32,
            control_messages_per_s: 50_000,
        }
    }
}

impl Quotas {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`Self::rights`].
    #[must_use]
    pub const fn rights(mut self, rights: u32) -> Self {
        self.rights = rights;
        self
    }

    /// Sets [`Self::provisions`].
    #[must_use]
    pub const fn provisions(mut self, provisions: u32) -> Self {
        self.provisions = provisions;
        self
    }

    /// Sets [`Self::control_messages_per_s`].
    #[must_use]
    pub const fn control_messages_per_s(mut self, count: u32) -> Self {
        self.control_messages_per_s = count;
        self
    }
}

/// The function that returns a peer's quotas.
pub(crate) struct QuotasOf(RwLock<OfPeer, rank::Quotas>);

pub(crate) type OfPeer = Arc<guest::Value<Box<dyn Fn(&Peer) -> Quotas + Send + Sync>>>;

/// The function, which is the application's.
pub(crate) fn of_peer(quotas_of: impl Fn(&Peer) -> Quotas + Send + Sync + 'static) -> OfPeer {
    Arc::new(guest::Value::new(Box::new(quotas_of)))
}

impl Default for QuotasOf {
    fn default() -> Self {
        Self(RwLock::new(of_peer(|_| Quotas::new())))
    }
}

impl QuotasOf {
    pub(crate) fn get(&self) -> OfPeer {
        self.0.read().clone()
    }

    /// Sets the function. The former one is the application's: it is dropped without the lock.
    pub(crate) fn set(&self, quotas_of: OfPeer) {
        let old = core::mem::replace(&mut *self.0.write(), quotas_of);
        drop(old);
    }
}
