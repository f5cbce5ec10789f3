//! Which work a node puts off, and for how long: one timer for each kind of work, for all links of the node together.
//!
//! The driver keeps the times, and runs the work of a timer when that is due. Work that is not finished says why
//! ([`Left`]), and [`Backoff`] says when it is tried again. A peer that stands still delays the work of its own timer
//! only, and at most by [`Left::longest_ns`].

/// A kind of work that a node puts off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Timer {
    /// Look after threads that sleep until a peer answers.
    Sleepers,
    /// End handshakes whose connectors say nothing more.
    Handshakes,
    /// Take connections again that could be neither taken nor refused.
    Listeners,
    /// Hear peers again that have said too much.
    MutedPeers,
    /// Start threads that close descriptors, for which there was no thread.
    ClosingThreads,
    /// Wake threads that still wait at links that have ended.
    Leavers,
    /// Free the places of links that have ended.
    EndedLinks,
    /// Refuse messages to ports that were dropped a short time ago.
    DroppedPorts,
    /// Start workers of servers on each CPU for which there was no thread.
    Workers,
    /// Send control messages that a peer had no room for.
    Backlog,
    /// Send the counters to a peer that has asked for them.
    Counters,
    /// Give back rights that no thread holds any more, and end those that peers have given back.
    Releases,
    /// Tell peers which of their rights were revoked.
    Revocations,
    /// Take the answers of calls that were given up.
    Answers,
    /// Tell peers that a link is not used any more.
    UnusedLinks,
    /// Take messages to ports that are gone out of lanes, where a thread was receiving.
    TakenLanes,
    /// Let go of lanes in which nothing comes any more.
    FreedLanes,
    /// Claim rights that waited for a link or a lane.
    Claims,
    /// Tell peers where a port is that has moved.
    MovedPorts,
    /// Publish how often domains were called directly.
    DomainCalls,
    /// Call receivers that wait for the right in a message, or no longer.
    Receivers,
    /// Have rights follow ports that have moved.
    Switches,
    /// Forget return paths that have ended.
    Paths,
    /// End provisions that are not claimed.
    Provisions,
    /// Look for the answers that are passed on in pieces.
    Relays,
    /// Give up memory in which long messages went, and none has gone for a while.
    LongMessages,
}

impl Timer {
    /// All of them, in the order in which their work is done when several are due.
    pub const ALL: [Self; 26] = [
        Self::Sleepers,
        Self::Handshakes,
        Self::Listeners,
        Self::MutedPeers,
        Self::ClosingThreads,
        Self::Leavers,
        Self::EndedLinks,
        Self::DroppedPorts,
        Self::Workers,
        Self::Backlog,
        Self::Counters,
        Self::Releases,
        Self::Revocations,
        Self::Answers,
        Self::UnusedLinks,
        Self::TakenLanes,
        Self::FreedLanes,
        Self::Claims,
        Self::MovedPorts,
        Self::DomainCalls,
        Self::Receivers,
        Self::Switches,
        Self::Paths,
        Self::Provisions,
        Self::Relays,
        Self::LongMessages,
    ];
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// How long its work is put off, unless a thread says otherwise, in nanoseconds: until more of the same has come, or a peer
    /// has read.
    #[must_use]
    pub const fn delay_ns(self) -> u64 {
        match self {
            Self::Leavers | Self::DroppedPorts | Self::Relays => 1_000_000,
            Self::Answers => 5_000_000,
            Self::Sleepers => 40_000_000,
            Self::DomainCalls => 50_000_000,
            // Links end together by the hundred, and each look is one at all of them.
            Self::EndedLinks => 100_000_000,
            // Until a descriptor or a thread is free.
            Self::Listeners | Self::ClosingThreads => 100_000_000,
            Self::Handshakes => 2_000_000_000,
            Self::LongMessages => 10_000_000_000,
            _ => 2_000_000,
        }
    }

    /// Its place in tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The work that is left when a timer's work was done as far as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// None.
    Nothing,
    /// Some, once a peer has made room or received something, which it may never do.
    ForPeer,
    /// Some, once another thread of this process has gone on.
    Soon,
    /// Some, in so many nanoseconds.
    In(u64),
}

impl Left {
    /// Whether something is left for the peer.
    #[must_use]
    pub const fn for_peer(is_left: bool) -> Self {
        match is_left {
            true => Self::ForPeer,
            false => Self::Nothing,
        }
    }

    /// Whether something is left to be done soon.
    #[must_use]
    pub const fn soon(is_left: bool) -> Self {
        match is_left {
            true => Self::Soon,
            false => Self::Nothing,
        }
    }

    /// The longest time until the work is tried again, in nanoseconds.
    #[must_use]
    pub const fn longest_ns(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::ForPeer => 100_000_000,
            Self::Soon => 8_000_000,
            Self::In(from_now_ns) => from_now_ns,
        }
    }
}

/// The time until the first new try, in nanoseconds. Each further one waits twice as long.
const FIRST_NS: u64 = 4_000_000;

/// How long each timer's work has waited between tries.
#[derive(Debug)]
pub struct Backoff {
    next_ns: [u64; Timer::COUNT],
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            next_ns: [FIRST_NS; Timer::COUNT],
        }
    }
}

impl Backoff {
    /// The work of `timer` was done as far as possible. Returns in how many nanoseconds it is tried again, if anything is left.
    pub fn after(&mut self, timer: Timer, left: Left) -> Option<u64> {
        let next_ns = &mut self.next_ns[timer.index()];
        match left {
            Left::Nothing => {
                *next_ns = FIRST_NS;
                None
            }
            Left::In(from_now_ns) => Some(from_now_ns),
            Left::ForPeer | Left::Soon => {
                let wait_ns = (*next_ns).min(left.longest_ns());
                *next_ns = wait_ns * 2;
                Some(wait_ns)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_timer_is_in_the_table_at_its_index() {
        for (index, timer) in Timer::ALL.into_iter().enumerate() {
            assert_eq!(timer.index(), index);
        }
    }

    #[test]
    fn work_that_waits_for_a_peer_is_tried_ever_less_often_up_to_a_limit() {
        let mut backoff = Backoff::default();
        let mut again = |left| backoff.after(Timer::Backlog, left);
        let waits: Vec<_> = (0..7).map(|_| again(Left::ForPeer)).collect();
        let expected = [4, 8, 16, 32, 64, 100, 100];
        assert_eq!(waits, expected.map(|ms| Some(ms * 1_000_000)));
        assert_eq!(again(Left::Soon), Some(8_000_000));
        assert_eq!(again(Left::Nothing), None);
        assert_eq!(again(Left::Soon), Some(4_000_000));
    }

    #[test]
    fn one_timer_does_not_slow_another_down() {
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            backoff.after(Timer::Backlog, Left::ForPeer);
        }
        assert_eq!(
            backoff.after(Timer::Releases, Left::ForPeer),
            Some(FIRST_NS)
        );
        assert_eq!(backoff.after(Timer::Receivers, Left::In(7)), Some(7));
    }

    #[test]
    fn of_several_links_the_one_that_is_ready_first_counts() {
        let left = [Left::Nothing, Left::ForPeer, Left::Soon];
        assert_eq!(left.into_iter().max(), Some(Left::Soon));
    }
}
