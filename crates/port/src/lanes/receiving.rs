//! The receiver's side of lanes that go round: it lets go of those in which nothing comes any more.

use crate::link::Link;
use crate::process::Process;
use core::sync::atomic::Ordering;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::LANES;
use handfast_proto::timers::Timer;
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_ring::{Fault, Rule};
use std::sync::Arc;

impl Link {
    /// Keeper of the receiver: takes out of each lane what came for ports that are gone, and says what has been taken. Returns
    /// whether some could not be looked at: a thread does at this moment.
    pub(crate) fn say_taken(self: &Arc<Self>, process: &Process) -> bool {
        let mut all = true;
        for port in process.all_ports() {
            match port.try_lock() {
                Some(mut poller) => {
                    poller.take_dead(self);
                    poller.publish_heads(self);
                    port.leave(poller);
                }
                None => all = false,
            }
        }
        self.incoming.set_asked(!all);
        !all
    }

    /// Keeper of the receiver: as [`Self::say_taken`], if that was asked for and could not be done.
    pub(crate) fn say_taken_again(self: &Arc<Self>, process: &Process) -> bool {
        self.incoming.is_asked() && self.say_taken(process)
    }

    /// Keeper of the receiver: nothing comes in a lane any more.
    pub(crate) fn hear_lane_free(
        self: &Arc<Self>,
        process: &Arc<Process>,
        lane: u8,
    ) -> Result<(), Fault> {
        if u32::from(lane) >= LANES {
            return Err(Rule::LaneReceiver.broken());
        }
        if !self.incoming.leaves(lane.into()) {
            return Err(Rule::LaneReceiver.broken());
        }
        if self.leave_lanes(process)? {
            // Release: pairs with the Acquire of receivers that look all the time, and do it themselves.
            process.leavings.fetch_add(1, Ordering::Release);
            process.schedule(Timer::FreedLanes);
        }
        Ok(())
    }

    /// Keeper of the receiver: has receivers let go of lanes in which nothing comes any more. Returns whether some have
    /// not: they look at what there is at this moment.
    pub(crate) fn leave_lanes(self: &Arc<Self>, process: &Arc<Process>) -> Result<bool, Fault> {
        if self.is_behind() {
            // Later: a peer that says more of a lane before it has heard of it is at fault, one that stood
            // still is not.
            return Ok(self.incoming.leaving().next().is_some());
        }
        for lane in self.incoming.leaving() {
            let has_left = match self.incoming.owner(lane) {
                None => true,
                Some(receiver) => self.leave_lane(process, lane, receiver)?,
            };
            if has_left {
                self.incoming.has_left(lane);
                let lane = lane as u8;
                process.say(self, ControlMessage::LaneBack { lane });
            }
        }
        Ok(self.incoming.leaving().next().is_some())
    }

    fn leave_lane(
        self: &Arc<Self>,
        process: &Arc<Process>,
        lane: u32,
        receiver: u32,
    ) -> Result<bool, Fault> {
        if let Some(port) = process.port(receiver) {
            let Some(mut poller) = port.try_lock() else {
                return Ok(false);
            };
            let left = poller.leave_lane(self, lane);
            port.leave(poller);
            return left.map(|()| true);
        }
        // No port is bound meanwhile.
        let _binding = process.binding.lock();
        match process.port(receiver) {
            Some(_) => Ok(false),
            None => self.disown(lane).map(|()| true),
        }
    }

    /// No receiver has the lane from now on, of which none holds the consumer.
    pub(crate) fn disown(&self, lane: u32) -> Result<(), Fault> {
        let mut is_empty = true;
        self.with_consumer(lane, |consumer| {
            is_empty = !consumer.is_ready(&self.region);
        });
        if !is_empty {
            return Err(Rule::LaneReceiver.broken());
        }
        self.incoming.disown(lane);
        Ok(())
    }

    /// Whether the peer's lane leads to this receiver, as far as the peer says: a ring may come late, when it leads elsewhere.
    pub(crate) fn leads_to(&self, lane: u32, receiver: u32) -> bool {
        let place = Place::of(self.calls.other(), lane);
        // Relaxed: before the ring (E3); or, where that comes late, before the word that the lane is free.
        let word = self.region.load(place.receiver(), Ordering::Relaxed);
        word == 0 || word == receiver + 1
    }
}
