//! A call in flight: looking for its reply, waiting for it, taking it.

use crate::adopt::adopt;
use crate::awaited::{Awaited, Outcome, why_dropped};
use crate::error::{Gone, Misuse, SendError};
use crate::giving_up::{self, Watch, given_up};
use crate::link::lanes::{Sent, sent};
use crate::link::{Link, deaths};
use crate::message::{Message, ReplySink, Whom};
use crate::send::{self, Origin, SendRight, ended, spread, waiting};
use crate::slots::{SLOTS_PER_LANE, SlotState, Ticket};
use crate::{call_slots, guest};
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_channel::reply::Slot;
use handfast_layout::link::{Kind, Meta};
use handfast_proto::timers::Timer;
use handfast_ring::Fault;
use handfast_sys::clock;
use handfast_wait::{Ended, FIRST_PAUSED_LOOKS, chain};
use sleep::Answer;
pub(crate) use sleep::until;
pub(crate) use state::CallState;
use std::sync::Arc;
use std::time::Instant;
pub use try_wait::TryWait;

mod sleep;
mod state;
mod try_wait;

/// A call in flight: [`SendRight::try_call`]. Its reply is taken with [`Call::wait`] and its forms; dropping the call
/// gives the reply up. A call holds one of the 16 reply slots of its thread's lane, until the reply has come.
pub struct Call<'a> {
    right: &'a SendRight,
    state: CallState,
}

impl<'a> Call<'a> {
    /// The call that was made by `right`.
    #[inline(always)]
    pub(crate) const fn of(right: &'a SendRight, state: CallState) -> Self {
        Self { right, state }
    }

    /// Leaves one that has ended.
    #[inline(always)]
    pub(crate) fn take_state(&mut self) -> CallState {
        core::mem::replace(&mut self.state, CallState::OVER)
    }

    #[inline(always)]
    fn slot(&self) -> Slot {
        Slot::of(self.right.link().calls, self.state.ticket.index)
    }

    #[inline(always)]
    fn is_answered(&self) -> bool {
        let region = &self.right.link().region;
        self.slot()
            .is_answered(region, self.state.ticket.generation)
    }

    /// Waits for the reply by the right's strategy. One copy; system calls only to sleep.
    ///
    /// # Errors
    /// The errors of [`SendRight::call`], also when the peer has died meanwhile; a reply that came before is still taken.
    pub fn wait(self) -> Result<Message, SendError> {
        self.check()?;
        self.message_by(None)
    }

    /// Waits for the reply, for at most `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] then; the call is given up, and holds its reply slot until the server answers or drops it. Other errors
    /// as of [`Self::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<Message, SendError> {
        self.check()?;
        self.message_by(Some(clock::deadline_ns(timeout)))
    }

    /// Like [`Self::wait_timeout`], until `deadline`: for calls that share one.
    ///
    /// # Errors
    /// The errors of [`Self::wait_timeout`].
    pub fn wait_deadline(self, deadline: Instant) -> Result<Message, SendError> {
        self.check()?;
        self.message_by(Some(clock::instant_ns(deadline)))
    }

    /// Checks that the call is this process's: a forked child does not have the memory in which its parent's
    /// calls end.
    #[inline]
    fn check(&self) -> Result<(), SendError> {
        match send::is_forked(self.right) {
            true => Err(SendError::Misuse(Misuse::Forked)),
            false => Ok(()),
        }
    }

    /// Takes the reply if it is there.
    pub(crate) fn try_take(&mut self) -> Option<Result<Message, SendError>> {
        if let Err(forked) = self.check() {
            return Some(Err(forked));
        }
        let mut message = Message::new();
        let taken = match self.state.moved.is_none() && self.is_answered() {
            true => self.take(&mut message).or_else(|| self.go_on()),
            false => None,
        };
        let taken = taken.or_else(|| self.try_moved(&mut message));
        if taken.is_some() || self.state.moved.is_some() {
            if taken.is_some() {
                send::arrived(self.right);
            }
            return taken.map(|taken| taken.map(|_| message));
        }
        let failure = self.failure()?;
        // The last thing a peer does may be to answer, or to pass the call on.
        match self.is_answered() {
            true => self.try_take(),
            false => Some(Err(failure)),
        }
    }

    /// The reason why no answer comes any more, if so. A request that was received before its port ended is still
    /// answered, or dropped.
    #[cold]
    fn failure(&self) -> Option<SendError> {
        let failure = ended::failure_of_calls(self.right)?;
        let lane = self.state.ticket.index / SLOTS_PER_LANE;
        let link = self.right.link();
        let is_held = failure == SendError::Gone(Gone::Port)
            && sent::is_taken(link, lane, Sent::Call(self.state.ticket));
        (!is_held).then_some(failure)
    }

    /// Whether something has happened since the last look at the link's count of troubles. A few loads, except for a call whose outcome
    /// has been moved.
    #[inline]
    pub(crate) fn may_have_ended(&self) -> bool {
        match &self.state.moved {
            Some(_) => self.is_due(),
            None => self.is_answered_or_troubled(),
        }
    }

    /// Whether the answer is in its slot, or there is new trouble on the link.
    #[inline(always)]
    fn is_answered_or_troubled(&self) -> bool {
        // Acquire: pairs with the addition in `disturb`.
        let trouble = || self.right.link().trouble.load(Ordering::Acquire);
        self.is_answered() || trouble() != self.state.trouble
    }

    /// As [`Self::try_take`], if the call may have ended.
    #[inline]
    pub(crate) fn take_ended(&mut self) -> Option<Result<Message, SendError>> {
        if !self.may_have_ended() {
            return None;
        }
        // Before the failure is read: trouble that comes after must be seen.
        // Acquire: pairs with the addition in `disturb`.
        self.state.trouble = self.right.link().trouble.load(Ordering::Acquire);
        self.try_take()
    }

    /// Whether [`Self::try_take`] may find something.
    pub(crate) fn is_due(&self) -> bool {
        match &self.state.moved {
            Some(moved) => moved.is_answered() || moved.failure().is_some(),
            None => self.is_answered() || self.failure().is_some(),
        }
    }

    /// The place of its outcome.
    pub(crate) fn place(&self) -> (&Arc<Link>, Slot, u32) {
        match &self.state.moved {
            Some(moved) => (moved.link(), moved.slot(), moved.generation),
            None => (self.right.link(), self.slot(), self.state.ticket.generation),
        }
    }

    /// Looks for the outcome in the place where it has been moved, if it has.
    #[cold]
    fn try_moved(&mut self, message: &mut Message) -> Option<Result<usize, SendError>> {
        let moved = self.state.moved.as_mut()?;
        let failure = moved.failure();
        if !moved.is_answered() {
            return failure.map(|failure| self.ended(Err(failure)));
        }
        let taken = moved.take(self.right.process(), message, Whom::Caller);
        self.outcome(taken)
    }

    /// Waits for the reply, until a deadline if there is one, and returns it as a message. Uses the call up.
    #[inline(always)]
    pub(crate) fn message_by(self, deadline_ns: Option<u64>) -> Result<Message, SendError> {
        let (right, mut message) = (self.right, Message::new());
        self.wait_by(deadline_ns, &mut message, None)?;
        send::arrived(right);
        Ok(message)
    }

    /// As [`Self::message_by`], until `outer` says that the caller on whose behalf it was made has given up.
    pub(crate) fn message_for(
        self,
        deadline_ns: Option<u64>,
        outer: &mut Watch<'_>,
    ) -> Result<Message, SendError> {
        let (right, mut message) = (self.right, Message::new());
        self.wait_by(deadline_ns, &mut message, Some(outer))?;
        send::arrived(right);
        Ok(message)
    }

    #[inline(always)]
    pub(crate) const fn right(&self) -> &'a SendRight {
        self.right
    }

    /// Waits for the outcome and copies a reply into `sink`; returns its length. The wait ends without one at the deadline, or when `outer`
    /// says that the caller on whose behalf the call was made has given up. The first looks do not ask the strategy:
    /// that, and sleeping, is [`Self::wait_long`].
    #[inline(always)]
    pub(crate) fn wait_by(
        mut self,
        deadline_ns: Option<u64>,
        sink: &mut impl ReplySink,
        outer: Option<&mut Watch<'_>>,
    ) -> Result<usize, SendError> {
        // Looked up once: memory ordering would make the compiler repeat it after every look.
        let (slot, generation) = (self.slot(), self.state.ticket.generation);
        let region = self.right.link().region.view();
        // `looks_first` asks which processor this is; a reply that is there needs no such question.
        let mut looks = 1;
        loop {
            for _ in 0..looks {
                if slot.is_answered(&region, generation) {
                    return match slot.take_plain(&region, sink) {
                        Some(meta) => self.taken(meta),
                        None => match self.take(sink) {
                            Some(taken) => taken,
                            None => self.wait_moved(deadline_ns, sink, outer),
                        },
                    };
                }
                // Without the pause the processor has several looks under way when the reply comes and restarts
                // them all, which costs 25 ns.
                core::hint::spin_loop();
            }
            if looks > 1 || !spread::looks_first(self.right) {
                return self.wait_long(deadline_ns, sink, outer);
            }
            looks = FIRST_PAUSED_LOOKS;
        }
    }

    /// Waits by the strategy: at an [`Answer`], which sleeps in the reply slot's wait word.
    #[cold]
    fn wait_long(
        mut self,
        deadline_ns: Option<u64>,
        sink: &mut impl ReplySink,
        mut outer: Option<&mut Watch<'_>>,
    ) -> Result<usize, SendError> {
        let right = self.right;
        if guest::is_control() {
            return Err(SendError::Misuse(Misuse::ControlThread));
        }
        loop {
            if let Some(outer) = &mut outer
                && outer.is_over_at(right.link())
                && !self.is_answered()
            {
                return Err(given_up(deadline_ns));
            }
            let woke_peer = self.state.woke_peer;
            let mut place = Answer(&mut self);
            let (ended, _) = waiting::with_waiter(right, |waiter| {
                waiter.wait(&mut place, deadline_ns, woke_peer)
            });
            if self.is_answered() {
                return match self.take(sink) {
                    Some(taken) => taken,
                    None => self.wait_moved(deadline_ns, sink, outer),
                };
            }
            // Before the failure is read: trouble that comes after must be seen.
            // Acquire: pairs with the addition in `disturb`.
            self.state.trouble = right.link().trouble.load(Ordering::Acquire);
            if let Some(failure) = self.failure() {
                // The last thing a peer does may be to pass the call on.
                if self.is_answered() {
                    continue;
                }
                return Err(failure);
            }
            if ended == Ended::TimedOut {
                return Err(SendError::TimedOut);
            }
            // Something else happened on the link: not our business.
        }
    }

    /// Waits where the outcome has been moved to.
    #[cold]
    fn wait_moved(
        mut self,
        deadline_ns: Option<u64>,
        sink: &mut impl ReplySink,
        outer: Option<&mut Watch<'_>>,
    ) -> Result<usize, SendError> {
        let right = self.right;
        let Some(mut moved) = self.moved_to() else {
            return self.ended(Err(SendError::Gone(Gone::Reply)));
        };
        chain::noted();
        let waited = loop {
            if let Some(deadline_ns) = deadline_ns {
                moved.say_deadline(deadline_ns);
            }
            moved.look();
            if let Some(taken) = moved.take_now(sink) {
                break taken;
            }
            // As often as the call may have been passed on.
            if !moved.goes_on(right.process()) {
                moved.shares = self.shares_processor();
                break waiting::with_waiter(right, |waiter| {
                    moved.wait(right.process(), deadline_ns, (sink, outer), waiter)
                });
            }
        };
        if matches!(waited, Err(SendError::TimedOut | SendError::Cancelled)) {
            // Given up as it is.
            self.state.moved = Some(Box::new(moved));
            return waited;
        }
        drop(moved);
        self.ended(waited)
    }

    /// Takes the outcome, whatever it is. `None`: it has been moved.
    #[cold]
    fn take(&mut self, sink: &mut impl ReplySink) -> Option<Result<usize, SendError>> {
        let right = self.right;
        if self.slot().moved(&right.link().region).is_some() {
            return None;
        }
        let taken = self.slot().take(&right.link().region, sink);
        // Before the slot is free: until then the peer's releases wait (`give_back::settle`).
        let adopted = taken.and_then(|meta| {
            if meta.units > 0 {
                adopt(right.process(), right.link(), sink.parts(), Whom::Caller)?;
            }
            Ok(meta)
        });
        Some(match adopted {
            Ok(meta) if meta.units > 0 => self.taken(meta).and_then(|len_bytes| {
                let adopted = sink.adopted(len_bytes);
                adopted.map_err(SendError::Exhausted)
            }),
            Ok(meta) => self.taken(meta),
            Err(fault) => {
                self.state.done = true;
                call_slots::free(right, self.state.ticket.index);
                Err(SendError::Fault(ended::poison(right, fault)))
            }
        })
    }

    /// The place the outcome has been moved to; `None` when that is over, or not this call's.
    #[inline]
    fn moved_to(&self) -> Option<Awaited> {
        let link: &Link = self.right.link();
        let number = self.slot().moved(&link.region)?;
        let Ticket { index, generation } = self.state.ticket;
        Awaited::moved(self.right.process(), (link, index, generation), number)
    }

    /// Goes on in the place the outcome has been moved to. Returns how the call ends when it cannot.
    #[cold]
    fn go_on(&mut self) -> Option<Result<usize, SendError>> {
        match self.moved_to() {
            Some(moved) => {
                self.state.moved = Some(Box::new(moved));
                None
            }
            None => Some(self.ended(Err(SendError::Gone(Gone::Reply)))),
        }
    }

    /// As [`Self::take`], for an outcome taken where it has been moved to.
    fn outcome(&mut self, taken: Result<Outcome, Fault>) -> Option<Result<usize, SendError>> {
        match taken {
            Ok(Outcome::Moved | Outcome::Piece) => None,
            Ok(Outcome::Reply(len_bytes)) => Some(self.ended(Ok(len_bytes))),
            Ok(Outcome::Error(error)) => Some(self.ended(Err(error))),
            Err(fault) => {
                let link = self.state.moved.as_ref().map(|moved| moved.link().clone());
                let fault = link.map_or_else(
                    || ended::poison(self.right, fault),
                    |link| {
                        self.right.process().attention.raise();
                        link.poison(fault)
                    },
                );
                Some(self.ended(Err(SendError::Fault(fault))))
            }
        }
    }

    /// The call has ended elsewhere than in its slot.
    fn ended(&mut self, outcome: Result<usize, SendError>) -> Result<usize, SendError> {
        self.state.done = true;
        call_slots::free(self.right, self.state.ticket.index);
        outcome
    }

    /// The call has ended with the outcome taken from its slot.
    #[inline(always)]
    fn taken(&mut self, meta: Meta) -> Result<usize, SendError> {
        let right = self.right;
        self.state.done = true;
        call_slots::free(right, self.state.ticket.index);
        match meta.kind {
            Kind::Dropped => Err(why_dropped(meta.cpu)),
            Kind::DeadPort if meta.len_bytes > 0 => {
                // Known from now on, as for a port.
                deaths::was_revoked(right.link(), &[right.handle()]);
                Err(SendError::Gone(Gone::Right))
            }
            Kind::DeadPort => {
                // Known from now on, even if the peer's own message about it is still on its way. Except for a
                // claimed right: its introducer has said which port it is to.
                if !matches!(right.origin(), Origin::Claimed(_)) {
                    right.link().close_port(right.port());
                }
                Err(SendError::Gone(Gone::Port))
            }
            Kind::Message | Kind::Call => {
                // Relaxed, both: a hint. Stored only when it changes, to keep the line shared.
                if spread::peer_cpu(right).load(Ordering::Relaxed) != meta.cpu {
                    spread::peer_cpu(right).store(meta.cpu, Ordering::Relaxed);
                }
                Ok(meta.len_bytes as usize)
            }
        }
    }
}

impl Drop for Call<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.state.done {
            self.give_up();
        }
    }
}

impl Call<'_> {
    #[cold]
    fn give_up(&self) {
        if send::is_forked(self.right) {
            return;
        }
        let (link, process) = (self.right.link(), self.right.process());
        let Ticket { index, generation } = self.state.ticket;
        giving_up::give_up(link, self.slot(), generation);
        match &self.state.moved {
            Some(moved) => moved.cancel(),
            // Moved, and never looked at since.
            None if self.is_answered() => {
                let mut moved = Awaited::new(link.clone(), index, generation);
                if moved.follow(process) && !moved.is_answered() {
                    moved.cancel();
                }
            }
            None => {}
        }
        // The slot is used again only once its reply has come: a late reply writes nowhere else.
        // Release: as in `free`.
        let state = &link.slots[index as usize].state;
        state.store(SlotState::ABANDONED, Ordering::Release);
        // The reply may bring rights, which no thread will take.
        process.schedule(Timer::Answers);
    }
}

impl core::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Call")
            .field("generation", &self.state.ticket.generation)
            .finish_non_exhaustive()
    }
}
