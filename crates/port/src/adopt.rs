//! Taking up the rights that came with a message, and giving back those nobody holds any more.

use crate::again::keep;
use crate::awaited::{Awaited, Outcome};
use crate::descriptors::{take_up, take_up_memory};
use crate::door::strange;
use crate::home;
use crate::introduce::{Named, claim};
use crate::lending::{named_loan, take_up_loan};
use crate::link::{Link, SlotState, control};
use crate::message::Message;
use crate::moving::{refuse, settle_in};
use crate::origin::Origin;
use crate::own::OwnRight;
use crate::passing::ReplyRight;
use crate::paths::Held;
use crate::process::Process;
use crate::receive::Moving;
use crate::reply_slot::ReplySlot;
use crate::right::Right;
use crate::send::{SLOTS_PER_LANE, SendRight};
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_layout::PARTS_MAX;
use handfast_layout::introduction;
use handfast_layout::link::{REPLIES, slot_of};
use handfast_layout::part::{Bound, Part, is_handle, receiver_of};
use handfast_proto::rights::{Handle, Refused, Target, Use};
use handfast_region::Memory;
use handfast_ring::lane::{Place, Unit};
use handfast_ring::{Fault, Rule};
use handfast_sys::socket;
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Releases in one control message.
const RELEASES_MAX: usize = 62;
/// Releases that wait for a peer to read, beyond which no more are taken from the table.
const OWED_MAX: usize = 4096;
/// How long after the last right to a port was dropped that is told: soon, but for many at once.
const GIVE_BACK_NS: u64 = 2_000_000;

/// Rights a peer has given back, which end once these calls' replies have been read.
pub(crate) struct GivenBack {
    after: Vec<(u32, u32)>,
    ending: Vec<Handle>,
}

/// For whom rights are taken up.
#[derive(Clone, Copy)]
pub(crate) enum Whom<'a> {
    /// A receiver, from a lane.
    Receiver,
    /// A caller, whose thread this is, from an answer.
    Caller,
    /// The process behind this link, to which an answer goes on.
    Relay(&'a Link),
    /// Nobody: they are dropped.
    Nobody,
}

/// Makes rights of what describes them, in the order in which they were sent: all, or none and
/// the rule the peer broke. One allocation, for as long as nobody takes the rights out. `false`, of an answer that
/// goes on: not all are known yet, and [`adopt_rest`] must follow.
#[cold]
pub(crate) fn adopt(
    process: &Arc<Process>,
    link: &Arc<Link>,
    message: &mut Message,
    whom: Whom<'_>,
) -> Result<bool, Fault> {
    message.clear();
    adopt_rest(process, link, message, whom)
}

/// As [`adopt`], behind the rights that were made already.
#[cold]
pub(crate) fn adopt_rest(
    process: &Arc<Process>,
    link: &Arc<Link>,
    message: &mut Message,
    whom: Whom<'_>,
) -> Result<bool, Fault> {
    let Some((units, rights)) = message.units_and_rights() else {
        return Ok(true);
    };
    let adopted = adopt_all(process, link, units, (rights, whom));
    if adopted.is_err() {
        rights.clear();
    }
    adopted
}

fn adopt_all(
    process: &Arc<Process>,
    link: &Arc<Link>,
    mut units: &[Unit],
    (rights, whom): (&mut Vec<Right>, Whom<'_>),
) -> Result<bool, Fault> {
    let fault = |rule| Fault { rule, offset: 0 };
    let (mut taken, known) = (0, rights.len());
    while !units.is_empty() {
        let (part, count) = next_part(units, taken).ok_or(fault(Rule::Part))?;
        let (of_part, rest) = units.split_at(count);
        units = rest;
        taken += 1;
        if taken <= known {
            continue;
        }
        // At its place at once, here and below: it is large.
        if let Part::OfSender { handle, port } = part {
            arrive(link, (handle, port))?;
            rights.push(Right::Send(imported(process, link, (handle, port))));
            continue;
        }
        if let Some(named) = named_loan(part) {
            match take_up_loan(process, link, named)? {
                Ok(loan) => rights.push(Right::Loan(loan)),
                Err(exhausted) => rights.push(Right::Lost(exhausted)),
            }
            continue;
        }
        if let Part::Again { number } = part {
            if matches!(whom, Whom::Relay(_)) {
                // To whom may only pass it on everything is told anew: see `Described::goes_on`.
                return Err(fault(Rule::Introduction));
            }
            rights.push(link.take_again(process, number)?);
            continue;
        }
        if let Part::Receive {
            token,
            number,
            name_bytes,
            asks,
        } = part
        {
            let name = (&of_part[1..], name_bytes);
            rights.push(receive(process, link, (token, asks), (number, name))?);
            continue;
        }
        match other(process, link, part, whom)? {
            Some(right) => rights.push(right),
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// The next part after `taken` others, and its units; `None` for what this layout does not know, or when
/// there are too many.
fn next_part(units: &[Unit], taken: usize) -> Option<(Part, usize)> {
    Part::parse(units).filter(|_| taken < PARTS_MAX)
}

/// Any part, out of line. `None`: it is known later.
#[inline(never)]
fn other(
    process: &Arc<Process>,
    link: &Arc<Link>,
    part: Part,
    whom: Whom<'_>,
) -> Result<Option<Right>, Fault> {
    Ok(Some(match part {
        Part::OfSender { handle, port } => Right::Send(import(process, link, (handle, port))?),
        Part::Third {
            vine,
            port,
            exporter,
            number,
            pid,
            keep,
        } => {
            let vine = import(process, link, vine)?;
            let exporter = introduction::process(exporter, pid);
            let what = (exporter, number, port);
            Right::Send(introduced(process, link, vine, (what, keep, whom)))
        }
        Part::Again { number } => link.take_again(process, number)?,
        Part::Home {
            port,
            introducer,
            pid,
            number,
        } => {
            if matches!(whom, Whom::Receiver) {
                let (rule, offset) = (Rule::Part, 0);
                return Err(Fault { rule, offset });
            }
            let number = (introduction::process(introducer, pid), number);
            return Ok(process.come_home(link, (number, port), whom));
        }
        Part::OfReceiver { handle } => own(process, link, handle)?,
        // With its name, by itself.
        Part::Receive { .. } => return Err(fault_of(Rule::Part)),
        Part::Reply { word, generation } => match ReplySlot::passed(link, word, generation)? {
            Some(mut slot) => {
                // The last right to a port there may be dropped first.
                slot.held = Some(Held::new(process, &slot.link));
                Right::Reply(ReplyRight::new(slot))
            }
            None => Right::Dead,
        },
        Part::Descriptor { number } => take_up(process, link, number)?,
        Part::Memory { number, len_bytes } => take_up_memory(process, link, (number, len_bytes))?,
        Part::Loan { .. } => {
            let named = named_loan(part).ok_or(Fault {
                rule: Rule::Part,
                offset: 0,
            })?;
            take_up_loan(process, link, named)?.map_or_else(Right::Lost, Right::Loan)
        }
    }))
}

/// A receive right, with the name of its port.
fn receive(
    process: &Arc<Process>,
    link: &Arc<Link>,
    (token, asks): (u32, bool),
    (number, (units, name_bytes)): (u32, (&[Unit], u8)),
) -> Result<Right, Fault> {
    if name_bytes == 0 {
        return Ok(settle_in(process, link, (token, asks), None));
    }
    let name = Bound::parse(units, name_bytes).ok_or(fault_of(Rule::Part))?;
    let listener = match take_up(process, link, number)? {
        Right::Descriptor(listener) if socket::is_listener(&listener) => listener,
        Right::Descriptor(_) => return Err(fault_of(Rule::Descriptor)),
        lost => {
            refuse(process, link, token);
            return Ok(lost);
        }
    };
    let moving = Moving { name, listener };
    Ok(settle_in(process, link, (token, asks), Some(moving)))
}

fn fault_of(rule: Rule) -> Fault {
    Fault { rule, offset: 0 }
}

/// A right to a port of this process, which the peer has.
fn own(process: &Process, link: &Arc<Link>, handle: Handle) -> Result<Right, Fault> {
    loop {
        let revocations = process.revocations();
        // Whoever names it knows it: nothing is waited for.
        let target = match link.named(process, handle, 0) {
            Named::To(target) => target,
            Named::Dead | Named::Revoked => return Ok(Right::Dead),
            Named::NotYet(_) | Named::Unclaimed | Named::Unknown => {
                return Err(fault_of(Rule::RightHandle));
            }
        };
        // Looked up again as often as this process revokes something meanwhile.
        if let Some(right) = to_target(process, target, revocations) {
            return Ok(right);
        }
    }
}

/// A right of this process to what is its own, which was good when it had revoked so many. `None`: it has revoked
/// another since, perhaps this one.
pub(crate) fn to_target(process: &Process, target: Target, revocations: u64) -> Option<Right> {
    let port = process.port(receiver_of(target.port));
    let vine = process
        .vines
        .get()
        .filter(|vine| vine.port.id == target.port);
    Some(match port.filter(|port| port.id == target.port) {
        // What stands behind it comes home.
        Some(_) if vine.is_some() => vine
            .and_then(|vine| vine.target(target.badge))
            .map_or(Right::Dead, |right| Right::Send((*right).clone())),
        Some(port) => {
            let home = OwnRight::home(port, target, revocations);
            return home.map(Right::Own);
        }
        None => Right::Dead,
    })
}

/// A right to a port of a third process: a direct one if there is a link, or will be.
fn introduced(
    process: &Arc<Process>,
    link: &Arc<Link>,
    vine: SendRight,
    ((exporter, number, port), is_to_stay, whom): (([u8; 20], u64, u32), bool, Whom<'_>),
) -> SendRight {
    // Without a number the exporter was not told.
    if number == 0 || exporter[..16] == process.incarnation {
        return vine.with_origin(Origin::Vine(None));
    }
    if link.is_with(exporter) {
        // A claim would take a lane of this link, and who takes a reply nobody waits for holds one.
        process.decline(link, exporter, number);
        return vine.with_origin(Origin::Vine(None));
    }
    if let Whom::Relay(to) = whom
        && to.is_with(exporter)
    {
        return home::going(process, link, vine, (exporter, number, port));
    }
    let with = process.find_link(|link| link.is_with(exporter));
    let Some(with) = with else {
        return strange(process, link, vine, (exporter, number, port));
    };
    let Some(right) = claim(process, &with, port, (link, number)) else {
        process.decline(link, exporter, number);
        return vine.with_origin(Origin::Vine(None));
    };
    if is_to_stay {
        keep(process, link, number, &right);
    }
    right
}

/// A right to a port of the peer.
pub(crate) fn import(
    process: &Arc<Process>,
    link: &Arc<Link>,
    (handle, port): (Handle, u32),
) -> Result<SendRight, Fault> {
    arrive(link, (handle, port))?;
    Ok(imported(process, link, (handle, port)))
}

fn arrive(link: &Link, (handle, port): (Handle, u32)) -> Result<(), Fault> {
    let arrived = link.imports().arrive(handle, port);
    arrived.map_err(|_| Fault {
        rule: Rule::RightHandle,
        offset: 0,
    })
}

#[inline(always)]
fn imported(process: &Arc<Process>, link: &Arc<Link>, (handle, port): (Handle, u32)) -> SendRight {
    // Relaxed: it is looked at again, under the lock.
    if link.has_moved.load(Ordering::Relaxed) {
        link.arrived_moved(process, handle);
    }
    let (process, link, waiting) = (process.clone(), link.clone(), process.waiting);
    SendRight::of_handle(process, link, port, handle, waiting)
}

impl Link {
    /// A right of this process to a port of the peer is dropped.
    #[cold]
    pub(crate) fn dropped(&self, process: &Process, handle: Handle, lanes: u32) {
        let mut uses = Vec::new();
        let mut left = lanes;
        while left != 0 {
            let lane = left.trailing_zeros();
            left &= left - 1;
            let tail = self.lanes[lane as usize].lock().producer.position();
            uses.push(Use { lane, tail });
        }
        if self.imports().dropped(handle, &uses) && !self.is_down() {
            process.give_back_in(GIVE_BACK_NS);
        }
        self.drop_moved(core::iter::once(handle));
    }

    /// Keeper: gives back the rights nobody here holds. `false`: the peer does not read.
    pub(crate) fn give_back(&self, process: &Process) -> bool {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        // What a peer that does not read is owed stays in the table, where it is counted.
        if owed.len() < OWED_MAX {
            let given = self.imports().give_back(|used| {
                // The peer's own word: who lies about what it has consumed loses its own messages.
                let head = Place::of(self.calls, used.lane).head();
                let head = self.region.load(head, Ordering::Acquire);
                head.wrapping_sub(used.tail).cast_signed() >= 0
            });
            self.drop_moved(given.iter().map(|(handle, _)| *handle));
            // Before the peer hears that: a handle may mean something else then.
            process.forget_told(self, &given);
            owed.extend(given);
        }
        while !owed.is_empty() {
            let count = owed.len().min(RELEASES_MAX);
            let mut bytes = vec![control::RELEASE, 0];
            for (handle, count) in owed.iter().take(count) {
                bytes.extend(handle.to_le_bytes());
                bytes.extend(count.to_le_bytes());
            }
            if socket::send(&self.socket, &bytes, &[]).is_err() {
                return self.is_down();
            }
            owed.drain(..count);
        }
        true
    }

    /// Keeper: the peer gives rights back. They end once the replies have been read that were sent
    /// before: those may have a right in them that comes home.
    pub(crate) fn take_back(
        self: &Arc<Self>,
        process: &Process,
        releases: &[u8],
    ) -> Result<(), Fault> {
        let mut ending = Vec::new();
        let words = releases.as_chunks::<4>().0;
        let words: Vec<_> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        for [handle, count] in words.as_chunks::<2>().0 {
            let claimed = match is_handle(*handle) {
                true => Ok(Some(*handle)),
                false => self.unclaimed(process, *handle),
            };
            let (handle, released) = match claimed {
                Ok(Some(handle)) => (handle, self.exports().release(handle, *count)),
                Ok(None) => continue,
                Err(refused) => (*handle, Err(refused)),
            };
            let is_last = released.map_err(|refused| Fault {
                rule: match refused {
                    Refused::Release => Rule::RightCount,
                    _ => Rule::RightHandle,
                },
                offset: 0,
            })?;
            if is_last {
                ending.push(handle);
            }
        }
        if !ending.is_empty() {
            self.end_later(process, ending);
        }
        Ok(())
    }

    /// Ends rights that have been given back, once the replies that are unread now have been read.
    fn end_later(&self, process: &Process, ending: Vec<Handle>) {
        let after = self.unread_replies(process);
        self.back().push_back(GivenBack { after, ending });
        self.settle(process);
        if self.has_unsettled() {
            process.give_back_in(GIVE_BACK_NS);
        }
    }

    /// Keeper: ends the rights that were given back, if nothing unread stands in the way.
    pub(crate) fn settle(&self, process: &Process) {
        let mut back = self.back();
        while let Some(given) = back.front_mut() {
            given.after.retain(|call| self.is_unread(*call));
            if !given.after.is_empty() {
                break;
            }
            for handle in &given.ending {
                self.finish(process, *handle);
            }
            back.pop_front();
        }
    }

    /// A right about to be sent was not.
    pub(crate) fn retract(&self, process: &Process, handle: Handle) {
        let released = self.exports().release(handle, 1);
        if released.unwrap_or(false) {
            self.end_later(process, vec![handle]);
        }
    }

    fn finish(&self, process: &Process, handle: Handle) {
        let ended = self.exports().finish(handle);
        // Release: pairs with the Acquire of receivers that know what it stood for.
        self.ended.fetch_add(1, Ordering::Release);
        if let Some(ended) = ended {
            process.ended(ended);
        }
    }

    fn back(&self) -> MutexGuard<'_, VecDeque<GivenBack>> {
        self.back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether rights wait to be given back or to end.
    pub(crate) fn has_unsettled(&self) -> bool {
        !self.back().is_empty() || self.imports().has_idle()
    }

    /// Calls that have been answered with rights, which nobody has looked at yet: slot and generation.
    fn unread_replies(&self, process: &Process) -> Vec<(u32, u32)> {
        let calls = self.slots.iter().zip(0..).map(|(slot, index)| {
            // Acquire: as in `is_unread`.
            (index, slot.generation.load(Ordering::Acquire))
        });
        let sets = process.sets_from(self);
        let returns = sets.into_iter().flat_map(|set| {
            (0..REPLIES).map(move |place| {
                let index = slot_of(set, place);
                let generation = Slot::of(self.calls, index).generation(&self.region);
                (index, generation)
            })
        });
        let all = calls.chain(returns);
        all.filter(|call| self.is_unread(*call)).collect()
    }

    fn is_unread(&self, (index, generation): (u32, u32)) -> bool {
        let reply = Slot::of(self.calls, index);
        let is_there =
            || reply.is_answered(&self.region, generation) && reply.has_parts(&self.region);
        match self.slots.get(index as usize) {
            // Acquire, both: whoever has taken the reply has taken up its rights before.
            Some(slot) => {
                slot.generation.load(Ordering::Acquire) == generation
                    && slot.state.load(Ordering::Acquire) != SlotState::FREE
                    && is_there()
            }
            None => generation != 0 && is_there() && !self.returns().has_taken(index, generation),
        }
    }

    /// Whether the outcome of a call that was given up has come, and brings nothing that is to be
    /// taken. Takes nothing: the lock of its lane is held, and rights that come or go may want it.
    pub(crate) fn is_refused(
        self: &Arc<Self>,
        process: &Process,
        index: u32,
        generation: u32,
    ) -> bool {
        let mut awaited = Awaited::new(self.clone(), index, generation);
        if !awaited.follow(process) {
            return true;
        }
        let failure = awaited.failure();
        if !awaited.is_answered() {
            // It may have been moved after it was given up.
            awaited.cancel(process);
            return failure.is_some();
        }
        awaited.slot().is_plain(&awaited.link().region)
    }

    /// Keeper: takes the outcome of a call that was given up, since nobody else will, and drops what
    /// came with it. `false`: it is still to come, elsewhere.
    fn refuse_outcome(
        self: &Arc<Self>,
        process: &Arc<Process>,
        index: u32,
        generation: u32,
    ) -> bool {
        let mut awaited = Awaited::new(self.clone(), index, generation);
        loop {
            let failure = awaited.failure();
            if !awaited.is_answered() {
                // It may have been moved after it was given up.
                awaited.cancel(process);
                return failure.is_some();
            }
            match awaited.take(process, &mut Message::new(), Whom::Nobody) {
                Ok(Outcome::Moved) => {}
                Ok(Outcome::Reply(_) | Outcome::Piece | Outcome::Error(_)) => return true,
                Err(fault) => {
                    awaited.link().poison(fault);
                    process.attention.raise();
                    return true;
                }
            }
        }
    }

    /// Keeper: takes what came in replies to calls that had been given up, since no caller will.
    /// Returns whether there are calls of that kind that have not been answered.
    pub(crate) fn refuse_replies(self: &Arc<Self>, process: &Arc<Process>) -> bool {
        let mut is_open = false;
        for (slot, index) in self.slots.iter().zip(0..) {
            if slot.state.load(Ordering::Acquire) != SlotState::ABANDONED {
                continue;
            }
            let reply = Slot::of(self.calls, index);
            let generation = slot.generation.load(Ordering::Acquire);
            if !reply.is_answered(&self.region, generation) {
                is_open = true;
                continue;
            }
            if reply.is_plain(&self.region) {
                continue;
            }
            // The lock of its claims. It may have been claimed again meanwhile.
            let claims = self.lanes[(index / SLOTS_PER_LANE) as usize].lock();
            let is_still = slot.state.load(Ordering::Acquire) == SlotState::ABANDONED
                && slot.generation.load(Ordering::Acquire) == generation;
            if is_still {
                // Relaxed: under the lock. Nobody claims it meanwhile.
                slot.state.store(SlotState::REFUSED, Ordering::Relaxed);
            }
            drop(claims);
            if !is_still {
                continue;
            }
            let is_over = self.refuse_outcome(process, index, generation);
            is_open |= !is_over;
            let state = match is_over {
                true => SlotState::FREE,
                false => SlotState::ABANDONED,
            };
            // Release: as in `SendRight::free`.
            slot.state.store(state, Ordering::Release);
        }
        is_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_part_is_refused() {
        let part = Part::OfReceiver { handle: 9 };
        let units = &part.to_units().0[..1];
        assert_eq!(next_part(units, PARTS_MAX - 1), Some((part, 1)));
        assert_eq!(next_part(units, PARTS_MAX), None);
    }
}
