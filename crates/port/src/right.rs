//! Rights as parts of messages, and sending them. `own` has the rights of a process to its own ports,
//! `descriptors` the rights to kernel objects.

use crate::adopt::own_of;
use crate::again::key_of;
use crate::arena::Block;
use crate::error::{Exhausted, Gone, ReplyError, RightError, SendError};
use crate::introduce::Provided;
use crate::link::Link;
use crate::loan::Loan;
use crate::memory::Memory;
use crate::moving::depart;
use crate::own::OwnRight;
use crate::passing::{Passed, ReplyRight};
use crate::process::Process;
use crate::receive::ReceiveRight;
use crate::request::Seal;
use crate::send::SendRight;
use core::cell::Cell;
use handfast_layout::PARTS_MAX;
use handfast_layout::link::{UNIT_BYTES, UNITS_MAX};
use handfast_layout::part::Part;
use handfast_proto::introductions::How;
use handfast_proto::rights::{Handle, Refused, Target};
use handfast_ring::lane::Unit;
use handfast_sys::OwnedFd;
use std::sync::Arc;

/// A right that travels, or has come, in a message.
#[derive(Debug)]
#[non_exhaustive]
pub enum Right {
    /// To send to a port of another process, which gets it as [`Self::Own`]. No system call. A right to a third process's port
    /// takes a thread and a port of this process, once for all such rights, and reaches that port through this process until
    /// its receiver has a link there.
    Send(SendRight),
    /// To send to a port of this process; another process gets it as [`Self::Send`]. No system call; some 35 bytes for each
    /// process that has it.
    Own(OwnRight),
    /// To a port of this process that has ended, or a right that was revoked; or to answer a call whose caller
    /// is gone.
    Dead,
    /// To answer a call, once. No system call once there is a return path ([`Request::forward`](crate::Request::forward)).
    Reply(ReplyRight),
    /// To the open file of a descriptor. The receiver gets its own descriptor of it, close-on-exec; the
    /// sender's is closed once it has been sent. One system call to send the descriptors of a message, one to
    /// receive them, and the receiver's control thread wakes; no copies. At most 64, including memory, are on
    /// their way to one process ([`RightError::Unclaimed`]). A descriptor that is not received is closed, also
    /// when either process dies.
    Descriptor(OwnedFd),
    /// To memory that can no longer be changed.
    Memory(Memory),
    /// To receive from a port, which moves with it: the messages that wait there, in order, and all its
    /// senders. Calls that have been received stay where they are. A bound name comes along, and so does a
    /// requested notice of no senders. Options do not: the port waits by the new home's
    /// ([`ReceiveRight::set_options`]).
    ///
    /// Senders may notice that messages take longer, while the port is under way and until they have a direct way to its new
    /// process; each sender gets that by itself, if the two can have a link ([`wait_moved`](crate::wait_moved)). The port is
    /// dropped when the right is not taken up, or either process dies before it has arrived. When this process ends, senders
    /// that still go through it lose the port.
    ///
    /// Costs two control messages, and some for each sender; a thread of this process until all have switched.
    /// Waiting messages are copied only when passed on.
    Receive(ReceiveRight),
    /// A block of an arena of this process's, to be lent with the message. At most 256 are lent to one
    /// process at once ([`RightError::Loans`]), of at most 16 arenas ([`RightError::Arenas`]). No system call, but
    /// one for the first block of each arena that goes to a process; no copies.
    Block(Block),
    /// A block of an arena of the sender's, which has been lent. It cannot be sent on.
    Loan(Loan),
    /// Placeholder for an attachment that could not be received: no free descriptor, or no room for the memory
    /// or loan.
    Lost(Exhausted),
}

/// The rights that could not be sent, and why.
#[derive(Debug)]
pub struct Returned<E> {
    /// Why.
    pub error: E,
    /// The rights; empty once they have been sent.
    pub rights: Vec<Right>,
}

impl From<SendRight> for Right {
    fn from(right: SendRight) -> Self {
        Self::Send(right)
    }
}

impl From<ReplyRight> for Right {
    fn from(right: ReplyRight) -> Self {
        Self::Reply(right)
    }
}

impl From<ReceiveRight> for Right {
    fn from(right: ReceiveRight) -> Self {
        Self::Receive(right)
    }
}

impl From<OwnRight> for Right {
    fn from(right: OwnRight) -> Self {
        Self::Own(right)
    }
}

impl From<Memory> for Right {
    fn from(memory: Memory) -> Self {
        Self::Memory(memory)
    }
}

impl From<Block> for Right {
    fn from(block: Block) -> Self {
        Self::Block(block)
    }
}

impl From<Loan> for Right {
    fn from(loan: Loan) -> Self {
        Self::Loan(loan)
    }
}

impl From<OwnedFd> for Right {
    fn from(fd: OwnedFd) -> Self {
        Self::Descriptor(fd)
    }
}

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
    /// In the order of the rights.
    undo: [Undo; PARTS_MAX],
    /// How the message's own reply right goes.
    passed: Option<Passed>,
    /// The answer may go on to a process where nothing is remembered.
    goes_on: bool,
}

/// The effect of describing a right, to be undone if it is not sent, or finished if it is.
enum Undo {
    Nothing,
    /// A handle counted as sent.
    Exported(Handle),
    Passed(Passed),
    /// A receive right with this number.
    Leaving(u32),
    /// The right comes again, by this number.
    Again(u64),
    /// An export of the vine, and what the exporter was told, if it was.
    Introduced(Handle, Option<Provided>),
    /// A loan reserved.
    Lent(u32),
}

impl Undo {
    /// The right was not sent after all.
    fn take_back(self, process: &Process, link: &Link) {
        match self {
            Self::Nothing => {}
            Self::Exported(handle) => link.retract(process, handle),
            Self::Passed(passed) => passed.take_back(link),
            Self::Leaving(token) => process.stays(token),
            Self::Again(number) => link.unsent_again(process, number),
            Self::Lent(loan) => link.lends_not(loan),
            Self::Introduced(handle, provided) => {
                link.retract(process, handle);
                if let Some(provided) = provided {
                    provided.take_back(process);
                }
            }
        }
    }
}

impl Described {
    pub(crate) const fn new() -> Self {
        Self {
            units: [[0; UNIT_BYTES]; UNITS_MAX],
            count: 0,
            undo: [const { Undo::Nothing }; PARTS_MAX],
            passed: None,
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

    /// How the slot names the message's own reply right: word and generation.
    pub(crate) fn passed(&self) -> (u32, u32) {
        self.passed.as_ref().map_or((0, 0), Passed::words)
    }

    pub(crate) fn units_mut(&mut self) -> &mut [Unit] {
        &mut self.units[..self.count]
    }

    /// Describes rights to the peer of `link`, and counts them as sent. The message must follow, and
    /// [`Self::sent`], or [`Self::take_back`]. With an error nothing is left to be undone.
    pub(crate) fn describe(
        &mut self,
        process: &Process,
        link: &Arc<Link>,
        load: &Load,
    ) -> Result<(), RightError> {
        if load.rights.len() > PARTS_MAX {
            return Err(RightError::TooMany {
                count: load.rights.len(),
            });
        }
        let described = self.try_describe((process, link), load);
        if described.is_err() {
            self.take_back(process, link);
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
            self.passed = Some(Passed::of(process, reply, link)?);
        }
        Ok(())
    }

    /// The message was not sent after all. Nothing is described any more.
    pub(crate) fn take_back(&mut self, process: &Process, link: &Link) {
        self.count = 0;
        for undo in &mut self.undo {
            core::mem::replace(undo, Undo::Nothing).take_back(process, link);
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
        if let (Some(passed), Some(reply)) = (self.passed.take(), load.reply.take()) {
            passed.sent(process, link, reply);
        }
        for (right, undo) in load.rights.iter_mut().zip(&mut self.undo) {
            match right {
                Right::Send(right) => right.used_at(link, lane),
                Right::Receive(_) => {
                    let right = core::mem::replace(right, Right::Dead);
                    if let (Right::Receive(receive), Undo::Leaving(token)) = (right, undo) {
                        process.departed(*token, receive);
                    }
                }
                Right::Reply(_) => {
                    let undo = core::mem::replace(undo, Undo::Nothing);
                    let right = core::mem::replace(right, Right::Dead);
                    if let (Right::Reply(reply), Undo::Passed(passed)) = (right, undo) {
                        passed.sent(process, link, reply);
                    }
                }
                Right::Block(_) => {
                    let undo = core::mem::replace(undo, Undo::Nothing);
                    let right = core::mem::replace(right, Right::Dead);
                    if let (Right::Block(block), Undo::Lent(loan)) = (right, undo) {
                        link.has_lent(loan, block);
                    }
                }
                _ => {}
            }
        }
        load.rights.clear();
    }
}

impl Right {
    /// The node to which it belongs, if only that one can send it.
    fn node(&self) -> Option<&Arc<Process>> {
        match self {
            Self::Send(right) => Some(right.process()),
            Self::Own(own) => Some(&own.port().process),
            Self::Receive(receive) => Some(&receive.port().process),
            _ => None,
        }
    }
}

fn part_of(
    (process, link): (&Process, &Arc<Link>),
    right: &Right,
    goes_on: bool,
) -> Result<(Part, Undo), RightError> {
    if right
        .node()
        .is_some_and(|node| !core::ptr::eq(&**node, process))
    {
        return Err(RightError::OtherNode);
    }
    let own = match right {
        Right::Send(right) if let Some(part) = right.home(link) => {
            return Ok((part, Undo::Nothing));
        }
        Right::Send(right) if right.best().link().is_loop() => {
            if right.is_forked() {
                return Err(RightError::Dead);
            }
            return part_of((process, link), &own_of(process, right.best())?, goes_on);
        }
        Right::Send(right) if Arc::ptr_eq(right.best().link(), link) => {
            let right = right.best();
            if right.is_revoked() {
                return Err(RightError::Dead);
            }
            let handle = right.origin().handle_at_home(right.handle(), link)?;
            return Ok((Part::OfReceiver { handle }, Undo::Nothing));
        }
        Right::Send(right) => return third(process, link, (right.best(), goes_on)),
        Right::Dead => return Err(RightError::Dead),
        Right::Reply(reply) => {
            let passed = Passed::of(process, reply, link)?;
            let (word, generation) = passed.words();
            return Ok((Part::Reply { word, generation }, Undo::Passed(passed)));
        }
        Right::Receive(receive) => {
            let (part, token) = depart(process, link, receive)?;
            return Ok((part, Undo::Leaving(token)));
        }
        // Numbered when it is sent.
        Right::Descriptor(_) | Right::Memory(_) => {
            let part = right.numbered(0).ok_or(RightError::Lost)?;
            return Ok((part, Undo::Nothing));
        }
        Right::Block(block) => {
            let (part, loan) = link.lend(process, block)?;
            return Ok((part, Undo::Lent(loan)));
        }
        Right::Loan(_) => return Err(RightError::Loan),
        Right::Lost(_) => return Err(RightError::Lost),
        Right::Own(own) if own.is_over() => return Err(RightError::Dead),
        Right::Own(own) => own,
    };
    if let Some(home) = own.port().home.get() {
        if !own.is_good() {
            return Err(RightError::Dead);
        }
        let right = home.right(Seal::of(own.target())).ok_or(RightError::Dead)?;
        return part_of((process, link), &Right::Send((*right).clone()), goes_on);
    }
    let (handle, port) = export_own(link, own)?;
    Ok((Part::OfSender { handle, port }, Undo::Exported(handle)))
}

/// Names a port that is here to the peer: handle and number.
#[inline]
pub(crate) fn export_own(link: &Link, own: &OwnRight) -> Result<(Handle, u32), RightError> {
    let exported = link.export_own(own).ok_or(RightError::Dead)?;
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
    (right, goes_on): (&SendRight, bool),
) -> Result<(Part, Undo), RightError> {
    if right.is_forked() || right.is_down() || right.is_revoked() {
        return Err(RightError::Dead);
    }
    let keep = match goes_on {
        true => false,
        false => match link.how_to_give(right) {
            How::Again(number) => return Ok((Part::Again { number }, Undo::Again(number))),
            How::Provide { keep } => keep,
        },
    };
    let vine = process.vines.get_or_start(&link.process)?;
    let badge = vine.add(right);
    let exported = link.export(&vine.port, Target::full(vine.port.id, badge));
    let handle = granted(exported, link);
    vine.ended(badge);
    let handle = handle?;
    let port = vine.port.id;
    let provided = Provided::say(process, right, link);
    if let Some(provided) = provided.as_ref().filter(|_| keep) {
        right.link().is_introduced();
        link.told().offered(key_of(right), provided.number);
    }
    let part = Part::Third {
        vine: (handle, port),
        port: right.port(),
        exporter: right.link().incarnation,
        number: provided.as_ref().map_or(0, |provided| provided.number),
        pid: right.link().peer.pid,
        keep: keep && provided.is_some(),
    };
    Ok((part, Undo::Introduced(handle, provided)))
}

impl From<RightError> for SendError {
    fn from(error: RightError) -> Self {
        match error {
            RightError::Gone => Self::Gone(Gone::Process),
            error => Self::Right(error),
        }
    }
}

impl From<RightError> for ReplyError {
    fn from(error: RightError) -> Self {
        match error {
            RightError::Gone => Self::Gone,
            error => Self::Right(error),
        }
    }
}

impl<E: core::fmt::Display> core::fmt::Display for Returned<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.error.fmt(f)
    }
}

impl<E: std::error::Error> std::error::Error for Returned<E> {}
