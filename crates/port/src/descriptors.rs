//! Descriptors as parts of messages.
//!
//! They go ahead of their message over the link's control socket, numbered in turn; the message names the
//! numbers. So a thread that receives a message finds its descriptors there already, and waits for no other
//! thread: it reads itself those that the keeper has not read yet.

use crate::describe::Described;
use crate::error::{ReplyError, Resource, RightError};
use crate::link::inbox;
use crate::link::{Link, Outgoing};
use crate::memory::Memory;
use crate::process::Process;
use crate::right::Right;
use crate::send::{Blocked, SendRight};
use core::sync::atomic::Ordering;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::{Kind, UNIT_BYTES};
use handfast_layout::part::{Descriptors, Part, UNCLAIMED_MAX};
use handfast_region::{Memory as _, Sealed};
use handfast_ring::lane::Refused;
use handfast_ring::{Fault, Rule};
use handfast_sys::memory::has_seals;
use handfast_sys::{AsFd, BorrowedFd, Errno};

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
        let mut number = send_descriptors(link, &fds)?;
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

/// Sends descriptors. Returns the number of the first.
fn send_descriptors(link: &Link, fds: &[BorrowedFd<'_>]) -> Result<u32, Unsent> {
    let mut sent = link.parts.under_way.sent.lock();
    // Relaxed: the peer's own count; nothing else is read on its strength. A peer that lies about it is
    // sent too many, which it closes, or none.
    let at = link.calls.claimed();
    let claimed = link.region.load(at, Ordering::Relaxed);
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
    link.send_with(message, fds).map_err(|errno| match errno {
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Unsent::Full,
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Unsent::Right(RightError::Gone),
        errno => Unsent::Right(RightError::Refused {
            errno: errno.into(),
        }),
    })?;
    *sent = first.wrapping_add(count);
    Ok(first)
}

/// Takes up a descriptor that a received message names. The application decides what to do with it.
pub(crate) fn take_up(process: &Process, link: &Link, number: u32) -> Result<Right, Fault> {
    let fd = inbox::claim_descriptor(link, process, number)?;
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
    let Some(fd) = inbox::claim_descriptor(link, process, number)? else {
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
    match Sealed::open(own).map(|sealed| sealed.map(|sealed| Memory::from_peer(&fd, sealed))) {
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
