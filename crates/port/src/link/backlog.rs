//! Messages that this process sends through a link's control socket, and those that wait there: for a peer that has not had its
//! welcome, or does not read.
//!
//! All messages count against the peer's user, and a peer that leaves too much unread is cut: so no peer that makes this
//! process send can make it keep more than one user may.

use super::{Link, connection};
use crate::rank;
use crate::users::{Charge, Users};
use handfast_layout::control::{ControlMessage, Encoded};
use handfast_layout::part::receiver_of;
use handfast_proto::timers::Timer;
use handfast_proto::users::Quota;
use handfast_ring::{Fault, Rule};
use handfast_sys::sync::MutexGuard;
use handfast_sys::{BorrowedFd, Errno, socket};
use std::collections::VecDeque;
use std::sync::Arc;

/// Control messages that wait for a peer to read, beyond which it may ask for nothing.
pub(crate) const UNSAID_MAX: usize = 4096;
/// Size of a waiting message besides its bytes.
const OVERHEAD_BYTES: u64 = 48;

/// See the module text.
pub(crate) struct Backlog {
    /// The peer has its end of the link. A peer that connects expects its welcome before anything else.
    is_welcomed: bool,
    messages: VecDeque<Vec<u8>>,
    /// Their bytes.
    bytes: Charge,
    /// The peer has asked for the counters.
    owes_counters: bool,
    /// There was no room for a message: the link is to be cut.
    is_over: bool,
}

impl Backlog {
    pub(crate) fn new(users: &Arc<Users>, user: u32, is_welcomed: bool) -> Self {
        Self {
            is_welcomed,
            messages: VecDeque::new(),
            bytes: users.nothing(user, Quota::Backlog),
            owes_counters: false,
            is_over: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.is_over || self.bytes.grow(cost(bytes)).is_err() {
            self.is_over = true;
            return;
        }
        self.messages.push_back(bytes.to_vec());
    }

    /// Drops what is not to be said any more.
    fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) {
        let mut freed = 0;
        self.messages.retain(|bytes| {
            let is_kept = keep(bytes);
            freed += u64::from(!is_kept) * cost(bytes);
            is_kept
        });
        self.bytes.shrink(freed);
    }

    /// Sends one message, behind all that wait. No charge where nothing has to wait.
    fn say(&mut self, socket: impl AsFdCopy, bytes: &[u8]) -> bool {
        let is_next = self.is_welcomed && self.messages.is_empty() && !self.is_over;
        if is_next && is_taken(socket::send(socket, bytes, &[])) {
            return true;
        }
        self.push(bytes);
        self.say_all(socket)
    }

    /// Whether nothing waits any more.
    fn say_all(&mut self, socket: impl AsFdCopy) -> bool {
        if !self.is_welcomed {
            return false;
        }
        while let Some(bytes) = self.messages.front() {
            if !is_taken(socket::send(socket, bytes, &[])) {
                return false;
            }
            let cost = cost(bytes);
            self.messages.pop_front();
            self.bytes.shrink(cost);
        }
        !self.is_over
    }
}

/// A descriptor that can be lent more than once.
trait AsFdCopy: handfast_sys::AsFd + Copy {}
impl<T: handfast_sys::AsFd + Copy> AsFdCopy for T {}

fn cost(bytes: &[u8]) -> u64 {
    bytes.len() as u64 + OVERHEAD_BYTES
}

/// Whether a message is on its way, or no peer is there to read it.
fn is_taken(sent: Result<(), Errno>) -> bool {
    !matches!(sent, Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM))
}

/// The message in bytes of this process's own.
fn said_in(bytes: &[u8]) -> Option<ControlMessage<'_>> {
    ControlMessage::parse(bytes).ok().flatten()
}

impl Link {
    fn backlog(&self) -> MutexGuard<'_, Backlog, rank::Backlog> {
        self.backlog.lock()
    }

    /// Sends a control message that must not be lost while the link lasts. Where the peer does not read, or waits for its
    /// welcome, the control thread sends it later, or cuts the link.
    pub(crate) fn say(&self, message: ControlMessage<'_>) {
        say_encoded(self, &message.encode());
    }

    /// Whether the peer has left so much unread that nothing more is done that it will be told of.
    pub(crate) fn is_behind(&self) -> bool {
        self.backlog().messages.len() >= UNSAID_MAX
    }
}

/// Sends a peer that connects its welcome, and then what has been said since the link was entered. `Ok(false)`: some of
/// that waits, for the control thread to send it.
pub(crate) fn welcome(link: &Link) -> Result<bool, Errno> {
    let socket = link.connection.socket()?;
    let mut backlog = link.backlog();
    socket::send(&socket, &ControlMessage::Sealed.encode(), &[])?;
    backlog.is_welcomed = true;
    Ok(backlog.say_all(&socket))
}

/// Whether the peer has its end of the link: it may be told something.
pub(crate) fn is_welcomed(link: &Link) -> bool {
    link.backlog().is_welcomed
}

/// Tells the peer that `port` is gone, and with it the ports bound before it at its receiver, except one that has moved:
/// unread messages about those are dropped. So a peer that reads nothing makes no more messages wait than there are
/// receivers. The control thread says later to a peer that does not read now.
pub(crate) fn tell_closed(link: &Link, port: u32, has_moved: bool) {
    let Ok(socket) = link.connection.socket() else {
        return;
    };
    let mut backlog = link.backlog();
    let is_before = |message: ControlMessage<'_>| match message {
        ControlMessage::Closed {
            has_moved: false,
            port: before,
        } => receiver_of(before) == receiver_of(port),
        _ => false,
    };
    backlog.retain(|bytes| !said_in(bytes).is_some_and(is_before));
    let closed = ControlMessage::Closed { has_moved, port };
    if !backlog.say(&socket, &closed.encode()) {
        link.process.schedule(Timer::Backlog);
    }
}

/// As [`Link::say`].
pub(crate) fn say_encoded(link: &Link, message: &Encoded) {
    let Ok(socket) = link.connection.socket() else {
        return;
    };
    if !link.is_down() && !link.backlog().say(&socket, message) {
        link.process.schedule(Timer::Backlog);
    }
}

/// Sends a control message with descriptors, after all others, or not at all.
pub(crate) fn say_now(
    link: &Link,
    message: ControlMessage<'_>,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let socket = link.connection.socket()?;
    let mut backlog = link.backlog();
    if !backlog.say_all(&socket) {
        return Err(Errno::AGAIN);
    }
    socket.send(&message.encode(), fds)
}

/// Sends descriptors, before what waits, or not at all: `ENOBUFS` where the peer's user has left too many unread, `EAGAIN` where
/// the peer waits for its welcome.
pub(crate) fn send_with(
    link: &Link,
    message: ControlMessage<'_>,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let socket = link.connection.socket()?;
    let backlog = link.backlog();
    if !backlog.is_welcomed {
        return Err(Errno::AGAIN);
    }
    socket.send(&message.encode(), fds)
}

/// Sends this process's counters, once, however often they are asked for until the peer has read them. `false`: later.
pub(crate) fn show_counters(link: &Link, asked: bool) -> bool {
    let Ok(socket) = link.connection.socket() else {
        return true;
    };
    let mut backlog = link.backlog();
    backlog.owes_counters |= asked;
    if !backlog.owes_counters {
        return true;
    }
    if !socket.has_received() {
        return false;
    }
    let fds = [handfast_sys::AsFd::as_fd(&link.process.counting.tally_fd)];
    // They tell of other users' processes.
    let uid = link.peer.uid;
    let fds = match uid == 0 || uid == handfast_sys::process::uid() {
        true => &fds[..],
        false => &[],
    };
    let sent = socket.send(&ControlMessage::Counters.encode(), fds);
    backlog.owes_counters = !is_taken(sent);
    !backlog.owes_counters
}

/// Sends a descriptor that the peer has asked for; or, if there is none or the peer has left too many unread, says that there
/// is none.
pub(crate) fn show(link: &Link, message: ControlMessage<'_>, fd: Option<BorrowedFd<'_>>) {
    let bytes = &*message.encode();
    let Ok(socket) = link.connection.socket() else {
        return;
    };
    let _backlog = link.backlog();
    let shown = fd.is_some_and(|fd| socket.send(bytes, &[fd]).is_ok());
    if !shown {
        // Lost when it reads nothing at all.
        let _ = socket::send(&socket, bytes, &[]);
    }
}

/// Whether so many control messages, all of these kinds, wait for the peer to read.
pub(crate) fn has_unsaid(
    link: &Link,
    count: usize,
    is_one: impl Fn(ControlMessage<'_>) -> bool,
) -> bool {
    let messages = &link.backlog().messages;
    let are_there = messages.len() >= count;
    let is_one = |bytes: &&Vec<u8>| said_in(bytes).is_some_and(&is_one);
    are_there && messages.iter().filter(is_one).count() >= count
}

/// The link has ended: nothing is sent any more, however long something holds the link.
pub(crate) fn end(link: &Link) {
    let mut backlog = link.backlog();
    backlog.is_over = true;
    backlog.messages = VecDeque::new();
    let all = backlog.bytes.amount();
    backlog.bytes.shrink(all);
}

/// Control thread: sends what could not be sent. Returns whether all has been; the rule the peer broke when it has left too much.
pub(crate) fn say_again(link: &Link) -> Result<bool, Fault> {
    let Ok(socket) = link.connection.socket() else {
        return Ok(true);
    };
    let mut backlog = link.backlog();
    if backlog.is_over {
        return Err(Rule::Unread.broken());
    }
    Ok(backlog.say_all(&socket))
}

/// Sends a control message; lost if the peer is gone. Before its welcome it waits, as all others.
pub(crate) fn tell(link: &Link, message: ControlMessage<'_>) {
    if !is_welcomed(link) {
        return link.say(message);
    }
    let _ = connection::send_bytes(link, &message.encode());
}

#[cfg(test)]
mod tests;
