//! How a receiver looks around, goes to sleep, and ends.

use super::state::PassesOn;
use super::{Poller, bells, clearing, diverted, load, pinned, places, upkeep, waiting};
use crate::link::group::Group;
use crate::link::wake::wake_caller;
use core::sync::atomic::Ordering;
use handfast_channel::arm;
use handfast_channel::bell;
use handfast_proto::rota::Active;
use handfast_proto::rota::Rota;
use handfast_sys::clock;
use handfast_wait::word;

/// The port has moved: messages received from now on are passed on, and have not arrived by being received.
pub(crate) fn pass_on(poller: &mut Poller) {
    poller.passes_on = PassesOn::All;
    diverted::say_passes_on(poller, true);
}

/// Gives the lanes back, for a port bound at this receiver later, and answers every call
/// that waits in them as dead.
pub(crate) fn close(poller: &mut Poller) {
    // Lanes that no thread has looked at yet, too.
    clearing::refresh(poller);
    pinned::rests(poller, true);
    let _ = anything_rang(poller);
    load::publish_counts(poller);
    for key in 0..poller.lanes.len() {
        let Some(mut lane) = poller.lanes[key].take() else {
            continue;
        };
        (poller.protocols).refuse_waiting(&poller.process, &lane.link, &mut lane.consumer);
        if poller.passes_on != PassesOn::Nothing {
            // No process has a right any more to the port that has moved.
            lane.consumer.passes_on(&lane.link.region, false);
        }
        for slot in lane.wakes.drain(..) {
            wake_caller(&lane.link, slot);
        }
        if !lane.arm() {
            // Messages that came meanwhile are still for this port. The control thread refuses them, or the next
            // port here does, which hears of them.
            arm::leave_armed(&lane.link.region, lane.consumer.place());
            bell::note(
                &lane.link.region,
                (lane.link.calls.other(), lane.index),
                poller.receiver,
            );
        }
        lane.link.return_consumer(lane.index, lane.consumer);
    }
    poller.active = Active::default();
    poller.waiting.clear();
    poller.rota = Rota::new(poller.clients.cap);
    (poller.lanes, poller.free) = (Vec::new(), Vec::new());
    diverted::end_at(&poller.process, poller.receiver);
    // Threads that find the port before it leaves the list take up no lane any more.
    poller.is_closed = true;
}

/// As [`prepare_sleep`], for a thread, a task or a loop that waits from then on.
pub(crate) fn prepare_to_wait(poller: &mut Poller, how: u32) -> bool {
    let is_prepared = prepare_sleep(poller, how);
    if is_prepared {
        // Under the lock: this was the last look.
        poller.waiting.patience.rests();
    }
    is_prepared
}

/// Looks between two readings of the clock for quiet lanes.
pub(super) const LOOKS_PER_CHECK: u32 = 128;

/// Every few looks, whatever the lanes hold: the bells, and now and then the upkeep.
#[cold]
pub(super) fn look_around(poller: &mut Poller) {
    if poller.looks.count.is_multiple_of(LOOKS_PER_CHECK) {
        upkeep::check_quiet(poller);
    } else {
        // A look may take as long as its message: the dead do not wait for so many.
        clearing::refresh(poller);
    }
    // Acquire: pairs with the Release of the control thread, which does this itself where no thread looks.
    let leavings = poller.process.leavings.load(Ordering::Acquire);
    if leavings != poller.seen.leavings {
        poller.seen.leavings = leavings;
        clearing::leave_lanes(poller);
    }
    bells::hear(poller);
    bells::hear_foreign(poller);
    if poller.rota.has_place() {
        places::fill_places(poller);
    }
    waiting::look_at_waiting(poller);
}

/// Arms every lane and announces a sleep in every bell, then looks at everything once more.
/// `false`: there is something, do not sleep.
pub(crate) fn prepare_sleep(poller: &mut Poller, how: u32) -> bool {
    clearing::refresh(poller);
    // The waiting lanes may be due by now.
    if clearing::is_clearing(poller)
        || waiting::look_at_waiting(poller)
        || poller.rota.waiting() > 0
    {
        return false;
    }
    let now_ns = clock::ticks_ns();
    // The list shrinks under it, and may stop shrinking midway.
    while let Some(key) = poller.active.pop() {
        let Some(lane) = poller.lanes[key].as_mut() else {
            continue;
        };
        let user = lane.link.peer.uid;
        if !lane.arm() {
            poller.active.push(user, key);
            return false;
        }
        poller.rota.quiet(key, now_ns);
        places::rested(poller, key);
    }
    load::publish_load(poller, false);
    load::set_fenceless(poller, false);
    pinned::rests(poller, how == word::DESCRIPTOR);
    load::publish_counts(poller);
    for group in &*poller.groups {
        group.announce(poller.receiver, how);
    }
    if anything_rang(poller) {
        withdraw(poller);
        return false;
    }
    poller.rota.slept();
    true
}

/// Takes the announcements back.
pub(crate) fn withdraw(poller: &mut Poller) {
    if !poller.waiting.is_empty() {
        waiting::wakes(poller);
    }
    for group in &*poller.groups {
        word::withdraw(&group.bells, Group::sleep(poller.receiver));
    }
    bells::hear_foreign_all(poller);
}

/// The scan of the truth: each link's own ready word, which only its peer can clear, and what
/// this process itself may have changed.
pub(super) fn anything_rang(poller: &mut Poller) -> bool {
    bells::any_link_rang(poller) || has_news(poller)
}

/// Whether there is something to receive or to follow besides messages.
pub(super) fn has_news(poller: &Poller) -> bool {
    poller.has_notice()
        || clearing::has_left(poller)
        || waiting::is_settled(poller)
        || bells::have_lists_changed(poller)
        // Behind the count of nudges that the caller has read: a shutdown says so, and nudges after that.
        || poller.process.is_over()
}
