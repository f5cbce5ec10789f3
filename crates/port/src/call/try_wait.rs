//! A look at a call that does not wait.

use super::Call;
use crate::error::SendError;
use crate::message::Message;

/// The state of a call that was looked at: [`Call::try_wait`].
#[derive(Debug)]
#[must_use = "a call that is dropped is given up"]
pub enum TryWait<'a> {
    /// The call has ended, as one of [`Call::wait`] does.
    Ready(Result<Message, SendError>),
    /// The call itself, still in flight.
    Pending(Call<'a>),
}

impl<'a> Call<'a> {
    /// Takes the reply if it is there; never blocks, no system call. A call whose peer has died is ready, with
    /// [`SendError::Gone`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use handfast_port::TryWait;
    /// # let port = handfast_port::connect("shout")?;
    /// let mut call = port.try_call(b"hello")?;
    /// let reply = loop {
    ///     call = match call.try_wait() {
    ///         TryWait::Ready(outcome) => break outcome?,
    ///         TryWait::Pending(call) => call,
    ///     };
    ///     // Something else meanwhile.
    /// };
    /// # drop(reply);
    /// # Ok(()) }
    /// ```
    pub fn try_wait(mut self) -> TryWait<'a> {
        match self.try_take() {
            Some(outcome) => TryWait::Ready(outcome),
            None => TryWait::Pending(self),
        }
    }
}

impl<'a> TryWait<'a> {
    /// The outcome, if the call has ended. Gives a call that has not up.
    pub fn ready(self) -> Option<Result<Message, SendError>> {
        match self {
            Self::Ready(outcome) => Some(outcome),
            Self::Pending(_) => None,
        }
    }

    /// The call, if it is still in flight. Drops the outcome of one that has ended.
    #[must_use = "a call that is dropped is given up"]
    pub fn pending(self) -> Option<Call<'a>> {
        match self {
            Self::Ready(_) => None,
            Self::Pending(call) => Some(call),
        }
    }
}
