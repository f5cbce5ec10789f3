//! The same right of a third process's to the same recipient again (`handfast_proto::introductions::Remembered` says
//! how): this process as introducer and as recipient.

use crate::link::Link;
use crate::link::again::{self, Kept, Key};
use crate::links;
use crate::process::Process;
use crate::right::Right;
use crate::send::{SendRight, ended};
use handfast_layout::control::ControlMessage;
use handfast_proto::introductions::{Came, How};
use handfast_proto::rights::Handle;
use handfast_ring::{Fault, Rule};

pub(crate) fn key_of(right: &SendRight) -> Key {
    (right.link().serial, right.handle())
}

fn right_of(kept: &Kept) -> Option<&SendRight> {
    kept.downcast_ref()
}

/// Introducer: how a right of a third process's goes to the peer.
#[inline]
pub(crate) fn how_to_give(link: &Link, right: &SendRight) -> How {
    match has_arrived(right) {
        true => again::lock(link).told.give(key_of(right)),
        // The provided right comes behind it.
        false => How::Provide { keep: false },
    }
}

/// As [`how_to_give`], of a right that the peer keeps: its number.
#[inline]
pub(crate) fn give_again(link: &Link, right: &SendRight) -> Option<u64> {
    has_arrived(right)
        .then(|| again::lock(link).told.give_again(key_of(right)))
        .flatten()
}

/// Introducer: the right that was to come again was not sent.
pub(crate) fn unsent_again(link: &Link, number: u64) {
    if again::lock(link).told.unsent(number) {
        link.say(ControlMessage::Left { number });
    }
}

/// Recipient: the right that was provided under this number and is kept. `Err`: nothing an honest peer names.
#[inline]
pub(crate) fn take_again(link: &Link, number: u64) -> Result<Right, Fault> {
    let mut again = again::lock(link);
    match again.keeping.again(number) {
        Some(Came::Right(right)) => {
            let right = right_of(right).cloned();
            drop(again);
            let Some(right) = right else {
                return Ok(Right::Dead);
            };
            if ended::is_down(&right) {
                let_go_of_dead(link);
            }
            Ok(Right::Send(right))
        }
        Some(Came::Ended { came }) => {
            link.say(ControlMessage::Leave { number, came });
            Ok(Right::Dead)
        }
        None if link.is_down() => Ok(Right::Dead),
        None => Err(Rule::Introduction.broken()),
    }
}

/// Recipient: rights whose exporters have ended are of no use any more, whether a thread here has them or not. Their
/// numbers are known until the introducer has said that they have left, which may be never.
#[cold]
fn let_go_of_dead(link: &Link) {
    let mut again = again::lock(link);
    let ended = again
        .keeping
        .end_those(|kept| right_of(kept).is_none_or(ended::is_down));
    for (number, came, _) in &ended {
        // Under the lock: in the order in which they come.
        let (number, came) = (*number, *came);
        link.say(ControlMessage::Leave { number, came });
    }
    drop(again);
    ended.into_iter().for_each(|(.., right)| let_go(right));
}

/// Whether all that this thread has sent to the port of `right` has been received.
#[inline]
fn has_arrived(right: &SendRight) -> bool {
    let link = right.link();
    let receiver = right.receiver();
    if let Some(lane) = link.map.known(receiver) {
        let outgoing = link.lanes[lane as usize].lock();
        if outgoing.leads_to == receiver {
            let has_arrived = outgoing.producer.has_arrived(&link.region);
            return has_arrived && !link.map.is_passing(receiver);
        }
    }
    // This thread has sent nothing, or that was long ago.
    link.map.has_arrived_before(receiver)
}

/// Recipient: keeps a right that it has claimed, as its introducer, the peer of `link`, asks.
#[cold]
pub(crate) fn keep(process: &Process, link: &Link, number: u64, right: &SendRight) {
    if link.is_behind() {
        return;
    }
    let mut again = again::lock(link);
    let kept = again.keeping.keep(number, Box::new(right.clone()));
    if kept.is_ok() {
        let by = Some((link.serial, number));
        right.link().imports().keep(right.handle(), by);
        // Under the lock: a thread that finds the right there asks that it leave, and its introducer has heard by then that it is
        // kept.
        link.say(ControlMessage::Kept { number });
    }
    drop(again);
    if kept.is_err() {
        return;
    }
    // Either link may have ended before this was in its table.
    if link.is_down() {
        end_kept(process, link);
    }
    if ended::is_down(right) {
        let_go_of_dead(link);
    }
}

/// Control thread: one of these came.
pub(crate) fn take_again_message(link: &Link, message: ControlMessage<'_>) -> Result<(), Fault> {
    let (number, has_left) = match message {
        ControlMessage::Kept { number } => (number, !again::lock(link).told.kept(number)),
        ControlMessage::Leave { number, came } => {
            (number, again::lock(link).told.leave(number, came))
        }
        ControlMessage::Left { number } => {
            let left = again::lock(link).keeping.left(number);
            left.into_iter().for_each(let_go);
            return Ok(());
        }
        _ => return Ok(()),
    };
    if has_left {
        if link.is_behind() {
            // A peer that asks reads the answer.
            return Err(Rule::Introduction.broken());
        }
        link.say(ControlMessage::Left { number });
    }
    Ok(())
}

/// Control thread: asks whether rights through `link` that are kept and unused may leave. Returns whether some are to be
/// looked at again.
pub(crate) fn leave_unused(process: &Process, link: &Link) -> bool {
    let unused = link.imports().unused();
    let mut again = false;
    for (handle, (by, number)) in unused {
        let Some(introducer) = links::find(process, |link| link.serial == by) else {
            continue;
        };
        let quiet = again::lock(&introducer).keeping.quiet(number);
        match quiet {
            Some(came) => {
                introducer.say(ControlMessage::Leave { number, came });
            }
            None => again |= link.imports().may_be_unused(handle),
        }
    }
    again
}

/// Control thread: rights through `link` that this process has given back are not remembered any more.
pub(crate) fn forget_told(process: &Process, link: &Link, given: &[(Handle, u32)]) {
    if given.is_empty() || !again::was_introduced(link) {
        return;
    }
    for to in links::live(process) {
        let mut again = again::lock(&to);
        for (handle, _) in given {
            again.told.forget((link.serial, *handle));
        }
    }
}

/// Control thread: a link has ended, and with it the rights kept for its peer, and those of its peer.
pub(crate) fn end_kept(process: &Process, link: &Link) {
    let kept = again::lock(link).keeping.end();
    kept.into_iter().for_each(let_go);
    for introducer in links::live(process) {
        let_go_of_dead(&introducer);
    }
}

fn let_go(kept: Kept) {
    let Some(right) = right_of(&kept) else {
        return;
    };
    right.link().imports().keep(right.handle(), None);
}

#[cfg(test)]
mod tests;
