//! The quotas of a process's peers, set by the application.

use crate::error::Misuse;
use crate::link::Link;
use crate::links;
use crate::process::Process;
use crate::quotas::OfPeer;
use std::sync::Arc;

/// Sets the quotas of a node's peers.
pub(crate) fn set_at(process: &Process, quotas_of: OfPeer) -> Result<(), Misuse> {
    // In a forked child a thread that the child does not have may hold the locks.
    process.check()?;
    process.quotas.set(quotas_of);
    for link in links::all(process) {
        limit(process, &link);
    }
    Ok(())
}

/// Sets the quotas of the peer of a link, and returns the function they come from.
pub(crate) fn limit(process: &Process, link: &Link) -> OfPeer {
    let quotas_of = process.quotas.get();
    // The application's: where it panics the usual ones stay.
    if let Some(quotas) = crate::guest::guarded(|| quotas_of(&link.peer)) {
        link.quotas.set(quotas);
    }
    quotas_of
}

/// As [`limit`], if that has changed since.
pub(crate) fn limit_again(process: &Process, link: &Link, last: &OfPeer) {
    if !Arc::ptr_eq(&process.quotas.get(), last) {
        limit(process, link);
    }
}
