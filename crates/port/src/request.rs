//! Requests: a received message and the right to reply to it once.

use crate::error::ReplyError;
use crate::link::Link;
use crate::message::Message;
use crate::poller::{Poller, wake_caller};
use crate::send::SLOTS_PER_LANE;
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_layout::link::Kind;
use handfast_region::Memory;
use handfast_sys::cpu;
use handfast_sys::futex::fence_light;
use std::sync::Arc;

/// A received message and, for a call, the right to reply to it once.
///
/// As long as it is held, the memory of the link that it came through stays mapped, also when the
/// sender has died. Dropping a call's request without a reply ends the call at its caller as
/// [`Gone::Reply`](crate::error::Gone::Reply).
pub struct Request {
    /// One pointer, so that moving a request moves nothing else.
    received: Box<Received>,
}

/// What a request holds. Its lane uses it again.
pub(crate) struct Received {
    pub(crate) message: Message,
    /// Until it is used; one-way messages have none.
    is_call: bool,
    reply: ReplyRight,
}

/// Where a call's one outcome goes.
pub(crate) struct ReplyRight {
    pub(crate) link: Arc<Link>,
    index: u32,
    generation: u32,
    /// The poller's key of the lane.
    pub(crate) key: u32,
}

impl Received {
    /// An empty one for lane `key`.
    #[cold]
    pub(crate) fn new(link: Arc<Link>, key: usize) -> Box<Self> {
        Box::new(Self {
            message: Message::default(),
            is_call: false,
            reply: ReplyRight {
                link,
                index: 0,
                generation: 0,
                key: key as u32,
            },
        })
    }

    /// The link it came through.
    pub(crate) const fn link(&self) -> &Arc<Link> {
        &self.reply.link
    }

    /// The poller's key of the lane it came through.
    pub(crate) const fn key(&self) -> usize {
        self.reply.key as usize
    }

    #[inline(always)]
    fn reply(&self) -> Option<&ReplyRight> {
        self.is_call.then_some(&self.reply)
    }
}

impl Request {
    /// A request of `message`; `call` is the reply slot and generation of a call.
    #[inline(always)]
    pub(crate) fn new(
        mut received: Box<Received>,
        message: Message,
        call: Option<(u32, u32)>,
    ) -> Self {
        let last = core::mem::replace(&mut received.message, message);
        // It has nearly always been taken out; the compiler does not know.
        if last.has_buffer() {
            drop(last);
        } else {
            core::mem::forget(last);
        }
        received.is_call = call.is_some();
        if let Some((index, generation)) = call {
            received.reply.index = index;
            received.reply.generation = generation;
        }
        Self { received }
    }

    /// The message's bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.received.message.bytes()
    }

    /// Takes the message out, so that it can be worked on, and even be the reply, without a copy:
    /// `let mut message = request.take_message();` then `port.reply_and_receive(request,
    /// &message)`. The request is empty afterwards.
    #[must_use]
    #[inline]
    pub fn take_message(&mut self) -> Message {
        core::mem::take(&mut self.received.message)
    }

    /// Whether the sender waits for a reply.
    #[must_use]
    pub fn is_call(&self) -> bool {
        self.received.is_call
    }

    /// The message alone; a call's reply right is dropped, which ends the call.
    #[must_use]
    pub fn into_message(mut self) -> Message {
        self.take_message()
    }

    /// The process and user that sent it, as the kernel vouched when the link was made.
    #[must_use]
    pub fn peer(&self) -> handfast_sys::socket::Peer {
        self.received.link().peer
    }

    /// Replies. Never blocks: the caller has reserved the room. One copy; one system call if the
    /// caller sleeps, none otherwise.
    ///
    /// # Errors
    /// See [`ReplyError`]. With [`ReplyError::TooLong`] the call ends as dropped.
    pub fn reply(mut self, bytes: &[u8]) -> Result<(), ReplyError> {
        if bytes.len() > handfast_layout::MESSAGE_BYTES_MAX {
            return Err(ReplyError::TooLong {
                len_bytes: bytes.len(),
            });
        }
        let Some(reply) = self.reply_right() else {
            return Err(ReplyError::NotACall);
        };
        let is_down = reply.link.is_down();
        if !is_down {
            reply.answer(Kind::Message, bytes);
        }
        self.received.is_call = false;
        if is_down {
            return Err(ReplyError::Gone);
        }
        Ok(())
    }

    /// The reply right, while it is unused.
    #[inline(always)]
    pub(crate) fn reply_right(&self) -> Option<&ReplyRight> {
        self.received.reply()
    }

    /// Its reply right has been used: what is left of it.
    #[inline(always)]
    pub(crate) fn answered(self) -> Box<Received> {
        let mut received = self.received;
        received.is_call = false;
        received
    }
}

impl Drop for Received {
    #[inline]
    fn drop(&mut self) {
        if let Some(reply) = self.reply() {
            reply.dropped();
        }
    }
}

impl core::fmt::Debug for Request {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Request")
            .field("message", &self.received.message)
            .field("is_call", &self.is_call())
            .finish()
    }
}

impl ReplyRight {
    #[inline(always)]
    fn slot(&self) -> Slot {
        Slot::of(self.link.calls.other(), self.index)
    }

    /// The receiver that the call came to: each lane addresses one for ever.
    pub(crate) fn receiver(&self) -> u32 {
        let lane = (self.index / SLOTS_PER_LANE) as usize;
        // Relaxed: a number, stored before the first message was taken from the lane.
        u32::from(self.link.owners[lane].load(Ordering::Relaxed)).wrapping_sub(1)
    }

    /// Publishes the outcome and wakes the caller if it sleeps. Returns whether it did.
    pub(crate) fn answer(&self, kind: Kind, bytes: &[u8]) -> bool {
        let (slot, region) = (self.slot(), &self.link.region);
        slot.answer(region, self.generation, kind, cpu::current(), bytes);
        wake_caller(&self.link, slot)
    }

    /// As [`Self::answer`], leaving the time of the wake-up to the rota (its rule 4).
    #[inline(always)]
    pub(crate) fn answer_polling(&self, bytes: &[u8], poller: &mut Poller) -> bool {
        let (slot, region) = (self.slot(), &self.link.region.view());
        slot.answer(region, self.generation, Kind::Message, cpu::recent(), bytes);
        if poller.is_fenceless() {
            // E11 fenceless, reply. The compiler keeps the reply before the look; the fence of the
            // sleeper in `fence_for_sleep` makes the processor do so.
            fence_light();
        } else {
            // E4 wake: the fence of `fence_then_taken`, before the look at the wait word.
            region.fence();
        }
        let key = self.key as usize;
        if !slot.is_asleep(region) {
            poller.awake_at_reply(key);
            return false;
        }
        poller.asleep_at_reply(key, &self.link, slot) && wake_caller(&self.link, slot)
    }

    #[cold]
    fn dropped(&self) {
        self.answer(Kind::Dropped, &[]);
    }
}
