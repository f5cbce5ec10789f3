//! Calling on reply rights, and passing calls on.

use crate::awaited::Awaited;
use crate::body::Body;
use crate::describe::laid::Reader;
use crate::describe::{Described, Load};
use crate::error::{Exhausted, Misuse, RightError, SendError};
use crate::link::held::Held;
use crate::link::long;
use crate::link::returns::Own;
use crate::message::Message;
use crate::options::Waiting;
use crate::passed::FORWARDS;
use crate::port::ports;
use crate::relay::{self, Relay};
use crate::reply_right::ReplyRight;
use crate::reply_slot::ReplySlot;
use crate::request::Request;
use crate::right::Right;
use crate::send::{SendRight, route};
use crate::sending::{fast, post};
use crate::waiters::{OF_PROCESS, with_waiter};
use core::time::Duration;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::{Kind, REPLIES};
use handfast_layout::part::Part;
use handfast_sys::{clock, deadline};
use std::time::Instant;

/// A request that was not forwarded, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotForwarded {
    /// Why.
    pub error: SendError,
    /// The request, with its reply right, but without the message if that was taken out of it.
    pub request: Request,
    /// The rights that were to go with it.
    pub rights: Vec<Right>,
}

impl ReplyRight {
    /// Answers, and waits for the caller's response: a switch between coroutines (paper 003, section 2.2). The
    /// caller gets this answer with a reply right of its own ([`Message::take_reply_right`]), by which the caller
    /// answers in turn, or calls again. Each way one copy in and one out; no system call while both sides are busy. Waits by
    /// the process's strategy. More than 64 KiB go as in [`Request::reply`], which does not wait for memory: [`RightError::Loans`] where the
    /// peer still has all blocks of it.
    ///
    /// # Errors
    /// The errors of [`SendRight::call`]; [`SendError::Gone`] also when the caller drops that reply right, or is
    /// gone.
    pub fn call(self, bytes: &[u8]) -> Result<Message, SendError> {
        self.call_by(bytes, None)
    }

    /// Like [`Self::call`], for at most `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] then; a later answer is dropped.
    pub fn call_timeout(self, bytes: &[u8], timeout: Duration) -> Result<Message, SendError> {
        self.call_by(bytes, Some(clock::deadline_ns(timeout)))
    }

    /// As [`Self::call_timeout`], until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn call_deadline(self, bytes: &[u8], deadline: Instant) -> Result<Message, SendError> {
        self.call_by(bytes, Some(clock::instant_ns(deadline)))
    }

    fn call_by(self, bytes: &[u8], deadline_ns: Option<u64>) -> Result<Message, SendError> {
        let slot = self.slot();
        let link = slot.link.clone();
        long::check(&link, bytes.len())?;
        let process = link.process.clone();
        if link.is_forked() {
            return Err(SendError::Misuse(Misuse::Forked));
        }
        // For as long as the answer is awaited.
        let _held = Held::new(&link);
        if let Some(end) = link.end() {
            return Err(end);
        }
        let own = Own::take(&link).ok_or(SendError::Exhausted(Exhausted {
            what: "return slots of the link",
            advice: Some("take the answers that have come"),
            limit: REPLIES.into(),
        }))?;
        let part = Part::Reply {
            word: own.word(),
            generation: own.generation,
        };
        if bytes.len() > MESSAGE_BYTES_MAX {
            if let Err(error) = answer_long(slot, bytes, part) {
                own.free();
                return Err(error.into());
            }
        } else {
            let (units, count) = part.to_units();
            slot.answer_described(bytes, &units[..count]);
        }
        self.used();
        let mut message = Message::new();
        let mut awaited = Awaited::new(link, own.index, own.generation);
        let waiting = || process.defaults.waiting;
        let waited = with_waiter(OF_PROCESS, waiting, |waiter| {
            awaited.wait(&process, deadline_ns, (&mut message, None), waiter)
        });
        match waited {
            Err(SendError::TimedOut) => {
                awaited.cancel();
                relay::add_relay(&process, Relay::forsaken(awaited, own));
            }
            _ => own.free(),
        }
        waited.map(|_| message)
    }
}

/// Answers with more bytes than a slot has, and with a right to answer in turn.
#[cold]
fn answer_long(slot: &ReplySlot, bytes: &[u8], part: Part) -> Result<(), RightError> {
    let link = &slot.link;
    // The blocks of the link have a lock.
    let _shield = deadline::shield();
    let mut described = Described::new();
    let body = described.lay(link, Body::One(bytes), Reader::Caller { slot: slot.index })?;
    described.add(part);
    slot.answer_described(body, described.units());
    described.sent((&link.process, link), &mut Load::default(), None);
    Ok(())
}

impl Request {
    /// The message, and the right to reply to it, if it is a call.
    #[must_use]
    pub fn split(mut self) -> (Message, Option<ReplyRight>) {
        let message = self.take_message();
        (message, self.take_reply())
    }

    /// Passes the call on: `to` gets `bytes` with the right to reply, and replies straight to the caller (a tail
    /// call: paper 003, section 4.2). This process takes no further part in the call; the call may be passed on
    /// again, across any number of processes.
    ///
    /// One copy, one wake-up if the receiver sleeps and one if the caller does; no system call otherwise, once
    /// there is a return path. The first call of a client that goes a new way is answered through this process
    /// (its control thread), and so are calls whose caller has no link with the receiver: the link's counters
    /// `forwards` and `vines` show this. Waits by the strategy while the queue is full.
    ///
    /// When the process that the call was passed to dies, the caller is told; when this process dies, a call that has a
    /// path is not affected.
    ///
    /// # Errors
    /// The errors of [`SendRight::send`]; [`Misuse::NotACall`] for a one-way message. The request comes back, and
    /// can be answered.
    pub fn forward(self, to: &SendRight, bytes: &[u8]) -> Result<(), NotForwarded> {
        self.forward_by(to, bytes, Vec::new(), Waiting::Always)
    }

    /// Like [`Self::forward`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] then.
    pub fn forward_timeout(
        self,
        to: &SendRight,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), NotForwarded> {
        let until = Waiting::Until(clock::deadline_ns(timeout));
        self.forward_by(to, bytes, Vec::new(), until)
    }

    /// As [`Self::forward_timeout`], until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn forward_deadline(
        self,
        to: &SendRight,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<(), NotForwarded> {
        let until = Waiting::Until(clock::instant_ns(deadline));
        self.forward_by(to, bytes, Vec::new(), until)
    }

    /// Like [`Self::forward`]; never blocks.
    ///
    /// # Errors
    /// [`SendError::Full`] without room in the queue.
    pub fn try_forward(self, to: &SendRight, bytes: &[u8]) -> Result<(), NotForwarded> {
        self.forward_by(to, bytes, Vec::new(), Waiting::Never)
    }

    /// Like [`Self::forward`], with rights beside the bytes: all arrive, or none.
    ///
    /// # Errors
    /// The errors of [`Self::forward`], and [`SendError::Right`].
    pub fn forward_with(
        self,
        to: &SendRight,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<(), NotForwarded> {
        let rights = rights.into_iter().collect();
        self.forward_by(to, bytes, rights, Waiting::Always)
    }

    pub(crate) fn forward_by(
        mut self,
        to: &SendRight,
        bytes: &[u8],
        rights: Vec<Right>,
        waiting: Waiting,
    ) -> Result<(), NotForwarded> {
        let to = route::best(to);
        if !self.is_call() {
            return Err(NotForwarded {
                error: SendError::Misuse(Misuse::NotACall),
                request: self,
                rights,
            });
        }
        if let Some(reply) = self.reply_right()
            && rights.is_empty()
            && let Some(woke_peer) = fast::pass_now(to, bytes, reply)
        {
            if woke_peer && let Some(port) = ports::at(to.process(), reply.came_to()) {
                // The next message comes later by that.
                port.at.woke_receiver();
            }
            to.link().row.add(FORWARDS, 1);
            if let Some(received) = self.answered() {
                received.pool();
            }
            return Ok(());
        }
        let reply = self.take_reply();
        let mut load = Load { rights, reply };
        match post::post_loaded(to, (Body::One(bytes), Kind::PASSED), &mut load, waiting) {
            Ok(_) => Ok(()),
            Err(error) => {
                // Only what was sent has been taken out.
                if let Some(reply) = load.reply {
                    self.put_reply(reply);
                }
                Err(NotForwarded {
                    error,
                    request: self,
                    rights: load.rights,
                })
            }
        }
    }
}
