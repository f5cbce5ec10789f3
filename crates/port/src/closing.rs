//! The end of a port, as its peers are told of it.

use crate::link::{Link, backlog, revoked};
use crate::port::{Port, own, ports};
use crate::process::Process;
use crate::{introduce, links};
use core::sync::atomic::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

/// Whether a port is being dropped to which a peer has just been given a right: a thread that drops the port after this look finds
/// the link, and the right.
pub(crate) fn is_closing(process: &Process, port: &Port) -> bool {
    let _links = links::list(process);
    // Relaxed: under the lock.
    port.is_closing.load(Ordering::Relaxed)
}

/// The old home of a port, which had no senders any more when this was told: whether it is to be dropped. Not where a peer has
/// been given a right meanwhile, which follows the port; none is from now on.
pub(crate) fn leaves_nobody(process: &Process, port: &Port) -> bool {
    let _links = links::list(process);
    // Release: as in `tell_closing`. Before the look: a thread that gives a right looks at this after that.
    let has_left = port.notices.has_lost_all();
    port.is_closing.store(has_left, Ordering::Release);
    has_left
}

/// Tells one peer that `port` is going; where the node was shut down, the end of the link tells the peer.
pub(crate) fn tell_closed(link: &Link, port: &Port) {
    if port.process.is_over() {
        return;
    }
    // Relaxed: set by the thread that drops the port now, or it is not set.
    backlog::tell_closed(link, port.id, port.is_leaving.load(Ordering::Relaxed));
}

/// The receive right of a port is dropped.
pub(crate) fn close(port: &Port, is_quiet: bool) {
    // First the peers are told, so that no new call waits; then the waiting calls end.
    if !is_quiet {
        tell_closing(&port.process, port);
    }
    end_members_of(port);
}

/// Tells all peers that `port` is going, as [`tell_closed`].
pub(crate) fn tell_closing(process: &Process, port: &Port) {
    let links = links::list(process);
    // Release: pairs with the Acquire of callers that go to a domain without a link. Peers look under the lock, as
    // in `link_life::welcome`.
    port.is_closing.store(true, Ordering::Release);
    if process.is_over() {
        return;
    }
    let mut here = Vec::new();
    for link in links.iter().flatten() {
        tell_closed(link, port);
        here.extend(link.twin());
    }
    drop(links);
    // Before the next port at its receiver: nothing that this process sends to this one comes there. Without the lock:
    // wakers may run.
    here.iter().for_each(|twin| twin.close_port(port.id));
}

/// The ports that share the receiver of `port` end with it: all rights to them are revoked.
fn end_members_of(port: &Port) {
    let ended = ports::take_members_of(port);
    if !ended.is_empty() {
        end_those(&port.process, &ended);
    }
}

/// Revokes all rights to ports that share receivers, and have ended.
pub(crate) fn end_those(process: &Process, ended: &[Arc<Port>]) {
    let ids: HashSet<u32> = ended.iter().map(|port| port.id).collect();
    let _one = process.revocations.one();
    process.revocations.count();
    for port in ended {
        // Release: as in `tell_closing`.
        port.is_closing.store(true, Ordering::Release);
        let own = core::mem::take(&mut *own::table(port));
        for own in own.into_values().filter_map(|own| own.upgrade()) {
            own.revoke();
        }
    }
    drop(introduce::provisions(process).revoke(None, |(of, _)| ids.contains(&of.port)));
    // All there are now, after the count.
    for link in links::all(process) {
        revoked::revoke_all(&link, &ids);
    }
    process.revocations.count();
}

#[cfg(test)]
mod tests;
