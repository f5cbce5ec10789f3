//! Sending rights beside the bytes of a message, or of a reply.

use super::{now, plain, post};
use crate::body::Body;
use crate::call::{Call, CallState};
use crate::describe::{Load, list_of, pool};
use crate::error::SendError;
use crate::message::Message;
use crate::options::Waiting;
use crate::right::{Returned, Right};
use crate::send::{Posted, SendRight, route};
use crate::served::calls;
use core::time::Duration;
use handfast_layout::link::Kind;
use handfast_sys::{clock, deadline};
use handfast_wait::chain;
use std::time::Instant;

/// A message to be sent with rights, up to four: [`SendRight::with`].
///
/// The rights travel with the bytes: all arrive, or none, and then they come back in
/// [`Returned`]. A right that has been sent is moved. To keep a [`SendRight`] or an [`OwnRight`](crate::OwnRight), send a clone; to keep
/// memory, send [another](crate::Memory::from_descriptor) of the same file; other rights cannot be cloned.
///
/// A call with a right that the receiver has already takes up to half as long again as one without; the first call with a right takes longer, as
/// [`Right`] says for each kind. Rights that are under way when either process dies have ended, as if they had been dropped.
#[derive(Debug)]
#[must_use = "nothing is sent yet"]
pub struct Sending<'a> {
    pub(crate) right: &'a SendRight,
    rights: Vec<Right>,
}

impl SendRight {
    /// A message with these rights, to be sent or called.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (server, port) = (handfast_port::connect("a")?, handfast_port::bind("b")?);
    /// let callback = port.mint(7);
    /// let reply = server.with([callback.into()]).call(b"tell me")?;
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn with(&self, rights: impl IntoIterator<Item = Right>) -> Sending<'_> {
        Sending {
            right: route::best(self),
            rights: list_of(rights),
        }
    }
}

impl<'a> Sending<'a> {
    /// Like [`SendRight::send`].
    ///
    /// # Errors
    /// The errors of [`SendRight::send`], and [`SendError::Right`].
    pub fn send(self, bytes: &[u8]) -> Result<(), Returned<SendError>> {
        self.send_by(bytes, Waiting::Always)
    }

    /// Like [`SendRight::send_timeout`].
    ///
    /// # Errors
    /// The errors of [`SendRight::send_timeout`], and [`SendError::Right`].
    pub fn send_timeout(self, bytes: &[u8], timeout: Duration) -> Result<(), Returned<SendError>> {
        self.send_by(bytes, Waiting::Until(clock::deadline_ns(timeout)))
    }

    /// Like [`SendRight::send_deadline`].
    ///
    /// # Errors
    /// The errors of [`SendRight::send_deadline`], and [`SendError::Right`].
    pub fn send_deadline(self, bytes: &[u8], deadline: Instant) -> Result<(), Returned<SendError>> {
        self.send_by(bytes, Waiting::Until(clock::instant_ns(deadline)))
    }

    /// Like [`SendRight::try_send`], without waiting for room.
    ///
    /// Waits all the same, for 100 ms at most, where one of the rights came from a third process and is sent to the process of its port,
    /// which has not yet confirmed it: that process has not received at the port since. For a process of another user the limit is 10 ms.
    /// After a wait in vain, the limit is 0.5 ms for the next 10 s. Then the error is [`RightError::Unsettled`](crate::error::RightError::Unsettled).
    ///
    /// # Errors
    /// The errors of [`SendRight::try_send`], and [`SendError::Right`].
    pub fn try_send(self, bytes: &[u8]) -> Result<(), Returned<SendError>> {
        self.send_by(bytes, Waiting::Never)
    }

    /// Like [`SendRight::call`].
    ///
    /// # Errors
    /// The errors of [`SendRight::call`], and [`SendError::Right`]. No rights come back from a call that was sent.
    pub fn call(self, bytes: &[u8]) -> Result<Message, Returned<SendError>> {
        self.call_by(bytes, None)
    }

    /// Like [`SendRight::call_timeout`].
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn call_timeout(
        self,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<Message, Returned<SendError>> {
        self.call_by(bytes, Some(clock::deadline_ns(timeout)))
    }

    /// Like [`SendRight::call_deadline`].
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn call_deadline(
        self,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<Message, Returned<SendError>> {
        self.call_by(bytes, Some(clock::instant_ns(deadline)))
    }

    /// As [`Self::call`], until the deadline if there is one.
    #[inline(always)]
    pub(crate) fn call_by(
        mut self,
        bytes: &[u8],
        deadline_ns: Option<u64>,
    ) -> Result<Message, Returned<SendError>> {
        if let Some(outcome) = self.call_here(bytes, deadline_ns) {
            return outcome;
        }
        if deadline::may_end() {
            return self.call_shielded(bytes, deadline_ns);
        }
        let waiting = deadline_ns.map_or(Waiting::Always, Waiting::Until);
        bare(self.start(bytes, waiting)?.message_by(deadline_ns))
    }

    /// From a function of a domain that has a deadline: that is the call's, too, and nothing is left undone.
    #[cold]
    fn call_shielded(
        &mut self,
        bytes: &[u8],
        deadline_ns: Option<u64>,
    ) -> Result<Message, Returned<SendError>> {
        let _shield = deadline::shield();
        let until_ns = deadline::until_ns();
        let deadline_ns = deadline_ns.map_or(until_ns, |own_ns| own_ns.min(until_ns));
        let call = self.start(bytes, Waiting::Until(deadline_ns))?;
        bare(call.message_by(Some(deadline_ns)))
    }

    /// Like [`SendRight::try_call`]. May wait for the process of one of the rights, as [`Self::try_send`] does.
    ///
    /// # Errors
    /// The errors of [`SendRight::try_call`], and [`SendError::Right`].
    pub fn try_call(mut self, bytes: &[u8]) -> Result<Call<'a>, Returned<SendError>> {
        self.start(bytes, Waiting::Never)
    }

    /// Where the port is served in this process.
    #[inline]
    fn call_here(
        &mut self,
        bytes: &[u8],
        deadline_ns: Option<u64>,
    ) -> Option<Result<Message, Returned<SendError>>> {
        let by = route::shortcut(self.right)?;
        let rights = &mut self.rights;
        let outcome = calls::call_here_with(self.right, by, bytes, rights, deadline_ns)?;
        Some(outcome.map_err(|error| Returned {
            error,
            rights: core::mem::take(rights),
        }))
    }

    fn send_by(mut self, bytes: &[u8], waiting: Waiting) -> Result<(), Returned<SendError>> {
        if self.rights.is_empty() {
            return bare(plain::send_by(self.right, bytes, waiting));
        }
        chain::noted();
        if deadline::may_end() {
            let _shield = deadline::shield();
            let waiting = waiting.until(deadline::until_ns());
            return self.post((bytes, Kind::Message), waiting).map(drop);
        }
        self.post((bytes, Kind::Message), waiting).map(drop)
    }

    #[inline(always)]
    fn start(&mut self, bytes: &[u8], waiting: Waiting) -> Result<Call<'a>, Returned<SendError>> {
        if self.rights.is_empty() {
            return bare(plain::start(self.right, bytes, waiting));
        }
        let (right, (ticket, trouble, woke_peer)) = self.post((bytes, Kind::Call), waiting)?;
        Ok(Call::of(right, CallState::new(ticket, trouble, woke_peer)))
    }

    /// By reference, here and above: a moved value is stored by words and loaded by pairs of them, and waits for that.
    #[inline(always)]
    fn post(
        &mut self,
        bytes_and_kind: (&[u8], Kind),
        waiting: Waiting,
    ) -> Result<Posted<'a>, Returned<SendError>> {
        match now::give_now(self.right, bytes_and_kind, &mut self.rights, waiting) {
            Some(posted) => {
                pool(&mut self.rights);
                Ok(posted)
            }
            None => {
                let (bytes, kind) = bytes_and_kind;
                self.post_slowly((Body::One(bytes), kind), waiting)
            }
        }
    }

    /// Nothing was sent.
    pub(super) fn returned(self, error: SendError) -> Returned<SendError> {
        Returned {
            error,
            rights: self.rights,
        }
    }

    /// As [`Self::post`], of bytes in several pieces.
    pub(super) fn post_vectored(
        mut self,
        bytes_and_kind: (Body<'_>, Kind),
        waiting: Waiting,
    ) -> Result<Posted<'a>, Returned<SendError>> {
        self.post_slowly(bytes_and_kind, waiting)
    }

    #[cold]
    fn post_slowly(
        &mut self,
        bytes_and_kind: (Body<'_>, Kind),
        waiting: Waiting,
    ) -> Result<Posted<'a>, Returned<SendError>> {
        let mut load = Load {
            rights: core::mem::take(&mut self.rights),
            reply: None,
        };
        let posted = post::post_loaded(self.right, bytes_and_kind, &mut load, waiting);
        let mut rights = load.rights;
        match posted {
            Ok(posted) => {
                pool(&mut rights);
                Ok(posted)
            }
            Err(error) => Err(Returned { error, rights }),
        }
    }
}

/// For an outcome without rights, or one from which none come back.
fn bare<T>(outcome: Result<T, SendError>) -> Result<T, Returned<SendError>> {
    outcome.map_err(|error| Returned {
        error,
        rights: Vec::new(),
    })
}
