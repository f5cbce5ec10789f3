//! Rights that go home in answers that are only passed on (`relay`): to a port of the process that waits for the
//! answer, which may receive there only when it has it.
//!
//! The process in the middle claims nothing: it names what was provided to it, and that process looks that up;
//! in its lanes, where its receiver has not been yet.

use crate::imported::to_target;
use crate::link::Link;
use crate::message::Whom;
use crate::poller::{Poller, bells, clearing, said};
use crate::port::ports;
use crate::process::Process;
use crate::right::Right;
use crate::send::SETTLE_NS;
use crate::{introduce, polling};
use core::cell::Cell;
use handfast_layout::hello::Process as Name;
use handfast_layout::lane_control::{LANE_CONTROL_BYTES, LaneControl};
use handfast_layout::link::{Kind, LANES, SLOTS};
use handfast_proto::introductions::{Claim, Number, Redeemed};
use handfast_proto::rights::Target;
use handfast_ring::lane::{Header, Inline};
use handfast_sys::clock;
use std::sync::Arc;

/// Most introductions in a row that are followed through lanes to the last one.
const STEPS_MAX: u32 = 8;

/// Slots of lanes that are looked at for the rights of one answer at a time: nobody receives from their ports meanwhile. All lanes of one
/// link twice, so that each right that its introducer itself provides is found in one look, whatever lies before the provision.
const SLOTS_MAX: u32 = 2 * LANES * SLOTS;

/// The slots that may still be looked at for the rights of one answer.
pub(crate) struct Looks {
    left: Cell<u32>,
    /// There were too few.
    are_over: Cell<bool>,
}

impl Looks {
    pub(crate) const fn new() -> Self {
        Self {
            left: Cell::new(SLOTS_MAX),
            are_over: Cell::new(false),
        }
    }

    const fn are_all(&self) -> bool {
        self.left.get() == SLOTS_MAX
    }

    /// Counts one, if any is left.
    fn take(&self) -> Option<()> {
        let left = self.left.get().checked_sub(1);
        self.are_over.set(left.is_none());
        self.left.set(left?);
        Some(())
    }
}

/// The peer of `link` names what `number` has provided to it: a right to `port` of this process. `None`: it
/// is known later. Blocks for a caller only, as long as another thread polls that port without finding
/// what provides it.
pub(crate) fn come_home(
    process: &Arc<Process>,
    link: &Link,
    (number, port): (Number, u32),
    (whom, looks): (Whom<'_>, &Looks),
) -> Option<Right> {
    let is_relay = matches!(whom, Whom::Relay(_));
    if !is_relay {
        // This is the only look: the control thread, which passes answers on, looks again.
        looks.left.set(SLOTS_MAX);
    }
    let is_first = looks.are_all();
    let recipient = link.identity();
    let until_ns = clock::now_ns() + SETTLE_NS;
    loop {
        if let Some(right) = redeem_at_home(process, number, recipient) {
            return Some(right);
        }
        let at = ports::by_id(process, port);
        let Some(at) = at else { break };
        if let Some(mut poller) = polling::try_lock(&at.at) {
            // Nothing is between a lane and the table now.
            let known = redeem_at_home(process, number, recipient);
            let known = known.or_else(|| {
                let right = loop {
                    let revocations = process.revocations.number();
                    let target = foresee(&mut poller, number, recipient, looks)?;
                    // Looked for again as often as this process revokes something meanwhile.
                    if let Some(right) = to_target(process, target, revocations) {
                        break right;
                    }
                };
                // Once: the message that provides it has no effect when it is taken.
                introduce::forgo_provision(process, number, recipient);
                Some(right)
            });
            polling::leave(&at.at, poller);
            if known.is_none() && is_relay && !is_first && looks.are_over.get() {
                // The rights before it have had the looks; it has all of the next time.
                return None;
            }
            return Some(known.unwrap_or(Right::Dead));
        }
        match whom {
            Whom::Relay(_) => return None,
            Whom::Caller if clock::now_ns() < until_ns => clock::nap(),
            _ => break,
        }
    }
    introduce::forgo_provision(process, number, recipient);
    Some(Right::Dead)
}

fn redeem_at_home(process: &Arc<Process>, number: Number, recipient: Name) -> Option<Right> {
    // As often as this process revokes something between the looks.
    let right = loop {
        let revocations = process.revocations.number();
        let mut provisions = introduce::provisions(process);
        let Some((target, _)) = provisions.provided(number, recipient) else {
            return match provisions.redeem(number, recipient) {
                Redeemed::NotYet => None,
                _ => Some(Right::Dead),
            };
        };
        drop(provisions);
        if let Some(right) = to_target(process, target, revocations) {
            break right;
        }
    };
    // After the right that follows it has begun.
    let redeemed = introduce::provisions(process).redeem(number, recipient);
    Some(match redeemed {
        Redeemed::To(ended) => {
            introduce::ended(process, ended);
            right
        }
        // Revoked since, or another thread was faster.
        _ => Right::Dead,
    })
}

/// The right that `number` will provide to `recipient`, by the messages that wait in the lanes: they are
/// looked at, and none is taken. The introducer announces it in its own lane, so no other process can do so
/// in its place.
fn foresee(poller: &mut Poller, number: Number, recipient: Name, looks: &Looks) -> Option<Target> {
    clearing::refresh(poller);
    bells::hear_all(poller);
    provided_ahead(poller, (number, recipient), looks, STEPS_MAX)
}

fn provided_ahead(
    poller: &Poller,
    ((introducer, number), recipient): (Number, Name),
    looks: &Looks,
    steps: u32,
) -> Option<Target> {
    let expected = LaneControl::Provide { number, recipient };
    let is_of_introducer = |link: &Link| link.identity() == introducer;
    let is_it = |(link, header, said): (&Arc<Link>, Header, LaneControl)| {
        (said == expected).then(|| (link.clone(), header.port))
    };
    let (link, word) = said_ahead(poller, looks, is_of_introducer).find_map(is_it)?;
    if let Some(target) = said::target_of(poller, &link, word) {
        return Some(target);
    }
    // Claimed in turn, and that waits, too.
    let claimed = match link.introductions().claims.get(word) {
        Some(Claim::Waiting(waiting)) => Some(waiting.number),
        Some(_) => None,
        None => {
            let is_its = |of: &Link| core::ptr::eq(of, &raw const *link);
            said_ahead(poller, looks, is_its).find_map(|(_, _, said)| match said {
                LaneControl::Claim {
                    word: its,
                    number,
                    introducer,
                } if its == word => Some((introducer, number)),
                _ => None,
            })
        }
    };
    let (claimed, recipient) = (claimed?, link.identity());
    let provided = introduce::provisions(said::process(poller)).provided(claimed, recipient);
    if let Some(target) = provided {
        let (target, _) = target;
        return Some(target).filter(|target| said::is_here(poller, target));
    }
    let steps = steps.checked_sub(1)?;
    provided_ahead(poller, (claimed, recipient), looks, steps)
}

/// Statements about introductions in messages that wait, in the lanes of some links. At most as many slots are looked at as may be: a
/// process with many links, and lanes full of messages, has receivers here wait for no longer.
fn said_ahead<'a>(
    poller: &'a Poller,
    looks: &'a Looks,
    is_one: impl Fn(&Link) -> bool + 'a,
) -> impl Iterator<Item = (&'a Arc<Link>, Header, LaneControl)> {
    let lanes = said::open_lanes(poller).filter(move |(link, _)| is_one(link));
    lanes.flat_map(move |(link, consumer)| {
        let look = move |places| {
            looks.take()?;
            let mut bytes: Inline = [0; _];
            let (header, len_bytes) = consumer.look_ahead(&link.region, places, &mut bytes)?;
            Some((header, bytes, len_bytes))
        };
        (0..SLOTS)
            .map_while(look)
            .filter_map(move |(header, bytes, len_bytes)| {
                let is_one = header.kind == Kind::CONTROL && len_bytes == LANE_CONTROL_BYTES;
                let said = is_one
                    .then(|| LaneControl::parse(&bytes[..LANE_CONTROL_BYTES]))
                    .flatten();
                Some((link, header, said?))
            })
    })
}

#[cfg(test)]
mod tests;
