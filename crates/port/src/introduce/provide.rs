//! Providing: the introducer says to the exporter which right another process may claim.

use super::attenuated::attenuated;
use super::{CLAIM_MOVED_NS, CLAIM_NS, OF_MOVED, OVERDUE_NS, UNHEARD_MAX};
use crate::introduce::{self, ends};
use crate::link::introductions::Named;
use crate::link::{Link, doorbell, lanes, revoked};
use crate::links;
use crate::port::{ONCE_MOVED_MAX, Once, Port, exported, notice, ports};
use crate::process::Process;
use crate::send::{SendRight, claimed, life, route};
use core::sync::atomic::Ordering;
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::Kind;
use handfast_layout::part::{is_member, receiver_of};
use handfast_proto::introductions::{Claim, Nothing, Number, Waiting};
use handfast_proto::rights::{Handle, Target};
use handfast_proto::timers::Timer;
use handfast_ring::lane::Header;
use handfast_ring::{Fault, Rule};
use handfast_sys::{clock, cpu};
use std::sync::Arc;

/// Introducer: a statement made to an exporter.
pub(crate) struct Provided {
    exporter: Arc<Link>,
    pub(crate) number: u64,
}

impl Provided {
    /// Tells the exporter of `right` that the peer of `to` gets one like it. `None`: there was no room
    /// to do so at once.
    pub(crate) fn say(process: &Process, right: &SendRight, to: &Link) -> Option<Self> {
        let number = process.next_provision();
        Self::say_as(number, right, to)
    }

    /// As [`Self::say`], under a number of which the recipient knows already.
    pub(crate) fn say_as(number: u64, right: &SendRight, to: &Link) -> Option<Self> {
        let recipient = to.identity();
        let said = LaneControl::Provide { number, recipient };
        if claimed::is_held(right) {
            return None;
        }
        let exporter = right.link();
        // Claims come to this one of all the receivers that are sent to.
        let receiver = receiver_of(right.port());
        let lane = lanes::to(exporter, receiver)?;
        // Behind a mark its name may mean nothing any more.
        let stays = || !route::has_moved(right);
        say_in_lane(
            exporter,
            (lane, receiver),
            (right.handle(), 0, 0),
            said,
            stays,
        )?;
        life::uses(right, lane);
        let exporter = exporter.clone();
        let mut provided = to.introductions();
        if provided.unheard.len() == UNHEARD_MAX {
            provided.unheard.pop_front();
        }
        // A thread that ends its link takes it out, under this lock.
        if !exporter.is_down() {
            provided
                .unheard
                .push_back((Arc::downgrade(&exporter), number));
        }
        drop(provided);
        Some(Self { exporter, number })
    }

    /// The recipient was not told.
    pub(crate) fn take_back(self) {
        introduce::void(&self.exporter, self.number);
    }
}

/// Posts to a lane for `receiver`, by a right and with a reply right, if there is room at once, and `may` says
/// so under the lane's lock.
pub(crate) fn say_in_lane(
    link: &Link,
    (lane, receiver): (u32, u32),
    (word, reply, generation): (u32, u32, u32),
    said: LaneControl,
    may: impl FnOnce() -> bool,
) -> Option<()> {
    let header = Header {
        kind: Kind::CONTROL,
        port: word,
        reply,
        generation,
        units: 0,
        cpu: cpu::recent(),
    };
    let mut outgoing = link.lanes[lane as usize].lock();
    if outgoing.leads_to != receiver || !may() {
        return None;
    }
    let region = link.region.view();
    let posted = outgoing.producer.post(&region, header, &said.encode());
    // Its word may name a right to another port.
    outgoing.named = outgoing.producer.position();
    drop(outgoing);
    posted.ok()?;
    doorbell::ring(link, lane, receiver);
    Some(())
}

/// Exporter: a statement in a lane of the peer's, to a port at which it is this late, or to a receiver where a
/// port has been.
pub(crate) fn hear_said(
    link: &Arc<Link>,
    process: &Process,
    (header, bytes): (Header, &[u8]),
    bound_now_ns: Option<u64>,
) -> Result<(), Fault> {
    let is_bound = bound_now_ns.is_some();
    let now_ns = bound_now_ns.unwrap_or_else(clock::ticks_ns);
    match LaneControl::parse(bytes).ok_or(Rule::Introduction.broken())? {
        LaneControl::Provide { number, recipient } => {
            let number = (link.identity(), number);
            let target = (header.port, now_ns, is_bound);
            provide(link, process, number, recipient, target)?;
            has_provided(link, process, number, recipient);
            Ok(())
        }
        LaneControl::Attenuate { word, mask } => {
            let claim = attenuated(link, process, header.port, (mask, bound_now_ns));
            let claim = claim.ok_or(Rule::Introduction.broken())?;
            #[cfg(test)]
            introduce::tests::between();
            introduce::answer_claim(link, claim, (header.reply, header.generation));
            let entered = introduce::enter_claim(link, process, word, claim)?;
            revoked::tell_if_in_vain(link, word, entered);
            Ok(())
        }
        // For a port that has moved, the poller takes the mark. Here its new home has ended since, and the
        // port with it.
        LaneControl::Mark { .. } if is_bound => Err(Rule::Introduction.broken()),
        LaneControl::Mark { .. } => Ok(()),
        LaneControl::Mint {
            word,
            badge,
            permissions,
            is_once,
        } => {
            let claim = match own_port(link, process, header.port, now_ns)? {
                Some(port) if is_once => mint_once(link, &port, badge),
                Some(port) => {
                    let target = Target::full(port.id, badge).attenuated(permissions);
                    match exported::export_to_trail(link, &port, target) {
                        Some(granted) => granted.map_or(Claim::Dead, Claim::Granted),
                        None => Claim::Revoked,
                    }
                }
                None => Claim::Dead,
            };
            introduce::answer_claim(link, claim, (header.reply, header.generation));
            let entered = introduce::enter_claim(link, process, word, claim)?;
            revoked::tell_if_in_vain(link, word, entered);
            Ok(())
        }
        LaneControl::Told { number } => {
            let port = own_port(link, process, header.port, now_ns)?;
            match port.is_none_or(|port| notice::hear_of_death(&port, number)) {
                true => Ok(()),
                false => Err(Rule::Introduction.broken()),
            }
        }
        LaneControl::Claim {
            word,
            number,
            introducer,
        } => {
            let reply = (header.reply, header.generation);
            hear_claim(link, process, (word, (introducer, number)), reply, now_ns)
        }
    }
}

/// Exporter: the peer claims by a word what was provided to it, or will be.
fn hear_claim(
    link: &Arc<Link>,
    process: &Process,
    (word, number): (u32, Number),
    reply: (u32, u32),
    now_ns: u64,
) -> Result<(), Fault> {
    let limit_ns = match number.1 & OF_MOVED {
        0 => CLAIM_NS,
        _ => CLAIM_MOVED_NS,
    };
    let waiting = Waiting {
        number,
        until_ns: now_ns + limit_ns,
        overdue_ns: clock::ticks_ns() + limit_ns + OVERDUE_NS,
        reply,
    };
    let one = link.redeeming();
    let claim = introduce::redeem(link, process, waiting, now_ns);
    let entered = introduce::enter_claim(link, process, word, claim)?;
    drop(one);
    if matches!(claim, Claim::Waiting(_)) {
        // Its recipient may send nothing by it, and waits for an answer.
        process.schedule(Timer::Provisions);
    }
    revoked::tell_if_in_vain(link, word, entered);
    introduce::granted_anew(link, process, claim);
    Ok(())
}

/// New home: the right of the old one in the place of a send-once right that was made there.
fn mint_once(link: &Link, port: &Port, badge: u64) -> Claim {
    // A port that shares a receiver has none: its old home would make them for that receiver.
    if is_member(port.id) {
        return Claim::Dead;
    }
    // Relaxed: a count.
    let may = port.once_came.fetch_add(1, Ordering::Relaxed) < ONCE_MOVED_MAX;
    let once = may.then(|| ports::add_member(port, Some(Once::new(badge))));
    let Some(Ok(once)) = once else {
        notice::tell_unused(port, badge);
        return Claim::Dead;
    };
    notice::ask_no_senders(&once);
    match exported::export(link, &once, Target::full(once.id, badge)) {
        Ok(handle) => Claim::Granted(handle),
        Err(_) => {
            ports::remove_member(&once);
            notice::tell_unused(port, badge);
            Claim::Dead
        }
    }
}

/// Exporter: the port of a right that only its old home has: the peer, which has sent it here. `None`: it has ended.
fn own_port(
    link: &Arc<Link>,
    process: &Process,
    name: Handle,
    now_ns: u64,
) -> Result<Option<Arc<Port>>, Fault> {
    match introduce::named(link, process, name, now_ns) {
        Named::Trail(port) => Ok(ports::by_id(process, port)),
        // Said before the peer had heard of the end.
        Named::Revoked => Ok(None),
        _ => Err(Rule::Introduction.broken()),
    }
}

/// Exporter: whether no port moves there. Rights would become others on the peer's word: those of the vine in circles, and this process's
/// own, to a port that has not moved here, so that what the peer sends counts as this process's.
fn moves_nowhere(process: &Process, port: u32, recipient: &[u8; 20]) -> bool {
    let is_own = recipient[..16] == process.incarnation;
    ports::is_vine(process, port) || is_own && ports::is_native(process, port)
}

/// Exporter: the peer provides `recipient` with the right of this name.
fn provide(
    link: &Arc<Link>,
    process: &Process,
    number: Number,
    recipient: [u8; 20],
    (name, now_ns, is_bound): (Handle, u64, bool),
) -> Result<(), Fault> {
    loop {
        let revocations = process.revocations.number();
        let target = match introduce::named(link, process, name, now_ns) {
            Named::To(target)
                if number.1 & OF_MOVED != 0 && moves_nowhere(process, target.port, &recipient) =>
            {
                return Err(Rule::Introduction.broken());
            }
            Named::To(target) if introduce::added(process, target) => Ok(target),
            Named::To(_) | Named::Dead => Err(Nothing::Port),
            Named::Revoked => Err(Nothing::Right),
            // A receiver has waited for these rights; where the port is gone, none waits.
            Named::NotYet(_) | Named::Unclaimed if !is_bound => Err(Nothing::Port),
            _ => return Err(Rule::Introduction.broken()),
        };
        #[cfg(test)]
        super::tests::between();
        let mut provisions = introduce::provisions(process);
        // Under the lock: a revoking thread marks the right before looking here. As often as this
        // process revokes something meanwhile.
        if !process.revocations.have_begun_since(revocations) {
            let target = target.map(|target| (target, introduce::begins(process, target)));
            let now_ns = clock::ticks_ns();
            if target.is_err() {
                process.schedule(Timer::Provisions);
            }
            let recipient = (recipient, link.quotas.provisions());
            let refused = provisions.provide_within(number, target, recipient, now_ns);
            drop(provisions);
            if let Some(target) = refused {
                introduce::ended(process, target);
            }
            return Ok(());
        }
        drop(provisions);
        if let Ok(target) = target {
            introduce::ended(process, (target, false));
        }
    }
}

/// Exporter: a recipient may have claimed already what it has been provided with now.
fn has_provided(link: &Arc<Link>, process: &Process, number: Number, recipient: [u8; 20]) {
    // A peer that sends nothing through it and waits for its name may have. A process has several links with itself.
    let mut may_come = number.1 & OF_MOVED == 0;
    for to in links::all(process) {
        if to.is_with(recipient) && !to.is_down() {
            may_come = true;
            let waits = {
                let _one = to.redeeming();
                to.introductions().claims.waits_for(number)
            };
            waits.map(|word| introduce::look_at_claim(&to, process, word, 0));
        }
    }
    if !may_come {
        // Claimed by a link that has ended since, or will be by one that the control thread has not entered yet.
        introduce::provisions(process).let_expire(number, recipient, clock::ticks_ns());
        process.schedule(Timer::Provisions);
    }
    if link.is_down() {
        // Left behind: its end has been told of.
        ends::end_introductions(process, link);
    }
}
