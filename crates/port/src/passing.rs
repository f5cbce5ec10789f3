//! Calling on reply rights, and passing calls on.

use crate::awaited::Awaited;
use crate::describe::Load;
use crate::error::{Exhausted, Misuse, RightError, SendError};
use crate::link::Link;
use crate::link::held::Held;
use crate::link::passing::Known;
use crate::link::returns::{For, Own};
use crate::message::Message;
use crate::options::Waiting;
use crate::paths;
use crate::port::ports;
use crate::process::Process;
use crate::relay;
use crate::relay::Relay;
use crate::reply_right::ReplyRight;
use crate::request::Request;
use crate::right::Right;
use crate::send::SendRight;
use crate::waiters::{OF_PROCESS, with_waiter};
use core::time::Duration;
use handfast_layout::link::{Kind, REPLIES, passed_word};
use handfast_layout::part::Part;
use handfast_proto::paths::Way;
use handfast_sys::clock;
use std::sync::Arc;

/// A request that was not forwarded, and why.
#[derive(Debug)]
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
    /// caller gets this answer with a reply right of its own ([`Message::take_reply_right`]), by which it
    /// answers in turn, or calls again. One copy each way; no system call while both sides are busy. Waits by
    /// the process's strategy.
    ///
    /// # Errors
    /// As [`SendRight::call`]; [`SendError::Gone`] also when the caller drops that reply right, or is
    /// gone.
    pub fn call(self, bytes: &[u8]) -> Result<Message, SendError> {
        self.call_by(bytes, None)
    }

    /// As [`Self::call`], at the longest for `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] then; a later answer is dropped.
    pub fn call_timeout(self, bytes: &[u8], timeout: Duration) -> Result<Message, SendError> {
        self.call_by(bytes, Some(clock::deadline_ns(timeout)))
    }

    fn call_by(self, bytes: &[u8], deadline_ns: Option<u64>) -> Result<Message, SendError> {
        let len_bytes = bytes.len();
        if len_bytes > handfast_layout::MESSAGE_BYTES_MAX {
            return Err(SendError::TooLong { len_bytes });
        }
        let slot = self
            .slot()
            .map_err(|_| SendError::Misuse(Misuse::NotACall))?;
        let link = slot.link.clone();
        let process = link.process.clone();
        if link.is_forked() {
            return Err(SendError::Misuse(Misuse::Forked));
        }
        // For as long as the answer is awaited.
        let _held = Held::new(&link);
        if let Some(end) = paths::end(&link) {
            return Err(end);
        }
        let own = Own::take(&link).ok_or(SendError::Exhausted(Exhausted {
            what: "return slots of the link; take the answers that are there",
            limit: REPLIES.into(),
        }))?;
        let part = Part::Reply {
            word: own.word(),
            generation: own.generation,
        };
        let (units, count) = part.to_units();
        slot.answer_described(bytes, &units[..count]);
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

impl Request {
    /// The message, and the right to reply to it, if it is a call.
    #[must_use]
    pub fn split(mut self) -> (Message, Option<ReplyRight>) {
        let message = self.take_message();
        let right = self.is_call().then(|| ReplyRight::of(self));
        (message, right)
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
    /// When the process it was passed to dies, the caller is told so; when this process dies, a call that has a
    /// path is not affected.
    ///
    /// # Errors
    /// As [`SendRight::send`]; [`Misuse::NotACall`] for a one-way message. The request comes back, and
    /// can be answered.
    pub fn forward(self, to: &SendRight, bytes: &[u8]) -> Result<(), NotForwarded> {
        self.forward_by(to, bytes, Vec::new(), Waiting::Always)
    }

    /// As [`Self::forward`], waiting at the longest for `timeout`.
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

    /// As [`Self::forward`]; never blocks.
    ///
    /// # Errors
    /// [`SendError::Full`] without room in the queue.
    pub fn try_forward(self, to: &SendRight, bytes: &[u8]) -> Result<(), NotForwarded> {
        self.forward_by(to, bytes, Vec::new(), Waiting::Never)
    }

    /// As [`Self::forward`], with rights beside the bytes: all arrive, or none.
    ///
    /// # Errors
    /// As there, and [`SendError::Right`].
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
        self,
        to: &SendRight,
        bytes: &[u8],
        rights: Vec<Right>,
        waiting: Waiting,
    ) -> Result<(), NotForwarded> {
        let to = to.best();
        if !self.is_call() {
            return Err(NotForwarded {
                error: SendError::Misuse(Misuse::NotACall),
                request: self,
                rights,
            });
        }
        if let Some(reply) = self.reply_right()
            && rights.is_empty()
            && let Some(woke_peer) = to.pass_now(bytes, reply)
        {
            if woke_peer && let Some(port) = ports::at(to.process(), reply.came_to()) {
                // The next message comes later by that.
                port.at.woke_receiver();
            }
            to.link().row.add(FORWARDS, 1);
            ReplyRight::of(self).used();
            return Ok(());
        }
        let reply = Some(ReplyRight::of(self));
        let mut load = Load { rights, reply };
        match to.post_loaded((bytes, Kind::PASSED), &mut load, waiting) {
            Ok(_) => Ok(()),
            Err(error) => {
                let Some(reply) = load.reply else {
                    unreachable!("only what was sent is taken out")
                };
                let request = reply.into_request();
                let rights = load.rights;
                Err(NotForwarded {
                    error,
                    request,
                    rights,
                })
            }
        }
    }
}

/// How a reply right goes to another process.
pub(crate) enum Passed {
    /// The right's caller hears of the path.
    Path {
        number: u32,
        place: u32,
        generation: u32,
        path: u32,
    },
    /// The right stays here; the other process answers to this one.
    Vine(Own),
}

impl Passed {
    /// How it goes to the peer of `to`.
    pub(crate) fn of(reply: &ReplyRight, to: &Arc<Link>) -> Result<Self, RightError> {
        let slot = reply.slot().map_err(|_| RightError::Answered)?;
        if slot.link.is_over() {
            return Err(RightError::Answered);
        }
        if to.is_down() {
            return Err(RightError::Gone);
        }
        if !Arc::ptr_eq(&slot.link.process, &to.process) {
            return Err(RightError::OtherNode);
        }
        // Before the look.
        let version = to.parts.passing.ways();
        Ok(match paths::way(&slot.link, slot.index, to) {
            Way::Path { number, path } => {
                let known = Known {
                    from: (slot.link.serial, slot.index / REPLIES),
                    to: to.serial,
                    version,
                    number,
                    path,
                };
                known.remember();
                Self::Path {
                    number,
                    place: slot.index % REPLIES,
                    generation: slot.generation,
                    path,
                }
            }
            Way::Vine(_) => {
                let limit = REPLIES;
                let caller = slot.link.peer.uid;
                let of_other = caller != 0 && caller != handfast_sys::process::uid();
                let own = Own::take_for(to, of_other.then_some(For::Call(caller)));
                let own = own.ok_or(RightError::Returns { limit })?;
                Relay::announce(&own);
                Self::Vine(own)
            }
        })
    }

    /// Its name there: word and generation.
    pub(crate) const fn words(&self) -> (u32, u32) {
        match self {
            Self::Path {
                number,
                place,
                generation,
                ..
            } => (passed_word(*number, *place), *generation),
            Self::Vine(own) => (own.word(), own.generation),
        }
    }

    /// The right was not sent after all.
    pub(crate) fn take_back(self, _: &Link) {
        if let Self::Vine(own) = self {
            own.free();
        }
    }

    /// The right has been sent.
    pub(crate) fn sent(self, process: &Arc<Process>, to: &Link, reply: ReplyRight) {
        let column = match self {
            Self::Path { path, .. } => {
                if let Ok(slot) = reply.slot() {
                    slot.move_on(path);
                    slot.wake(path);
                }
                reply.used();
                FORWARDS
            }
            Self::Vine(own) => {
                relay::add_relay(process, Relay::new(own, reply));
                VINES
            }
        };
        to.row.add(column, 1);
    }
}

/// Columns of a link's counters.
const FORWARDS: usize = 13;
const VINES: usize = 14;

impl core::fmt::Display for NotForwarded {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for NotForwarded {}
