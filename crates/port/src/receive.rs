//! Receiving by a receive right, and replying.

use crate::body::Body;
use crate::error::{ReceiveError, ReplyError};
use crate::options::Options;
use crate::passing::NotForwarded;
use crate::poller::{Poller, answered};
use crate::polling::{self, waits};
use crate::port::receiver::Receiver;
use crate::receive_right::ReceiveRight;
use crate::reply_slot::ReplySlot;
use crate::request::Request;
use crate::right::{Returned, Right};
use crate::send::SendRight;
use core::time::Duration;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::Kind;
use handfast_ring::lane::Unit;
use handfast_sys::clock;
use handfast_wait::Waiter;
use std::time::Instant;

/// Why an operation that answers and then receives has received no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotReceived {
    /// The reply was not sent, and the operation did not wait for a message.
    #[error("the reply was not sent: {0}")]
    Reply(Returned<ReplyError>),
    /// The call was not passed on, and the operation did not wait for a message.
    #[error("the call was not passed on: {}", .0.error)]
    Forward(NotForwarded),
    /// The reply was sent, or the call passed on; receiving failed.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
}

impl ReceiveRight {
    /// Changes how this port waits, from the next wait on. Does not end or change a wait that has begun. A short
    /// lock.
    pub fn set_options(&self, options: Options) {
        if self.check().is_err() {
            return;
        }
        let (strategy, cap) = self.port().process.configuration.resolve(options);
        polling::set_waiter(self.receiver(), Waiter::new(strategy, cap));
    }

    /// Waits for a message by the port's strategy. While messages wait, a receive makes no system call. It copies the bytes once.
    ///
    /// # Errors
    /// [`ReceiveError::Misuse`]: in a forked child ([`Misuse::Forked`](crate::error::Misuse::Forked)), once the node was shut down
    /// ([`Misuse::Shutdown`](crate::error::Misuse::Shutdown)), and where this would wait in the library's control thread
    /// ([`Misuse::ControlThread`](crate::error::Misuse::ControlThread)). A client's death or fault is no error here: its messages
    /// end, others are not disturbed.
    pub fn receive(&self) -> Result<Request, ReceiveError> {
        receive_by(self, None)
    }

    /// Like [`Self::receive`], for at most `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] then.
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Request, ReceiveError> {
        receive_by(self, Some(clock::deadline_ns(timeout)))
    }

    /// Like [`Self::receive_timeout`], until `deadline`.
    ///
    /// # Errors
    /// The errors of [`Self::receive_timeout`].
    pub fn receive_deadline(&self, deadline: Instant) -> Result<Request, ReceiveError> {
        receive_by(self, Some(clock::instant_ns(deadline)))
    }

    /// Takes a message if one waits. Never blocks. Where the port has a [readiness descriptor](Self::readiness) this looks as often as
    /// the strategy says, for at most 20 us, before it returns `Empty` for the first time.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when no message waits, or another thread is receiving.
    pub fn try_receive(&self) -> Result<Request, ReceiveError> {
        self.try_receive_then(|_, request| request)
    }

    /// As [`Self::try_receive`]; the received request passes through `then` while this thread still holds the
    /// poller.
    pub(crate) fn try_receive_then<T>(
        &self,
        then: impl FnOnce(&mut Poller, Request) -> T,
    ) -> Result<T, ReceiveError> {
        self.check()?;
        let Some(mut poller) = waits::try_lock_or_miss(self.receiver()) else {
            return Err(ReceiveError::Empty);
        };
        waits::resume(self.receiver(), &mut poller);
        let request = match waits::is_raised(self.receiver()) {
            true => waits::look_long(self.receiver(), &mut poller),
            false => waits::look(self.receiver(), &mut poller),
        };
        if request.is_none() && waits::has_descriptor(self.receiver()) {
            let rested = waits::rest(self.receiver(), poller, None, then);
            return rested.ok_or_else(|| self.receiver().why_empty());
        }
        let result = request.map(|request| then(&mut poller, request));
        polling::leave(self.receiver(), poller);
        result.ok_or_else(|| self.receiver().why_empty())
    }

    /// Replies to `request` and waits for the next message, in one operation: the rota times the reply's
    /// wake-up, if one is needed (an overloaded server wakes few clients at once), and the port is already
    /// being polled when the client posts again. For a one-way message or a notice this sends no reply and
    /// only waits.
    ///
    /// While messages wait and the caller is awake, the operation makes no system call; a sleeping caller takes one. It copies the reply and the next message, once each.
    ///
    /// # Errors
    /// The errors of [`Self::receive`]. A caller that has died in the meantime is no error; nor is a reply that is too long, whose call ends as
    /// dropped: [`Request::reply`] says so.
    pub fn reply_and_receive(
        &self,
        request: Request,
        bytes: &[u8],
    ) -> Result<Request, ReceiveError> {
        reply_and_receive(self, request, bytes, None)
    }

    /// Like [`Self::reply_and_receive`], waiting for at most `timeout`. The reply is sent
    /// in any case.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] then.
    pub fn reply_and_receive_timeout(
        &self,
        request: Request,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<Request, ReceiveError> {
        reply_and_receive(self, request, bytes, Some(clock::deadline_ns(timeout)))
    }

    /// Like [`Self::reply_and_receive_timeout`], until `deadline`.
    ///
    /// # Errors
    /// The errors of [`Self::reply_and_receive_timeout`].
    pub fn reply_and_receive_deadline(
        &self,
        request: Request,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<Request, ReceiveError> {
        reply_and_receive(self, request, bytes, Some(clock::instant_ns(deadline)))
    }

    /// Replies, and takes a message if one waits. Never blocks.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when no message waits.
    pub fn reply_and_try_receive(
        &self,
        request: Request,
        bytes: &[u8],
    ) -> Result<Request, ReceiveError> {
        let _ = request.reply(bytes);
        self.try_receive()
    }

    /// Like [`Self::reply_and_receive`], with rights beside the reply: all arrive, or none. Wakes and system calls as there, and those of
    /// each kind of [`Right`].
    ///
    /// # Errors
    /// [`NotReceived::Reply`] with the rights, as [`Request::reply_with`]: the call has ended as dropped, and the operation has not waited.
    /// The death of the caller is no error: the rights are dropped then, as are rights under way to it. [`NotReceived::Receive`] as
    /// [`Self::receive`].
    pub fn reply_with_and_receive(
        &self,
        request: Request,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<Request, NotReceived> {
        reply_with(
            Some(self.receiver()),
            request,
            bytes,
            rights.into_iter().collect(),
        )?;
        Ok(receive_by(self, None)?)
    }

    /// Like [`Self::reply_with_and_receive`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// The errors of [`Self::reply_with_and_receive`], and [`ReceiveError::TimedOut`] then.
    pub fn reply_with_and_receive_timeout(
        &self,
        request: Request,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
        timeout: Duration,
    ) -> Result<Request, NotReceived> {
        let deadline_ns = clock::deadline_ns(timeout);
        reply_with(
            Some(self.receiver()),
            request,
            bytes,
            rights.into_iter().collect(),
        )?;
        Ok(receive_by(self, Some(deadline_ns))?)
    }

    /// As [`Self::reply_with_and_receive_timeout`], until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn reply_with_and_receive_deadline(
        &self,
        request: Request,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
        deadline: Instant,
    ) -> Result<Request, NotReceived> {
        reply_with(
            Some(self.receiver()),
            request,
            bytes,
            rights.into_iter().collect(),
        )?;
        Ok(receive_by(self, Some(clock::instant_ns(deadline)))?)
    }

    /// Passes a call on, as [`Request::forward_with`], and waits for the next message. The two by themselves cost the same, so there is no form
    /// with a timeout: [`Self::receive_timeout`] has it.
    ///
    /// # Errors
    /// [`NotReceived::Forward`] with the request and the rights, as there: the operation has not waited. [`NotReceived::Receive`] as
    /// [`Self::receive`].
    pub fn forward_and_receive(
        &self,
        request: Request,
        to: &SendRight,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<Request, NotReceived> {
        let forwarded = request.forward_with(to, bytes, rights);
        forwarded.map_err(NotReceived::Forward)?;
        Ok(receive_by(self, None)?)
    }
}

fn receive_by(port: &ReceiveRight, deadline_ns: Option<u64>) -> Result<Request, ReceiveError> {
    port.check()?;
    let guard = polling::try_lock(port.receiver());
    polling::wait(port.receiver(), guard, deadline_ns, |_, request| request)
}

/// See [`ReceiveRight::reply_and_receive`].
#[inline]
fn reply_and_receive(
    port: &ReceiveRight,
    request: Request,
    bytes: &[u8],
    deadline_ns: Option<u64>,
) -> Result<Request, ReceiveError> {
    port.check()?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        let _ = request.reply(bytes);
        return receive_by(port, deadline_ns);
    }
    let mut guard = polling::try_lock(port.receiver());
    // The reply right is used in place and taken only then: moving it would cost more than using it.
    let woke = match (&mut guard, request.reply_right()) {
        (_, None) => false,
        (Some(poller), Some(reply)) if reply.receiver == port.receiver().index => {
            answered::answer(poller, reply, bytes)
        }
        // No thread polls, or the call came through another port, whose poller knows its lane.
        (_, Some(reply)) => reply.answer(Kind::Message, bytes),
    };
    if woke {
        port.receiver().woke_caller();
    }
    if let Some(received) = request.answered() {
        match &mut guard {
            Some(poller) => answered::give_back(poller, received),
            // Now: it would keep a dead link while this thread waits.
            None => received.pool(),
        }
    }
    polling::wait(port.receiver(), guard, deadline_ns, |_, request| request)
}

/// Replies, for an operation that then receives at more than `at`. The rota times the wake-up, if one is needed and the call came to
/// `at`.
pub(crate) fn reply(at: Option<&Receiver>, request: Request, bytes: &[u8]) {
    let Some(at) = at.filter(|_| bytes.len() <= MESSAGE_BYTES_MAX) else {
        let _ = request.reply(bytes);
        return;
    };
    let mut poller = polling::lock(at);
    if let Some(reply) = request.reply_right()
        && answered::answer(&mut poller, reply, bytes)
    {
        at.woke_caller();
    }
    if let Some(received) = request.answered() {
        answered::give_back(&mut poller, received);
    }
}

/// As [`reply`], with rights; the receiver may be any.
pub(crate) fn reply_with(
    at: Option<&Receiver>,
    mut request: Request,
    bytes: &[u8],
    rights: Vec<Right>,
) -> Result<(), NotReceived> {
    let Some(reply) = request.take_reply() else {
        if rights.is_empty() {
            return Ok(());
        }
        let error = ReplyError::NotACall;
        return Err(NotReceived::Reply(Returned { error, rights }));
    };
    let answer = |slot: &ReplySlot, bytes: Body<'_>, units: &[Unit]| {
        let its = at.filter(|at| at.index == slot.receiver);
        let polled = its.and_then(|at| Some((at, polling::try_lock(at)?)));
        let woke = match polled {
            Some((at, mut poller)) => {
                let woke = answered::answer_described(&mut poller, slot, (bytes, units));
                polling::leave(at, poller);
                woke
            }
            None => slot.answer_described(bytes, units),
        };
        if woke && let Some(at) = at {
            at.woke_caller();
        }
    };
    match reply.reply_by(Body::One(bytes), rights, answer) {
        Err(returned) if returned.error != ReplyError::Gone => Err(NotReceived::Reply(returned)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use crate::error::{Gone, SendError};
    use crate::set::Event;

    #[test]
    fn rights_that_a_combined_reply_could_not_send_come_back() {
        let [node, other] = [(); 2].map(|()| Node::builder().start().unwrap());
        let (port, apart) = (node.anonymous().unwrap(), other.anonymous().unwrap());
        let right = port.mint(0).connect().unwrap();
        let reply = |rights: Vec<Right>| {
            let request = port.receive().unwrap();
            port.reply_with_and_receive_timeout(request, b"", rights, Duration::ZERO)
        };
        let returned = |outcome| match outcome {
            Err(NotReceived::Reply(returned)) => (returned.error, returned.rights.len()),
            other => panic!("{other:?}"),
        };
        right.send(b"").unwrap();
        let outcome = returned(reply(vec![port.mint(1).into()]));
        assert_eq!(outcome, (ReplyError::NotACall, 1));
        // Without rights it only waits, as the bare form.
        right.send(b"").unwrap();
        let outcome = reply(Vec::new());
        assert!(matches!(
            outcome,
            Err(NotReceived::Receive(ReceiveError::TimedOut))
        ));
        let call = right.try_call(b"").unwrap();
        let (error, count) = returned(reply(vec![apart.mint(1).into()]));
        assert!(
            matches!(error, ReplyError::Right(_)) && count == 1,
            "{error:?}"
        );
        assert_eq!(call.wait().unwrap_err(), SendError::Gone(Gone::Reply));
        drop((right, port));
        node.shutdown();
        other.shutdown();
    }

    #[test]
    fn a_wait_set_gives_rights_back() {
        let node = Node::builder().start().unwrap();
        let port = node.anonymous().unwrap();
        let (right, given) = (port.mint(0).connect().unwrap(), port.mint(1).into());
        let mut set = node.wait_set(Options::new()).unwrap();
        set.add(port);
        right.send(b"").unwrap();
        let Event::Message(_, message) = set.receive().unwrap() else {
            unreachable!("only a port is there")
        };
        match set.reply_with_and_receive(message, b"", [given]) {
            Err(NotReceived::Reply(returned)) => {
                assert_eq!(returned.error, ReplyError::NotACall);
                assert_eq!(returned.rights.len(), 1);
            }
            other => panic!("{other:?}"),
        }
        drop((right, set));
        node.shutdown();
    }

    /// The rest of a request that came to another port was taken for the next one here, which then was answered as one of that port.
    #[test]
    fn a_call_that_is_answered_through_another_port_leaves_nothing_for_the_next_there() {
        let node = Node::builder().start().unwrap();
        let ports = [node.anonymous().unwrap(), node.anonymous().unwrap()];
        let rights = [0, 1].map(|port| ports[port].mint(0).connect().unwrap());
        let call = |port: usize| {
            let call = rights[port].try_call(b"").unwrap();
            (call, ports[port].receive().unwrap())
        };
        for _ in 0..2 {
            // Each has a lane that it knows.
            for port in [0, 1] {
                let (call, request) = call(port);
                assert_eq!(
                    request.reply_right().unwrap().receiver,
                    ports[port].port().receiver
                );
                request.reply(b"").unwrap();
                call.wait().unwrap();
            }
            let (call, request) = call(0);
            let none = ports[1].reply_and_receive_timeout(request, b"", Duration::ZERO);
            assert!(none.is_err());
            call.wait().unwrap();
        }
        drop((rights, ports));
        node.shutdown();
    }
}
