//! A received message that goes on by another right: through the vine (`forwarder`), or after a port that has moved (`moving`).

use crate::error::{Gone, SendError};
use crate::message::Message;
use crate::options::Waiting;
use crate::request::Request;
use crate::right::{Returned, Right};
use crate::send::SendRight;
use crate::users::Foreign;
use handfast_layout::link::REVOKED;

/// A call that is passed on, or a one-way message that is sent again, each with its rights.
pub(crate) struct Onward {
    message: Message,
    rights: Vec<Right>,
    /// A call's, without its message.
    request: Option<Request>,
    /// So that this thread, which serves others, closes none of them last. Dropped after them.
    _held: Vec<Foreign>,
}

impl Onward {
    pub(crate) fn of(mut request: Request) -> Self {
        Self {
            // First: they are in the message.
            _held: request.hold_descriptors(),
            rights: request.take_rights(),
            message: request.take_message(),
            request: request.is_call().then_some(request),
        }
    }

    pub(crate) fn rights(&self) -> &[Right] {
        &self.rights
    }

    /// Sends it by `to`. After an error it may be sent once more. A call by a right that was revoked ends so at its caller.
    ///
    /// # Errors
    /// As [`SendRight::send`].
    pub(crate) fn send(&mut self, to: &SendRight, waiting: Waiting) -> Result<(), SendError> {
        let rights = core::mem::take(&mut self.rights);
        let (error, rights) = match self.request.take() {
            Some(request) => match request.forward_by(to, &self.message, rights, waiting) {
                Ok(()) => return Ok(()),
                Err(failed) => {
                    self.request = unless_revoked(failed.request, failed.error);
                    (failed.error, failed.rights)
                }
            },
            None => {
                let sending = to.with(rights);
                let sent = match waiting {
                    Waiting::Never => sending.try_send(&self.message),
                    _ => sending.send(&self.message),
                };
                match sent {
                    Ok(()) => return Ok(()),
                    Err(Returned { error, rights }) => (error, rights),
                }
            }
        };
        self.rights = rights;
        Err(error)
    }
}

/// The request, unless its caller has been told that the right was revoked.
fn unless_revoked(request: Request, error: SendError) -> Option<Request> {
    if error == SendError::Gone(Gone::Right)
        && let Some(reply) = request.reply_right()
    {
        reply.refuse(REVOKED);
        drop(request.answered());
        return None;
    }
    Some(request)
}
