//! The resources of this process that the users of its peers hold: one table, so that no user can take what the others need.
//!
//! Each kind has a total, a limit for each user, and a reserve: the last part of the total goes only to users who hold no
//! more than a modest amount. A user that takes all that it may leaves the reserve to the others, whatever it does:
//!
//! ```text
//! total    |<------------- for everybody ------------->|<-- reserve: modest users only -->|
//! per user |<------------- at most, each ------------->|
//! modest   |<->|
//! ```

use alloc::collections::BTreeMap;

/// The resource that a peer can make this process hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Open descriptors: the sockets of links and handshakes, process descriptors, descriptors that nobody has claimed, and those
    /// that are being closed.
    Descriptors,
    /// Descriptors that were sent to the user's processes and that they have not received: they count against the user that
    /// this process runs as, in all its processes.
    InFlight,
    /// Links.
    Links,
    /// Connections that have not said hello.
    Handshakes,
    /// Bytes of control messages that the user's processes have not read, or that wait here to be read.
    Backlog,
    /// Threads that do for the user what may block.
    Threads,
    /// Rights, moved ports and paths that wait for a link with another process, and questions for the way to one.
    Strangers,
    /// Numbers by which the user's processes name rights that they have claimed.
    Claims,
    /// Calls of the user's processes that were passed on and whose answers come by this process.
    Calls,
    /// Rights that have become others because their ports have moved on the word of the user's processes.
    Moves,
    /// Ports that the user's processes have sent here.
    Ports,
}

/// How many kinds there are.
const KINDS: usize = 11;

/// The limits of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The amount all users together may hold.
    pub total: u64,
    /// The amount one user may hold.
    pub per_user: u64,
    /// The part of the total that is for modest users.
    pub reserve: u64,
    /// The most a modest user holds.
    pub modest: u64,
}

impl Limit {
    /// A quarter of the total is the reserve, a modest user holds an eighth of that at most, and one user may hold all but the
    /// reserve.
    #[must_use]
    pub const fn of(total: u64) -> Self {
        let reserve = total / 4;
        let modest = if reserve >= 8 { reserve / 8 } else { 1 };
        Self {
            total,
            per_user: total - reserve,
            reserve,
            modest,
        }
    }
}

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The user holds as much as one user may.
    User {
        /// How much that is.
        limit: u64,
    },
    /// All users together hold as much as they may.
    All {
        /// How much that is; less for users who are not modest.
        limit: u64,
    },
}

impl Refused {
    /// The limit that was reached.
    #[must_use]
    pub const fn limit(self) -> u64 {
        match self {
            Self::User { limit } | Self::All { limit } => limit,
        }
    }
}

/// See the module text. Users are the kernel's user ids.
#[derive(Debug)]
pub struct Users {
    limits: [Limit; KINDS],
    used: [u64; KINDS],
    held: BTreeMap<u32, [u64; KINDS]>,
}

impl Users {
    /// Nobody holds anything. `limit_of` says the limits of each kind.
    #[must_use]
    pub fn new(limit_of: impl Fn(Quota) -> Limit) -> Self {
        Self {
            limits: ALL.map(limit_of),
            used: [0; KINDS],
            held: BTreeMap::new(),
        }
    }

    /// Changes the limits of a kind. Amounts already held stay held.
    pub const fn set_limit(&mut self, quota: Quota, limit: Limit) {
        self.limits[quota as usize] = limit;
    }

    /// The limits of a kind.
    #[must_use]
    pub const fn limit(&self, quota: Quota) -> Limit {
        self.limits[quota as usize]
    }

    /// The amount a user holds.
    #[must_use]
    pub fn held(&self, user: u32, quota: Quota) -> u64 {
        self.held.get(&user).map_or(0, |held| held[quota as usize])
    }

    /// The amount all users hold.
    #[must_use]
    pub const fn used(&self, quota: Quota) -> u64 {
        self.used[quota as usize]
    }

    /// A user holds so much more from now on.
    ///
    /// # Errors
    /// The limit that forbids it. Nothing is held then.
    pub fn charge(&mut self, user: u32, quota: Quota, amount: u64) -> Result<(), Refused> {
        let limit = self.limits[quota as usize];
        let held = self.held(user, quota).saturating_add(amount);
        if held > limit.per_user {
            let limit = limit.per_user;
            return Err(Refused::User { limit });
        }
        let open = match held <= limit.modest {
            true => limit.total,
            false => limit.total - limit.reserve,
        };
        if self.used[quota as usize].saturating_add(amount) > open {
            return Err(Refused::All { limit: open });
        }
        self.force(user, quota, amount);
        Ok(())
    }

    /// As [`Self::charge`], of what is held already, whatever the limits say.
    pub fn force(&mut self, user: u32, quota: Quota, amount: u64) {
        if amount > 0 {
            self.held.entry(user).or_default()[quota as usize] += amount;
            self.used[quota as usize] += amount;
        }
    }

    /// A user holds so much less from now on.
    ///
    /// # Panics
    /// If it does not hold as much.
    pub fn refund(&mut self, user: u32, quota: Quota, amount: u64) {
        if amount == 0 {
            return;
        }
        let held = self.held.get_mut(&user);
        let held = held.filter(|held| held[quota as usize] >= amount);
        let Some(held) = held else {
            panic!("a refund of {amount} {quota:?} that user {user} does not hold");
        };
        held[quota as usize] -= amount;
        self.used[quota as usize] -= amount;
        if *held == [0; KINDS] {
            self.held.remove(&user);
        }
    }
}

/// All kinds, in their order.
const ALL: [Quota; KINDS] = [
    Quota::Descriptors,
    Quota::InFlight,
    Quota::Links,
    Quota::Handshakes,
    Quota::Backlog,
    Quota::Threads,
    Quota::Strangers,
    Quota::Claims,
    Quota::Calls,
    Quota::Moves,
    Quota::Ports,
];

const _: () = {
    let mut place = 0;
    while place < KINDS {
        assert!(ALL[place] as usize == place);
        place += 1;
    }
};

#[cfg(test)]
mod tests;
