//! The client's half of a call.

use crate::decode::Decoder;
use crate::error::{ANSWERED, CallError, Malformed, Refusal};
use crate::method::Method;
use crate::within;
use core::time::Duration;
use handfast_port::error::SendError;
use handfast_port::{Message, Reply, Returned, Right, SendRight};

/// A right to a service, and how long its calls may take.
#[derive(Clone, Debug)]
pub struct Client {
    right: SendRight,
    timeout: Option<Duration>,
}

impl Client {
    /// Calls through `right`, without a deadline.
    #[must_use]
    pub const fn new(right: SendRight) -> Self {
        Self {
            right,
            timeout: None,
        }
    }

    /// The same client with a deadline for each call.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self
        }
    }

    /// The right.
    #[must_use]
    pub const fn right(&self) -> &SendRight {
        &self.right
    }

    /// How long a call may take: the client's own time, and within a method no longer than the method's caller waits.
    #[inline]
    fn time(&self) -> Option<Duration> {
        match within::time_left() {
            None => self.timeout,
            Some(left) => Some(self.timeout.map_or(left, |timeout| timeout.min(left))),
        }
    }

    /// The right alone.
    #[must_use]
    pub fn into_right(self) -> SendRight {
        self.right
    }

    /// Calls `method` with a request, and returns what `decode` takes from the reply.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline]
    pub fn call<T>(
        &self,
        method: &'static Method,
        request: &[u8],
        decode: impl FnOnce(&mut Decoder<'_>) -> Result<T, Malformed>,
    ) -> Result<T, CallError> {
        let reply = match self.time() {
            None => self.right.call(request)?,
            Some(timeout) => self.right.call_timeout(request, timeout)?,
        };
        result(method, (&reply, Vec::new()), decode)
    }

    /// Like [`Self::call`], where there are rights in the request or the reply.
    ///
    /// # Errors
    /// [`CallError`]. The rights are gone also then.
    pub fn call_with<T>(
        &self,
        method: &'static Method,
        (request, rights): (&[u8], Vec<Right>),
        decode: impl FnOnce(&mut Decoder<'_>) -> Result<T, Malformed>,
    ) -> Result<T, CallError> {
        let sending = self.right.with(rights);
        let reply = match self.time() {
            None => sending.call(request),
            Some(timeout) => sending.call_timeout(request, timeout),
        };
        Self::finish(method, reply.map_err(error_alone), decode)
    }

    /// Sends a request of a one-way method.
    ///
    /// # Errors
    /// [`CallError::Send`].
    #[inline]
    pub fn send(&self, request: &[u8]) -> Result<(), CallError> {
        match self.time() {
            None => self.right.send(request)?,
            Some(timeout) => self.right.send_timeout(request, timeout)?,
        }
        Ok(())
    }

    /// Like [`Self::send`], with rights.
    ///
    /// # Errors
    /// [`CallError::Send`]. The rights are gone also then.
    pub fn send_with(&self, (request, rights): (&[u8], Vec<Right>)) -> Result<(), CallError> {
        let sending = self.right.with(rights);
        let sent = match self.time() {
            None => sending.send(request),
            Some(timeout) => sending.send_timeout(request, timeout),
        };
        Ok(sent.map_err(error_alone)?)
    }

    /// Sends a request of a one-way method, without waiting for room.
    ///
    /// # Errors
    /// [`CallError::Send`], also where a blocking client would wait.
    pub fn try_send(&self, request: &[u8]) -> Result<(), CallError> {
        Ok(self.right.try_send(request)?)
    }

    /// Like [`Self::try_send`], with rights.
    ///
    /// # Errors
    /// The errors of [`Self::try_send`]. The rights are gone also then.
    pub fn try_send_with(&self, (request, rights): (&[u8], Vec<Right>)) -> Result<(), CallError> {
        let sent = self.right.with(rights).try_send(request);
        Ok(sent.map_err(error_alone)?)
    }

    /// Starts a call whose reply a task waits for.
    pub fn start(&self, request: &[u8]) -> Reply<'_> {
        self.right.call_async(request)
    }

    /// Like [`Self::start`], where there are rights in the request or the reply.
    pub fn start_with(&self, (request, rights): (&[u8], Vec<Right>)) -> Reply<'_> {
        self.right.with(rights).call_async(request)
    }

    /// The value that `decode` takes from the reply to a call of `method`.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn finish<T>(
        method: &'static Method,
        reply: Result<Message, SendError>,
        decode: impl FnOnce(&mut Decoder<'_>) -> Result<T, Malformed>,
    ) -> Result<T, CallError> {
        let mut reply = reply?;
        let rights = reply.take_rights_held();
        result(method, (&reply, rights), decode)
    }
}

/// The status of a reply.
#[inline(always)]
fn result<T>(
    method: &'static Method,
    (reply, rights): (&[u8], Vec<Right>),
    decode: impl FnOnce(&mut Decoder<'_>) -> Result<T, Malformed>,
) -> Result<T, CallError> {
    let [values @ .., ANSWERED] = reply else {
        return Err(refused(method, reply));
    };
    let result = Decoder::read(values, rights, |values| {
        let result = decode(values)?;
        values.end()?;
        Ok(result)
    });
    result.map_err(|why| CallError::Reply { method, why })
}

/// The rights are dropped: a caller that wants them back sends clones.
fn error_alone(returned: Returned<SendError>) -> SendError {
    returned.error
}

#[cold]
fn refused(method: &'static Method, reply: &[u8]) -> CallError {
    match Refusal::read(reply) {
        Ok(why) => CallError::Refused { method, why },
        Err(why) => CallError::Reply { method, why },
    }
}
