//! Rights of this process, described to the peer of a link beside the bytes of a message.

use crate::again::{self, key_of};
use crate::error::{Misuse, RightError};
use crate::imported::own_of;
use crate::introduce::Provided;
use crate::link::{self, Link};
use crate::moving::{self, depart, depart_member};
use crate::options::Waiting;
use crate::passed::Passed;
use crate::port::own::OwnRight;
use crate::port::{NoRight, exported};
use crate::process::Process;
use crate::reply_right::ReplyRight;
use crate::right::Right;
use crate::send::{self, SendRight, ended, moved, origin, route};
use crate::send_once::Way;
use crate::{lending, vine};
use core::cell::Cell;
use handfast_layout::PARTS_MAX;
use handfast_layout::link::{UNIT_BYTES, UNITS_MAX};
use handfast_layout::part::{Part, ThirdForm};
use handfast_proto::introductions::How;
use handfast_proto::rights::{Handle, Refused, Target};
use handfast_ring::lane::Unit;
use std::sync::Arc;

pub(crate) mod ahead;
pub(crate) mod laid;
pub(crate) mod now;
mod undo;

use laid::Laid;
use undo::{NamedRight, Undo};

/// The attachments of one message. Emptied when the message has been sent.
#[derive(Debug, Default)]
pub(crate) struct Load {
    pub(crate) rights: Vec<Right>,
    /// The reply right of the message itself.
    pub(crate) reply: Option<ReplyRight>,
}

thread_local! {
    /// The list of the last load, empty: sending rights with a message takes no allocation.
    static LIST: Cell<Vec<Right>> = const { Cell::new(Vec::new()) };
}

/// The given rights, in the list of the last message.
#[inline]
pub(crate) fn list_of(rights: impl IntoIterator<Item = Right>) -> Vec<Right> {
    // A thread that is ending has no list.
    let mut list = LIST.try_with(Cell::take).unwrap_or_default();
    list.extend(rights);
    list
}

/// They have been sent: their list is for the next ones.
#[inline]
pub(crate) fn pool(list: &mut Vec<Right>) {
    list.clear();
    let _ = LIST.try_with(|known| known.set(core::mem::take(list)));
}

impl Load {
    /// Whether the receive right of a port at this receiver of this process is among the rights.
    pub(crate) fn has_receiver(&self, receiver: u32) -> bool {
        let is_its = |right: &Right| match right {
            Right::Receive(receive) => receive.port().receiver == receiver,
            _ => false,
        };
        self.rights.iter().any(is_its)
    }

    pub(crate) fn has_member(&self) -> bool {
        let is_member = |right: &Right| matches!(right, Right::Member(_));
        self.rights.iter().any(is_member)
    }

    pub(crate) fn has_blocks(&self) -> bool {
        let is_block = |right: &Right| matches!(right, Right::Block(_));
        self.rights.iter().any(is_block)
    }
}

/// The units that describe the rights of one message, and what describing them has done. Filled and
/// used in place: it is large.
pub(crate) struct Described {
    units: [Unit; UNITS_MAX],
    count: usize,
    /// So many of them say where the bytes of the message are.
    before: usize,
    /// In the order of the rights.
    undo: [Undo; PARTS_MAX],
    /// How the message's own reply right goes.
    passed: Option<Passed>,
    /// The bytes of the message, if they are too many for a lane.
    laid: Option<Laid>,
    /// The answer may go on to a process where nothing is remembered.
    goes_on: bool,
}

impl Described {
    pub(crate) const fn new() -> Self {
        Self {
            units: [[0; UNIT_BYTES]; UNITS_MAX],
            count: 0,
            before: 0,
            undo: [const { Undo::Nothing }; PARTS_MAX],
            passed: None,
            laid: None,
            goes_on: false,
        }
    }

    /// An answer to a process that may only pass it on: that process must be told of each right again, which
    /// leaves the rest to the process at the end of the way.
    pub(crate) const fn goes_on(mut self, goes_on: bool) -> Self {
        self.goes_on = goes_on;
        self
    }

    pub(crate) fn units(&self) -> &[Unit] {
        &self.units[..self.count]
    }

    /// A right that the caller has described itself: nothing is undone for it.
    pub(crate) fn add(&mut self, part: Part) {
        let (units, count) = part.to_units();
        self.units[self.count..][..count].copy_from_slice(&units[..count]);
        self.count += count;
    }

    /// How the slot names the message's own reply right: word and generation.
    pub(crate) fn passed(&self) -> (u32, u32) {
        self.passed.as_ref().map_or((0, 0), Passed::words)
    }

    /// Behind those that say where the bytes of the message are.
    fn units_of_rights(&mut self) -> &mut [Unit] {
        &mut self.units[self.before..self.count]
    }

    /// Describes rights to the peer of `link`, and counts them as sent. The message must follow, and
    /// [`Self::sent`], or [`Self::take_back`]. With an error nothing is left to be undone.
    pub(crate) fn describe(
        &mut self,
        process: &Process,
        link: &Arc<Link>,
        load: &Load,
    ) -> Result<(), RightError> {
        let described = match load.rights.len() <= PARTS_MAX {
            true => self.try_describe((process, link), load),
            false => Err(RightError::TooMany {
                count: load.rights.len(),
            }),
        };
        if described.is_err() {
            self.take_back(link);
        }
        described
    }

    #[inline]
    fn try_describe(
        &mut self,
        (process, link): (&Process, &Arc<Link>),
        load: &Load,
    ) -> Result<(), RightError> {
        for (right, place) in load.rights.iter().zip(&mut self.undo) {
            let (part, undo) = part_of((process, link), right, self.goes_on)?;
            *place = undo;
            let (units, count) = part.to_units();
            let named = match right {
                Right::Receive(receive) => receive.moving_name().map(|name| name.to_units()),
                _ => None,
            };
            let named = named.unwrap_or_default();
            let free = self.units[self.count..].get_mut(..count + named.len());
            let count_of = RightError::TooMany {
                count: load.rights.len(),
            };
            let (first, rest) = free.ok_or(count_of)?.split_at_mut(count);
            first.copy_from_slice(&units[..count]);
            rest.copy_from_slice(&named);
            self.count += count + named.len();
        }
        if let Some(reply) = &load.reply {
            self.passed = Some(Passed::of(reply, link)?);
        }
        Ok(())
    }

    /// The message was not sent after all. Nothing is described any more.
    pub(crate) fn take_back(&mut self, link: &Link) {
        (self.count, self.before) = (0, 0);
        if let Some(laid) = &mut self.laid
            && let Some(loan) = laid.loan.take()
        {
            lending::lends_not(link, loan);
        }
        for undo in &mut self.undo {
            core::mem::replace(undo, Undo::Nothing).take_back(link);
        }
        if let Some(passed) = self.passed.take() {
            passed.take_back(link);
        }
    }

    /// The message has been sent: its rights are no longer here. Rights to the peer's ports have been used in
    /// `lane`, if the message went through one.
    pub(crate) fn sent(
        &mut self,
        (process, link): (&Arc<Process>, &Arc<Link>),
        load: &mut Load,
        lane: Option<u32>,
    ) {
        if let Some(laid) = self.laid.take()
            && let Some(loan) = laid.loan
        {
            lending::has_lent(link, loan, laid.block);
        }
        // First: a thread of this process may be waiting for one.
        for (right, undo) in load.rights.iter_mut().zip(&self.undo) {
            if let Undo::Leaving(token) = undo {
                let right = core::mem::replace(right, Right::Dead);
                moving::departed(process, link, (*token, right));
            }
        }
        self.passes_on((process, link), load);
        for (right, undo) in load.rights.iter_mut().zip(&mut self.undo) {
            let undo = core::mem::replace(undo, Undo::Nothing);
            undo.sent((process, link), right, lane);
        }
        load.rights.clear();
    }

    /// The reply right of a call has been passed on. Before the receiver is rung: a caller that finds its answer before the word of
    /// where that comes looks for the word without sleeping, and in vain if the ring takes long.
    pub(crate) fn passes_on(
        &mut self,
        (process, link): (&Arc<Process>, &Arc<Link>),
        load: &mut Load,
    ) {
        if let (Some(passed), Some(reply)) = (self.passed.take(), load.reply.take()) {
            passed.sent(process, link, reply);
        }
    }
}

fn part_of(
    (process, link): (&Process, &Arc<Link>),
    right: &Right,
    goes_on: bool,
) -> Result<(Part, Undo), RightError> {
    let node = right.node();
    if let Some(other) = node.filter(|node| !core::ptr::eq(&***node, process)) {
        return Err(match other.check() {
            Err(Misuse::Forked) => RightError::Forked,
            _ => RightError::OtherNode,
        });
    }
    let own = match right {
        Right::Send(right) => return elsewhere((process, link), right, (goes_on, false)),
        Right::SendOnce(once) => match once.way() {
            Way::There(right) => return elsewhere((process, link), right, (goes_on, true)),
            Way::Here(own) if own.is_over() => return Err(RightError::Dead),
            Way::Here(own) => own,
        },
        Right::Dead => return Err(RightError::Dead),
        Right::Reply(reply) => {
            let passed = Passed::of(reply, link)?;
            let (word, generation) = passed.words();
            return Ok((Part::Reply { word, generation }, Undo::Passed(passed)));
        }
        Right::Receive(receive) => {
            let (part, token) = depart(process, link, receive)?;
            return Ok((part, Undo::Leaving(token)));
        }
        Right::Member(member) => {
            let (part, token) = depart_member(process, link, member)?;
            return Ok((part, Undo::Leaving(token)));
        }
        // Numbered when it is sent.
        Right::Descriptor(_) | Right::Memory(_) => {
            let part = right.numbered(0).ok_or(RightError::Lost)?;
            return Ok((part, Undo::Nothing));
        }
        Right::Block(block) => {
            let lent = lending::lend(link, block)?;
            return Ok((Part::Loan(lent), Undo::Lent(lent.loan)));
        }
        Right::Loan(_) => return Err(RightError::Loan),
        Right::Lost(_) => return Err(RightError::Lost),
        Right::Own(own) if own.is_over() => return Err(RightError::Dead),
        Right::Own(own) => own,
    };
    if let Some(right) = moved(own, true) {
        let right = right.map_err(|none| match none {
            NoRight::Over => RightError::Dead,
            NoRight::NotYet => RightError::Unsettled,
        })?;
        let right = Box::new((*right).clone());
        let (part, mut undo) = of_another((process, link), &right, (goes_on, false))?;
        if let Undo::Named(named) = &mut undo {
            named.own = Some(right);
        }
        return Ok((part, undo));
    }
    let (handle, port) = export_own(link, own)?;
    let part = match own.port().once.is_some() {
        true => Part::Once { handle, port },
        false => Part::OfSender { handle, port },
    };
    Ok((part, Undo::Exported(handle)))
}

/// A right to a port that is not known to be of this process.
fn elsewhere(
    (process, link): (&Process, &Arc<Link>),
    right: &SendRight,
    (goes_on, is_once): (bool, bool),
) -> Result<(Part, Undo), RightError> {
    route::await_word(right, Waiting::Always);
    match origin::home(right, link) {
        Some(part) => Ok((part, Undo::Nothing)),
        None => of_another((process, link), right, (goes_on, is_once)),
    }
}

/// A right to a port of another process, as what it has become by now. That is looked at once: it may become another at any
/// time.
fn of_another(
    (process, link): (&Process, &Arc<Link>),
    right: &SendRight,
    (goes_on, is_once): (bool, bool),
) -> Result<(Part, Undo), RightError> {
    loop {
        let best = route::best(right);
        if best.link().is_loop() {
            if send::is_forked(right) {
                return Err(RightError::Dead);
            }
            return part_of((process, link), &own_of(process, best)?, goes_on);
        }
        if !Arc::ptr_eq(best.link(), link) {
            return third(process, link, best, (goes_on, is_once));
        }
        if ended::is_revoked(best) {
            return Err(RightError::Dead);
        }
        let handle = best.origin().handle_at_home(best.handle(), link)?;
        let name = best.handle();
        if link.imports().writes(name) {
            let named = NamedRight { name, own: None };
            return Ok((Part::OfReceiver { handle }, Undo::Named(named)));
        }
        // It has become another since, whose name is another: as often as its port moves.
        if core::ptr::eq(best, route::best(right)) {
            return Err(RightError::Dead);
        }
    }
}

/// Names a port that is here to the peer: handle and number.
#[inline]
pub(crate) fn export_own(link: &Link, own: &OwnRight) -> Result<(Handle, u32), RightError> {
    let exported = exported::export_own(link, own).ok_or(RightError::Dead)?;
    Ok((granted(exported, link)?, own.port().id))
}

fn granted(exported: Result<Handle, Refused>, link: &Link) -> Result<Handle, RightError> {
    exported.map_err(|refused| match refused {
        Refused::Over => RightError::Gone,
        _ => RightError::Exhausted {
            limit: link.quotas.rights(),
        },
    })
}

/// A right to a port of a third process.
fn third(
    process: &Process,
    link: &Link,
    right: &SendRight,
    (goes_on, is_once): (bool, bool),
) -> Result<(Part, Undo), RightError> {
    if send::is_forked(right) || ended::is_down(right) || ended::is_revoked(right) {
        return Err(RightError::Dead);
    }
    let keep = match goes_on || is_once {
        true => false,
        false => match again::how_to_give(link, right) {
            How::Again(number) => return Ok((Part::Again { number }, Undo::Again(number))),
            How::Provide { keep } => keep,
        },
    };
    let vine = vine::of(process).get_or_start(&link.process)?;
    let badge = vine.add(right, is_once);
    let exported = exported::export(link, &vine.port, Target::full(vine.port.id, badge));
    let handle = granted(exported, link);
    vine.given(badge);
    let handle = handle?;
    let port = vine.port.id;
    let provided = Provided::say(process, right, link);
    if let Some(provided) = provided.as_ref().filter(|_| keep) {
        link::again::is_introduced(right.link());
        link::again::lock(link)
            .told
            .offered(key_of(right), provided.number);
    }
    let part = Part::Third {
        vine: (handle, port),
        port: right.port(),
        exporter: right.link().incarnation,
        number: provided.as_ref().map_or(0, |provided| provided.number),
        pid: right.link().peer.pid,
        form: match keep && provided.is_some() {
            true => ThirdForm::Kept,
            false if is_once => ThirdForm::Once,
            false => ThirdForm::Plain,
        },
    };
    Ok((part, Undo::Introduced(handle, provided)))
}

#[cfg(test)]
mod tests;
