//! Users: the resources of this process that the peers of each user hold, and a thread for each user for work
//! that may block.
//!
//! To close a descriptor that a peer has sent may take as long as the peer likes: a TCP socket that lingers, a file of a
//! user-space file system. The same holds for a socket with such descriptors in its queue. So a descriptor that came from a peer
//! is closed by its user's closing thread, and counts against that user until it is closed: a user that makes closing slow runs
//! out of its own share.

mod closing;
mod foreign;
mod in_flight;

use crate::rank;
use closing::Closing;
use core::sync::atomic::AtomicBool;
pub(crate) use foreign::{Foreign, ForeignMemory};
use handfast_layout::bell;
use handfast_proto::users::{Limit, Quota, Refused, Users as Table};
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{clock, process};
use in_flight::InFlight;
use std::collections::HashMap;
use std::sync::Arc;

/// The process whose word is waited for.
pub(crate) type Of = [u8; 20];

/// One in so many descriptors is left to the application.
const APPLICATION_SHARE: u64 = 8;
/// Control messages that wait, in bytes, of all users.
const BACKLOG_BYTES: u64 = 64 << 20;
/// Handshakes under way at once.
const HANDSHAKES: u64 = 128;
/// Descriptors in flight to the processes of one user.
const IN_FLIGHT: u64 = 128;
/// How long it counts that a user's process has kept this one waiting in vain.
const IMPATIENT_NS: u64 = 10_000_000_000;
/// Threads before doors at once.
const KNOCKS: u64 = 16;
/// Most waiters for links with strangers, or for the way to them.
const STRANGERS: u64 = 4096;
/// Numbers of claimed rights, some 100 bytes each.
const CLAIMS: u64 = 2 << 20;
/// Calls of other users that were passed on, which the control thread looks at in turn.
const CALLS: u64 = 8192;
/// Moves of ports that rights here have followed on the word of other users: each use of such a right walks over its moves.
const MOVES: u64 = 8192;
/// Ports that processes of other users have sent: a quarter of all receivers is left to the ports of this process.
const PORTS: u64 = bell::RECEIVERS as u64 * 3 / 4;

/// See the module text.
pub(crate) struct Users {
    epoch: u32,
    /// A closing thread could not be started.
    lacks_thread: AtomicBool,
    state: Mutex<State, rank::Users>,
}

struct State {
    table: Table,
    /// Users whose processes have kept this one waiting in vain, and until when that counts.
    impatient: HashMap<(u32, Of), u64>,
    in_flight: InFlight,
    closing: HashMap<u32, Closing>,
}

impl State {
    /// As the table's; the process's limit may have been raised since it was looked at.
    fn charge(&mut self, user: u32, quota: Quota, amount: u64) -> Result<(), Refused> {
        let charged = self.table.charge(user, quota, amount);
        if charged.is_ok() || !matches!(quota, Quota::Descriptors | Quota::InFlight) {
            return charged;
        }
        let limit = limit_of(quota, process::descriptor_limit());
        self.table.set_limit(quota, limit);
        self.table.charge(user, quota, amount)
    }
}

impl Users {
    pub(crate) fn new() -> Arc<Self> {
        let descriptors = process::descriptor_limit();
        Arc::new(Self {
            epoch: process::fork_epoch(),
            lacks_thread: AtomicBool::new(false),
            state: Mutex::new(State {
                table: Table::new(|quota| limit_of(quota, descriptors)),
                impatient: HashMap::new(),
                in_flight: InFlight::default(),
                closing: HashMap::new(),
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State, rank::Users> {
        self.state.lock()
    }

    /// Charges a user for so much.
    pub(crate) fn charge(
        self: &Arc<Self>,
        user: u32,
        quota: Quota,
        amount: u64,
    ) -> Result<Charge, Refused> {
        let mut charge = self.nothing(user, quota);
        charge.grow(amount)?;
        Ok(charge)
    }

    /// A charge that can grow.
    pub(crate) fn nothing(self: &Arc<Self>, user: u32, quota: Quota) -> Charge {
        Charge {
            users: self.clone(),
            user,
            quota,
            amount: 0,
        }
    }

    /// Whether processes of the user may keep a thread waiting for the word of this process: not for a while after one has done so in
    /// vain. For another user than this process's that is so whichever process has: such identities are the user's to make.
    pub(crate) fn is_patient(&self, user: u32, of: Of) -> bool {
        let of = whose(user, of);
        let until_ns = self.state().impatient.get(&of).copied();
        until_ns.is_none_or(|until_ns| until_ns <= clock::now_ns())
    }

    /// Notes that a user has kept this process waiting in vain.
    pub(crate) fn lose_patience(&self, user: u32, of: Of) {
        let mut state = self.state();
        let now_ns = clock::now_ns();
        state.impatient.retain(|_, until_ns| *until_ns > now_ns);
        state
            .impatient
            .insert(whose(user, of), now_ns + IMPATIENT_NS);
    }

    /// The limit of one user.
    pub(crate) fn limit(&self, quota: Quota) -> u64 {
        self.state().table.limit(quota).per_user
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.epoch != process::fork_epoch()
    }
}

/// The processes for which patience with this one counts.
fn whose(user: u32, of: Of) -> (u32, Of) {
    match user == process::uid() {
        true => (user, of),
        false => (user, Of::default()),
    }
}

fn limit_of(quota: Quota, descriptors: u64) -> Limit {
    match quota {
        Quota::Descriptors => Limit::of(descriptors - descriptors / APPLICATION_SHARE),
        // The kernel counts the descriptors of all processes of this one's user together, by each one's limit: a part of
        // them all.
        Quota::InFlight => Limit {
            per_user: (descriptors / 8).min(IN_FLIGHT),
            ..Limit::of((descriptors / 2).min(8 * IN_FLIGHT))
        },
        Quota::Links => Limit {
            per_user: bell::LINKS.into(),
            ..Limit::of(4 * u64::from(bell::LINKS))
        },
        Quota::Handshakes => Limit {
            per_user: HANDSHAKES / 2,
            ..Limit::of(HANDSHAKES)
        },
        Quota::Backlog => Limit {
            per_user: BACKLOG_BYTES / 8,
            ..Limit::of(BACKLOG_BYTES)
        },
        Quota::Threads => Limit {
            per_user: KNOCKS / 2,
            ..Limit::of(KNOCKS)
        },
        Quota::Strangers => Limit::of(STRANGERS),
        Quota::Claims => Limit::of(CLAIMS),
        Quota::Calls => Limit {
            per_user: CALLS / 8,
            ..Limit::of(CALLS)
        },
        Quota::Moves => Limit {
            per_user: MOVES / 8,
            ..Limit::of(MOVES)
        },
        Quota::Ports => Limit::of(PORTS),
    }
}

/// The resources a user holds, for as long as this lives.
pub(crate) struct Charge {
    users: Arc<Users>,
    user: u32,
    quota: Quota,
    amount: u64,
}

impl Charge {
    pub(crate) const fn amount(&self) -> u64 {
        self.amount
    }

    /// Holds so much more.
    pub(crate) fn grow(&mut self, amount: u64) -> Result<(), Refused> {
        self.users.state().charge(self.user, self.quota, amount)?;
        self.amount += amount;
        Ok(())
    }

    /// As [`Self::grow`], whatever the limits say.
    fn force(&mut self, amount: u64) {
        self.users
            .state()
            .table
            .force(self.user, self.quota, amount);
        self.amount += amount;
    }

    /// Holds so much less.
    pub(crate) fn shrink(&mut self, amount: u64) {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        let mut state = self.users.state();
        state.table.refund(self.user, self.quota, amount);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // A parent's table, whose lock another thread may have had at the fork, is left alone.
        if self.amount > 0 && !self.users.is_forked() {
            self.shrink(self.amount);
        }
    }
}

#[cfg(test)]
mod tests;
