//! The contents of a request, which the lane or the thread uses again.

use crate::link::Link;
use crate::message::Message;
use crate::pool::{Pool, Pooled};
use crate::port::notices::Notice;
use crate::reply_slot::{NO_KEY, ReplySlot};
use crate::seal::Seal;
use handfast_proto::rights::Handle;
use handfast_sys::socket::Peer;
use std::sync::Arc;

/// The contents of a request. Reused, by its lane or by its thread.
pub(crate) struct Received {
    pub(crate) message: Message,
    /// The reply right is unused.
    pub(super) is_call: bool,
    /// Kept by the lane from one call to the next. One-way messages have none.
    pub(super) reply: Option<ReplySlot>,
    /// The peer of a one-way message, or of a message whose reply right was passed on.
    pub(super) peer: Peer,
    pub(super) holder: Holder,
    /// The seal of the right the message came through.
    pub(super) seal: Seal,
    /// Set when this is a notice and no message.
    pub(super) notice: Option<Notice>,
    /// Set when this is a mark, which only the trail of a port that has moved gets, and takes.
    pub(super) mark: Option<Box<Mark>>,
    /// The next one in its thread's pool, while it lies there.
    next: Option<Box<Self>>,
}

/// The statement of a sender that has found the new home, in a lane: see `LaneControl::Mark`.
pub(crate) struct Mark {
    pub(crate) link: Arc<Link>,
    /// The port that has moved.
    pub(crate) port: u32,
    /// The right it will not use here any more.
    pub(crate) right: Handle,
    pub(crate) seal: Seal,
    pub(crate) lanes: u32,
    pub(crate) number: u64,
}

/// A process that may hold rights to ports of this one, as long as there is a link with it. Unlike a process number, a
/// `Holder` is not used again for another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder(Option<u32>);

impl Holder {
    /// The sender of notices.
    pub(crate) const NOBODY: Self = Self(None);

    #[inline(always)]
    pub(crate) const fn of(link: &Link) -> Self {
        Self(Some(link.serial))
    }
}

thread_local! {
    static POOL: Pool<Received> = const { Pool::new() };
}

impl Pooled for Received {
    #[inline(always)]
    fn next(&mut self) -> &mut Option<Box<Self>> {
        &mut self.next
    }
}

impl Received {
    /// A request for calls of lane `key` of a receiver.
    #[cold]
    pub(crate) fn of_lane(link: Arc<Link>, key: usize, receiver: u32) -> Box<Self> {
        let mut received = Self::new();
        received.reply = Some(ReplySlot {
            link,
            index: 0,
            generation: 0,
            key: key as u32,
            receiver,
            party: None,
            passed_to: NO_KEY,
            held: None,
        });
        received
    }

    /// A request without a reply right.
    #[inline]
    pub(super) fn new() -> Box<Self> {
        POOL.try_with(Pool::take).ok().flatten().unwrap_or_else(|| {
            Box::new(Self {
                message: Message::default(),
                is_call: false,
                reply: None,
                peer: Peer { pid: 0, uid: 0 },
                holder: Holder::NOBODY,
                seal: Seal::NONE,
                notice: None,
                mark: None,
                next: None,
            })
        })
    }

    /// Returns the box to this thread's pool, emptied.
    #[inline]
    pub(crate) fn pool(mut self: Box<Self>) {
        self.reply = None;
        self.notice = None;
        self.set_message(Message::default());
        // A thread that is ending has no pool any more; the box is then just freed.
        let _ = POOL.try_with(|pool| pool.give(self));
    }

    /// The answered reply slot: the poller's key of the lane.
    #[inline(always)]
    pub(crate) const fn reply_slot(&self) -> Option<&ReplySlot> {
        self.reply.as_ref()
    }

    #[inline(always)]
    pub(super) fn reply(&self) -> Option<&ReplySlot> {
        if self.is_call {
            self.reply.as_ref()
        } else {
            None
        }
    }

    #[inline(always)]
    pub(super) fn set_message(&mut self, message: Message) {
        let last = core::mem::replace(&mut self.message, message);
        // The buffer has nearly always been taken out; the compiler does not know.
        if last.has_buffer() {
            drop(last);
        } else {
            core::mem::forget(last);
        }
    }
}
