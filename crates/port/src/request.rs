//! Requests: a received message and the right to reply to it once.

use crate::link::{Link, long};
use crate::loan::Loan;
use crate::message::Message;
use crate::port::notices::Notice;
use crate::reply_right::ReplyRight;
use crate::reply_slot::ReplySlot;
use crate::right::Right;
use crate::seal::Seal;
use crate::users::Foreign;
use core::time::Duration;
use handfast_proto::rights::Target;
use handfast_ring::Fault;
use handfast_sys::clock;
use handfast_sys::socket::Peer;
pub use received::Holder;
pub(crate) use received::{Mark, Received};
use std::sync::Arc;

mod received;

/// A received message and, for a call, the right to reply to it once.
///
/// As long as a call is held, the memory of the link that it came through stays mapped, even after its caller
/// has died. Dropping a call without a reply ends it at its caller as
/// [`Gone::Reply`](crate::error::Gone::Reply).
pub struct Request {
    /// One pointer, so that moving a request moves nothing else. Always present, except in a request that is
    /// being dropped.
    received: Option<Box<Received>>,
}

impl Request {
    /// A call with this message, to be answered in reply slot `index`, `generation`.
    #[inline(always)]
    pub(crate) fn call(
        mut received: Box<Received>,
        (message, seal): (Message, Seal),
        (index, generation): (u32, u32),
    ) -> Self {
        received.seal = seal;
        received.set_message(message);
        if let Some(reply) = &mut received.reply {
            reply.index = index;
            reply.generation = generation;
            received.is_call = true;
        }
        Self {
            received: Some(received),
        }
    }

    /// A one-way message.
    #[inline(always)]
    pub(crate) fn one_way((message, seal): (Message, Seal), link: &Link) -> Self {
        let mut received = Received::new();
        received.set_message(message);
        (received.peer, received.holder) = (link.peer, Holder::of(link));
        received.seal = seal;
        Self {
            received: Some(received),
        }
    }

    /// A message with a reply right that was passed on. `None` when no caller waits for a reply.
    ///
    /// # Errors
    /// The rule the peer broke.
    #[inline(always)]
    pub(crate) fn passed(
        (link, key, receiver): (&Arc<Link>, usize, u32),
        last: Option<Box<Received>>,
        (message, seal): (Message, Seal),
        (word, generation): (u32, u32),
    ) -> Result<Option<Self>, Fault> {
        let mut received = last.unwrap_or_else(Received::new);
        let is_same = received
            .reply
            .as_mut()
            .is_some_and(|reply| reply.pass_again(link, word, generation));
        if !is_same {
            let Some(mut reply) = ReplySlot::passed(link, word, generation)? else {
                return Ok(None);
            };
            (reply.key, reply.passed_to) = (key as u32, receiver);
            received.reply = Some(reply);
        }
        (received.peer, received.holder) = (link.peer, Holder::of(link));
        received.seal = seal;
        received.is_call = true;
        received.set_message(message);
        Ok(Some(Self {
            received: Some(received),
        }))
    }

    /// The requested notice, if this request is a notice and no message:
    /// [`ReceiveRight::notify_no_senders`](crate::ReceiveRight::notify_no_senders),
    /// [`SendRight::notify_death`](crate::SendRight::notify_death). A notice has no bytes and takes no reply.
    #[must_use]
    #[inline]
    pub fn notice(&self) -> Option<Notice> {
        received(self).notice
    }

    /// The [key](crate::MemberPort::key) of the port that the message came to, or that the notice is about, among the ports that
    /// [share](crate::ReceiveRight::member) the receiver. `None` for the receiver's own port.
    #[must_use]
    pub fn member(&self) -> Option<u32> {
        received(self).seal.member()
    }

    /// The badge of the right that the message came through: as [minted](crate::ReceiveRight::mint), or zero when
    /// its sender connected by name.
    #[must_use]
    pub fn badge(&self) -> u64 {
        received(self).seal.badge
    }

    /// Whether the message came through a [send-once right](crate::SendOnceRight). Its badge is then the one given to
    /// [`ReceiveRight::mint_once`](crate::ReceiveRight::mint_once).
    #[must_use]
    pub fn is_send_once(&self) -> bool {
        let received = received(self);
        received.seal.is_once() && received.notice.is_none()
    }

    /// The permissions of the right that the message came through: as [minted](crate::ReceiveRight::mint_with), less those that holders have
    /// [taken away](crate::SendRight::attenuate); all, when the sender connected by name.
    #[must_use]
    pub fn permissions(&self) -> u16 {
        received(self).seal.permissions
    }

    pub(crate) fn seal(&self) -> Seal {
        received(self).seal
    }

    /// See [`Message::hold_descriptors`].
    pub(crate) fn hold_descriptors(&self) -> Vec<Foreign> {
        let received = self.received.as_ref();
        received.map_or_else(Vec::new, |received| received.message.hold_descriptors())
    }

    /// See [`Message::take_rights_held`].
    #[doc(hidden)]
    #[must_use]
    pub fn take_rights_held(&mut self) -> Vec<Right> {
        let received = self.received.as_mut();
        received
            .map(|received| received.message.take_rights_held())
            .unwrap_or_default()
    }

    /// Takes the rights that came with the message, in the order in which they were sent. Rights not taken are dropped with
    /// the message. The rights stay good when their sender dies, except rights to its own ports, and answers to it.
    #[must_use]
    pub fn take_rights(&mut self) -> Vec<Right> {
        let received = self.received.as_mut();
        received
            .map(|received| received.message.take_rights())
            .unwrap_or_default()
    }

    /// Like [`Message::take_loan`].
    #[must_use]
    pub fn take_loan(&mut self) -> Option<Loan> {
        self.received.as_mut()?.message.take_loan()
    }

    /// The message's bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        received(self).message.bytes()
    }

    /// Takes the message out, so that it can be worked on, and even be the reply, without a copy: `let mut
    /// message = request.take_message();` then `port.reply_and_receive(request, &message)`. The request is
    /// empty afterwards.
    #[must_use]
    #[inline]
    pub fn take_message(&mut self) -> Message {
        let received = self.received.as_mut();
        received
            .map(|received| core::mem::take(&mut received.message))
            .unwrap_or_default()
    }

    /// Whether the sender waits for a reply.
    #[must_use]
    #[inline]
    pub fn is_call(&self) -> bool {
        received(self).is_call
    }

    /// The longest reply that may be given, in bytes: 64 MiB to a process of the same user, 64 KiB to another user's, 0 for a message that
    /// is no call. For a call that was passed on, the limit of the process that the answer goes to next, which may have to pass the answer on to
    /// a process with a lower limit.
    #[must_use]
    #[inline]
    pub fn reply_bytes_max(&self) -> usize {
        let reply = self.reply_right();
        reply.map_or(0, |reply| long::longest(&reply.link))
    }

    /// The message alone; a call's reply right is dropped, which ends the call.
    #[must_use]
    pub fn into_message(mut self) -> Message {
        self.take_message()
    }

    /// How long the caller still waits; zero when the time has passed, `None` when the caller has set no limit
    /// ([`SendRight::call_timeout`](crate::SendRight::call_timeout)). This is the caller's claim, meant for work done on
    /// its behalf ([`Self::call_through`]). When the call was passed on, the time is known some microseconds
    /// later. Costs a clock reading.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let deadline_ns = self.reply_right()?.deadline_ns()?;
        let left_ns = deadline_ns.saturating_sub(clock::now_ns());
        Some(Duration::from_nanos(left_ns))
    }

    /// The process and user that sent the message, as the kernel vouched when the link was made.
    #[must_use]
    pub fn peer(&self) -> Peer {
        let received = received(self);
        let reply = received.reply.as_ref().filter(|reply| !reply.is_passed());
        reply.map_or(received.peer, |reply| reply.link.peer)
    }

    /// The sender, as a holder of rights to this port: for
    /// [`ReceiveRight::revoke_from`](crate::ReceiveRight::revoke_from). For a call that was passed on, the
    /// process that passed it on.
    #[must_use]
    pub fn holder(&self) -> Holder {
        let received = received(self);
        let reply = received.reply.as_ref().filter(|reply| !reply.is_passed());
        reply.map_or(received.holder, |reply| Holder::of(&reply.link))
    }

    /// Takes the reply right out, while it is unused.
    pub(crate) fn take_reply(&mut self) -> Option<ReplyRight> {
        let received = self.received.as_mut()?;
        let is_call = core::mem::take(&mut received.is_call);
        is_call.then(|| received.reply.take().map(ReplyRight::new))?
    }

    /// Puts it back.
    pub(crate) fn put_reply(&mut self, reply: ReplyRight) {
        if let Some(received) = &mut self.received {
            received.reply = reply.into_slot();
            received.is_call = received.reply.is_some();
        }
    }

    /// The reply right, while it is unused.
    #[inline(always)]
    pub(crate) fn reply_right(&self) -> Option<&ReplySlot> {
        received(self).reply()
    }

    /// The rest of the request once its reply right has been used.
    #[inline(always)]
    pub(crate) fn answered(mut self) -> Option<Box<Received>> {
        let mut received = self.received.take()?;
        received.is_call = false;
        Some(received)
    }
}

#[inline(always)]
fn received(request: &Request) -> &Received {
    match &request.received {
        Some(received) => received,
        None => unreachable!("only drop and `answered` take it out"),
    }
}

/// Whether it is one-way and without rights, and others may follow that came as it did.
pub(crate) fn is_plain(request: &Request) -> bool {
    let received = received(request);
    !received.is_call
        && received.notice.is_none()
        && !received.message.has_rights()
        && !received.seal.is_once()
}

/// A request that carries a notice instead of a message: of the receiver's own port, or of one that shares the receiver.
#[cold]
pub(crate) fn notify(notice: Notice, member: u32) -> Request {
    let mut received = Received::new();
    received.peer = Peer { pid: 0, uid: 0 };
    received.holder = Holder::NOBODY;
    let target = Target {
        port: member,
        badge: 0,
        permissions: 0,
    };
    received.seal = match notice {
        Notice::SendOnceUnused(_) => Seal::of_once(target),
        _ => Seal::of_member(target),
    };
    received.notice = Some(notice);
    Request {
        received: Some(received),
    }
}

/// The mark that this is, if it is one.
pub(crate) fn take_mark(request: &mut Request) -> Option<Box<Mark>> {
    request.received.as_mut()?.mark.take()
}

pub(crate) fn is_mark(request: &Request) -> bool {
    (request.received.as_ref()).is_some_and(|received| received.mark.is_some())
}

/// The memory that it takes, about.
pub(crate) fn memory_bytes(request: &Request) -> usize {
    let received = request.received.as_ref();
    let rights = received.map_or(0, |received| received.message.count_rights());
    size_of::<Received>() + request.bytes().len() + rights * size_of::<Right>()
}

/// In the place of a message, a mark that tells the trail of a port that a sender has followed it.
#[cold]
pub(crate) fn marked(mark: Mark) -> Request {
    let mut received = Received::new();
    received.seal = Seal::NONE;
    received.mark = Some(Box::new(mark));
    Request {
        received: Some(received),
    }
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        let Some(mut received) = self.received.take() else {
            return;
        };
        if let Some(reply) = received.reply() {
            reply.dropped();
        }
        received.is_call = false;
        received.pool();
    }
}

impl core::fmt::Debug for Request {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Request")
            .field("message", &received(self).message)
            .field("is_call", &self.is_call())
            .field("badge", &self.badge())
            .field("permissions", &self.permissions())
            .field("notice", &self.notice())
            .finish()
    }
}
