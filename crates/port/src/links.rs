//! The links of a process: a list of those that live, and those that have ended and that a thread still holds.

use crate::link::Link;
use crate::link::held::Held;
use crate::process::Process;
use crate::rank;
use crate::tables::{Table, Which};
use crate::turns::Turns;
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_sys::socket::Peer;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{BorrowedFd, process};
use std::sync::{Arc, OnceLock, Weak};

#[derive(Default)]
struct Links {
    list: Mutex<Vec<Option<Arc<Link>>>, rank::Links>,
    /// Links that have ended, as long as a thread holds them: messages of the dead lie there.
    ended: Mutex<Vec<Weak<Link>>, rank::Ended>,
    /// See [`asking`].
    asking: Turns<Peer>,
    /// See [`connecting`].
    connecting: Turns<Peer>,
    end: OnceLock<End>,
}

/// Ends a link in all tables of its node.
type End = fn(&Arc<Process>, &Arc<Link>);

impl Table for Links {
    const WHICH: Which = Which::Links;
}

/// The links that have not ended, each at a place of its own.
pub(crate) fn list(process: &Process) -> MutexGuard<'_, Vec<Option<Arc<Link>>>, rank::Links> {
    process.tables.get::<Links>().list.lock()
}

/// A node starts: how its links end.
pub(crate) fn end_by(process: &Process, end: End) {
    let _ = process.tables.get::<Links>().end.set(end);
}

/// Ends a link and forgets it. Threads that still hold it see it down.
pub(crate) fn end(process: &Arc<Process>, link: &Arc<Link>) {
    if let Some(end) = process.tables.get::<Links>().end.get() {
        end(process, link);
    }
}

/// The links that have ended, also those that no thread holds any more.
pub(crate) fn ended(process: &Process) -> MutexGuard<'_, Vec<Weak<Link>>, rank::Ended> {
    process.tables.get::<Links>().ended.lock()
}

/// Peers that threads of this process have a connection with, or wait for one to be accepted, and no link: one thread to each, since a
/// server has places for few handshakes.
pub(crate) fn asking(process: &Process) -> &Turns<Peer> {
    &process.tables.get::<Links>().asking
}

/// Peers that threads of this process connect to at this moment, one thread to each: two would make two
/// links. The control thread holds the list from its look for a link until it has made or refused one.
pub(crate) fn connecting(process: &Process) -> &Turns<Peer> {
    &process.tables.get::<Links>().connecting
}

/// A number for a link of any process, never used again.
pub(crate) fn next_serial() -> u32 {
    // Relaxed: a number.
    NEXT_SERIAL.fetch_add(1, Ordering::Relaxed)
}

/// The serial number of the next link. A forked child goes on where its parent was: its threads remember
/// the parent's links by number.
static NEXT_SERIAL: AtomicU32 = AtomicU32::new(0);

/// The next link has the number that the first one had: runs of one seed choose alike by it.
#[cfg(all(test, feature = "simulation"))]
pub(crate) fn restart_serials() {
    NEXT_SERIAL.store(0, Ordering::Relaxed);
}

/// The links that have not ended.
pub(crate) fn live(process: &Process) -> Vec<Arc<Link>> {
    list(process).iter().flatten().cloned().collect()
}

/// Control thread: forgets links that have ended and that no thread holds any more. Until then, some kilobytes of each stay
/// in memory.
pub(crate) fn forget_ended(process: &Process) {
    let mut ended = ended(process);
    ended.retain(|link| link.strong_count() > 0);
    if ended.is_empty() {
        *ended = Vec::new();
    }
}

pub(crate) fn find(process: &Process, check: impl Fn(&Link) -> bool) -> Option<Arc<Link>> {
    let links = list(process);
    let mut links = links.iter().flatten();
    links.find(|link| !link.is_down() && check(link)).cloned()
}

/// As [`find`], among links that may be used, with a use: without one another thread may end it at any
/// time.
pub(crate) fn hold_link(process: &Arc<Process>, check: impl Fn(&Link) -> bool) -> Option<Held> {
    hold_any(process, |link| !link.life.usage.is_left() && check(link))
}

/// As [`hold_link`], also among links that the peer has been told are not used.
pub(crate) fn hold_any(process: &Arc<Process>, check: impl Fn(&Link) -> bool) -> Option<Held> {
    let links = list(process);
    let mut links = links.iter().flatten();
    let link = links.find(|link| !link.is_down() && check(link))?;
    // Under the lock: as `unused::cut_off` looks, and `unused::leave`.
    Some(Held::new(link))
}

/// A use of a link that was found, if it is there still.
pub(crate) fn hold(process: &Arc<Process>, link: &Link) -> Option<Held> {
    hold_link(process, |known| known.serial == link.serial)
}

/// Control thread: tells of links that were cut.
pub(crate) fn tell_cuts(process: &Process) {
    let cuts = core::mem::take(&mut *process.cuts.lock());
    for (Peer { pid, uid, .. }, fault) in cuts {
        crate::guest::tell!(warn, pid, uid, %fault, "link cut");
    }
}

/// Whether a peer is known to be another process: it has a number here, and not ours.
pub(crate) fn is_another(peer: Peer) -> bool {
    peer.pid != process::pid() && peer.pid != 0
}

/// Whether `incarnation` belongs to another process than `pidfd`, whose identity is `peer`: rights and replies go where an
/// incarnation says. The kernel decides; where it cannot (before Linux 6.9) the first process that claims the incarnation
/// has it.
pub(crate) fn is_borrowed(
    process: &Process,
    incarnation: [u8; 16],
    (peer, pidfd): (Peer, Option<BorrowedFd<'_>>),
) -> bool {
    pidfd.is_some_and(|pidfd| !process::proves(pidfd, &incarnation))
        || incarnation == process.incarnation && is_another(peer)
        || find(process, |link| {
            link.incarnation == incarnation && link.peer.pid != peer.pid
        })
        .is_some()
}

/// All links, also those that have ended and are still looked at.
pub(crate) fn all(process: &Process) -> Vec<Arc<Link>> {
    let links = list(process);
    let ended = ended(process);
    let ended = ended.iter().filter_map(Weak::upgrade);
    links.iter().flatten().cloned().chain(ended).collect()
}
