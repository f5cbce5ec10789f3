//! Rights as parts of messages, and sending them. `own` has the rights of a process to its own ports,
//! `descriptors` the rights to kernel objects.

use crate::arena::Block;
use crate::error::{Exhausted, Gone, ReplyError, RightError, SendError};
use crate::link::Link;
use crate::loan::Loan;
use crate::member::MemberPort;
use crate::memory::Memory;
use crate::port::NoRight;
use crate::port::own::OwnRight;
use crate::process::Process;
use crate::receive_right::ReceiveRight;
use crate::reply_right::ReplyRight;
use crate::send::{SETTLE_NS, SendRight, ended, moved, route};
use crate::send_once::{SendOnceRight, Way};
use handfast_sys::{OwnedFd, clock};
use std::sync::Arc;

/// A right to be sent, or received, in a message.
#[derive(Debug)]
#[non_exhaustive]
pub enum Right {
    /// A right to send to a port of another process, which gets it as [`Self::Own`]; or to a port of this process, where it came by a right of
    /// [`connect`](crate::connect) to a name of this process. No system call. A right to a third process's port
    /// takes a thread and a port of this process, once for all such rights, and reaches that port through this process until
    /// its receiver has a link there.
    Send(SendRight),
    /// A right to send to a port of this process; another process gets it as [`Self::Send`]. No system call; some 35 bytes for each
    /// process that has it.
    Own(OwnRight),
    /// A right to send one message to a port, of this process or another. No system call, as for the other rights to send. The right is
    /// moved; a right that could not be sent comes back.
    SendOnce(SendOnceRight),
    /// A right to a port of this process that has ended, a right that was revoked, or a right to answer a call whose caller
    /// is gone.
    Dead,
    /// A right to answer a call, once. No system call once there is a return path ([`Request::forward`](crate::Request::forward)).
    Reply(ReplyRight),
    /// A descriptor. The receiver gets its own descriptor of it, close-on-exec; the
    /// sender's is closed once it has been sent. One system call to send the descriptors of a message, one to
    /// receive them, and the receiver's control thread wakes; no copies. At most 64, including memory, are on
    /// their way to one process ([`RightError::Unclaimed`]). A descriptor that is not received is closed, also
    /// when either process dies.
    Descriptor(OwnedFd),
    /// Memory that can no longer be changed.
    Memory(Memory),
    /// The right to receive from a port, which moves with it: the messages that wait there, in order, and all its
    /// senders. Calls that have been received stay where they are. A bound name comes along, and so does a
    /// requested notice of no senders. Options do not: the port waits by the new home's
    /// ([`ReceiveRight::set_options`]).
    ///
    /// Senders may notice that messages take longer, while the port is under way and until they have a direct way to its new
    /// process. Each sender gets a direct way by itself, if the two can have a link ([`wait_moved_timeout`](crate::wait_moved_timeout)). The port is
    /// dropped when the right is not taken up, or either process dies before it has arrived. When this process ends, senders
    /// that still go through it lose the port.
    ///
    /// Costs two control messages, some more for each sender, and a thread of this process until all senders have switched; eight ports
    /// that went to the same process may have such senders ([`RightError::Trails`](crate::error::RightError::Trails)). Waiting messages are
    /// copied only when passed on.
    ///
    /// Sent within its process, by a right of [`OwnRight::connect`], the port keeps its options, and its senders notice nothing; no control
    /// message, no thread. Sent by a right of [`connect`](crate::connect) to a name of this process the port moves, as to another process. A receive right
    /// cannot be sent to its own port ([`RightError::Home`](crate::error::RightError::Home)).
    Receive(ReceiveRight),
    /// A port that shares the receiver of another: the port moves as a [receive right](Self::Receive) does, and shares the receiver that
    /// the message comes to, if that [takes such ports](MemberPort::accept_at); the port ends otherwise. Costs the same; at most 64 such ports of this process have senders that still go through it
    /// ([`RightError::Trails`](crate::error::RightError::Trails)). Such senders need a thread that receives at the port's old receiver, and lose
    /// the port when that receiver's own port is dropped.
    ///
    /// Sent within its process, by a right of [`OwnRight::connect`], the port stays at its receiver. The port cannot go with an answer, which comes to no receiver
    /// ([`RightError::NoReceiver`](crate::error::RightError::NoReceiver)).
    Member(MemberPort),
    /// A block of an arena of this process's, to be lent with the message. At most 256 are lent to one
    /// process at once ([`RightError::Loans`]), of at most 16 arenas ([`RightError::Arenas`]). No system call, except
    /// for the first block of each arena that goes to a process; no copies.
    Block(Block),
    /// A block of the sender's arena, lent to this process. A loan cannot be sent on.
    Loan(Loan),
    /// Placeholder for an attachment that could not be received: no free descriptor, or no room for the memory
    /// or loan.
    Lost(Exhausted),
}

/// The rights that could not be sent, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
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

impl From<SendOnceRight> for Right {
    fn from(right: SendOnceRight) -> Self {
        Self::SendOnce(right)
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

impl From<MemberPort> for Right {
    fn from(port: MemberPort) -> Self {
        Self::Member(port)
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

impl Right {
    /// A right to a port of another process: to send by once, or as often as it likes.
    pub(crate) fn elsewhere(right: SendRight, is_once: bool) -> Self {
        match is_once {
            true => Self::SendOnce(SendOnceRight::there(right)),
            false => Self::Send(right),
        }
    }

    /// The right to a port elsewhere that this is, whether it is used once or more often.
    pub(crate) const fn to_send(&self) -> Option<&SendRight> {
        match self {
            Self::Send(right) => Some(right),
            Self::SendOnce(once) => match once.way() {
                Way::Here(_) => None,
                Way::There(right) => Some(right),
            },
            _ => None,
        }
    }

    /// The node to which it belongs, if only that one can send it.
    pub(crate) fn node(&self) -> Option<&Arc<Process>> {
        match self {
            Self::Send(right) => Some(right.process()),
            Self::SendOnce(right) => Some(right.node()),
            Self::Own(own) => Some(&own.port().process),
            Self::Receive(receive) => Some(&receive.port().process),
            Self::Member(member) => Some(&member.port().process),
            _ => None,
        }
    }
}

/// Whether a message with these rights by `to` waits for the word of that one's process, which its user may still have a thread wait for.
pub(crate) fn wait_for_word(rights: &[Right], to: &SendRight) -> bool {
    let link = to.link();
    is_word_awaited(rights, to) && link.users().is_patient(link.peer.uid, link.identity())
}

/// The same, whether or not its user has had threads wait in vain.
pub(crate) fn is_word_awaited(rights: &[Right], to: &SendRight) -> bool {
    let home = route::best(to).link();
    let is_settled = |right: &SendRight| right.origin().is_settled();
    !are_settled(rights, home, is_settled) && ended::failure(to).is_none()
}

/// Whether the names of rights that go home with an answer by `home` may still come. The answer has waited since then, while the thread that
/// passes it on does other work.
pub(crate) fn are_names_awaited(rights: &[Right], home: &Arc<Link>, since_ns: u64) -> bool {
    let is_over = |right: &SendRight| !right.origin().is_awaited(right.link(), since_ns);
    !are_settled(rights, home, is_over) && clock::now_ns() < since_ns.saturating_add(SETTLE_NS)
}

/// Whether all these rights that go home, to the peer of `home` or to this process itself, are settled: whether their home has said what they
/// are called there.
fn are_settled(rights: &[Right], home: &Arc<Link>, is_named: impl Fn(&SendRight) -> bool) -> bool {
    let is_settled = |right: &Right| match right {
        right if let Some(right) = right.to_send() => {
            let best = route::best(right);
            let goes_home = best.link().is_loop() || Arc::ptr_eq(best.link(), home);
            !goes_home || is_named(best)
        }
        // Its port has moved, perhaps there.
        Right::Own(own) => match moved(own, false) {
            Some(Ok(right)) => {
                let best = route::best(&right);
                !Arc::ptr_eq(best.link(), home) || is_named(best)
            }
            Some(Err(NoRight::NotYet)) => false,
            Some(Err(NoRight::Over)) | None => true,
        },
        _ => true,
    };
    rights.iter().all(is_settled)
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
