//! Notices: events that a receiver is told of, each once, through the port itself.
//!
//! As in Mach (paper 004, sections 2.5.4 and 2.5.5) a notice comes where messages come, so a server waits for
//! both at once, in a wait set too. A notice that no sender is left is checked when it is taken: if a right has
//! been made since, the notice waits until there is none again.

use crate::link::deaths::HearsOfDeaths;
use crate::port::Port;
use crate::port::own::Own;
use crate::port::ports;
use crate::rank;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use handfast_layout::part::is_member;
use handfast_proto::rights::{Map, Watched};
use handfast_sys::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Weak;

mod members;
mod rights;
pub(crate) use members::MembersDue;
pub(crate) use rights::{
    end_exports, end_right, export, export_again, export_own, export_to_trail, export_trail,
    watched_have_ended,
};

/// The event reported by a [`Request`](crate::Request) without a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// No right to send to the port is left, not even in this process, and none is under way. A revoked right
    /// does not count. Comes after the notices of badges that ended with it. Asked for with
    /// [`ReceiveRight::notify_no_senders`](crate::ReceiveRight::notify_no_senders).
    NoSenders,
    /// No right with this badge to send to the port is left, as above. Asked for with
    /// [`ReceiveRight::notify_no_senders_of`](crate::ReceiveRight::notify_no_senders_of).
    NoSendersOf(u64),
    /// A [send-once right](crate::SendOnceRight) with this badge has ended, and its message has not come and will not: it was dropped, its
    /// holder has died, or it was lost with a message. Comes unasked, after what its last holder has sent.
    SendOnceUnused(u64),
    /// The port that was asked after with this number is gone, or the right to it was revoked. Asked for
    /// with [`SendRight::notify_death`](crate::SendRight::notify_death).
    Dead(u64),
}

/// The notices of one port, and the rights to it.
#[derive(Default)]
pub(crate) struct Notices {
    is_due: AtomicBool,
    /// Rights to send: of this process, and entries of links' export tables. Counted from [`ONE`] up,
    /// above [`HAD`]. The lock is taken only when there is none left.
    rights: AtomicU64,
    /// How many links had ended when rights ended last.
    lost_at: AtomicU32,
    /// The rights of this process, by badge: all with one badge count as one.
    own: Mutex<Map<u64, Weak<Own>>, rank::OwnRights>,
    /// Some badge is, or was, watched. Set before the tables are searched, each under its lock, and read under
    /// the lock of the table to which a right comes.
    has_watched: AtomicBool,
    state: Mutex<State, rank::Notices>,
}

/// The messages of the last senders are to be received first.
pub(crate) struct Unheard;

/// Ends of ports that wait to be received on the word of peers.
const DEATHS_MAX: usize = 1 << 18;
/// Ends of watched rights that are taken down under one lock.
const ENDED_MAX: usize = 1024;
/// There has been a right; alone: and there is none now. Set by the first one, for ever.
const HAD: u64 = 1;
/// One right.
const ONE: u64 = 2;
/// There is none, and none comes any more: of the port of a send-once right, whose number another may get.
const OVER: u64 = 1 << 63;

#[derive(Default)]
struct State {
    /// Numbers of ports that have died.
    deaths: VecDeque<u64>,
    /// Others, which come after what was sent.
    due: VecDeque<Notice>,
    /// The badges among those, and how many links had ended when the last right went.
    lost: Map<u64, u32>,
    watched: Watched,
    /// Its receiver wants a notice when there is none.
    asks: bool,
}

impl Notices {
    fn state(&self) -> MutexGuard<'_, State, rank::Notices> {
        self.state.lock()
    }

    pub(crate) fn own(&self) -> MutexGuard<'_, Map<u64, Weak<Own>>, rank::OwnRights> {
        self.own.lock()
    }

    /// Whether there may be one. One load of private memory.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        // Acquire: pairs with the store in `Port::tell`.
        self.is_due.load(Ordering::Acquire)
    }

    /// A right has come to be. Before anybody can drop it. `false`: there is none, since the port has ended meanwhile.
    #[must_use]
    pub(crate) fn added(&self) -> bool {
        let add = |rights| (rights & OVER == 0).then_some((rights + ONE) | HAD);
        // Relaxed, both: as in `Arc::clone`, a thread that adds a right has one, or the lock of a table.
        let added = (self.rights).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.is_ok()
    }

    /// No right comes any more. `false`: one has come since there was none.
    pub(super) fn end(&self) -> bool {
        // Relaxed: goes on the release of what has taken the count there (E13).
        let ended =
            (self.rights).compare_exchange(HAD, HAD | OVER, Ordering::Relaxed, Ordering::Relaxed);
        ended.is_ok()
    }

    /// Whether there was a right and there is none, at this moment.
    pub(crate) fn has_lost_all(&self) -> bool {
        // E13 senders, load half. Acquire: the messages sent by all of them are there. Store half:
        // `Port::rights_ended`.
        self.rights.load(Ordering::Acquire) & !OVER == HAD
    }

    /// Whether its receiver wants to be told when there are no senders.
    pub(crate) fn asks(&self) -> bool {
        let state = self.state();
        state.asks || state.due.contains(&Notice::NoSenders)
    }

    /// Under the lock: a thread that takes the count to zero looks here after that, so of a question and the
    /// end of the last right the later one finds the other.
    fn look(&self, state: &mut State) -> bool {
        let is_due = state.asks && self.has_lost_all();
        if is_due {
            state.asks = false;
            state.due.push_back(Notice::NoSenders);
        }
        is_due
    }

    /// Has the receiver look once more.
    pub(crate) fn raise(&self) {
        // Release: pairs with the Acquire in `is_due`.
        self.is_due.store(true, Ordering::Release);
    }

    /// The next one. `has_heard` says whether what the peers of so many links may have left has been received, of the links that
    /// have ended so far.
    ///
    /// # Errors
    /// That there is no sender is told once that is so, of the link of the last one.
    #[cold]
    pub(crate) fn take(&self, has_heard: impl Fn(u32) -> bool) -> Result<Option<Notice>, Unheard> {
        let mut state = self.state();
        if let Some(number) = state.deaths.pop_front() {
            if state.deaths.is_empty() {
                state.deaths = VecDeque::new();
            }
            return Ok(Some(Notice::Dead(number)));
        }
        loop {
            let Some(notice) = state.due.pop_front() else {
                self.is_due.store(false, Ordering::Release);
                return Ok(None);
            };
            match notice {
                // Made since: not this time.
                Notice::NoSenders if !self.has_lost_all() => state.asks = true,
                notice if !has_heard(self.lost_at(&state, notice)) => {
                    state.due.push_front(notice);
                    return Err(Unheard);
                }
                Notice::NoSendersOf(badge) => {
                    state.lost.remove(&badge);
                    if state.watched.take(badge) {
                        return Ok(Some(notice));
                    }
                }
                notice => return Ok(Some(notice)),
            }
        }
    }

    /// Whether there may be one that can be told now.
    pub(crate) fn has_any(&self, has_heard: impl Fn(u32) -> bool) -> bool {
        let state = self.state();
        let due = state.due.front().copied();
        !state.deaths.is_empty() || due.is_some_and(|due| has_heard(self.lost_at(&state, due)))
    }

    /// How many links had ended when the last of those rights went: what was sent by them is received first.
    fn lost_at(&self, state: &State, notice: Notice) -> u32 {
        match notice {
            Notice::NoSendersOf(badge) => state.lost.get(&badge).copied().unwrap_or_default(),
            // Relaxed: behind the load in `has_lost_all` (E13).
            _ => self.lost_at.load(Ordering::Relaxed),
        }
    }

    /// A right is about to end, when so many links have.
    fn loses_at(&self, links: u32) {
        let is_later = |before: u32| links.wrapping_sub(before).cast_signed() > 0;
        // Relaxed, both: published by the end of the right (E13).
        if is_later(self.lost_at.load(Ordering::Relaxed)) {
            let _ = (self.lost_at).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                is_later(before).then_some(links)
            });
        }
    }

    /// Watches a badge: whether there are rights with it already is looked for after that. Counts as a right with it until
    /// [`watched_ended`].
    pub(crate) fn watch(&self, badge: u64) {
        self.state().watched.watch(badge);
        // Relaxed: ordered by the locks of the tables.
        self.has_watched.store(true, Ordering::Relaxed);
    }

    /// As many rights with this badge as `mark` has marked have come to a table, under its lock, or were found
    /// there. Returns whether it is watched.
    #[inline]
    pub(crate) fn begin(&self, badge: u64, mark: impl FnOnce() -> u32) -> bool {
        // Relaxed: ordered by the lock of the table.
        self.has_watched.load(Ordering::Relaxed) && self.state().watched.begin(badge, mark)
    }
}

/// The receiver of a port asks to be told when no right to send to it is left.
pub(crate) fn ask_no_senders(port: &Port) {
    let mut state = port.notices.state();
    state.asks = true;
    let is_due = port.notices.look(&mut state);
    drop(state);
    if is_due {
        tell(port);
    }
}

/// So many rights to this port have ended. After [`watched_ended`] for those that were marked.
pub(crate) fn rights_ended(port: &Port, count: u64) {
    let ended = count * ONE;
    port.notices.loses_at(links_ended(port));
    // E13 senders, store half. Release: a thread that finds no rights left finds the messages sent with
    // these. Load half: `Notices::has_lost_all`.
    let before = port.notices.rights.fetch_sub(ended, Ordering::Release);
    if before != ended + HAD {
        return;
    }
    let mut state = port.notices.state();
    let is_due = port.notices.look(&mut state);
    drop(state);
    match &port.once {
        // Taken out of the table when the receiver looks next.
        Some(once) if is_due && once.is_used() => note(port),
        _ if is_due => tell(port),
        _ => {}
    }
}

/// Rights that were marked have ended: badges, and how many with each.
pub(crate) fn watched_ended(port: &Port, ended: impl IntoIterator<Item = (u64, u32)>) {
    let mut ended = ended.into_iter().peekable();
    // The receiver wants the lock, too, and there may be a million.
    while ended.peek().is_some() {
        let mut state = port.notices.state();
        let before = state.due.len();
        let links = links_ended(port);
        for (badge, count) in ended.by_ref().take(ENDED_MAX) {
            if state.watched.ended(badge, count) && state.lost.insert(badge, links).is_none() {
                state.due.push_back(Notice::NoSendersOf(badge));
            }
        }
        let is_due = state.due.len() > before;
        drop(state);
        if is_due {
            tell(port);
        }
    }
}

/// The links that have ended so far: that of the peer whose rights end now is among them.
fn links_ended(port: &Port) -> u32 {
    // Acquire: pairs with the Release in `link_end::end_link`.
    port.process.deaths.load(Ordering::Acquire)
}

/// A send-once right to this port could not come with it.
pub(crate) fn tell_unused(port: &Port, badge: u64) {
    let unused = Notice::SendOnceUnused(badge);
    port.notices.state().due.push_back(unused);
    tell(port);
}

/// Notes the end of a port that this one was to be told of.
pub(crate) fn tell_death(port: &Port, number: u64) {
    port.notices.state().deaths.push_back(number);
    tell(port);
}

/// As [`tell_death`], on a peer's word. `false`: so many wait to be received that no honest peer has told of them.
pub(crate) fn hear_of_death(port: &Port, number: u64) -> bool {
    let mut state = port.notices.state();
    let has_room = state.deaths.len() < DEATHS_MAX;
    if has_room {
        state.deaths.push_back(number);
    }
    drop(state);
    if has_room {
        tell(port);
    }
    has_room
}

fn tell(port: &Port) {
    note(port);
    ports::rouse(&port.process, port.receiver);
}

/// As [`tell`], without waking anybody.
fn note(port: &Port) {
    // Release: a thread that sees it finds the notice. The receiver, if it sleeps, is woken after.
    let was_due = port.notices.is_due.swap(true, Ordering::Release);
    if is_member(port.id) {
        if !was_due {
            port.at.members_due.add(port.id);
        }
        // After that: a receiver that lowers it looks for the ports behind that.
        port.at.notices.raise();
    }
}

impl HearsOfDeaths for Port {
    fn hear_death(&self, number: u64) {
        tell_death(self, number);
    }
}

#[cfg(test)]
mod model;
