//! The four protocols of paper 000 ("Efficient Sleep/Wake-up Protocols for User-Level IPC"), Figures 1, 5, 7 and 9, step by step: from the moment when
//! a message was posted and its receiver woken (the caller's side), or when the next one is asked for (the server's), until something is there.

use crate::Strategy;
use crate::place::{Cost, Ended, Place, Sleep};
use handfast_sys::clock;

/// How long one `poll_queue` looks where there are other processors. The paper's took 25 us, one and a half yields of its machine; this is as much of
/// a yield of some 1 us.
pub const POLL_NS: u64 = 1_500;
/// Pauses of one `busy_wait`, where there are other processors.
pub const BUSY_PAUSES: u32 = 16;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepWake {
    /// Both Sides Spin.
    Spin,
    /// Both Sides Wait.
    Wait,
    /// Both Sides Wait and Yield.
    WaitAndYield,
    /// Both Sides Limited Spin, with the paper's `MAX_SPIN`.
    LimitedSpin(u32),
}

impl SleepWake {
    /// The protocol of this name; `None` for a strategy of another kind.
    #[must_use]
    #[inline]
    pub const fn of(strategy: Strategy) -> Option<Self> {
        Some(match strategy {
            Strategy::Bss => Self::Spin,
            Strategy::Bsw => Self::Wait,
            Strategy::Bswy => Self::WaitAndYield,
            Strategy::Bsls { max_spin } => Self::LimitedSpin(max_spin),
            _ => return None,
        })
    }

    /// Waits at `place`, until the deadline at the longest. `one_cpu`: the peer cannot run meanwhile, since there is no other processor, or it was
    /// last seen on this one. `woke_peer`: a wake-up call was made for the message that is now to be answered.
    pub fn wait(
        self,
        place: &mut impl Place,
        deadline_ns: Option<u64>,
        (one_cpu, woke_peer): (bool, bool),
    ) -> (Ended, Cost) {
        let is_caller = place.is_caller();
        let is_late = || deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns);
        match self {
            Self::Spin | Self::Wait => {}
            // Figure 7: the peer that was woken may run first.
            Self::WaitAndYield if is_caller && woke_peer => busy_wait(place, one_cpu),
            Self::WaitAndYield if is_caller => {}
            // And a server's clients may, before it sleeps.
            Self::WaitAndYield => {
                if place.look() {
                    return (Ended::Ready, Cost::default());
                }
                place.give_way();
            }
            Self::LimitedSpin(max_spin) => limited_spin(place, (max_spin, one_cpu), is_late),
        }
        let hands_off = is_caller && self != Self::Wait;
        let mut spun = false;
        loop {
            if place.look() {
                return (Ended::Ready, Cost { spun });
            }
            spun = true;
            if is_late() {
                return (Ended::TimedOut, Cost { spun });
            }
            if self == Self::Spin {
                busy_wait(place, one_cpu);
                continue;
            }
            if hands_off {
                busy_wait(place, one_cpu);
            }
            // Announces, looks again, sleeps.
            if place.park(Sleep::Block, deadline_ns, None).ready {
                return (Ended::Ready, Cost { spun });
            }
        }
    }
}

/// Figure 9: polls while nothing is there, `MAX_SPIN` times.
fn limited_spin(
    place: &mut impl Place,
    (max_spin, one_cpu): (u32, bool),
    is_late: impl Fn() -> bool,
) {
    let mut spins = 0;
    while !place.look() && spins < max_spin && !is_late() {
        spins += 1;
        match one_cpu {
            true => place.give_way(),
            false => place.poll(POLL_NS),
        }
    }
}

/// Figure 1: a short delay; on one processor a yield.
fn busy_wait(place: &mut impl Place, one_cpu: bool) {
    match one_cpu {
        true => place.give_way(),
        false => place.pause(BUSY_PAUSES),
    }
}
