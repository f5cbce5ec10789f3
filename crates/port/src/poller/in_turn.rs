//! Looking at lanes: one of them, of an overloaded server or not; and those of several users, users in turn, each user's lanes in turn.

use super::{LOOKS_PER_BELL, Poller, bells, idle, places};
use crate::ahead::{self, Progress};
use crate::request::Request;
use handfast_proto::rota::{Key, Verdict};
use handfast_ring::lane::{Header, Unusual};
use handfast_sys::clock;

/// Lanes whose messages wait for the rights they name, looked at between two looks at the bells: each takes as long as
/// a message does.
const PARKED_PER_BELL: u32 = 16;

/// The result of a look at an active lane.
pub(super) enum Look {
    Empty,
    /// A message, whose lane's turn is over.
    Deferred,
    /// A message, taken into the spare one; an unusual one is still to be taken.
    Taken(Result<(Header, usize), Unusual>),
}

/// As [`Poller::next`], of whatever lanes there are.
#[inline(never)]
pub(super) fn next_of_any(poller: &mut Poller) -> Option<Request> {
    match next_in_turn(poller) {
        None => poller.next_other(),
        request => request,
    }
}

/// Whether the message that waits in an active lane of an overloaded server is taken now; its lane is put off if not.
/// `None` without a message.
#[inline(never)]
pub(super) fn asks(poller: &mut Poller, key: Key) -> Option<Verdict> {
    let lane = poller.lanes[key].as_ref()?;
    if !lane.consumer.is_ready(&lane.link.region.view()) {
        return None;
    }
    let verdict = poller.rota.request(key, clock::ticks_ns());
    if verdict == Verdict::Defer {
        places::defer(poller, key);
        poller.active.found();
    }
    Some(verdict)
}

/// Looks at an active lane, while the rota is calm or not.
#[inline(always)]
pub(super) fn look_at(poller: &mut Poller, key: Key, is_calm: bool) -> Look {
    if !is_calm {
        match asks(poller, key) {
            None => return Look::Empty,
            Some(Verdict::Serve) => {}
            Some(Verdict::Defer) => return Look::Deferred,
        }
    }
    let Some(lane) = poller.lanes[key].as_mut() else {
        return Look::Empty;
    };
    let region = lane.link.region.view();
    let usual = lane.usual();
    let taken = lane.consumer.poll(&region, &mut poller.spare, usual);
    taken.map_or(Look::Empty, Look::Taken)
}

/// Copies what is there of one long message that is not sent yet, in the lane of the last message, which may be asleep, or in an active lane
/// of the user whose turn it is. The message, if it comes soon; if nothing comes of it, nobody looks again before the next long message.
#[cold]
pub(super) fn copy_ahead(poller: &mut Poller) -> Option<Request> {
    poller.looks.goes_on = false;
    let (lanes, _) = poller.active.front();
    let others = lanes.iter().filter(|key| **key != poller.last);
    let looks = [&poller.last].into_iter().chain(others).map(|key| {
        let lane = poller.lanes.get(*key).and_then(Option::as_ref);
        lane.map_or(Progress::Nothing, |lane| {
            ahead::look(&lane.link, lane.index, 0)
        })
    });
    let mut looks = looks.into_iter();
    let look = looks.find(|look| *look != Progress::Nothing)?;
    drop(looks);
    let found = match look {
        Progress::Nothing => return None,
        Progress::GoesOn => {
            poller.looks.goes_on = true;
            return None;
        }
        Progress::InVain => None,
        Progress::ComesSoon => ahead::await_soon(|| {
            bells::hear(poller);
            next_in_turn(poller)
        }),
    };
    poller.looks.long &= found.is_some();
    found
}

/// Whether the last look has copied bytes of a long message whose sender goes on: then the next look is not to wait for a sleep.
pub(crate) const fn is_copying(poller: &Poller) -> bool {
    poller.looks.goes_on
}

/// The same, once: a look that does not get so far says nothing of it.
pub(crate) const fn take_copying(poller: &mut Poller) -> bool {
    core::mem::replace(&mut poller.looks.goes_on, false)
}

/// Makes a waiter active, if there is a place. Time alone makes one now and then, and the clock is not read in each look.
pub(super) fn admit_due(poller: &mut Poller) -> Option<Request> {
    match poller.rota.may_admit() || poller.looks.count.is_multiple_of(LOOKS_PER_BELL) {
        true => places::admit(poller),
        false => None,
    }
}

/// The next message of an active lane.
#[inline]
pub(super) fn next_in_turn(poller: &mut Poller) -> Option<Request> {
    poller.make_room();
    let mut parked = 0;
    poller.active.begin();
    while let Some(key) = poller.active.look() {
        let is_calm = poller.rota.is_calm();
        let taken = match look_at(poller, key, is_calm) {
            Look::Empty => continue,
            // The next look goes on.
            Look::Deferred => return places::admit(poller),
            Look::Taken(taken) => taken,
        };
        let request = match taken {
            Ok((header, len_bytes)) => poller.taken(key, header, len_bytes),
            Err(Unusual) => match poller.take_unusual(key) {
                None if poller.has_parked() => {
                    parked += 1;
                    if parked % PARKED_PER_BELL == 0 {
                        // However many there are.
                        idle::look_around(poller);
                    }
                    continue;
                }
                taken => taken,
            },
        };
        poller.active.found();
        let (lanes, next) = poller.active.front();
        let next = lanes
            .get(next)
            .and_then(|next| poller.lanes[*next].as_ref());
        if let Some(next) = next.filter(|_| poller.active.len() > 1) {
            // The next lane's line comes while this one's message is worked on.
            next.consumer.prefetch(&next.link.region);
        }
        return request;
    }
    None
}
