//! A call that its caller has given up, as both sides see that (E14).

use crate::error::SendError;
use crate::link::{Link, What, backlog};
use crate::reply_slot::ReplySlot;
use core::task::Waker;
use handfast_channel::reply::Slot;
use handfast_layout::control::{ControlMessage, NOBODY};
use handfast_sys::clock;
use handfast_sys::process::fork_epoch;
use std::sync::Arc;

/// A wait for the caller of a request to give up.
pub(crate) struct Watch<'a> {
    reply: &'a ReplySlot,
    /// Among the tasks of the request's link.
    number: Option<u64>,
    epoch: u32,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(reply: &'a ReplySlot) -> Self {
        Self {
            reply,
            number: None,
            epoch: fork_epoch(),
        }
    }

    /// Whether the caller has given up. If it does later, `waker` is woken, once.
    pub(crate) fn is_over(&mut self, waker: &Waker) -> bool {
        self.leave();
        if self.reply.is_cancelled() || self.epoch != fork_epoch() {
            return self.reply.is_cancelled();
        }
        let what = What::GivenUp(self.reply.slot(), self.reply.generation);
        self.number = Some(self.reply.link.waiters.tasks.enter(what, waker.clone()));
        self.reply.watch();
        // Once more: no ring comes for a cancellation before the announcement.
        let is_over = self.reply.is_cancelled();
        if is_over {
            self.leave();
        }
        is_over
    }

    /// As [`Self::is_over`], for a thread that waits on `link`: it looks again then.
    pub(crate) fn is_over_at(&mut self, link: &Arc<Link>) -> bool {
        self.is_over(&Waker::from(link.clone()))
    }

    fn leave(&mut self) {
        // The lock of a parent's list may be held by a thread that its child does not have.
        if let Some(number) = self.number.take()
            && self.epoch == fork_epoch()
        {
            self.reply.link.waiters.tasks.leave(number);
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Caller: gives up the outcome of `generation` in `slot`. A system call if the callee waits for that.
pub(crate) fn give_up(link: &Link, slot: Slot, generation: u32) {
    // One wait for the peer to read does for all.
    if slot.cancel(&link.region, generation)
        && !backlog::has_unsaid(link, 1, |message| {
            matches!(message, ControlMessage::Ring { .. })
        })
    {
        link.say(ControlMessage::Ring { receiver: NOBODY });
    }
}

/// Why a call ends that was made on behalf of a caller that has given up: at its deadline, or before.
pub(crate) fn given_up(deadline_ns: Option<u64>) -> SendError {
    match deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns) {
        true => SendError::TimedOut,
        false => SendError::Cancelled,
    }
}
