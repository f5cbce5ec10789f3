//! Introductions (design D9; `handfast_proto::introductions` says what they are): this process as
//! introducer, as recipient and as exporter.

use crate::link::{Link, control};
use crate::notice::end_rights;
use crate::process::Process;
use crate::send::SendRight;
use core::sync::atomic::Ordering;
use handfast_layout::introduction::Said;
use handfast_layout::link::Kind;
use handfast_layout::part::{is_handle, receiver_of};
use handfast_proto::introductions::{Claim, Claims, Number, Provisions, Redeemed};
use handfast_proto::rights::{Refused, Target};
use handfast_ring::lane::Header;
use handfast_ring::{Fault, Rule};
use handfast_sys::{clock, cpu};
use std::sync::{Arc, MutexGuard, PoisonError};

/// How long a message waits in its lane for what the right it names was claimed by. Who lets it wait
/// longer has not been provided with it.
pub(crate) const CLAIM_NS: u64 = 1_000_000_000;

/// What a message's word for a right stands for.
pub(crate) enum Named {
    To(Target),
    /// A port that is no more, or nothing that was provided.
    Dead,
    /// It is not known yet.
    NotYet,
    /// Nothing an honest peer names.
    Unknown,
}

/// Introducer: what was said to an exporter.
pub(crate) struct Provided {
    exporter: Arc<Link>,
    pub(crate) number: u64,
}

impl Provided {
    /// Tells the exporter of `right` that the peer of `to` gets one like it. `None`: there was no room
    /// to do so at once.
    pub(crate) fn say(process: &Process, right: &SendRight, to: &Link) -> Option<Self> {
        // Relaxed: a number.
        let number = process.provided.fetch_add(1, Ordering::Relaxed);
        let recipient = to.incarnation;
        let said = Said::Provide { number, recipient };
        let exporter = right.link();
        let lane = exporter.say_in_lane(right.receiver(), right.handle(), said)?;
        right.uses(lane);
        let exporter = exporter.clone();
        Some(Self { exporter, number })
    }

    /// The recipient was not told.
    pub(crate) fn take_back(self, process: &Process) {
        process.void(&self.exporter, self.number);
    }
}

impl Link {
    /// Posts to the lane of this thread for `receiver`, if there is room at once. Returns the lane.
    fn say_in_lane(&self, receiver: u32, word: u32, said: Said) -> Option<u32> {
        let lane = self.map.lane(receiver)?;
        let header = Header {
            kind: Kind::CONTROL,
            port: word,
            reply: 0,
            generation: 0,
            units: 0,
            cpu: cpu::recent(),
        };
        let mut outgoing = self.lanes[lane as usize].lock();
        let region = self.region.view();
        let posted = outgoing.producer.post(&region, header, &said.to_bytes());
        drop(outgoing);
        posted.ok()?;
        self.ring(lane, receiver);
        Some(lane)
    }

    pub(crate) fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exporter: what the peer names by `word`.
    pub(crate) fn named(&self, process: &Process, word: u32) -> Named {
        if is_handle(word) {
            return self
                .exports()
                .resolve(word)
                .map_or(Named::Unknown, Named::To);
        }
        let claim = self.claims().get(word);
        let claim = match claim {
            Some(Claim::Waiting { number, since_ns }) => {
                let claim = self.redeem(process, number, since_ns);
                self.claims().settle(word, claim);
                Some(claim)
            }
            claim => claim,
        };
        match claim {
            Some(Claim::Granted(handle)) => self
                .exports()
                .resolve(handle)
                .map_or(Named::Unknown, Named::To),
            Some(Claim::Dead) => Named::Dead,
            Some(Claim::Waiting { .. }) | None => Named::NotYet,
        }
    }

    /// Exporter: gives the peer what it was provided with.
    fn redeem(&self, process: &Process, number: Number, since_ns: u64) -> Claim {
        let redeemed = process.provisions().redeem(number, self.incarnation);
        match redeemed {
            Redeemed::NotYet if clock::ticks_ns().saturating_sub(since_ns) < CLAIM_NS => {
                Claim::Waiting { number, since_ns }
            }
            Redeemed::NotYet | Redeemed::Dead => Claim::Dead,
            Redeemed::To(target) => {
                let port = process.port(receiver_of(target.port));
                let port = port.filter(|port| port.id == target.port);
                let granted = port.map(|port| self.export(&port, target.badge));
                // The provision's own use ends after the one that follows it has begun.
                process.ended(target);
                match granted {
                    Some(Ok(handle)) => Claim::Granted(handle),
                    _ => Claim::Dead,
                }
            }
        }
    }

    /// Exporter: what was said in a lane of the peer's.
    pub(crate) fn hear_said(
        &self,
        process: &Process,
        header: Header,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let (rule, offset) = (Rule::Introduction, 0);
        let fault = Fault { rule, offset };
        match Said::parse(bytes).ok_or(fault)? {
            Said::Provide { number, recipient } => {
                let target = match self.named(process, header.port) {
                    Named::To(target) => process.added(target).then_some(target),
                    Named::Dead => None,
                    Named::NotYet | Named::Unknown => return Err(fault),
                };
                let number = (self.incarnation, number);
                let refused = process.provisions().provide(number, target, recipient);
                if let Some(target) = refused {
                    process.ended(target);
                }
            }
            Said::Claim {
                word,
                number,
                introducer,
            } => {
                let claim = self.redeem(process, (introducer, number), clock::ticks_ns());
                if !self.claims().claim(word, claim) {
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    /// Exporter: the peer has no use for a claim any more. Returns the handle it stood for.
    pub(crate) fn unclaimed(&self, process: &Process, word: u32) -> Result<Option<u32>, Refused> {
        let claim = self.claims().release(word).ok_or(Refused::Unknown)?;
        // Release: pairs with the Acquire of receivers that know what it stood for.
        self.ended.fetch_add(1, Ordering::Release);
        Ok(match claim {
            Claim::Granted(handle) => Some(handle),
            Claim::Waiting { number, .. } => {
                process.take_back_provision(number);
                None
            }
            Claim::Dead => None,
        })
    }
}

/// Recipient: a right to `port` of the exporter behind `link`, which the introducer has told of it under
/// `number`; usable at once. `None`: there was no room to claim it.
pub(crate) fn claim(
    process: &Arc<Process>,
    link: &Arc<Link>,
    port: u32,
    (introducer, number): Number,
) -> Option<SendRight> {
    let word = link.imports().claim(port).ok()?;
    let said = Said::Claim {
        word,
        number,
        introducer,
    };
    let Some(lane) = link.say_in_lane(receiver_of(port), 0, said) else {
        link.imports().unclaim(word);
        return None;
    };
    let waiting = process.waiting;
    let right = SendRight::of_handle(process.clone(), link.clone(), port, word, waiting);
    right.uses(lane);
    Some(right)
}

impl Process {
    pub(crate) fn provisions(&self) -> MutexGuard<'_, Provisions<Target>> {
        let provisions = self.provisions.lock();
        provisions.unwrap_or_else(PoisonError::into_inner)
    }

    /// One more right to a port of this process. `false`: the port is no more.
    fn added(&self, target: Target) -> bool {
        let port = self.port(receiver_of(target.port));
        let Some(port) = port.filter(|port| port.id == target.port) else {
            return false;
        };
        port.notices.added();
        if let Some(vine) = self.vines.get()
            && vine.port.id == target.port
        {
            vine.exported(target.badge);
        }
        true
    }

    /// One right less.
    fn ended(&self, target: Target) {
        end_rights(target.port, 1, |receiver| self.port(receiver));
        self.vine_ended(target.port, target.badge);
    }

    fn take_back_provision(&self, number: Number) {
        let taken = self.provisions().take_back(number);
        if let Some(target) = taken {
            self.ended(target);
        }
    }

    /// Introducer: tells an exporter that a provision is void.
    fn void(&self, exporter: &Link, number: u64) {
        let mut bytes = vec![control::PROVISION_VOID, 0];
        bytes.extend(number.to_le_bytes());
        self.say(exporter, &bytes);
    }

    /// Recipient: tells the introducer that what it has provided will not be claimed.
    pub(crate) fn decline(&self, introducer: &Link, exporter: [u8; 16], number: u64) {
        let mut bytes = vec![control::DECLINED, 0];
        bytes.extend(number.to_le_bytes());
        bytes.extend(exporter);
        self.say(introducer, &bytes);
    }

    /// Keeper: one of these came.
    pub(crate) fn take_introduction_message(
        &self,
        link: &Link,
        kind: u8,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let (rule, offset) = (Rule::Introduction, 0);
        let number = bytes
            .first_chunk::<8>()
            .map(|number| u64::from_le_bytes(*number));
        let number = number.ok_or(Fault { rule, offset })?;
        if kind == control::PROVISION_VOID {
            self.take_back_provision((link.incarnation, number));
            return Ok(());
        }
        // The exporter may be gone.
        let exporter = self.find_link(|link| bytes[8..] == link.incarnation);
        if let Some(exporter) = exporter {
            self.void(&exporter, number);
        }
        Ok(())
    }

    /// Keeper: a link has ended: what was provided to its peer, and by it.
    pub(crate) fn end_introductions(&self, link: &Link) {
        let of = link.incarnation;
        if self.find_link(|other| other.incarnation == of).is_some() {
            return;
        }
        let ended = self.provisions().ended(of, clock::ticks_ns());
        for target in ended {
            self.ended(target);
        }
        self.give_back_in(EXPIRE_NS);
    }

    /// Keeper: ends what nobody has claimed. Returns whether there will be more.
    pub(crate) fn expire_provisions(&self) -> bool {
        let expired = self.provisions().expire(clock::ticks_ns());
        for target in expired {
            self.ended(target);
        }
        self.provisions().has_mortal()
    }
}

/// How soon provisions are looked at whose introducer has ended.
const EXPIRE_NS: u64 = 2_000_000;
