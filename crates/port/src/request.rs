//! Requests: a received message and the right to reply to it once.

use crate::error::ReplyError;
use crate::link::Link;
use crate::message::Message;
use crate::poller::{Poller, wake_caller};
use handfast_channel::reply::Slot;
use handfast_layout::link::Kind;
use handfast_region::Memory;
use handfast_sys::cpu;
use handfast_sys::futex::fence_light;
use std::sync::Arc;

/// A received message and, for a call, the right to reply to it once.
///
/// Dropping a call's request without a reply ends the call at its caller as
/// [`Gone::Reply`](crate::error::Gone::Reply).
pub struct Request {
    /// Holds the reply right too, until it is used; one-way messages have none.
    message: Message,
}

/// Where a call's one outcome goes.
pub(crate) struct ReplyRight {
    pub(crate) link: Arc<Link>,
    pub(crate) index: u32,
    pub(crate) generation: u32,
    pub(crate) key: u32,
}

impl Request {
    #[inline(always)]
    pub(crate) const fn new(message: Message) -> Self {
        Self { message }
    }

    /// The message's bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.message.bytes()
    }

    /// Takes the message out, so that it can be worked on, and even be the reply, without a copy:
    /// `let mut message = request.take_message();` then `port.reply_and_receive(request,
    /// &message)`. The request is empty afterwards.
    #[must_use]
    #[inline]
    pub fn take_message(&mut self) -> Message {
        let mut rest = Message::new();
        rest.clear();
        rest.swap_reply(&mut self.message);
        core::mem::replace(&mut self.message, rest)
    }

    /// Whether the sender waits for a reply.
    #[must_use]
    pub fn is_call(&self) -> bool {
        self.message.reply_right().is_some()
    }

    /// The message alone; a call's reply right is dropped, which ends the call.
    #[must_use]
    pub fn into_message(mut self) -> Message {
        self.take_message()
    }

    /// The process and user that sent it, as the kernel vouched when the link was made. `None`
    /// for one-way messages.
    #[must_use]
    pub fn peer(&self) -> Option<handfast_sys::socket::Peer> {
        self.message.reply_right().map(|reply| reply.link.peer)
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
        let Some(reply) = self.take_reply() else {
            return Err(ReplyError::NotACall);
        };
        if reply.link.is_down() {
            return Err(ReplyError::Gone);
        }
        reply.answer(Kind::Message, bytes);
        Ok(())
    }

    /// The reply right, while it is unused.
    #[inline(always)]
    pub(crate) fn reply_right(&self) -> Option<&ReplyRight> {
        self.message.reply_right()
    }

    /// Takes the reply right out; whoever has it answers.
    #[inline(always)]
    pub(crate) fn take_reply(&mut self) -> Option<ReplyRight> {
        self.message.reply()?.take()
    }
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        if let Some(reply) = self.take_reply() {
            reply.dropped();
        }
    }
}

impl core::fmt::Debug for Request {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Request")
            .field("message", &self.message)
            .field("is_call", &self.is_call())
            .finish()
    }
}

impl ReplyRight {
    #[inline(always)]
    fn slot(&self) -> Slot {
        Slot::of(self.link.calls.other(), self.index)
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
        let (slot, region) = (self.slot(), &self.link.region);
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
    fn dropped(self) {
        self.answer(Kind::Dropped, &[]);
    }
}
