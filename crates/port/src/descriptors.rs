//! Descriptors as parts of messages.
//!
//! They go ahead of their message over the link's control socket, numbered in turn; the message names the
//! numbers. So a thread that receives a message finds its descriptors there already, and waits for no other
//! thread: it reads itself those that the keeper has not read yet.

use crate::error::{ReplyError, Resource, RightError};
use crate::lending::{ForeignArena, hear_of_arena};
use crate::link::{Link, Outgoing};
use crate::memory::Memory;
use crate::process::Process;
use crate::rank;
use crate::right::{Described, Right};
use crate::send::{Blocked, SendRight};
use crate::users::{Charge, Foreign, Users};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use handfast_layout::control::{
    CONTROL_BYTES_MAX, ControlMessage, Malformed, descriptors_of, kind,
};

use handfast_layout::link::{Kind, UNIT_BYTES};
use handfast_layout::part::{Descriptors, Part, UNCLAIMED_MAX};
use handfast_proto::loans::Borrowed;
use handfast_proto::users::Quota;
use handfast_region::{Memory as _, Sealed};
use handfast_ring::lane::Refused;
use handfast_ring::{Fault, Rule};
use handfast_sys::memory::has_seals;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{AsFd, BorrowedFd, Errno, clock, socket};
use std::collections::VecDeque;
use std::sync::Arc;

/// The descriptors on their way through a link.
pub(crate) struct UnderWay {
    /// How many have been sent, modulo 2^32. Held while they are: they arrive in this order.
    sent: Mutex<u32, rank::SentDescriptors>,
    inbox: Mutex<Inbox, rank::Inbox>,
    /// A message of the control socket is being taken away where that may block.
    discarding: Arc<AtomicBool>,
}

/// The messages read from the control socket. Held while it is read.
pub(crate) struct Inbox {
    /// Numbers below have arrived, modulo 2^32.
    arrived: u32,
    claimed: u32,
    /// By number. `None`: there was no room for it in this process.
    unclaimed: Vec<(u32, Option<Foreign>)>,
    /// Messages for the keeper, read by a thread in search of a descriptor.
    unheard: VecDeque<(Vec<u8>, Option<Foreign>)>,
    /// Their bytes.
    unheard_bytes: Charge,
    /// Since when a message is being taken away.
    discarding_since_ns: u64,
    /// The peer's arenas.
    pub(crate) borrowed: Borrowed<ForeignArena>,
}

impl UnderWay {
    pub(crate) fn new(users: &Arc<Users>, user: u32) -> Self {
        Self {
            sent: Mutex::default(),
            inbox: Mutex::new(Inbox {
                arrived: 0,
                claimed: 0,
                unclaimed: Vec::new(),
                unheard: VecDeque::new(),
                unheard_bytes: users.nothing(user, Quota::Backlog),
                discarding_since_ns: 0,
                borrowed: Borrowed::default(),
            }),
            discarding: Arc::default(),
        }
    }
}

/// How long a message with descriptors that there is no room for may take to be closed, before the link is cut. A receiver waits
/// as long for a peer of its own user: the closing thread may be waiting for a processor.
const DISCARD_NS_MAX: u64 = 1_000_000_000;
/// How long a receiver waits for a peer of another user, which can make the close take as long as it likes.
const DISCARD_WAIT_NS_MAX: u64 = 100_000_000;
/// Between two looks of a receiver that waits so.
const DISCARD_LOOK: Duration = Duration::from_micros(50);
/// Control messages that may come between the last one the keeper has read and a descriptor that a
/// message names: more than a socket holds, which is some 280 unless the system is told otherwise.
const UNHEARD_MAX: usize = 1024;

/// Why there is no next control message.
pub(crate) enum Unheard {
    Os(Errno),
    Fault(Fault),
    /// Another thread is reading, or taking a message away: soon.
    Busy,
}

/// Why descriptors were not sent.
pub(crate) enum Unsent {
    /// The control socket is full: the peer does not read.
    Full,
    Right(RightError),
    Fault(Fault),
}

impl Right {
    /// The descriptor that it is sent as.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Descriptor(fd) => Some(fd.as_fd()),
            Self::Memory(memory) => Some(memory.as_fd()),
            Self::Receive(receive) => receive.listener().map(AsFd::as_fd),
            _ => None,
        }
    }

    /// The description of the part with its number.
    pub(crate) fn numbered(&self, number: u32) -> Option<Part> {
        match self {
            Self::Descriptor(_) => Some(Part::Descriptor { number }),
            Self::Memory(memory) => Some(Part::Memory {
                number,
                len_bytes: memory.bytes().len() as u64,
            }),
            _ => None,
        }
    }
}

impl Described {
    /// Sends the descriptors of a message, all or none, and names them in its units. Nothing may
    /// keep the message from following. One system call if there are any.
    pub(crate) fn send_descriptors(&mut self, link: &Link, rights: &[Right]) -> Result<(), Unsent> {
        let fds: Vec<_> = rights.iter().filter_map(Right::fd).collect();
        if fds.is_empty() {
            return Ok(());
        }
        let mut number = link.send_descriptors(&fds)?;
        let mut units = self.units_mut();
        for right in rights {
            let parsed = Part::parse(units);
            let count = parsed.map_or(1, |(_, count)| count);
            let (of_right, rest) = units.split_at_mut(count);
            let numbered = match (right, parsed) {
                (Right::Receive(receive), Some((part, _))) if receive.listener().is_some() => {
                    Some(part.with_number(number))
                }
                _ => right.numbered(number),
            };
            if let Some(part) = numbered {
                of_right[0] = part.to_units().0[0];
                number = number.wrapping_add(1);
            }
            units = rest;
        }
        Ok(())
    }
}

impl SendRight {
    /// Sends the descriptors of a message, once there is a place for it in its lane, whose lock is held:
    /// descriptors that were sent are posted.
    pub(crate) fn send_ahead(
        &self,
        (outgoing, lane): (&mut Outgoing, u32),
        (bytes, kind): (&[u8], Kind),
        (described, rights): (&mut Described, &[Right]),
    ) -> Result<(), Blocked> {
        if rights.iter().all(|right| right.fd().is_none()) {
            return Ok(());
        }
        if kind == Kind::Call && outgoing.claimed.is_none() {
            outgoing.claimed = self.claim(lane, &mut outgoing.producer);
            outgoing.claimed.ok_or(Blocked::Slots)?;
        }
        let body_bytes = bytes.len() + described.units().len() * UNIT_BYTES;
        let has_room = outgoing.producer.has_room(&self.link().region, body_bytes);
        if !has_room.map_err(|fault| Blocked::Lane(Refused::Fault(fault)))? {
            return Err(Blocked::Lane(Refused::Full));
        }
        let sent = described.send_descriptors(self.link(), rights);
        sent.map_err(|unsent| match unsent {
            Unsent::Full => Blocked::Slots,
            Unsent::Right(error) => Blocked::Right(error),
            Unsent::Fault(fault) => Blocked::Lane(Refused::Fault(fault)),
        })
    }
}

impl Unsent {
    /// As the error of a reply, which does not wait.
    pub(crate) fn of_reply(self, link: &Link) -> ReplyError {
        match self {
            Self::Full => ReplyError::Right(RightError::Unread),
            Self::Right(error) => error.into(),
            Self::Fault(fault) => {
                link.poison(fault);
                ReplyError::Gone
            }
        }
    }
}

impl Link {
    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox, rank::Inbox> {
        self.under_way.inbox.lock()
    }

    /// Sends descriptors. Returns the number of the first.
    fn send_descriptors(&self, fds: &[BorrowedFd<'_>]) -> Result<u32, Unsent> {
        let mut sent = self.under_way.sent.lock();
        // Relaxed: the peer's own count; nothing else is read on its strength. A peer that lies about it is
        // sent too many, which it closes, or none.
        let at = self.calls.claimed();
        let claimed = self.region.load(at, Ordering::Relaxed);
        let unclaimed = sent.wrapping_sub(claimed);
        if unclaimed > UNCLAIMED_MAX {
            return Err(Unsent::Fault(Fault {
                rule: Rule::DescriptorCount,
                offset: at,
            }));
        }
        let count = fds.len() as u32;
        if unclaimed + count > UNCLAIMED_MAX {
            let limit = UNCLAIMED_MAX;
            return Err(Unsent::Right(RightError::Unclaimed { limit }));
        }
        let first = *sent;
        let message = ControlMessage::Descriptors(Descriptors { count, first });
        self.send_with(message, fds).map_err(|errno| match errno {
            Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Unsent::Full,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Unsent::Right(RightError::Gone),
            errno => Unsent::Right(RightError::Refused {
                errno: errno.into(),
            }),
        })?;
        *sent = first.wrapping_add(count);
        Ok(first)
    }

    /// Keeper: takes the next message of the control socket. Descriptors for messages have been put where
    /// receivers look for them. Never waits for a receiver that reads.
    pub(crate) fn hear(&self, bytes: &mut [u8]) -> Result<(usize, Option<Foreign>), Unheard> {
        let mut inbox = self.under_way.inbox.try_lock().ok_or(Unheard::Busy)?;
        if let Some((message, fd)) = inbox.unheard.pop_front() {
            inbox.unheard_bytes.shrink(message.len() as u64);
            bytes[..message.len()].copy_from_slice(&message);
            return Ok((message.len(), fd));
        }
        self.read(&mut inbox, bytes)
    }

    /// Whether there are messages for the keeper that no event tells of.
    pub(crate) fn has_unheard(&self) -> bool {
        !self.inbox().unheard.is_empty()
    }

    /// The link has been cut: no message of its peer is received any more.
    pub(crate) fn close_unclaimed(&self) {
        let mut inbox = self.inbox();
        inbox.unclaimed.clear();
        inbox.borrowed.clear();
    }

    /// Reads one message, with the descriptors that belong to its kind. None is closed by this thread.
    fn read(
        &self,
        inbox: &mut Inbox,
        bytes: &mut [u8],
    ) -> Result<(usize, Option<Foreign>), Unheard> {
        let fault = |rule| Unheard::Fault(Fault { rule, offset: 0 });
        // Acquire: pairs with the Release of the thread that has taken the message away.
        if self.under_way.discarding.load(Ordering::Acquire) {
            let since_ns = clock::now_ns().saturating_sub(inbox.discarding_since_ns);
            return Err(match since_ns > DISCARD_NS_MAX {
                true => fault(Rule::ControlDescriptor),
                false => Unheard::Busy,
            });
        }
        let received =
            socket::receive_expected(&self.socket, bytes, descriptors_of).map_err(Unheard::Os)?;
        let bytes = &bytes[..received.len_bytes];
        let fds = received
            .fds
            .into_iter()
            .map(|fd| self.socket.charged_beside(fd));
        let mut fds: Vec<_> = fds.collect();
        let came = fds.len();
        // Descriptors that the peer's user may not have are lost; if they are not closed in time, either, the
        // link is cut.
        let is_refused = received.is_short || fds.iter().any(Option::is_none);
        let has_room = !is_refused || !self.socket.users().is_backed_up(self.peer.uid);
        if received.is_surplus || !has_room {
            let rule = bytes.first().and_then(|kind| rule_of(*kind));
            return Err(fault(
                rule.filter(is_of_parts).unwrap_or(Rule::ControlDescriptor),
            ));
        }
        if received.is_short {
            self.discard(inbox);
        }
        let rule_of_parts = |kind| rule_of(kind).filter(is_of_parts);
        match ControlMessage::parse(bytes) {
            Ok(Some(ControlMessage::Descriptors(sent))) => {
                let arrived = inbox.arrive(sent, fds, received.is_short);
                arrived.map_err(fault)?;
                Ok((bytes.len(), None))
            }
            Ok(Some(ControlMessage::Arena(told))) => {
                let fd = fds.pop().flatten();
                let is_short = received.is_short || came > 0 && fd.is_none();
                hear_of_arena(&mut inbox.borrowed, told, (fd.as_ref(), is_short)).map_err(fault)?;
                // A memory file, which closes at once.
                drop(fd.map(Foreign::into_inner));
                Ok((bytes.len(), None))
            }
            Err(Malformed { kind }) if let Some(rule) = rule_of_parts(kind) => Err(fault(rule)),
            // Without room for its descriptor a message is lost, and only that.
            _ if received.is_short || fds.iter().any(Option::is_none) => {
                Err(Unheard::Os(Errno::MFILE))
            }
            _ => Ok((bytes.len(), fds.pop().flatten())),
        }
    }

    /// Has the peer's user take away the next message, whose descriptors have no room here: taking it closes
    /// them.
    fn discard(&self, inbox: &mut Inbox) {
        inbox.discarding_since_ns = clock::now_ns();
        let discarding = self.under_way.discarding.clone();
        discarding.store(true, Ordering::Release);
        let socket = self.socket.clone();
        self.socket.users().expend(self.peer.uid, move || {
            let _ = socket::discard(&socket);
            // Release: a thread that sees this reads the next message.
            discarding.store(false, Ordering::Release);
        });
    }

    /// Reads the control socket until the descriptors that a received message names are found: they were sent
    /// before. Messages for the keeper are kept for it. `fault`: the rule that the peer has broken otherwise.
    pub(crate) fn read_until<'a, T>(
        &'a self,
        process: &Process,
        mut inbox: MutexGuard<'a, Inbox, rank::Inbox>,
        fault: Fault,
        mut find: impl FnMut(&mut Inbox) -> Option<T>,
    ) -> Result<(T, MutexGuard<'a, Inbox, rank::Inbox>), Fault> {
        let mut looks = UNHEARD_MAX;
        let patience_ns = match self.group.is_foreign {
            true => DISCARD_WAIT_NS_MAX,
            false => DISCARD_NS_MAX,
        };
        let deadline_ns = clock::now_ns() + patience_ns;
        loop {
            if let Some(found) = find(&mut inbox) {
                return Ok((found, inbox));
            }
            looks -= 1;
            if looks == 0 || inbox.unheard.len() >= UNHEARD_MAX {
                return Err(fault);
            }
            if !self.read_one(process, &mut inbox, fault)? {
                if clock::now_ns() >= deadline_ns {
                    return Err(fault);
                }
                looks += 1;
                drop(inbox);
                std::thread::sleep(DISCARD_LOOK);
                inbox = self.inbox();
            }
        }
    }

    /// Whether there was nothing in the way. Out of line: its buffer is large.
    #[cold]
    fn read_one(&self, process: &Process, inbox: &mut Inbox, fault: Fault) -> Result<bool, Fault> {
        let mut bytes = [0; CONTROL_BYTES_MAX];
        match self.read(inbox, &mut bytes) {
            Ok((1.., _)) if rule_of(bytes[0]).as_ref().is_some_and(is_of_parts) => Ok(true),
            Ok((len_bytes @ 1.., fd)) => {
                let grown = inbox.unheard_bytes.grow(len_bytes as u64);
                grown.map_err(|_| Rule::Unread.broken())?;
                inbox.unheard.push_back((bytes[..len_bytes].to_vec(), fd));
                process.attention.raise();
                Ok(true)
            }
            // A peer that has gone resets the connection, which is said once, before what it sent.
            Err(Unheard::Os(Errno::INTR | Errno::CONNRESET | Errno::MFILE)) => Ok(true),
            Err(Unheard::Busy) => Ok(false),
            Err(Unheard::Fault(fault)) => Err(fault),
            Ok((0, _)) | Err(Unheard::Os(_)) => Err(fault),
        }
    }

    /// Takes the descriptor that a received message names; `None` when there was no room for it in
    /// this process. A system call for each control message that the keeper has not read yet;
    /// never blocks.
    pub(crate) fn claim_descriptor(
        &self,
        process: &Process,
        number: u32,
    ) -> Result<Option<Foreign>, Fault> {
        let fault = Rule::Descriptor.broken();
        let (_, mut inbox) = self.read_until(process, self.inbox(), fault, |inbox| {
            inbox.has_arrived(number).then_some(())
        })?;
        let place = inbox.unclaimed.iter().position(|(of, _)| *of == number);
        let (_, fd) = inbox.unclaimed.swap_remove(place.ok_or(fault)?);
        inbox.claimed = inbox.claimed.wrapping_add(1);
        // Relaxed: as where it is read. The peer sends no more on its strength than there is room for.
        let at = self.calls.other().claimed();
        self.region.store(at, inbox.claimed, Ordering::Relaxed);
        Ok(fd)
    }
}

/// The rule that a peer breaks by a message of this kind that is not whole, or that has other descriptors than it says. A kind of
/// no protocol has none: such messages are passed over, like those of later releases.
pub(crate) fn rule_of(kind: u8) -> Option<Rule> {
    Some(match kind {
        kind::DESCRIPTORS => Rule::DescriptorCount,
        kind::ARENA | kind::ARENA_ENDED => Rule::Arena,
        kind::PATH_ASK..=kind::PATH_DROP => Rule::Path,
        kind::PROVISION_VOID | kind::DECLINED => Rule::Introduction,
        kind::DOOR_WHERE..=kind::LEFT | kind::ARRIVED..=kind::MOVED => Rule::Introduction,
        kind::SPREAD => Rule::Spread,
        _ => return None,
    })
}

/// Whether messages of a kind say what others have beside their bytes, and are heard where they are read.
const fn is_of_parts(rule: &Rule) -> bool {
    matches!(rule, Rule::DescriptorCount | Rule::Arena)
}

impl Inbox {
    fn has_arrived(&self, number: u32) -> bool {
        number.wrapping_sub(self.arrived).cast_signed() < 0
    }

    /// Enters descriptors that have come; the rule the peer broke.
    fn arrive(
        &mut self,
        sent: Descriptors,
        fds: Vec<Option<Foreign>>,
        is_short: bool,
    ) -> Result<(), Rule> {
        let (count, came) = (sent.count as usize, fds.len());
        let is_whole = came == count || (is_short && came < count);
        let is_within = self.unclaimed.len() + count <= UNCLAIMED_MAX as usize;
        if sent.first != self.arrived || !is_whole || !is_within {
            return Err(Rule::DescriptorCount);
        }
        let fds = fds.into_iter().chain(core::iter::repeat_with(|| None));
        for (place, fd) in (0..sent.count).zip(fds) {
            let number = sent.first.wrapping_add(place);
            self.unclaimed.push((number, fd));
        }
        self.arrived = sent.first.wrapping_add(sent.count);
        Ok(())
    }
}

/// Takes up a descriptor that a received message names. The application decides what to do with it.
pub(crate) fn take_up(process: &Process, link: &Link, number: u32) -> Result<Right, Fault> {
    let fd = link.claim_descriptor(process, number)?;
    Ok(fd.map_or_else(
        || lost("recvmsg", Errno::MFILE),
        |fd| Right::Descriptor(fd.into_inner()),
    ))
}

/// Takes up memory: its description is checked, and a false one breaks a rule.
pub(crate) fn take_up_memory(
    process: &Process,
    link: &Link,
    (number, len_bytes): (u32, u64),
) -> Result<Right, Fault> {
    let fault = Rule::Memory.broken();
    let Some(fd) = link.claim_descriptor(process, number)? else {
        return Ok(lost("recvmsg", Errno::MFILE));
    };
    if !has_seals(&fd) {
        return Err(fault);
    }
    // A refused descriptor is closed by its user's thread, as the last of its file.
    let own = match handfast_sys::duplicate(&fd) {
        Ok(own) => own,
        Err(errno) => return Ok(lost("dup", errno)),
    };
    match Sealed::open(own)
        .map(|sealed| sealed.map(|sealed| Memory::from_peer(&link.socket, sealed)))
    {
        Ok(Some(memory)) if memory.len() as u64 == len_bytes => {
            // Closes at once: it is not the last.
            drop(fd.into_inner());
            Ok(Right::Memory(memory))
        }
        Err(errno @ (Errno::NOMEM | Errno::AGAIN)) => Ok(lost("mmap", errno)),
        Ok(_) | Err(_) => Err(fault),
    }
}

pub(crate) fn lost(call: &'static str, errno: Errno) -> Right {
    lost_of(Resource::of(call, errno))
}

/// The placeholder for an attachment that there was no room for.
pub(crate) fn lost_of(resource: Resource) -> Right {
    Right::Lost(resource.into())
}

#[cfg(test)]
pub(crate) mod tests;
