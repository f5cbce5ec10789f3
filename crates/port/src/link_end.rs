//! The end of a link, in all tables of its node.

use crate::introduce::ends;
use crate::link::{Link, backlog, inbox, long, redirects, revoked};
use crate::link_life::take_out;
use crate::port::{exported, ports};
use crate::process::Process;
use crate::{again, door, lending, links, moving, paths, relay};
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// Ends a link and forgets it. Threads that still hold it see it down.
pub(crate) fn end_link(process: &Arc<Process>, link: &Arc<Link>) {
    link.take_down();
    let mut links = links::list(process);
    let found = links
        .iter_mut()
        .find(|entry| entry.as_ref().is_some_and(|entry| Arc::ptr_eq(entry, link)));
    let Some(entry) = found else { return };
    *entry = None;
    let mut ended = links::ended(process);
    ended.retain(|link| link.strong_count() > 0);
    ended.push(Arc::downgrade(link));
    drop((ended, links));
    if link.is_cut() {
        inbox::close_unclaimed(link);
    } else {
        let ports = ports::those(process, |_| true);
        ports.iter().for_each(|port| ports::keep_rung(port, link));
    }
    take_out(process, link);
    long::end(link);
    link.releases().end();
    backlog::end(link);
    // Rights of these names may have become rights of other links that are gone, and those lead back here.
    let unused = link.imports().end();
    redirects::drop_moved(link, unused.into_iter());
    crate::guest::tell!(
        debug,
        pid = link.peer.pid,
        uid = link.peer.uid,
        "link ended"
    );
    // Relaxed: others may end meanwhile, which makes it earlier than it is.
    link.life
        .ends_at(process.deaths.load(Ordering::Relaxed).wrapping_add(1));
    // Release: pairs with the Acquire of a receiver that clears out dead lanes.
    process.deaths.fetch_add(1, Ordering::Release);
    // After that: a receiver looks for the messages of the dead before it is told.
    exported::end_exports(link, |port| ports::by_id(process, port));
    revoked::end(link);
    lending::end_loans(link);
    ends::end_introductions(process, link);
    door::end_questions(process, link);
    moving::end_moves(process, link);
    again::end_kept(process, link);
    paths::end_paths(process, link);
    relay::relay(process);
    ports::rouse_all(process);
}
