//! Introductions (`docs/decisions/0009-introductions.md`; `handfast_proto::introductions` says what they are): this process as
//! introducer, as recipient and as exporter.

use crate::link::introductions::{self, CLAIMS_STEP, Named};
use crate::link::{Link, revoked};
use crate::port::{exported, notice, ports};
use crate::process::Process;
use crate::reply_slot::ReplySlot;
use crate::{links, rank};
use core::sync::atomic::Ordering;
use handfast_layout::PARTS_MAX;
use handfast_layout::control::ControlMessage;
use handfast_layout::lane_control::ClaimAnswer;
use handfast_layout::link::{Kind, LANES, REPLIES, SLOTS};
use handfast_layout::part::is_handle;
use handfast_proto::introductions::{Claim, Number, Provisions, Redeemed, Waiting};
use handfast_proto::rights::{Meaning, Refused, Target};
use handfast_proto::timers::Timer;
use handfast_ring::{Fault, Rule};
use handfast_sys::clock;
use handfast_sys::sync::MutexGuard;
pub(crate) use provide::Provided;
use std::sync::Arc;

pub(crate) mod provide;

mod attenuated;
mod claim;
pub(crate) mod ends;
#[cfg(test)]
mod tests;

pub(crate) use claim::{claim, claim_by, claim_freely, mint};

/// How long a claim waits for its provision. A peer that lets it wait longer has not been provided with the
/// right.
const CLAIM_NS: u64 = 1_000_000_000;
/// As `CLAIM_NS`, for a port that has moved: all messages on their way through the old home come first.
const CLAIM_MOVED_NS: u64 = 60_000_000_000;
/// How much longer than by its receiver's clock a claim waits where no message names it: the clock of a busy receiver goes more slowly, and
/// the provision may lie in one of its lanes.
const OVERDUE_NS: u64 = 10_000_000_000;
/// The bit of a number that says so.
pub(crate) const OF_MOVED: u64 = 1 << 63;

/// Exporter: the right that the peer names by `word`, at a receiver where it is this late.
pub(crate) fn named(link: &Arc<Link>, process: &Process, word: u32, now_ns: u64) -> Named {
    if is_handle(word) {
        return Named::of_handle(link, word);
    }
    if word == 0 {
        return Named::Unknown;
    }
    match look_at_claim(link, process, word, now_ns) {
        Some(Claim::Granted(handle)) => link.exports().resolve(handle).into(),
        Some(Claim::Revoked) => Named::Revoked,
        Some(Claim::Dead) => Named::Dead,
        // A claim at a port's new home is looked at again before: its old home may end.
        Some(Claim::Waiting(waiting)) => Named::NotYet(match waiting.number.1 & OF_MOVED {
            0 => waiting.until_ns,
            _ => waiting.until_ns.min(now_ns.saturating_add(CLAIM_NS)),
        }),
        None => Named::Unclaimed,
    }
}

/// Exporter: a claim of the peer's, after another look when it waits.
fn look_at_claim(link: &Arc<Link>, process: &Process, word: u32, now_ns: u64) -> Option<Claim> {
    // Two threads may look at once: one redeems.
    let _one = link.redeeming();
    let claim = link.introductions().claims.get(word)?;
    let Claim::Waiting(waiting) = claim else {
        return Some(claim);
    };
    let claim = redeem(link, process, waiting, now_ns);
    #[cfg(test)]
    tests::between();
    link.introductions().claims.settle(word, claim);
    if !matches!(claim, Claim::Waiting(_)) {
        has_settled(process);
    }
    revoked::tell_if_in_vain(link, word, claim);
    granted_anew(link, process, claim);
    Some(claim)
}

/// Exporter: the peer has a name for a right. If its port has moved, it is told of that.
fn granted_anew(link: &Link, process: &Process, claim: Claim) {
    if let Claim::Granted(handle) = claim
        && let Some(Meaning::To(target)) = link.exports().resolve(handle)
        && let Some(port) = ports::by_id(process, target.port)
        && let Some(home) = port.home.get()
    {
        home.exported();
    }
}

/// Exporter: gives the peer what it was provided with, and tells it the handle.
fn redeem(link: &Arc<Link>, process: &Process, waiting: Waiting, now_ns: u64) -> Claim {
    let claim = try_redeem(link, process, waiting, now_ns);
    answer_claim(link, claim, waiting.reply);
    claim
}

/// Exporter: tells the peer the outcome of a claim, if it is known.
fn answer_claim(link: &Arc<Link>, claim: Claim, reply: (u32, u32)) {
    if let Ok(Some(slot)) = ReplySlot::passed(link, reply.0, reply.1) {
        match claim {
            Claim::Granted(handle) => {
                slot.answer(Kind::Message, &ClaimAnswer { handle }.encode());
            }
            Claim::Revoked | Claim::Dead => {
                slot.dropped();
            }
            Claim::Waiting(_) => {}
        }
    }
}

fn try_redeem(link: &Link, process: &Process, waiting: Waiting, now_ns: u64) -> Claim {
    let Waiting {
        number, until_ns, ..
    } = waiting;
    // An old home that has ended provides nothing; the messages it left were looked for a while.
    let is_old = now_ns.saturating_add(CLAIM_MOVED_NS) >= until_ns.saturating_add(CLAIM_NS);
    let is_lost = number.1 & OF_MOVED != 0
        && is_old
        && links::find(process, |of| of.is_with(number.0)).is_none();
    // Locked until there is an export: a revoking thread finds the provision or the export.
    let mut provisions = provisions(process);
    match provisions.redeem(number, link.identity()) {
        // A peer that is gone gets nothing any more, so the messages it has left do not wait for it.
        Redeemed::NotYet if now_ns < until_ns && !is_lost && !link.is_down() => {
            Claim::Waiting(waiting)
        }
        Redeemed::Revoked => Claim::Revoked,
        Redeemed::NotYet => {
            // Should the provision come after all, no one has a use for it.
            let given_up = provisions.forgo(number, link.identity(), clock::ticks_ns());
            drop(provisions);
            process.schedule(Timer::Provisions);
            if let Some(target) = given_up {
                ended(process, target);
            }
            Claim::Dead
        }
        Redeemed::Dead => Claim::Dead,
        Redeemed::To((target, is_watched)) => {
            let port = ports::by_id(process, target.port);
            let granted = port.map(|port| exported::export(link, &port, target));
            drop(provisions);
            // The provision's own use ends after the one that follows it has begun.
            ended(process, (target, is_watched));
            match granted {
                Some(Ok(handle)) => Claim::Granted(handle),
                Some(Err(_)) => Claim::Revoked,
                None => Claim::Dead,
            }
        }
    }
}

/// Exporter: from now on the peer names by this number what it has claimed. Returns the claim as the peer is to be told of it. A fault
/// where it names something by it already, or processes of its user name too much.
fn enter_claim(link: &Link, process: &Process, word: u32, claim: Claim) -> Result<Claim, Fault> {
    let mut its = link.introductions();
    // Under that lock: a thread that revokes it from now on finds the number.
    let meaning = |handle| link.exports().resolve(handle);
    let is_revoked =
        matches!(claim, Claim::Granted(handle) if meaning(handle) == Some(Meaning::Revoked));
    if its.claims.count() as u64 >= its.charge.amount() && its.charge.grow(CLAIMS_STEP).is_err() {
        return Err(Rule::Introduction.broken());
    }
    let is_entered = its.claims.claim(word, claim);
    has_settled(process);
    if !is_entered {
        return Err(Rule::Introduction.broken());
    }
    if !is_revoked {
        return Ok(claim);
    }
    its.claims.has_told(word);
    Ok(Claim::Revoked)
}

/// Exporter: the peer has no use for a claim any more. Returns the handle it stood for.
pub(crate) fn unclaimed(
    link: &Arc<Link>,
    process: &Process,
    word: u32,
) -> Result<Option<u32>, Refused> {
    // Not while it is redeemed, which would grant the right to no claim.
    let one = link.redeeming();
    let claim = link
        .introductions()
        .claims
        .release(word)
        .ok_or(Refused::Unknown)?;
    #[cfg(test)]
    tests::between();
    drop(one);
    // Release: pairs with the Acquire of receivers that know what it stood for.
    link.rights.ended.fetch_add(1, Ordering::Release);
    Ok(match claim {
        Claim::Granted(handle) => Some(handle),
        Claim::Waiting(Waiting { number, reply, .. }) => {
            forgo_provision(process, number, link.identity());
            if let Ok(Some(slot)) = ReplySlot::passed(link, reply.0, reply.1) {
                slot.answer(Kind::Dropped, &[]);
            }
            None
        }
        Claim::Revoked | Claim::Dead => None,
    })
}

/// Something that was claimed is known by now: messages wait for that in lanes.
pub(crate) fn has_settled(process: &Process) {
    // Release: pairs with the Acquire of receivers that look again.
    process.settled.fetch_add(1, Ordering::Release);
}

pub(crate) fn provisions(
    process: &Process,
) -> MutexGuard<'_, Provisions<(Target, bool)>, rank::Provisions> {
    process.introductions.provisions.lock()
}

/// Adds a right to a port of this process. `false`: the port has ended.
fn added(process: &Process, target: Target) -> bool {
    let Some(port) = ports::by_id(process, target.port) else {
        return false;
    };
    port.notices.added()
}

/// Whether a right that comes to be provided is watched. Under the lock of the provisions.
fn begins(process: &Process, target: Target) -> bool {
    let port = ports::by_id(process, target.port);
    port.is_some_and(|port| port.notices.begin(target.badge, || 1))
}

/// Counts a right off; and whether it was watched. Receivers hear claims, so the control thread wakes the port's.
pub(crate) fn ended(process: &Process, (target, is_watched): (Target, bool)) {
    if let Some(port) = ports::by_id(process, target.port) {
        notice::right_ended_later(&port, is_watched.then_some(target.badge));
    }
}

pub(crate) fn take_back_provision(process: &Process, number: Number) {
    let taken = provisions(process).take_back(number, clock::ticks_ns());
    has_settled(process);
    process.schedule(Timer::Provisions);
    if let Some(target) = taken {
        ended(process, target);
    }
}

/// A recipient has no use for a right that it has claimed and not got yet.
pub(crate) fn forgo_provision(process: &Process, number: Number, recipient: [u8; 20]) {
    let now_ns = clock::ticks_ns();
    let taken = provisions(process).forgo(number, recipient, now_ns);
    process.schedule(Timer::Provisions);
    if let Some(target) = taken {
        ended(process, target);
    }
}

/// Introducer: tells an exporter that a provision is void.
fn void(exporter: &Link, number: u64) {
    exporter.say(ControlMessage::ProvisionVoid { number });
}

/// Control thread: a recipient declines what was provided to it by this process.
pub(crate) fn hear_declined(link: &Link, number: u64, exporter: [u8; 20]) {
    // The exporter may be gone; or this may never have been provided to this peer.
    if let Some(exporter) = introductions::take_unheard(link, &exporter, number) {
        void(&exporter, number);
    }
}

/// Provisions that can be on their way to one recipient: as many as its lanes and reply slots hold.
const UNHEARD_MAX: usize = (LANES * SLOTS + REPLIES) as usize * PARTS_MAX;
