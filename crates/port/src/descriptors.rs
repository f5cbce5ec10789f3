//! Descriptors as parts of messages.
//!
//! They go ahead of their message over the link's control socket, numbered in turn; the message
//! names the numbers. So whoever receives a message finds its descriptors there already, and waits
//! for nobody: what the keeper has not read yet it reads itself.

use crate::error::{ReplyError, Resource, RightError};
use crate::lending::{Foreign, hear_of_arena};
use crate::link::{Link, Outgoing};
use crate::memory::Memory;
use crate::process::Process;
use crate::right::{Described, Right};
use crate::send::{Blocked, SendRight};
use core::sync::atomic::Ordering;
use handfast_layout::link::{Kind, UNIT_BYTES};
use handfast_layout::loan::{ARENA, ARENA_ENDED};
use handfast_layout::part::{DESCRIPTORS, Descriptors, Part, UNCLAIMED_MAX};
use handfast_proto::loans::Borrowed;
use handfast_region::{Memory as _, Sealed};
use handfast_ring::lane::Refused;
use handfast_ring::{Fault, Rule};
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, socket};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The descriptors on their way through a link.
#[derive(Default)]
pub(crate) struct UnderWay {
    /// How many have been sent, modulo 2^32. Held while they are: they arrive in this order.
    sent: Mutex<u32>,
    inbox: Mutex<Inbox>,
}

/// What has been read from the control socket. Held while it is read.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Numbers below have arrived, modulo 2^32.
    arrived: u32,
    claimed: u32,
    /// By number. `None`: there was no room for it in this process.
    unclaimed: Vec<(u32, Option<OwnedFd>)>,
    /// Messages for the keeper, which somebody in search of a descriptor has read.
    unheard: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    /// The peer's arenas.
    pub(crate) borrowed: Borrowed<Foreign>,
}

/// Longest control message: releases of 62 rights.
pub(crate) const CONTROL_BYTES_MAX: usize = 512;
/// Most descriptors of a control message that is for the keeper.
const CONTROL_FDS_MAX: usize = 1;
/// Control messages that may come between the last one the keeper has read and a descriptor that a
/// message names: more than a socket holds, which is some 280 unless the system is told otherwise.
const UNHEARD_MAX: usize = 1024;

/// Why there is no next control message.
pub(crate) enum Unheard {
    Os(Errno),
    Fault(Fault),
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

    /// What describes it, but for its number.
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
    /// Sends the descriptors of a message, once there is a place for it in its lane, whose lock is
    /// held: what has been sent is posted.
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
    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        let inbox = self.under_way.inbox.lock();
        inbox.unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends descriptors. Returns the number of the first.
    fn send_descriptors(&self, fds: &[BorrowedFd<'_>]) -> Result<u32, Unsent> {
        let sent = self.under_way.sent.lock();
        let mut sent = sent.unwrap_or_else(PoisonError::into_inner);
        // Relaxed: the peer's own count; nothing else is read on its strength. Who lies about it is
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
        let message = Descriptors { count, first }.to_bytes();
        socket::send(&self.socket, &message, fds).map_err(|errno| match errno {
            Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Unsent::Full,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Unsent::Right(RightError::Gone),
            errno => Unsent::Right(RightError::Refused { errno }),
        })?;
        *sent = first.wrapping_add(count);
        Ok(first)
    }

    /// Keeper: takes the next message of the control socket. Of one with descriptors for messages,
    /// these have been put where they are looked for.
    pub(crate) fn hear(&self, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Unheard> {
        let mut inbox = self.inbox();
        if let Some((message, fds)) = inbox.unheard.pop_front() {
            bytes[..message.len()].copy_from_slice(&message);
            return Ok((message.len(), fds));
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

    fn read(&self, inbox: &mut Inbox, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Unheard> {
        let received = socket::receive_some(&self.socket, bytes).map_err(Unheard::Os)?;
        let (len_bytes, mut fds) = (received.len_bytes, received.fds);
        if bytes[..len_bytes].first() == Some(&DESCRIPTORS) {
            let arrived = inbox.arrive(&bytes[..len_bytes], fds, received.is_short);
            arrived.map_err(|rule| Unheard::Fault(Fault { rule, offset: 0 }))?;
            return Ok((len_bytes, Vec::new()));
        }
        if let [ARENA | ARENA_ENDED, ..] = bytes[..len_bytes] {
            let said = (fds, received.is_short);
            let heard = hear_of_arena(&mut inbox.borrowed, &bytes[..len_bytes], said);
            heard.map_err(|rule| Unheard::Fault(Fault { rule, offset: 0 }))?;
            return Ok((len_bytes, Vec::new()));
        }
        if received.is_short {
            // Without room for its descriptor a message is lost, and only that.
            return Err(Unheard::Os(Errno::MFILE));
        }
        fds.truncate(CONTROL_FDS_MAX);
        Ok((len_bytes, fds))
    }

    /// Reads the control socket until what a received message names is found: it was sent before. What is
    /// for the keeper is kept for it. `fault`: what the peer has broken otherwise.
    pub(crate) fn read_until<T>(
        &self,
        process: &Process,
        inbox: &mut Inbox,
        fault: Fault,
        mut find: impl FnMut(&mut Inbox) -> Option<T>,
    ) -> Result<T, Fault> {
        let mut looks = UNHEARD_MAX;
        loop {
            if let Some(found) = find(inbox) {
                return Ok(found);
            }
            looks -= 1;
            if looks == 0 || inbox.unheard.len() >= UNHEARD_MAX {
                return Err(fault);
            }
            self.read_one(process, inbox, fault)?;
        }
    }

    /// Out of line: its buffer is large.
    #[cold]
    fn read_one(&self, process: &Process, inbox: &mut Inbox, fault: Fault) -> Result<(), Fault> {
        let mut bytes = [0; CONTROL_BYTES_MAX];
        match self.read(inbox, &mut bytes) {
            Ok((1.., _)) if matches!(bytes[0], DESCRIPTORS | ARENA | ARENA_ENDED) => Ok(()),
            Ok((len_bytes @ 1.., fds)) => {
                let message = bytes[..len_bytes].to_vec();
                inbox.unheard.push_back((message, fds));
                process.attention.raise();
                Ok(())
            }
            // A peer that has gone resets the connection, which is said once, before what it sent.
            Err(Unheard::Os(Errno::INTR | Errno::CONNRESET | Errno::MFILE)) => Ok(()),
            Err(Unheard::Fault(fault)) => Err(fault),
            Ok((0, _)) | Err(Unheard::Os(_)) => Err(fault),
        }
    }

    /// Takes the descriptor that a received message names; `None` when there was no room for it in
    /// this process. A system call for each control message that the keeper has not read yet;
    /// never blocks.
    fn claim_descriptor(&self, process: &Process, number: u32) -> Result<Option<OwnedFd>, Fault> {
        let fault = Fault {
            rule: Rule::Descriptor,
            offset: 0,
        };
        let mut inbox = self.inbox();
        self.read_until(process, &mut inbox, fault, |inbox| {
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

impl Inbox {
    fn has_arrived(&self, number: u32) -> bool {
        number.wrapping_sub(self.arrived).cast_signed() < 0
    }

    /// Enters descriptors that have come; the rule the peer broke.
    fn arrive(&mut self, bytes: &[u8], fds: Vec<OwnedFd>, is_short: bool) -> Result<(), Rule> {
        let sent = Descriptors::parse(bytes).ok_or(Rule::DescriptorCount)?;
        let (count, came) = (sent.count as usize, fds.len());
        let is_whole = came == count || (is_short && came < count);
        let is_within = self.unclaimed.len() + count <= UNCLAIMED_MAX as usize;
        if sent.first != self.arrived || !is_whole || !is_within {
            return Err(Rule::DescriptorCount);
        }
        let fds = fds
            .into_iter()
            .map(Some)
            .chain(core::iter::repeat_with(|| None));
        for (place, fd) in (0..sent.count).zip(fds) {
            let number = sent.first.wrapping_add(place);
            self.unclaimed.push((number, fd));
        }
        self.arrived = sent.first.wrapping_add(sent.count);
        Ok(())
    }
}

/// Takes up a descriptor that a received message names.
pub(crate) fn take_up(process: &Process, link: &Link, number: u32) -> Result<Right, Fault> {
    let fd = link.claim_descriptor(process, number)?;
    Ok(fd.map_or_else(|| lost("recvmsg", Errno::MFILE), Right::Descriptor))
}

/// Takes up memory: what was said of it is true, or a rule broken.
pub(crate) fn take_up_memory(
    process: &Process,
    link: &Link,
    (number, len_bytes): (u32, u64),
) -> Result<Right, Fault> {
    let fd = match take_up(process, link, number)? {
        Right::Descriptor(fd) => fd,
        lost => return Ok(lost),
    };
    match Sealed::open(fd) {
        Ok(Some(sealed)) if sealed.bytes().len() as u64 == len_bytes => {
            Ok(Right::Memory(Memory::of(sealed)))
        }
        Err(errno @ (Errno::NOMEM | Errno::AGAIN)) => Ok(lost("mmap", errno)),
        Ok(_) | Err(_) => Err(Fault {
            rule: Rule::Memory,
            offset: 0,
        }),
    }
}

fn lost(call: &'static str, errno: Errno) -> Right {
    lost_of(Resource::of(call, errno))
}

/// What came instead of what there was no room for.
pub(crate) fn lost_of(resource: Resource) -> Right {
    Right::Lost(resource.into())
}

#[cfg(test)]
pub(crate) mod tests;
