//! The receiver's side of lanes that go round: it lets go of those in which nothing comes any more.

use crate::link::{Link, incoming};
use crate::poller::clearing;
use crate::polling;
use crate::port::ports;
use crate::process::Process;
use core::sync::atomic::Ordering;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::LANES;
use handfast_proto::timers::Timer;
use handfast_ring::{Fault, Rule};
use std::sync::Arc;

/// Control thread of the receiver: takes out of each lane what came for ports that are gone, and says what has been taken. Returns
/// whether some could not be looked at: a thread does at this moment.
pub(crate) fn say_taken(link: &Arc<Link>, process: &Process) -> bool {
    let mut all = true;
    for port in ports::all(process) {
        match polling::try_lock(&port.at) {
            Some(mut poller) => {
                clearing::take_dead(&mut poller, link);
                clearing::publish_heads(&mut poller, Some(link));
                polling::leave(&port.at, poller);
            }
            None => all = false,
        }
    }
    link.incoming.set_asked(!all);
    !all
}

/// Control thread of the receiver: as [`say_taken`], if that was asked for and could not be done.
pub(crate) fn say_taken_again(link: &Arc<Link>, process: &Process) -> bool {
    link.incoming.is_asked() && say_taken(link, process)
}

/// Control thread of the receiver: nothing comes in a lane any more.
pub(crate) fn hear_lane_free(
    link: &Arc<Link>,
    process: &Arc<Process>,
    lane: u8,
) -> Result<(), Fault> {
    if u32::from(lane) >= LANES {
        return Err(Rule::LaneReceiver.broken());
    }
    if !link.incoming.leaves(lane.into()) {
        return Err(Rule::LaneReceiver.broken());
    }
    if leave_lanes(link, process)? {
        // Release: pairs with the Acquire of receivers that look all the time, and do it themselves.
        process.leavings.fetch_add(1, Ordering::Release);
        process.schedule(Timer::FreedLanes);
    }
    Ok(())
}

/// Control thread of the receiver: has receivers let go of lanes in which nothing comes any more. Returns whether some have
/// not: they look at what there is at this moment.
pub(crate) fn leave_lanes(link: &Arc<Link>, process: &Arc<Process>) -> Result<bool, Fault> {
    if link.is_behind() {
        // Later: a peer that says more of a lane before it has heard of it is at fault, one that stood
        // still is not.
        return Ok(link.incoming.leaving().next().is_some());
    }
    for lane in link.incoming.leaving() {
        let has_left = match link.incoming.owner(lane) {
            None => true,
            Some(receiver) => leave_lane(link, process, lane, receiver)?,
        };
        if has_left {
            link.incoming.has_left(lane);
            let lane = lane as u8;
            link.say(ControlMessage::LaneBack { lane });
        }
    }
    Ok(link.incoming.leaving().next().is_some())
}

fn leave_lane(
    link: &Arc<Link>,
    process: &Arc<Process>,
    lane: u32,
    receiver: u32,
) -> Result<bool, Fault> {
    if let Some(port) = ports::at(process, receiver) {
        let Some(mut poller) = polling::try_lock(&port.at) else {
            return Ok(false);
        };
        let left = clearing::leave_lane(&mut poller, link, lane);
        polling::leave(&port.at, poller);
        return left.map(|()| true);
    }
    // No port is bound meanwhile.
    let _binding = ports::binding(process);
    match ports::at(process, receiver) {
        Some(_) => Ok(false),
        None => incoming::disown(link, lane).map(|()| true),
    }
}
