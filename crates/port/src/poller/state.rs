//! The memory of a poller from one look to the next, in groups.

use crate::link::group::Group;
use handfast_wait::Waiter;
use std::collections::VecDeque;
use std::sync::Arc;

/// Counts kept in private memory between two quiet checks.
#[derive(Default)]
pub(super) struct Counts {
    /// Counts of lanes that have been removed.
    pub(super) taken: u64,
    pub(super) sends: u64,
    /// Statements about introductions, which are neither calls nor sent by an application.
    pub(super) said: u64,
    pub(super) bytes: u64,
    pub(super) bytes_out: u64,
    pub(super) wakes: u64,
    pub(super) faults: u64,
    /// Calls put off while the server is overloaded.
    pub(super) defers: u64,
}

/// How far a poller has followed the process's lists.
pub(super) struct Seen {
    pub(super) groups: u32,
    pub(super) deaths: u32,
    pub(super) leavings: u32,
}

/// The clients of a poller: where they run, and how many are polled at a time.
pub(super) struct Clients {
    /// CPU of the client served last.
    pub(super) cpu: u32,
    /// CPUs that this thread and its clients share.
    pub(super) cpus: u32,
    pub(super) cap: usize,
    /// How many times in a row the client served last was found on this thread's CPU, and whether that is the only
    /// one for all of them.
    pub(super) beside: u32,
    pub(super) shares_only_cpu: bool,
    pub(super) overloaded: bool,
    /// Replies are not fenced at present; sleepers fence for us.
    pub(super) fenceless: bool,
}

/// The looks of a poller.
#[derive(Default)]
pub(super) struct Looks {
    pub(super) count: u32,
    /// When quiet lanes were looked for last.
    pub(super) checked_ns: u64,
    /// A message was found and refused: there may be another.
    pub(super) again: bool,
    /// A message was found that waits for the right it names.
    pub(super) parked: bool,
    /// A long message has come. The next ones may be copied while their senders fill blocks with them.
    pub(super) long: bool,
    /// The sender of one goes on filling its block.
    pub(super) goes_on: bool,
}

/// How those that receive wait.
pub(crate) struct Waits {
    pub(crate) waiter: Option<Box<Waiter>>,
    /// When the wait of a task or a loop began that has gone on elsewhere, by `clock::now_ns`.
    pub(crate) since_ns: Option<u64>,
    pub(super) eager: bool,
    /// [`Waiter::has_neighbours`], after the last wait.
    pub(super) has_neighbours: bool,
}

/// Links with other users that are looked at in one look at the bells.
pub(super) const FOREIGN_LINKS_PER_LOOK: u32 = 8;

/// The groups of other users, in turn.
#[derive(Default)]
pub(super) struct Foreigners {
    /// Where a group is in the list of all, and its link that is looked at next.
    pub(super) groups: VecDeque<(usize, u32)>,
    /// In one look at the bells: groups, and links of each.
    pub(super) turns: usize,
    pub(super) links: u32,
}

impl Foreigners {
    pub(super) fn of(groups: &[Arc<Group>]) -> Self {
        let places = groups.iter().enumerate();
        let places = places.filter(|(_, group)| group.is_foreign);
        let groups: VecDeque<_> = places.map(|(place, _)| (place, 0)).collect();
        let turns = groups.len().min(FOREIGN_LINKS_PER_LOOK as usize);
        let links = FOREIGN_LINKS_PER_LOOK / turns.max(1) as u32;
        Self {
            groups,
            turns,
            links,
        }
    }
}

/// For what the first message of a lane waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaits {
    /// The claim of the right it names.
    Claim,
    /// The provision of that right, which was claimed.
    Provision,
    /// Room among the messages that are diverted (`diverted`).
    Room,
}

/// Of what messages go on elsewhere, and have not arrived when they have been taken here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PassesOn {
    Nothing,
    /// Messages for ports that shared the receiver and have moved: lanes in which one has come say so.
    Diverted,
    /// All: the port has moved.
    All,
}
