//! The start of a link, in all tables of its node.

use crate::error::{Exhausted, Resource};
use crate::link::{Link, Parts, backlog, group};
use crate::port::{Port, exported, ports};
use crate::process::{Process, token};
use crate::{arrivals, closing, introduce, limits, links, per_cpu};
use core::sync::atomic::Ordering;
use handfast_channel::bell;
use handfast_layout::part::IS_HANDLE;
use handfast_proto::rights::Target;
use handfast_proto::timers::Timer;
use handfast_sys::poll::Trigger;
use handfast_sys::{Errno, signal};
use std::sync::Arc;

/// Sends the peer of a new link its welcome, with a right to `port`. The peer is told if `port` has been dropped since the
/// welcome was made ready; if it has moved and its trail has ended, there is no welcome, and the peer connects again, to the new
/// home. Then the peer is told of the ports that are served on each CPU.
pub(crate) fn welcome(process: &Process, link: &Link, port: Option<&Port>) -> Result<(), Errno> {
    if let Some(port) = port.filter(|port| closing::is_closing(process, port)) {
        // Acquire: pairs with the Release of `depart`.
        if port.is_leaving.load(Ordering::Acquire) {
            return Err(Errno::CONNRESET);
        }
        // The word waits for the welcome.
        closing::tell_closed(link, port);
    }
    if !backlog::welcome(link)? {
        process.schedule(Timer::Backlog);
    }
    if let Some(home) = port.and_then(|port| port.home.get()) {
        // When it told the holders, the link may not have been among them.
        home.exported();
    }
    per_cpu::tell_spread(process, link);
    Ok(())
}

/// Enters a new link everywhere: table, group, control thread, counters.
pub(crate) fn add_link(process: &Arc<Process>, parts: Parts) -> Result<Arc<Link>, Resource> {
    add_link_granting(process, parts, None)
}

/// As [`add_link`]; the peer has been promised a right to `port`, by the first handle, and may have used it.
pub(crate) fn add_link_granting(
    process: &Arc<Process>,
    parts: Parts,
    port: Option<&Port>,
) -> Result<Arc<Link>, Resource> {
    let serial = links::next_serial();
    let link = Arc::new(Link::new(
        process.clone(),
        parts,
        serial,
        process.counting.rows.take(),
    ));
    // No other thread sets it.
    let limited_by = limits::limit(process, &link);
    let promised = port.map(|port| exported::export(&link, port, Target::full(port.id, 0)));
    let entered = match promised {
        None | Some(Ok(IS_HANDLE)) => enter(process, &link),
        Some(_) => Err(Resource::Exhausted(Exhausted {
            what: "rights of a peer",
            advice: Some("have the peer drop some, or raise the quota (set_quotas)"),
            limit: link.quotas.rights().into(),
        })),
    };
    if let Err(resource) = entered {
        // Only this thread ends it: it is in no list.
        link.take_down();
        exported::end_exports(&link, |port| ports::by_id(process, port));
        take_out(process, &link);
        return Err(resource);
    }
    let user = link.peer.uid;
    introduce::provisions(process).belongs(link.identity(), user);
    let mut links = links::list(process);
    let slot = links
        .iter()
        .position(Option::is_none)
        .unwrap_or(links.len());
    if slot == links.len() {
        links.push(None);
    }
    links[slot] = Some(link.clone());
    drop(links);
    // A thread that starts the strategy finds the link in the list, or this finds it active.
    if arrivals::is_active() {
        let socket = link.connection.socket();
        let _ = socket.and_then(|socket| signal::raise_on_arrival(&socket, true));
    }
    if process.is_over() {
        // A shutdown may have looked before.
        links::end(process, &link);
    }
    // A thread that sets other limits finds the link there, or this finds the new limits.
    limits::limit_again(process, &link, &limited_by);
    if link.is_down() {
        // Cut by a receiver, when there was nothing to end.
        process.attention.raise();
    }
    hear_early(process, &link);
    crate::guest::tell!(debug, pid = link.peer.pid, uid = link.peer.uid, "link made");
    Ok(link)
}

/// A peer that has sent its welcome may ring before its link is in the group. A thread that was woken by the ring, or looked
/// before it slept, has found nothing there, and looks again.
fn hear_early(process: &Process, link: &Link) {
    // A thread that has looked in vain had the group's lock before this thread: the messages it was rung for (E3), or
    // would have seen after its own fence (E4), are seen here. A thread that looks later finds the link.
    let has_rung = |port: &Port| bell::link_rang(&link.region, link.calls.other(), port.receiver);
    for port in ports::those(process, has_rung) {
        ports::rouse(process, port.receiver);
    }
}

/// Enters a link in all tables where it is looked for by number: the code that ends it finds it everywhere.
fn enter(process: &Process, link: &Arc<Link>) -> Result<(), Resource> {
    link.group.set(link.index, Some(link));
    link.row.set(1, link.peer.pid.into());
    link.row.set(2, link.peer.uid.into());
    link.row.set(0, 1);
    let serial = u64::from(link.serial);
    let mut added = link.connection.hear(&process.poll, link.serial);
    if let (Ok(()), Some(pidfd)) = (&added, link.connection.peer_process()) {
        added = (process.poll).add(&pidfd, token::PROCESS | serial, Trigger::Level);
    }
    added.map_err(|errno| Resource::of("epoll_ctl", errno))
}

/// Takes a link out of all that. From then on its number may be another's.
pub(crate) fn take_out(process: &Process, link: &Link) {
    link.connection.unhear(&process.poll);
    if let Some(pidfd) = link.connection.peer_process() {
        process.poll.remove(&pidfd);
    }
    link.row.end();
    group::of(process).free(&link.group, link.index);
}
