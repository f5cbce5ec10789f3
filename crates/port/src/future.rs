//! Calls that a task waits for: futures, for any executor.
//!
//! A future that has to wait announces in its call's wait word that its owner sleeps in a descriptor, and
//! leaves its waker with the link. A peer that answers rings through the link's socket; the control thread, which
//! sleeps in it anyway, finds the answered calls of the link and wakes their tasks
//! (`docs/decisions/0005-async.md`).

use crate::call::Call;
use crate::error::{Misuse, SendError};
use crate::link::{Link, What, doorbell, tasks};
use crate::message::Message;
use crate::right::{Returned, Right};
use crate::send::{self, SendRight, claimed, route, spread};
use crate::sending::Sending;
use core::pin::Pin;
use core::sync::atomic::Ordering;
use core::task::{Context, Poll, Waker};
use handfast_channel::bell;
use handfast_channel::reply::Slot;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_proto::timers::Timer;
use handfast_wait::{FIRST_PAUSED_LOOKS, word};
use std::sync::Arc;

/// The reply to a call, for a task to wait for: [`SendRight::call_async`].
///
/// Dropping the future gives the call up, at any time: a later reply is dropped, and a request
/// that could not be sent yet is not sent. Works on every executor; may be moved between threads. As an
/// async function it panics when it is polled after its end.
#[must_use = "a reply that nobody waits for is given up"]
pub struct Reply<'a> {
    right: &'a SendRight,
    state: State<'a>,
    /// Where its waker is.
    at: Option<At>,
}

enum State<'a> {
    /// There was no room yet.
    Waiting(Vec<u8>, Vec<Right>),
    Sent(Call<'a>),
    Failed(SendError),
    Over,
}

/// Where a task's waker is: its number in a link's list, until this is dropped.
pub(crate) struct At {
    link: Arc<Link>,
    number: u64,
    slot: Option<Slot>,
}

impl At {
    /// Enters a task.
    pub(crate) fn enter(right: &SendRight, link: &Arc<Link>, what: What, waker: &Waker) -> Self {
        // First: the application's code may panic.
        let waker = waker.clone();
        // AcqRel: the control thread looks after this task while it is not zero.
        link.waiters.parked.of(0).fetch_add(1, Ordering::AcqRel);
        let number = link.waiters.tasks.enter(what, waker);
        right.process().watch_sleepers();
        Self {
            link: link.clone(),
            number,
            slot: match what {
                What::Reply(slot, _) => Some(slot),
                _ => None,
            },
        }
    }

    /// Enters a task that waits for the outcome of `call`, and announces that. The caller looks once more: no ring comes for an answer
    /// before the announcement.
    pub(crate) fn at_reply(call: &Call<'_>, waker: &Waker) -> Self {
        let (link, slot, generation) = call.place();
        let right = call.right();
        let at = Self::enter(right, link, What::Reply(slot, generation), waker);
        word::announce(&link.region, slot.wait(), word::DESCRIPTOR);
        if !bell::fence_for_sleep(doorbell::bells(right.link()), right.receiver()) {
            // Then no peer may ring; the control thread looks.
            right
                .process()
                .schedule_in(Timer::Sleepers, UNFENCED_LOOK_NS);
        }
        at
    }
}

impl Drop for At {
    /// This future waits no more. Others may wait for the room it has waited for: they keep their announcement.
    fn drop(&mut self) {
        let Self { link, number, slot } = self;
        if link.is_forked() {
            return;
        }
        if let Some(slot) = slot {
            word::withdraw(&link.region, slot.wait());
        }
        link.waiters.tasks.leave(*number);
        link.waiters.parked.of(0).fetch_sub(1, Ordering::AcqRel);
    }
}

impl SendRight {
    /// Calls, for a task: the request is sent at once, if there is room, and the future gives the reply. 16
    /// calls of one thread and port may be under way; further ones wait, as futures, until one of them has
    /// ended.
    ///
    /// A reply that is there within about a microsecond costs the same as a reply to [`call`](Self::call). A
    /// later reply costs the server a system call, and this process two wake-ups, of its control thread and of
    /// its executor. One copy more if there was no room at first.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
    /// let port = handfast_port::connect("shout")?;
    /// let reply = port.call_async(b"hello").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The future's errors are those of [`Self::call`]; when the peer dies meanwhile, [`SendError::Gone`]
    /// within milliseconds.
    pub fn call_async(&self, bytes: &[u8]) -> Reply<'_> {
        let sent = self.try_call(bytes).map_err(|error| (error, Vec::new()));
        reply(self, bytes, sent)
    }
}

fn reply<'a>(
    right: &'a SendRight,
    bytes: &[u8],
    sent: Result<Call<'a>, (SendError, Vec<Right>)>,
) -> Reply<'a> {
    let state = match sent {
        Ok(call) => State::Sent(call),
        Err((SendError::Full, rights)) => State::Waiting(bytes.to_vec(), rights),
        Err((error, _)) => State::Failed(error),
    };
    Reply {
        right,
        state,
        at: None,
    }
}

impl<'a> Sending<'a> {
    /// Like [`SendRight::call_async`]. Rights that could not be sent are dropped: send clones of rights you need
    /// to keep.
    ///
    /// # Errors
    /// The future's errors are those of [`SendRight::call`], and [`SendError::Right`].
    pub fn call_async(self, bytes: &[u8]) -> Reply<'a> {
        let right = self.right;
        let sent = self.try_call(bytes);
        reply(
            right,
            bytes,
            sent.map_err(|returned| (returned.error, returned.rights)),
        )
    }
}

impl Future for Reply<'_> {
    type Output = Result<Message, SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if send::is_forked(self.right) {
            return Poll::Ready(Err(SendError::Misuse(Misuse::Forked)));
        }
        // As a blocking call looks before it asks its strategy; once, not at every wake-up.
        let mut looks = if self.at.is_none() && spread::looks_first(self.right) {
            FIRST_PAUSED_LOOKS
        } else {
            1
        };
        loop {
            // Before the outcome is taken: the wait word is the slot's next user's after that.
            self.at = None;
            for _ in 0..looks {
                if let Some(outcome) = self.look() {
                    return Poll::Ready(outcome);
                }
                core::hint::spin_loop();
            }
            looks = 1;
            self.park(context.waker());
            // Once more: no ring comes for an answer before the announcement.
            let is_due = match &self.state {
                State::Sent(call) => call.is_due(),
                _ => {
                    if let Some(outcome) = self.look() {
                        self.at = None;
                        return Poll::Ready(outcome);
                    }
                    matches!(self.state, State::Sent(_))
                }
            };
            if !is_due {
                return Poll::Pending;
            }
        }
    }
}

impl Reply<'_> {
    /// The outcome, if it is there. Sends the request first if there was no room before.
    fn look(&mut self) -> Option<<Self as Future>::Output> {
        let (state, outcome) = match core::mem::replace(&mut self.state, State::Over) {
            State::Sent(mut call) => match call.try_take() {
                Some(outcome) => {
                    let right = call.right();
                    drop(call);
                    tasks::wake_for_room(right.link());
                    (State::Over, Some(outcome))
                }
                None => (State::Sent(call), None),
            },
            State::Waiting(bytes, rights) => match self.right.with(rights).try_call(&bytes) {
                Ok(call) => (State::Sent(call), None),
                Err(Returned { error, rights }) => match error {
                    SendError::Full => (State::Waiting(bytes, rights), None),
                    error => (State::Over, Some(Err(error))),
                },
            },
            State::Failed(error) => (State::Over, Some(Err(error))),
            State::Over => {
                panic!("the reply was taken: a `Reply` is not polled after it was ready")
            }
        };
        self.state = state;
        outcome
    }

    /// Has the task woken when what it waits for may be there.
    fn park(&mut self, waker: &Waker) {
        if let State::Sent(call) = &self.state {
            self.at = Some(At::at_reply(call, waker));
            return;
        }
        // The right by which it would go now: its port may have moved.
        let right = route::best(self.right);
        let link = right.link();
        self.at = Some(At::enter(right, link, What::Room, waker));
        let is_long =
            matches!(&self.state, State::Waiting(bytes, _) if bytes.len() > MESSAGE_BYTES_MAX);
        // For a lane, or perhaps for a block, or for an exporter's word.
        let is_held = claimed::is_held(right);
        if link.map.known(right.receiver()).is_none() || is_long || is_held {
            right.process().schedule_in(Timer::Sleepers, LANE_LOOK_NS);
        }
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if send::is_forked(self.right) {
            return;
        }
        self.at = None;
        if let State::Waiting(..) = self.state {
            // It may have been woken for room that it no longer takes.
            tasks::wake_for_room(route::best(self.right).link());
        }
    }
}

/// How soon the control thread looks whether there is a lane, where others have all.
pub(crate) const LANE_LOOK_NS: u64 = 1_000_000;

/// How soon the control thread looks for the reply where the server cannot be made to fence.
const UNFENCED_LOOK_NS: u64 = 1_000_000;

impl core::fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reply")
            .field("is_sent", &matches!(self.state, State::Sent(_)))
            .finish_non_exhaustive()
    }
}
