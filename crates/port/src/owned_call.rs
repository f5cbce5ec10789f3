//! A call in flight with a right of its own, for a thread that waits for others as well.

use crate::call::{self, Call, CallState};
use crate::error::SendError;
use crate::future::At;
use crate::link::{Link, tasks};
use crate::message::Message;
use crate::send::SendRight;
use core::task::Waker;
use std::sync::Arc;

/// A call in flight, and a clone of the right that it was made by. Dropping it gives the reply up.
pub(crate) struct OwnedCall {
    right: SendRight,
    state: CallState,
}

impl OwnedCall {
    pub(crate) fn new(mut call: Call<'_>) -> Self {
        let right = call.right().clone();
        let state = call.take_state();
        Self { right, state }
    }

    /// Uses the call.
    #[inline]
    fn by<T>(&mut self, work: impl FnOnce(&mut Call<'_>) -> T) -> T {
        let state = core::mem::replace(&mut self.state, CallState::OVER);
        let mut call = Call::of(&self.right, state);
        let done = work(&mut call);
        self.state = call.take_state();
        done
    }

    /// Takes the outcome, if it is there. A few loads otherwise.
    #[inline]
    pub(crate) fn look(&mut self) -> Option<Result<Message, SendError>> {
        let outcome = self.by(|call| call.take_ended())?;
        tasks::wake_for_room(self.right.link());
        Some(outcome)
    }

    /// Whether [`Self::look`] may find something.
    pub(crate) fn may_have_ended(&mut self) -> bool {
        self.by(|call| call.may_have_ended())
    }

    /// The link and the number of the slot to sleep at.
    pub(crate) fn place(&mut self) -> (Arc<Link>, u32) {
        let index = self.state.index();
        self.by(|call| (call.place().0.clone(), index))
    }

    /// Until when to sleep there, once the sleep is announced.
    pub(crate) fn until(&self, deadline_ns: Option<u64>) -> Option<u64> {
        call::until(&self.right, deadline_ns)
    }

    /// Has `waker` woken when the outcome may be there, until the result is dropped. The caller looks once more.
    pub(crate) fn wake(&mut self, waker: &Waker) -> At {
        self.by(|call| At::at_reply(call, waker))
    }

    /// See [`Call::shares_processor`].
    pub(crate) fn shares_processor(&mut self) -> bool {
        self.by(|call| call.shares_processor())
    }
}

impl Drop for OwnedCall {
    fn drop(&mut self) {
        // A call that is dropped is given up, if it has not ended.
        let state = core::mem::replace(&mut self.state, CallState::OVER);
        drop(Call::of(&self.right, state));
    }
}
