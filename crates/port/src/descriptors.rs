//! Descriptors as parts of messages.
//!
//! They go ahead of their message over the link's control socket, numbered in turn; the message names the
//! numbers. So a thread that receives a message finds its descriptors there already, and waits for no other
//! thread: it reads itself those that the control thread has not read yet.

use crate::error::{ReplyError, Resource, RightError};
use crate::link::{Link, backlog, inbox};
use crate::memory::Memory;
use crate::process::Process;
use crate::right::Right;
use core::sync::atomic::Ordering;
use handfast_layout::control::ControlMessage;
use handfast_layout::part::{Descriptors, Part, UNCLAIMED_MAX};
use handfast_region::{Memory as _, Sealed};
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
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
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
pub(crate) fn send_descriptors(link: &Link, fds: &[BorrowedFd<'_>]) -> Result<u32, Unsent> {
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
    backlog::send_with(link, message, fds).map_err(|errno| match errno {
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
