//! Waiting for room: a slot of the lane, a block of its arena, a reply slot.

use super::{SendRight, ended, waiting};
use crate::error::{Exhausted, SendError};
use crate::link::{Link, tasks};
use crate::options::Waiting;
use crate::port::receiver::park_at;
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_channel::arm;
use handfast_layout::link::LANES;
use handfast_ring::lane::Place as LanePlace;
use handfast_sys::clock;
use handfast_wait::place::{Parked, Place, Sleep, Start};
use handfast_wait::{Ended, word};

const SLOT_LOOK_EVERY: Duration = Duration::from_millis(1);

/// A wait for a lane, where other receivers have all. A lane that has come stays until this is dropped.
#[derive(Default)]
pub(crate) struct LaneWait<'a> {
    since_ns: Option<u64>,
    waits: Option<(&'a Link, u32)>,
}

impl<'a> LaneWait<'a> {
    /// Waits until it is worth another look.
    #[cold]
    pub(crate) fn wait(&mut self, right: &'a SendRight, waiting: Waiting) -> Result<(), SendError> {
        let link = right.link();
        if let Some(failure) = link.failure(right.port()) {
            return Err(failure);
        }
        let now_ns = clock::ticks_ns();
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        // On a busy machine lanes may go round for longer than that, or one that is let go of be on its way.
        let is_patient = match waiting {
            Waiting::Never => false,
            _ => link.map.go_round(since_ns),
        };
        if !is_patient && !link.map.may_come() {
            let limit = LANES.into();
            return Err(SendError::Exhausted(Exhausted {
                what: "lanes to that process, all of which hold messages that it does not take or calls that it does not answer",
                advice: Some(
                    "send to fewer of its ports at once, or see why it does not receive there",
                ),
                limit,
            }));
        }
        if self.waits.is_none() && !matches!(waiting, Waiting::Never) {
            link.map.waits(right.receiver());
            self.waits = Some((link, right.receiver()));
        }
        wait_for_slot(right, waiting)
    }
}

impl Drop for LaneWait<'_> {
    fn drop(&mut self) {
        if let Some((link, receiver)) = self.waits {
            link.map.waits_no_more(receiver);
        }
    }
}

/// Waits until some call of the link has ended. Rare: 16 calls of one lane are outstanding.
#[cold]
pub(crate) fn wait_for_slot(right: &SendRight, waiting: Waiting) -> Result<(), SendError> {
    waiting.deadline()?;
    if waiting.is_over() {
        return Err(SendError::TimedOut);
    }
    let (waiters, freed) = &right.link().waiters.slot_freed;
    let guard = waiters.lock();
    // Slots are freed without a look at waiters, which keeps the fast path free of fences;
    // so this rare wait looks again every so often.
    drop(freed.wait_timeout(guard, SLOT_LOOK_EVERY));
    Ok(())
}

#[cold]
pub(crate) fn wait_for_room(
    right: &SendRight,
    lane: u32,
    len_bytes: usize,
    waiting: Waiting,
) -> Result<(), SendError> {
    let deadline_ns = waiting.deadline()?;
    let mut place = Room {
        right,
        lane,
        len_bytes,
        has_announced: false,
    };
    let (ended, _) =
        waiting::with_waiter(right, |waiter| waiter.wait(&mut place, deadline_ns, false));
    let link = right.link();
    if place.has_announced {
        // Relaxed: this thread has just counted itself off there (E19).
        let others = || link.waiters.parked.of(lane).load(Ordering::Relaxed) > 0;
        arm::leave_space(&link.region, LanePlace::of(link.calls, lane), others);
    }
    // A task may have announced in the same word before this thread did.
    tasks::wake_answered(link);
    match ended {
        Ended::Ready => Ok(()),
        Ended::TimedOut => Err(SendError::TimedOut),
    }
}

/// The room for which a sender waits while its lane is full.
struct Room<'a> {
    right: &'a SendRight,
    lane: u32,
    len_bytes: usize,
    has_announced: bool,
}

impl Place for Room<'_> {
    fn look(&mut self) -> bool {
        let link = self.right.link();
        link.failure(self.right.port()).is_some()
            || ended::is_revoked(self.right)
            // A fault is found again, and reported, by the post that follows.
            || super::lock(self.right, self.lane).producer.has_room(&link.region, self.len_bytes).unwrap_or(true)
    }

    fn park(&mut self, _: Sleep, deadline_ns: Option<u64>, _: Option<Start>) -> Parked {
        let link = self.right.link();
        let space = LanePlace::of(link.calls, self.lane).space();
        // E19 space, sleeping half. AcqRel, here and below: before the last look. A thread that is counted later than another was
        // counted off sees what that one has seen. Leaving half: `arm::leave_space`.
        link.waiters
            .parked
            .of(self.lane)
            .fetch_add(1, Ordering::AcqRel);
        self.right.process().watch_sleepers();
        self.has_announced = true;
        let roused = link.waiters.roused.count();
        word::announce(&link.region, space, word::ASLEEP);
        if !self.look() {
            park_at((link, space), roused, deadline_ns);
        }
        // Other threads may wait for the same lane's room: the word is left to its waker, or to the leaving thread.
        link.waiters
            .parked
            .of(self.lane)
            .fetch_sub(1, Ordering::AcqRel);
        Parked {
            ready: self.look(),
            posted_after_ns: None,
        }
    }
}
