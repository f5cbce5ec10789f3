//! The client's half of a call.

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::{ANSWERED, CallError, Malformed, Refusal};
use crate::method::Method;
use core::time::Duration;
use handfast_port::error::SendError;
use handfast_port::{Message, Returned, SendRight};

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

    /// The same with a deadline for each call.
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

    /// The right alone.
    #[must_use]
    pub fn into_right(self) -> SendRight {
        self.right
    }

    /// Calls `method` with what `encode` puts in, and returns what `decode` takes from the reply.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline]
    pub fn call<T>(
        &self,
        method: &'static Method,
        encode: impl FnOnce(&mut Encoder),
        decode: impl FnOnce(&mut Decoder<'_>) -> Result<T, Malformed>,
    ) -> Result<T, CallError> {
        let mut request = request(method, encode)?;
        let mut reply = match self.timeout {
            _ if request.has_rights() => self.call_with(&mut request)?,
            None => self.right.call(request.bytes())?,
            Some(timeout) => self.right.call_until(request.bytes(), timeout)?,
        };
        drop(request);
        let rights = reply.take_rights();
        let [ANSWERED, values @ ..] = reply.bytes() else {
            return Err(refused(method, &reply));
        };
        let mut values = Decoder::new(values, rights);
        let result = decode(&mut values);
        result
            .and_then(|result| values.end().map(|()| result))
            .map_err(|why| CallError::Reply { method, why })
    }

    /// Sends a request of a one-way method.
    ///
    /// # Errors
    /// [`CallError::Send`], [`CallError::Arguments`].
    #[inline]
    pub fn send(
        &self,
        method: &'static Method,
        encode: impl FnOnce(&mut Encoder),
    ) -> Result<(), CallError> {
        let mut request = request(method, encode)?;
        match self.timeout {
            _ if request.has_rights() => self.send_with(&mut request)?,
            None => self.right.send(request.bytes())?,
            Some(timeout) => self.right.send_until(request.bytes(), timeout)?,
        }
        Ok(())
    }

    #[cold]
    fn call_with(&self, request: &mut Encoder) -> Result<Message, SendError> {
        let sending = self.right.with(request.take_rights());
        let reply = match self.timeout {
            None => sending.call(request.bytes()),
            Some(timeout) => sending.call_until(request.bytes(), timeout),
        };
        reply.map_err(error_alone)
    }

    #[cold]
    fn send_with(&self, request: &mut Encoder) -> Result<(), SendError> {
        let sending = self.right.with(request.take_rights());
        let sent = match self.timeout {
            None => sending.send(request.bytes()),
            Some(timeout) => sending.send_until(request.bytes(), timeout),
        };
        sent.map_err(error_alone)
    }
}

#[inline]
fn request(
    method: &'static Method,
    encode: impl FnOnce(&mut Encoder),
) -> Result<Encoder, CallError> {
    let mut request = Encoder::new();
    request.start_request(method.word());
    encode(&mut request);
    match request.check() {
        Ok(()) => Ok(request),
        Err(why) => Err(CallError::Arguments { method, why }),
    }
}

/// The rights are dropped: who wants them back sends clones.
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
