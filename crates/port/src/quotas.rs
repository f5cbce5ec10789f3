//! Quotas: the resources of this process that one peer may hold, and the work it may cause.

use crate::error::{Misuse, NodeError};
use crate::lifecycle;
use crate::link::Link;
use crate::process::Process;
use crate::rank;
use crate::revoke;
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_layout::counters;
use handfast_proto::introductions::PROVISIONS_MAX;
use handfast_proto::rights::{EXPORTS_MAX, Exports};
use handfast_sys::clock;
use handfast_sys::socket::Peer;
use handfast_sys::sync::{Mutex, RwLock};
use std::sync::Arc;

/// The resources that a peer of this process may take. A peer keeps the resources it has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quotas {
    /// Rights to ports of this process that a peer may have at once, some 35 bytes each; revoked ones count until the peer
    /// has given them back. Beyond that, giving the peer a right fails
    /// ([`RightError::Exhausted`](crate::error::RightError::Exhausted)), its connections are refused, and rights that it
    /// claims or attenuates are dead ([`Gone::Right`](crate::error::Gone::Right)). 1,048,576 at most, and unless it is
    /// set. The number a peer has is in the counters of its link ([`Counters`](crate::Counters)).
    pub rights: u32,
    /// Rights to ports of this process that a peer may have passed on to others that have not claimed them, some 100 bytes each.
    /// A further one has no effect: for its recipient the port is gone ([`Gone::Port`](crate::error::Gone::Port)). 65,536 at most
    /// for all peers together, three quarters of them for one user, and unless it is set.
    pub provisions: u32,
    /// Control messages of a peer, most of them wake-ups, that this process takes in a second; further ones wait for
    /// the next tenth of it, and the peer's wake-ups come as late. 50,000 unless it is set, which takes about a tenth
    /// of a processor; 10 at least.
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

/// Sets the quotas of each peer of this process, from now on. Some stores for each link.
///
/// # Errors
/// As [`anonymous`](crate::anonymous), of the first use of the library in a process.
pub fn set_quotas(quotas: Quotas) -> Result<(), NodeError> {
    set_quotas_by(move |_| quotas)
}

/// As [`set_quotas`], by the identity of the peer, as the kernel vouches for it. `quotas_of` is asked now for each peer,
/// and by the control thread for those that come: it must not block.
///
/// # Errors
/// As there.
pub fn set_quotas_by(
    quotas_of: impl Fn(&Peer) -> Quotas + Send + Sync + 'static,
) -> Result<(), NodeError> {
    let process = lifecycle::current()?;
    Ok(set_at(&process, Arc::new(quotas_of))?)
}

/// Sets the quotas of a node's peers.
pub(crate) fn set_at(process: &Process, quotas_of: Arc<OfPeer>) -> Result<(), Misuse> {
    // In a forked child a thread that the child does not have may hold the locks.
    process.check()?;
    let old = core::mem::replace(&mut *process.quotas.0.write(), quotas_of);
    // The application's function: dropped without the lock.
    drop(old);
    for link in revoke::all_links(process) {
        limit(process, &link);
    }
    Ok(())
}

/// The function that returns a peer's quotas.
pub(crate) struct QuotasOf(RwLock<Arc<OfPeer>, rank::Quotas>);

pub(crate) type OfPeer = dyn Fn(&Peer) -> Quotas + Send + Sync;

impl Default for QuotasOf {
    fn default() -> Self {
        Self(RwLock::new(Arc::new(|_| Quotas::new())))
    }
}

/// The quotas in force for the peer of a link, and what it has done lately.
pub(crate) struct InForce {
    rights: AtomicU32,
    provisions: AtomicU32,
    /// Control messages.
    per_window: AtomicU32,
    heard: Mutex<Heard, rank::Heard>,
}

impl Default for InForce {
    fn default() -> Self {
        let force = Self {
            rights: AtomicU32::new(0),
            provisions: AtomicU32::new(0),
            per_window: AtomicU32::new(0),
            heard: Mutex::default(),
        };
        force.set(Quotas::new());
        force
    }
}

impl InForce {
    fn set(&self, quotas: Quotas) {
        // Relaxed, all of them: numbers.
        let rights = quotas.rights.min(EXPORTS_MAX);
        self.rights.store(rights, Ordering::Relaxed);
        self.provisions.store(quotas.provisions, Ordering::Relaxed);
        let per_window = quotas.control_messages_per_s / WINDOWS_PER_S;
        self.per_window.store(per_window.max(1), Ordering::Relaxed);
    }

    pub(crate) fn rights(&self) -> u32 {
        // Relaxed: a number.
        self.rights.load(Ordering::Relaxed)
    }

    pub(crate) fn provisions(&self) -> usize {
        // Relaxed: a number.
        self.provisions.load(Ordering::Relaxed) as usize
    }
}

fn quotas_of(process: &Process) -> Arc<OfPeer> {
    let quotas_of = process.quotas.0.read();
    quotas_of.clone()
}

/// Sets the quotas of the peer of a link, and returns the function they come from.
pub(crate) fn limit(process: &Process, link: &Link) -> Arc<OfPeer> {
    let quotas_of = quotas_of(process);
    // The application's: where it panics the usual ones stay.
    if let Some(quotas) = crate::guest::guarded(|| quotas_of(&link.peer)) {
        link.quotas.set(quotas);
    }
    quotas_of
}

/// As [`limit`], if that has changed since.
pub(crate) fn limit_again(process: &Process, link: &Link, last: &Arc<OfPeer>) {
    if !Arc::ptr_eq(&quotas_of(process), last) {
        limit(process, link);
    }
}

/// Control messages that have come through a link lately. The keeper's.
#[derive(Default)]
struct Heard {
    since_ns: u64,
    count: u32,
}

/// The peer has so many rights now. Under the lock of their table.
pub(crate) fn count_rights(link: &Link, exports: &Exports) {
    // The row of a link that has ended may be another's by now.
    if !link.is_down() {
        link.row.set(counters::RIGHTS, exports.used() as u64);
    }
}

/// Keeper: counts control messages that have come. Returns until when no more are taken, if so.
pub(crate) fn heard_enough(link: &Link, count: u32) -> Option<u64> {
    let now_ns = clock::now_ns();
    let mut heard = link.quotas.heard.lock();
    if now_ns.saturating_sub(heard.since_ns) >= WINDOW_NS {
        (heard.since_ns, heard.count) = (now_ns, 0);
    }
    heard.count = heard.count.saturating_add(count);
    // Relaxed: a number.
    if heard.count < link.quotas.per_window.load(Ordering::Relaxed) {
        return None;
    }
    link.row.add(counters::MUTED, 1);
    Some(heard.since_ns + WINDOW_NS)
}

const WINDOWS_PER_S: u32 = 10;
const WINDOW_NS: u64 = 1_000_000_000 / WINDOWS_PER_S as u64;
