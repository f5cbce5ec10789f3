//! The notices of a port that wait to be received, and the count of the rights to it.

use crate::rank;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;
use handfast_proto::rights::Map;
use handfast_proto::rights::Watched;
use handfast_sys::sync::Mutex;
use handfast_sys::sync::MutexGuard;
use std::collections::VecDeque;

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
    /// Some badge is, or was, watched. Set before the tables are searched, each under its lock, and read under
    /// the lock of the table to which a right comes.
    has_watched: AtomicBool,
    state: Mutex<State, rank::Notices>,
}

/// The messages of the last senders are to be received first.
pub(crate) struct Unheard;

/// There has been a right; alone: and there is none now. Set by the first one, for ever.
pub(super) const HAD: u64 = 1;

/// One right.
pub(super) const ONE: u64 = 2;

/// There is none, and none comes any more: of the port of a send-once right, whose number another may get.
pub(super) const OVER: u64 = 1 << 63;

#[derive(Default)]
pub(super) struct State {
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

    /// Whether there may be one. One load of private memory.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        // Acquire: pairs with the swap in `raise`.
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
        // `Notices::ended`.
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

    /// Has the receiver look once more. Whether it was to look already.
    pub(crate) fn raise(&self) -> bool {
        // Release: pairs with the Acquire in `is_due`: a thread that sees it finds the notice.
        self.is_due.swap(true, Ordering::Release)
    }

    /// The receiver asks to be told when there is no right. Whether it is to be told now.
    pub(super) fn ask(&self) -> bool {
        let mut state = self.state();
        state.asks = true;
        self.look(&mut state)
    }

    /// So many rights have ended, when so many links had. Whether the receiver is to be told.
    pub(super) fn ended(&self, count: u64, links: u32) -> bool {
        let ended = count * ONE;
        self.loses_at(links);
        // E13 senders, store half. Release: a thread that finds no rights left finds the messages sent with
        // these. Load half: `Notices::has_lost_all`.
        let before = self.rights.fetch_sub(ended, Ordering::Release);
        before == ended + HAD && self.look(&mut self.state())
    }

    /// Watched rights have ended: badges, and how many with each. Whether the receiver is to be told.
    pub(super) fn watched_ended(
        &self,
        ended: impl Iterator<Item = (u64, u32)>,
        links: u32,
    ) -> bool {
        let mut state = self.state();
        let before = state.due.len();
        for (badge, count) in ended {
            if state.watched.ended(badge, count) && state.lost.insert(badge, links).is_none() {
                state.due.push_back(Notice::NoSendersOf(badge));
            }
        }
        state.due.len() > before
    }

    /// A send-once right has ended unused.
    pub(super) fn has_unused(&self, badge: u64) {
        self.state().due.push_back(Notice::SendOnceUnused(badge));
    }

    /// The port that was asked after with this number is gone. `false`: so many wait to be told.
    pub(super) fn has_died(&self, number: u64, limit: usize) -> bool {
        let mut state = self.state();
        let has_room = state.deaths.len() < limit;
        if has_room {
            state.deaths.push_back(number);
        }
        has_room
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
    /// `watched_ended`.
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

/// The ports of a receiver that have notices, beside its own, by their numbers: each is there once.
#[derive(Default)]
pub(crate) struct MembersDue(Mutex<VecDeque<u32>, rank::MembersDue>);

impl MembersDue {
    /// The next port that has notices, if there is one.
    pub(super) fn next(&self) -> Option<u32> {
        let mut due = self.0.lock();
        let next = due.pop_front();
        if due.is_empty() {
            *due = VecDeque::new();
        }
        next
    }

    /// This port has notices.
    pub(super) fn add(&self, id: u32) {
        self.0.lock().push_back(id);
    }

    /// The first ones, at most so many.
    pub(super) fn first(&self, count: usize) -> Vec<u32> {
        self.0.lock().iter().take(count).copied().collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
