//! The rota: which lanes an overloaded server polls, and whom it wakes.
//!
//! With more clients than processors, waking every client as its reply is ready costs the server
//! a system call per request, puts the woken client on the server's own processor, and so makes
//! more clients give up: throughput collapses (paper 000, Figure 11). The rota keeps at most
//! `cap` lanes *active* (polled), defers the requests of a lane whose turn is over, and admits
//! the deferred in arrival order as places fall free. A deferred client sleeps with its request
//! unserved in its lane; only the server wakes it. So a client that ignores a deferral is simply
//! not polled, and no client depends on another.
//!
//! ```text
//!            rings awake                     turn over, others wait
//!   Out ───────────────────────▶ Active ───────────────────────────▶ Queued
//!    ▲ │      rings asleep         │ ▲           place falls free       │ ▲
//!    │ └───────────────────────────┼─┼──────────────────────────────────┼─┘
//!    └──────────── quiet ──────────┘ └──────────────────────────────────┘
//! ```
//!
//! Lanes belong to users, and places are shared between users first: each user that has active or
//! waiting lanes has a *share* of the places, all the same and at least one. Which of a user's
//! lanes have its places is that user's matter. With one user the share is `cap`.
//!
//! The rules are numbered as they are cited in the code that obeys them:
//!
//! 1. A request of an active lane is served at once, unless the lane's turn is over *and* its user
//!    has more than its share, or just its share while others wait for these places: lanes of the
//!    same user, or anybody where users are more than places. Then it is deferred.
//! 2. While there is a place, a waiter is admitted: of the user with the fewest active lanes (of
//!    several, the one that was given a place longest ago) the oldest. One client that is being
//!    woken does not take a place yet, and what a user has above its share takes none from users
//!    below theirs.
//! 3. A lane that rings while its client is awake becomes active at once, even above `cap` (no
//!    wake-up is needed; rule 1 shrinks the set), unless its user has `cap` lanes active already
//!    and is not the only one. If its client sleeps, it waits its turn.
//! 4. A client found asleep at its reply is not woken there: its lane gives up its place and
//!    waits; rule 2 wakes it, at once if there is room. It is woken where there is room for all,
//!    or where nobody else of its user waits, its user has no more than its share, and each user
//!    can have a place.
//! 5. A turn starts with the first request after admission, and short pauses do not renew it. It
//!    is shorter while many wait.
//! 6. When nobody was admitted for `turn / cap + 1 ms`, one more than `cap` is admitted.
//! 7. The server is *overloaded* while somebody waits, or while it wakes more than `cap` clients
//!    often without sleeping.
//! 8. A server does not sleep while somebody waits.

mod active;
mod verdict;

pub use active::Active;
pub use verdict::{Admitted, Rang, Verdict, Wake};

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Index of a lane in the rota, given by the caller.
pub type Key = usize;

/// Longest length of a turn.
pub const TURN_NS: u64 = 1_000_000;
/// Shortest: a wake-up at its start takes a few microseconds.
const TURN_MIN_NS: u64 = 250_000;
/// How long all waiters together should take to have had their turns: with many, turns are
/// shorter.
const CYCLE_NS: u64 = 42_000_000;
/// How often the request count of a turn is fitted to the measured rate.
const RATE_WINDOW_NS: u64 = 20_000_000;
/// Wake-ups remembered: four for each place, within bounds. So many within [`WAKE_WINDOW_NS`] make
/// a server overloaded (rule 7).
const WAKES_MIN: usize = 8;
const WAKES_MAX: usize = 64;
const WAKE_WINDOW_NS: u64 = 5_000_000;
/// Requests per turn before the first measurement.
const QUOTA_START: u32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// Not polled; armed, so the client rings.
    Out,
    /// Polled.
    Active,
    /// In the queue.
    Queued,
}

#[derive(Clone, Debug)]
struct Lane {
    state: State,
    /// Place of its user in [`Rota::users`].
    user: usize,
    /// Requests served since the turn began.
    served: u32,
    /// When the turn began to be timed; zero before its first request under load.
    turn_ns: u64,
    /// When the lane went out (rule 5).
    out_ns: u64,
    /// The queued lane waits for its reply's wake-up only: its request has been served.
    replied: bool,
    /// Admitted asleep: the next reply must wake the client.
    wake_due: bool,
    /// Its client is being woken and has not been seen since.
    waking: bool,
}

/// A user with lanes here, or a place for one.
#[derive(Clone, Debug, Default)]
struct User {
    /// As the caller names it.
    number: u32,
    /// Lanes that are known; the place is free without one.
    lanes: usize,
    active: usize,
    queue: VecDeque<Key>,
    /// Number of the last time that a lane of it became active.
    activated: u64,
    /// Counted in [`Rota::present`].
    is_present: bool,
}

impl User {
    fn is_idle(&self) -> bool {
        self.active == 0 && self.queue.is_empty()
    }
}

/// See the module text.
#[derive(Clone, Debug)]
pub struct Rota {
    cap: usize,
    lanes: Vec<Lane>,
    users: Vec<User>,
    /// Users with active or waiting lanes, and how many places each may have.
    present: usize,
    share: usize,
    /// Lanes that wait, of all users.
    waiting: usize,
    active: usize,
    activations: u64,
    /// Active lanes whose clients are being woken.
    waking: usize,
    /// Length of a turn at present.
    turn_ns: u64,
    /// Requests of a turn, and of one of the longest length.
    quota: u32,
    quota_longest: u32,
    /// Requests since `rate_ns`.
    requests: u64,
    rate_ns: u64,
    /// When somebody was last admitted, or the queue last was empty.
    moved_ns: u64,
    /// There was no place for a waiter when one was last asked for, and nothing has changed since: only time makes one (rule 6).
    is_full: bool,
    /// The last wake-ups since the server slept: when, and whose.
    wakes: VecDeque<(u64, Key)>,
    /// How many.
    wakes_kept: usize,
}

impl Rota {
    /// A rota with `cap` places (at least one). Processors minus one is the measured choice: the
    /// server needs one itself.
    #[must_use]
    pub fn new(cap: usize) -> Self {
        Self {
            cap: cap.max(1),
            lanes: Vec::new(),
            users: Vec::new(),
            present: 0,
            share: cap.max(1),
            waiting: 0,
            active: 0,
            activations: 0,
            waking: 0,
            turn_ns: TURN_NS,
            quota: QUOTA_START,
            quota_longest: QUOTA_START,
            requests: 0,
            rate_ns: 0,
            moved_ns: 0,
            is_full: false,
            wakes: VecDeque::new(),
            wakes_kept: (4 * cap).clamp(WAKES_MIN, WAKES_MAX),
        }
    }

    /// Changes the number of places. Active lanes stay active until rule 1 finds the set too large.
    pub fn set_cap(&mut self, cap: usize) {
        let fresh = Self::new(cap);
        (self.cap, self.wakes_kept) = (fresh.cap, fresh.wakes_kept);
        self.wakes.clear();
        self.fit_share();
        self.fit_turn();
    }

    /// Makes `key` known, out. `user` is anything that tells its user from others.
    pub fn add(&mut self, key: Key, user: u32) {
        let lane = |state, user| Lane {
            state,
            user,
            served: 0,
            turn_ns: 0,
            out_ns: 0,
            replied: false,
            wake_due: false,
            waking: false,
        };
        if self.lanes.len() <= key {
            self.lanes.resize_with(key + 1, || lane(State::Absent, 0));
        }
        debug_assert_eq!(self.lanes[key].state, State::Absent, "lane {key}");
        let user = self.place_of(user);
        self.users[user].lanes += 1;
        self.lanes[key] = lane(State::Out, user);
    }

    /// Forgets `key`, wherever it is.
    pub fn remove(&mut self, key: Key) {
        self.seen(key);
        let (state, user) = (self.lanes[key].state, self.lanes[key].user);
        match state {
            State::Active => self.deactivate(key),
            State::Queued => {
                self.users[user].queue.retain(|queued| *queued != key);
                self.waiting -= 1;
                self.settle(user);
            }
            State::Out => {}
            State::Absent => return,
        }
        self.lanes[key].state = State::Absent;
        self.users[user].lanes -= 1;
    }

    /// Whether lane `key` is polled.
    #[must_use]
    pub fn is_active(&self, key: Key) -> bool {
        self.lanes[key].state == State::Active
    }

    /// How many lanes wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether a lane waits though there are fewer active ones than places, also if one whose client is being woken counts:
    /// rule 2 is to be asked even where the active lanes are never found empty. A place may fall free when no request is
    /// deferred for it: lanes go out, and users leave.
    #[must_use]
    pub fn has_place(&self) -> bool {
        self.waiting > 0 && self.active < self.cap
    }

    /// Whether a waiter may have a place, other than by rule 6, which time alone brings about.
    #[inline(always)]
    #[must_use]
    pub const fn may_admit(&self) -> bool {
        self.waiting > 0 && !self.is_full
    }

    /// A lane that was out rang (rule 3).
    pub fn rang(&mut self, key: Key, now_ns: u64, client_asleep: bool) -> Rang {
        if self.lanes[key].state != State::Out {
            return Rang::Nothing;
        }
        // Rule 5: only a pause of a whole turn begins a new one.
        if now_ns.saturating_sub(self.lanes[key].out_ns) >= TURN_NS {
            self.lanes[key].served = 0;
            self.lanes[key].turn_ns = 0;
        }
        let user = self.lanes[key].user;
        let waits = client_asleep || self.crowds(user);
        if waits && !self.has_room(user) {
            self.enqueue(key, now_ns, false);
            return Rang::Queued;
        }
        self.activate(key);
        self.lanes[key].wake_due = client_asleep;
        Rang::Poll
    }

    /// Whether nobody waits and there is room: every request is served then, unasked.
    #[inline(always)]
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.waiting == 0 && self.active <= self.cap
    }

    /// A request was found in active lane `key` (rules 1 and 5). Nothing is counted while it is
    /// calm: a turn and its quota begin with the load.
    pub fn request(&mut self, key: Key, now_ns: u64) -> Verdict {
        if self.is_calm() {
            return Verdict::Serve;
        }
        self.requests += 1;
        self.seen(key);
        self.fit_quota(now_ns);
        let crowded = self.is_crowded(self.lanes[key].user);
        let (quota, turn_ns) = (self.quota, self.turn_ns);
        let lane = &mut self.lanes[key];
        if lane.turn_ns == 0 {
            lane.turn_ns = now_ns;
        }
        let over = lane.served >= quota || now_ns.saturating_sub(lane.turn_ns) > 2 * turn_ns;
        if over && crowded {
            // The window may have begun anew just now.
            self.requests = self.requests.saturating_sub(1);
            self.deactivate(key);
            self.enqueue(key, now_ns, false);
            return Verdict::Defer;
        }
        lane.served = lane.served.saturating_add(1);
        Verdict::Serve
    }

    /// The next waiter to become active, if there is a place (rules 2 and 6).
    pub fn admit(&mut self, now_ns: u64) -> Option<Admitted> {
        let stuck_ns = self.turn_ns / self.cap as u64 + 1_000_000;
        let stuck = now_ns.saturating_sub(self.moved_ns) > stuck_ns;
        let user = self.next_user()?;
        let is_full = self.running() >= self.cap;
        if is_full && !stuck && !self.is_below_share(user) {
            self.is_full = true;
            return None;
        }
        debug_assert!(stuck || !self.is_full, "a place that has not been told");
        let key = self.users[user].queue.pop_front()?;
        self.waiting -= 1;
        self.moved_ns = now_ns;
        self.activate(key);
        self.wakes(key);
        let lane = &mut self.lanes[key];
        lane.served = 0;
        lane.turn_ns = 0;
        if core::mem::take(&mut lane.replied) {
            lane.wake_due = false;
            return Some(Admitted::Reply(key));
        }
        lane.wake_due = true;
        Some(Admitted::Request(key))
    }

    /// The client of lane `key` slept when its reply was published (rule 4).
    pub fn asleep_at_reply(&mut self, key: Key, now_ns: u64) -> Wake {
        let lane = &mut self.lanes[key];
        if core::mem::take(&mut lane.wake_due) || lane.state != State::Active {
            return Wake::Now;
        }
        if self.is_calm() || self.is_modest(self.lanes[key].user) {
            self.wakes(key);
            return Wake::Now;
        }
        self.deactivate(key);
        self.enqueue(key, now_ns, true);
        Wake::Later
    }

    /// A reply went to the client of lane `key` and found it awake.
    #[inline]
    pub fn awake_at_reply(&mut self, key: Key) {
        self.lanes[key].wake_due = false;
    }

    /// Active lane `key` has been armed after a quiet time.
    pub fn quiet(&mut self, key: Key, now_ns: u64) {
        if self.lanes[key].state == State::Active {
            self.seen(key);
            self.deactivate(key);
            self.lanes[key].out_ns = now_ns;
        }
    }

    /// The server woke the client of lane `key` (rule 7).
    pub fn woke(&mut self, key: Key, now_ns: u64) {
        if self.wakes.len() == self.wakes_kept {
            self.wakes.pop_front();
        }
        self.wakes.push_back((now_ns, key));
    }

    /// The server slept: it is not overloaded.
    pub fn slept(&mut self) {
        self.wakes.clear();
    }

    /// Rule 7.
    #[must_use]
    pub fn is_overloaded(&self, now_ns: u64) -> bool {
        self.waiting > 0 || self.wakes_many(now_ns)
    }

    /// Whether more clients than there are places were woken lately. Fewer that sleep often are no
    /// overload: they have their processors, and reasons of their own.
    fn wakes_many(&self, now_ns: u64) -> bool {
        let recent = self.wakes.len() == self.wakes_kept
            && now_ns.saturating_sub(self.wakes[0].0) < WAKE_WINDOW_NS;
        let is_first = |place: usize| {
            let key = self.wakes[place].1;
            self.wakes.iter().position(|(_, of)| *of == key) == Some(place)
        };
        let many = self.cap.min(self.wakes_kept / 2);
        recent
            && (0..self.wakes.len())
                .filter(|place| is_first(*place))
                .count()
                > many
    }

    /// Active lanes without one whose client is being woken: the next client wakes while the others
    /// are served, and no more than one at a time, so that they do not wait for each other.
    fn running(&self) -> usize {
        self.active - self.waking.min(1)
    }

    /// The client of `key` is being woken.
    fn wakes(&mut self, key: Key) {
        if !core::mem::replace(&mut self.lanes[key].waking, true) {
            self.waking += 1;
            self.is_full = false;
        }
    }

    /// The client of `key` has posted, or its lane is no longer active.
    fn seen(&mut self, key: Key) {
        if core::mem::take(&mut self.lanes[key].waking) {
            self.waking -= 1;
        }
    }

    fn activate(&mut self, key: Key) {
        let user = self.lanes[key].user;
        self.lanes[key].state = State::Active;
        self.active += 1;
        self.activations += 1;
        self.users[user].activated = self.activations;
        self.users[user].active += 1;
        self.settle(user);
    }

    /// Active lane `key` is out, or about to be queued or forgotten.
    fn deactivate(&mut self, key: Key) {
        let user = self.lanes[key].user;
        self.lanes[key].state = State::Out;
        self.active -= 1;
        self.users[user].active -= 1;
        self.settle(user);
    }

    /// Lane `key`, which is out, waits from now on.
    fn enqueue(&mut self, key: Key, now_ns: u64, replied: bool) {
        if self.waiting == 0 {
            self.moved_ns = now_ns;
        }
        self.seen(key);
        let lane = &mut self.lanes[key];
        lane.state = State::Queued;
        lane.replied = replied;
        lane.wake_due = false;
        let user = lane.user;
        self.users[user].queue.push_back(key);
        self.waiting += 1;
        self.settle(user);
        self.fit_turn();
    }

    /// Rule 5: the more wait, the shorter the turns.
    fn fit_turn(&mut self) {
        let waiting = self.waiting.max(1) as u64;
        self.turn_ns = (CYCLE_NS * self.cap as u64 / waiting).clamp(TURN_MIN_NS, TURN_NS);
        let quota = u64::from(self.quota_longest) * self.turn_ns / TURN_NS;
        self.quota = u32::try_from(quota).unwrap_or(u32::MAX).max(1);
    }

    fn fit_quota(&mut self, now_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.rate_ns);
        if elapsed < RATE_WINDOW_NS {
            return;
        }
        // A window that began long ago says nothing about the present rate.
        if elapsed < 2 * RATE_WINDOW_NS {
            let per_turn = u128::from(self.requests) * u128::from(TURN_NS)
                / u128::from(elapsed)
                / self.cap as u128;
            self.quota_longest = u32::try_from(per_turn).unwrap_or(u32::MAX);
            self.fit_turn();
        }
        self.requests = 0;
        self.rate_ns = now_ns;
    }
}

mod share;
#[cfg(test)]
mod tests;
