//! Introductions at a receiver: statements about them in its lanes, and messages that wait for the rights they
//! name.

use super::diverted::Sender;
use super::patience::UNCLAIMED_NS;
use super::state::Awaits;
use super::{Poller, diverted, lane, pinned, places, through};
use crate::link::Link;
use crate::link::introductions::Named;
use crate::process::Process;
use crate::request::{self, Request};
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::Kind;
use handfast_layout::link::LANES;
use handfast_layout::part::is_handle;
use handfast_proto::rights::Target;
use handfast_proto::rota::Key;
use handfast_ring::lane::Consumer;
use handfast_ring::lane::Header;
use std::sync::Arc;

/// Until when the message in a lane waits for the right it names: the provision may not have come yet. `None`: it does not
/// wait, or has waited for long enough.
pub(super) fn until(poller: &mut Poller, key: Key) -> Option<u64> {
    let lane = poller.lanes[key].as_ref()?;
    // A fault is told of when it is taken.
    let (header, _) = lane.consumer.peek(&lane.link.region).ok()?;
    until_by(poller, key, header)
}

/// As [`until`], of the message with this header.
#[cold]
pub(super) fn until_by(poller: &mut Poller, key: Key, header: Header) -> Option<u64> {
    let word = header.port;
    let (is_known, has_none) = (is_handle(word), poller.diverted.is_empty());
    if is_known && has_none || header.kind == Kind::CONTROL && word == 0 {
        return None;
    }
    let now_ns = poller.waiting.patience.look();
    let room = (!has_none).then(|| diverted::until(poller, key, header, now_ns));
    let (until_ns, awaits) = match room.flatten() {
        Some(until_ns) => (Some(until_ns), Awaits::Room),
        None if is_known => return None,
        None => {
            let link = poller.lanes[key].as_ref()?.link.clone();
            match poller.named(&link, word, now_ns) {
                // The claim itself ends that.
                Named::NotYet(until_ns) => (Some(until_ns), Awaits::Provision),
                Named::Unclaimed => {
                    let until_ns = unclaimed_until(poller, &link, key, now_ns);
                    (Some(until_ns), Awaits::Claim)
                }
                _ => (None, Awaits::Claim),
            }
        }
    };
    let lane = poller.lanes[key].as_mut()?;
    lane.awaits = awaits;
    // Each might wait as long again.
    let ends_ns = (lane.link.is_down()).then(|| {
        *lane
            .ends_ns
            .get_or_insert(now_ns.saturating_add(UNCLAIMED_NS))
    });
    // Kept when it has passed: nothing begins to wait again that has been looked at twice.
    lane.until_ns = until_ns.map(|until_ns| until_ns.min(ends_ns.unwrap_or(until_ns)));
    lane.until_ns.filter(|until_ns| now_ns <= *until_ns)
}

/// Until when a message waits for the claim of the right it names: the claim may lie behind messages that wait in another
/// lane of its sender.
fn unclaimed_until(poller: &Poller, link: &Arc<Link>, key: Key, now_ns: u64) -> u64 {
    let own = poller.lanes[key].as_ref().and_then(|lane| lane.until_ns);
    let others = (0..LANES).filter_map(|index| pinned::known_key(poller, link, index));
    let others = others.filter_map(|key| poller.lanes[key].as_ref());
    let others = others.filter(|lane| lane.waits && lane.awaits != Awaits::Claim);
    let last = others.filter_map(|lane| lane.until_ns).max();
    let behind = last.map_or(0, |until_ns| until_ns.saturating_add(UNCLAIMED_NS));
    own.unwrap_or(now_ns + UNCLAIMED_NS).max(behind)
}

/// Links whose lanes may hold messages for this port, and where they lie.
pub(crate) fn open_lanes(poller: &Poller) -> impl Iterator<Item = (&Arc<Link>, &Consumer)> {
    let lanes = poller.lanes.iter().flatten();
    let open = lanes.filter(|lane| !lane.link.is_cut());
    open.map(|lane| (&*lane.link, &lane.consumer))
}

pub(crate) const fn process(poller: &Poller) -> &Arc<Process> {
    &poller.process
}

/// Whether this is a right to a port whose messages come here.
pub(crate) fn is_here(poller: &Poller, target: &Target) -> bool {
    target.port == poller.port
        || through::beside(&poller.process, poller.receiver, target.port).is_some()
}

/// The right that `word` stands for there, if that is one to a port whose messages come here.
pub(crate) fn target_of(poller: &Poller, link: &Arc<Link>, word: u32) -> Option<Target> {
    match poller.named(link, word, 0) {
        Named::To(target) => Some(target).filter(|target| is_here(poller, target)),
        _ => None,
    }
}

/// Handles a statement in a lane about introductions.
pub(super) fn said(poller: &mut Poller, key: Key, header: Header) -> Option<Request> {
    let now_ns = poller.waiting.patience.look();
    let lane = poller.lanes[key].as_mut()?;
    if let Some(LaneControl::Mark { lanes, number }) = LaneControl::parse(poller.spare.bytes()) {
        let said = (&*lane.link, header, poller.port);
        let mark = (poller.protocols).marked(&poller.process, said, (lanes, number));
        if lane.consumer.publish_due(&lane.link.region) {
            lane::wake_for_room(&lane.link, lane.consumer.place());
        }
        return match mark {
            Ok(Some(mark)) if mark.port == poller.port => Some(request::marked(mark)),
            Ok(Some(mark)) => {
                // Its trail has ended where it comes back.
                let sender = Some(Sender::of(&mark.link));
                let _ = through::divert(poller, (mark.port, sender), request::marked(mark));
                poller.looks.again = true;
                None
            }
            Ok(None) => {
                poller.looks.again = true;
                None
            }
            Err(fault) => places::poison(poller, key, fault),
        };
    }
    let said = (&*lane.link, header, poller.spare.bytes());
    let heard = poller.protocols.hear_said(&poller.process, said, now_ns);
    if lane.consumer.publish_due(&lane.link.region) {
        lane::wake_for_room(&lane.link, lane.consumer.place());
    }
    poller.looks.again = true;
    match heard {
        Ok(()) => None,
        Err(fault) => places::poison(poller, key, fault),
    }
}
