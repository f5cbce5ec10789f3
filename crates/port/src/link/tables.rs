//! The tables of rights of a link, each under its lock.

use super::Link;
use super::again::Again;
use super::deaths::DeathNotice;
use super::introductions::Introductions;
use super::peer_ports::PeerPorts;
use super::redirects::Redirects;
use super::releases::Releases;
use super::revoked::Revoked;
use super::spread::Told;
use crate::rank;
use crate::users::Charge;
use core::sync::atomic::AtomicU32;
use handfast_proto::rights::{Exports, Handle, Imports, Refused};
use handfast_sys::lock::{Guard, Lock};
use handfast_sys::sync::Mutex;

/// The rights to ports of ours that the peer has, and to its ports that we have; and all that is known of them.
pub(crate) struct Rights {
    /// Rights to our ports that the peer has, and to its ports that we have.
    pub(crate) exports: Lock<Exports, rank::Exports>,
    /// How many of the former have ended.
    pub(crate) ended: AtomicU32,
    pub(crate) imports: Lock<Imports, rank::Imports>,
    pub(crate) revoked: Revoked,
    pub(crate) redirects: Redirects,
    pub(crate) introductions: Introductions,
    /// Rights of third processes that come again.
    pub(crate) again: Again,
    /// The notices to give when a port of the peer is gone.
    pub(crate) death_notices: Mutex<Vec<DeathNotice>, rank::DeathNotices>,
    pub(super) releases: Mutex<Releases, rank::Releases>,
    /// The peer's ports that are gone.
    pub(crate) peer_ports: PeerPorts,
    /// Ports of the peer that have a receiver for each CPU.
    pub(crate) spread: Told,
}

impl Rights {
    /// None yet; these are charged for claims and for rights that were given back, and for what the peer leaves unread.
    pub(super) fn new([claims, given_back]: [Charge; 2], unread: Charge) -> Self {
        Self {
            exports: Lock::default(),
            ended: AtomicU32::new(0),
            imports: Lock::default(),
            revoked: Revoked::default(),
            redirects: Redirects::default(),
            introductions: Introductions::new(claims),
            again: Again::default(),
            death_notices: Mutex::default(),
            releases: Mutex::new(Releases::new(unread, given_back)),
            peer_ports: PeerPorts::default(),
            spread: Told::default(),
        }
    }
}

impl Link {
    /// The rights to our ports that the peer has.
    #[inline]
    pub(crate) fn exports(&self) -> Guard<'_, Exports, rank::Exports> {
        self.rights.exports.lock()
    }

    /// The rights to the peer's ports that we have.
    #[inline]
    pub(crate) fn imports(&self) -> Guard<'_, Imports, rank::Imports> {
        self.rights.imports.lock()
    }
}

/// Adds a right to `port` of the peer, by this name: the first of all is a use of the link, as [`Held`](super::held::Held) is.
#[inline(always)]
pub(crate) fn arrive(link: &Link, handle: Handle, port: u32) -> Result<(), Refused> {
    let mut imports = link.imports();
    let is_first = !imports.has_rights();
    imports.arrive(handle, port)?;
    if is_first {
        // Under the lock, so before the last right is dropped.
        link.life.usage.add();
    }
    Ok(())
}
