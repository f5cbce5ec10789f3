//! Which right a message came through.

use super::diverted::{self, DivertedPorts, Sender};
use super::lane::NO_RIGHT;
use super::state::PassesOn;
use super::{Poller, Protocols};
use crate::link::Link;
use crate::link::introductions::Named;
use crate::message::Message;
use crate::port::{Port, ports};
use crate::process::Process;
use crate::request::Request;
use crate::seal::Seal;
use core::sync::atomic::Ordering;
use handfast_layout::link::{Kind, REVOKED};
use handfast_layout::part::{is_handle, is_member, receiver_of};
use handfast_proto::rota::Key;
use handfast_ring::lane::Header;
use handfast_ring::{Fault, Rule};
use std::sync::Arc;

/// The meaning of the right that a message came through.
pub(super) enum Through {
    To(Seal),
    /// As [`Self::To`], a send-once right, which is used once the message has been taken, or a right to a port that has moved.
    Rare(Seal),
    /// The right leads nowhere: the bytes of a reply of kind [`Kind::DeadPort`] to it.
    Dead(&'static [u8]),
}

/// Looks up the right that the message just taken came through, unless it is the lane's last one.
#[cold]
pub(super) fn look_up(poller: &mut Poller, key: Key, header: Header) -> Result<Through, Fault> {
    let Some(lane) = poller.lanes[key].as_mut() else {
        return Ok(Through::Dead(&[]));
    };
    let offset = lane.consumer.place().head();
    let rule = Rule::RightHandle;
    // Together with the seal it vouches for, or not at all.
    lane.word = NO_RIGHT;
    lane.ended = lane.link.rights.ended.load(Ordering::Acquire);
    let link = &lane.link;
    let seal = match named((poller.protocols, &poller.process), link, header.port, 0) {
        Named::To(target) if target.port == poller.port => Seal::of(target),
        Named::To(target) => match beside(&poller.process, poller.receiver, target.port) {
            Some(port) => match &port.once {
                None => match diverted::of_port(&poller.process, target.port) {
                    None => Seal::of_member(target),
                    // It is no lane's usual right.
                    Some(_) => {
                        lane.seal = Seal::of_member(target);
                        return Ok(Through::Rare(lane.seal));
                    }
                },
                // It is no lane's usual right.
                Some(once) if !once.is_used() => {
                    lane.seal = Seal::of_once(target);
                    return Ok(Through::Rare(lane.seal));
                }
                Some(_) => return Ok(Through::Dead(&[])),
            },
            None => return Ok(Through::Dead(&[])),
        },
        Named::Dead => return Ok(Through::Dead(&[])),
        Named::Revoked => return Ok(Through::Dead(REVOKED)),
        Named::Trail(_) | Named::NotYet(_) | Named::Unclaimed | Named::Unknown => {
            return Err(Fault { rule, offset });
        }
    };
    (lane.word, lane.seal) = (header.port.into(), seal);
    Ok(Through::To(lane.seal))
}

/// As [`Poller::taken`], of a message that leads nowhere.
#[cold]
#[inline(never)]
pub(super) fn taken_dead(
    poller: &mut Poller,
    key: Key,
    (header, len_bytes): (Header, usize),
    why: &[u8],
) -> Option<Request> {
    let request = match header.kind {
        Kind::PASSED => poller.taken_passed(key, header, len_bytes, Seal::default()),
        _ => poller.taken(key, header, len_bytes),
    }?;
    refuse(poller, request, why)
}

/// As [`Poller::taken`], through a send-once right, which this uses up, or for a port that has moved.
#[cold]
#[inline(never)]
pub(super) fn taken_rare(
    poller: &mut Poller,
    key: Key,
    (header, len_bytes): (Header, usize),
    seal: Seal,
) -> Option<Request> {
    let lane = poller.lanes[key].as_ref();
    let sender = lane.map(|lane| Sender::of(&lane.link));
    if let Some(lane) = lane.filter(|_| !seal.is_once()) {
        // It has not arrived by that: a right to the port that comes again may not overtake it.
        lane.consumer.passes_on(&lane.link.region, true);
        if poller.passes_on == PassesOn::Nothing {
            poller.passes_on = PassesOn::Diverted;
        }
    }
    let request = match header.kind {
        Kind::PASSED => poller.taken_passed(key, header, len_bytes, seal),
        _ => poller.taken(key, header, len_bytes),
    }?;
    if let Some(port) = seal.member() {
        return divert(poller, (port, sender), request);
    }
    let port = seal
        .once()
        .and_then(|port| ports::by_id(&poller.process, port));
    if let Some(once) = port.as_ref().and_then(|port| port.once.as_ref()) {
        once.set_used();
    }
    Some(request)
}

/// Answers a message for a port that has ended, or by a right that was revoked.
#[cold]
pub(super) fn refuse(poller: &mut Poller, request: Request, why: &[u8]) -> Option<Request> {
    diverted::end(request, why);
    poller.looks.again = true;
    None
}

/// A message or a mark of a sender, or a notice, for a port of this receiver. It comes back where the port has not moved.
#[cold]
pub(super) fn divert(
    poller: &mut Poller,
    (port, sender): (u32, Option<Sender>),
    request: Request,
) -> Option<Request> {
    if let Some(diverted) = diverted::of_port(&poller.process, port) {
        poller.looks.again = true;
        let lost = diverted.push(request, sender).err()?;
        return refuse(poller, lost, &[]);
    }
    // A port whose trail has just ended has ended before that; a send-once right's, before its notice.
    let is_there = request.seal().is_once() || ports::by_id(&poller.process, port).is_some();
    match is_there {
        true => Some(request),
        false => refuse(poller, request, &[]),
    }
}

/// See [`Protocols::adopt`]: the parts of a message by this right to this receiver. It may be diverted and go on to another process.
#[cold]
pub(super) fn adopt_rest(
    (protocols, process, diverted): (&dyn Protocols, &Arc<Process>, &DivertedPorts),
    (link, word, receiver): (&Arc<Link>, u32, u32),
    message: &mut Message,
) -> Result<(), Fault> {
    let port = || match named((protocols, process), link, word, 0) {
        Named::To(target) => diverted::of_port(process, target.port),
        _ => None,
    };
    let stays = diverted.is_empty() || port().is_none();
    protocols.adopt(process, (link, stays.then_some(receiver)), message)
}

/// The port with this number, where it shares this receiver.
pub(super) fn beside(process: &Process, receiver: u32, port: u32) -> Option<Arc<Port>> {
    let is_its = is_member(port) && receiver_of(port) == receiver;
    is_its.then(|| ports::by_id(process, port)).flatten()
}

/// As [`Poller::named`], where a lane of the poller is at work.
pub(super) fn named(
    (protocols, process): (&dyn Protocols, &Process),
    link: &Arc<Link>,
    word: u32,
    now_ns: u64,
) -> Named {
    match is_handle(word) {
        true => Named::of_handle(link, word),
        false => protocols.claimed(link, process, word, now_ns),
    }
}
