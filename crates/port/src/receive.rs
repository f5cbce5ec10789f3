//! Receive rights: binding a name, receiving, replying.

use crate::bound::{Bound, Moving};
use crate::error::{BindError, Exhausted, Misuse, ReceiveError, Resource};
use crate::options::Options;
use crate::poller::Poller;
use crate::port::Port;
use crate::port::ports;
use crate::process::Process;
use crate::receiver::Receiver;
use crate::receiver::waits;
use crate::rendezvous::{self, SocketFile};
use crate::request::Request;
use crate::users::{Charge, Foreign, Users};
use core::time::Duration;
use handfast_layout::link::Kind;
use handfast_layout::part::Bound as BoundName;
use handfast_layout::{counters, name};
use handfast_proto::users::Quota;
use handfast_sys::{OwnedFd, clock};
use handfast_wait::Waiter;
use std::sync::Arc;
use std::time::Instant;

mod mint;

/// The right to receive from a port. One port has one; threads may share it by reference.
///
/// Dropping it unbinds the name. Calls that it has not received end with [`Gone::Port`](crate::error::Gone::Port) at their
/// callers. A [`Request`](crate::Request) that was received, or passed on, is answered as before; dropped, it ends its
/// call with [`Gone::Reply`](crate::error::Gone::Reply).
///
/// There is one for each port:
///
/// ```compile_fail,E0599
/// # fn copied(right: handfast_port::ReceiveRight) {
/// let other = right.clone();
/// # }
/// ```
pub struct ReceiveRight {
    port: Arc<Port>,
    /// Its receiver, one load nearer.
    at: Arc<Receiver>,
    /// A name by which others connect to it.
    bound: Option<Bound>,
    epoch: u32,
    /// Its end is not announced.
    is_quiet: bool,
    /// Of the other user whose process has sent it here, if one has.
    charge: Option<Charge>,
}

/// Makes a port without a name, which the caller announces to its peers.
pub(crate) fn nameless(process: &Arc<Process>, options: Options) -> Result<ReceiveRight, Resource> {
    let right = make(process, "", options, None)?;
    right.publish_name(true);
    Ok(right)
}

fn make(
    process: &Arc<Process>,
    name: &str,
    options: Options,
    bound: Option<Bound>,
) -> Result<ReceiveRight, Resource> {
    let (strategy, cap) = process.configuration.resolve(options);
    let port = ports::add(process, |id| {
        let waiter = Waiter::new(strategy, cap);
        Arc::new(Port::new(process.clone(), id, name, waiter))
    });
    if port.is_err()
        && let Some(bound) = &bound
    {
        bound.remove_file();
    }
    let port = port?;
    Ok(ReceiveRight {
        at: port.at.clone(),
        port,
        bound,
        epoch: process.epoch,
        is_quiet: false,
        charge: None,
    })
}

/// Binds a name by a node.
pub(crate) fn bind_at(
    process: &Arc<Process>,
    name: &str,
    options: Options,
) -> Result<ReceiveRight, BindError> {
    name::check(name).map_err(BindError::BadName)?;
    process.check()?;
    let listener = rendezvous::listen(&process.configuration.directory(), name)?;
    let file = SocketFile::of(&process.configuration.directory(), name);
    let bound = Bound::own(process, listener, file);
    let right = make(process, name, options, Some(bound))?;
    right.publish_name(true);
    right.listen()?;
    crate::guest::tell!(info, name, "bound");
    Ok(right)
}

/// Makes a port without a name, behind a descriptor: see [`behind_descriptor`](crate::behind_descriptor).
pub(crate) fn behind_descriptor(
    process: &Arc<Process>,
) -> Result<(ReceiveRight, OwnedFd), BindError> {
    let (listener, descriptor) = rendezvous::nameless(&process.configuration.directory(), false)
        .map_err(|errno| Resource::of("bind of a socket without a name", errno))?;
    let bound = Bound::own(process, listener, SocketFile::none());
    let right = make(process, BEHIND_DESCRIPTOR, Options::new(), Some(bound))?;
    right.publish_name(true);
    right.listen()?;
    Ok((right, descriptor))
}

/// The name of such a port in counters and for connectors, which come by its own socket: the name need not be unique.
pub(crate) const BEHIND_DESCRIPTOR: &str = "domain";

impl ReceiveRight {
    /// A receive right that came from a process of this user, with a name not yet taken up. Waits by default options.
    pub(crate) fn arrive(
        process: &Arc<Process>,
        user: u32,
        moving: Option<Moving>,
    ) -> Result<Self, Resource> {
        let is_foreign = user != handfast_sys::process::uid();
        let charge = is_foreign.then(|| process.users.charge(user, Quota::Ports, 1));
        let charge = charge.transpose().map_err(|refused| {
            Resource::Exhausted(Exhausted {
                what: "ports that processes of one other user may have sent here; drop some",
                limit: refused.limit(),
            })
        })?;
        let name = moving.as_ref().map(|moving| moving.name.name.clone());
        let bound = moving.map(Bound::moved);
        let mut right = make(process, &name.unwrap_or_default(), Options::new(), bound)?;
        right.charge = charge;
        right.publish_name(true);
        Ok(right)
    }

    /// Has the keeper take connections to its name.
    fn listen(&self) -> Result<(), Resource> {
        let bound = self.bound.as_ref();
        bound.map_or(Ok(()), |bound| {
            bound.listen(&self.port.process, self.port.receiver)
        })
    }

    /// Takes up the name that came with this right: from now on its connectors come here, through a thread that sleeps in
    /// `accept`. A name that comes is not taken up unasked: the socket behind it stays its old home's, too, which can hold up
    /// that thread, and answer connectors. Do it for senders that you trust with the name. No effect for a right without a name
    /// that came. Connectors wait meanwhile, as long as they do for a server. Some ten system calls.
    ///
    /// # Errors
    /// [`BindError`] without descriptors or threads; it can be tried again.
    /// [`BindError::Misuse`] in a forked child, or once the node was shut down.
    pub fn take_up_name(&mut self) -> Result<(), BindError> {
        let port = self.port().clone();
        port.process.check()?;
        if let Some(bound) = self.bound_mut() {
            bound.take_up(&port)?;
        }
        Ok(())
    }

    /// Stops taking connections here. The name stays: another process has it now.
    pub(crate) fn unlisten(&mut self) {
        if let Some(bound) = self.bound.take() {
            bound.deafen(&self.port.process, self.port.receiver);
        }
    }

    /// Drops a port to which no right is left: calls that have been received stay open.
    pub(crate) fn drop_quietly(mut self) {
        self.is_quiet = true;
    }

    /// The name by which others connect to it, if there is one; and what stands behind it.
    pub(crate) fn bound_name(&self) -> &str {
        match self.bound {
            Some(_) => &self.port.name,
            None => "",
        }
    }

    pub(crate) fn listener(&self) -> Option<&Foreign> {
        self.bound.as_ref().map(Bound::listener)
    }

    pub(crate) const fn bound_mut(&mut self) -> Option<&mut Bound> {
        self.bound.as_mut()
    }

    /// The description of the name for the new home.
    pub(crate) fn moving_name(&self) -> Option<BoundName> {
        self.bound.as_ref().map(|bound| BoundName {
            file: bound.identity(),
            name: self.port.name.clone(),
        })
    }

    /// The bound name; empty for one without. One that came from another process has its name before it
    /// [takes it up](Self::take_up_name).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.port.name
    }

    /// Changes how this port waits, from the next wait on. A wait that has begun goes on unchanged, and is not
    /// waited for. A short lock.
    pub fn set_options(&self, options: Options) {
        if self.check().is_err() {
            return;
        }
        let (strategy, cap) = self.port.process.configuration.resolve(options);
        self.port.at.set_waiter(Waiter::new(strategy, cap));
    }

    /// Waits for a message by the port's strategy. Busy: no system call, one copy.
    ///
    /// # Errors
    /// [`ReceiveError::Misuse`] in a forked child. A client's death or fault is no error here:
    /// its messages end, others are not disturbed.
    pub fn receive(&self) -> Result<Request, ReceiveError> {
        self.receive_by(None)
    }

    /// As [`Self::receive`], at the longest for `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] then.
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Request, ReceiveError> {
        self.receive_by(Some(clock::deadline_ns(timeout)))
    }

    /// As [`Self::receive_timeout`], until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn receive_deadline(&self, deadline: Instant) -> Result<Request, ReceiveError> {
        self.receive_by(Some(clock::instant_ns(deadline)))
    }

    /// Takes a message if one waits. Never blocks. Where there is a [descriptor](Self::readiness) it looks as
    /// the strategy says, 20 us at the longest, before it says for the first time that nothing is there.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when none waits, or another thread is receiving.
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
        let Some(mut poller) = waits::try_lock_or_miss(&self.port.at) else {
            return Err(ReceiveError::Empty);
        };
        waits::resume(&self.port.at, &mut poller);
        let request = match waits::is_raised(&self.port.at) {
            true => waits::look_long(&self.port.at, &mut poller),
            false => waits::look(&self.port.at, &mut poller),
        };
        if request.is_none() && waits::has_descriptor(&self.port.at) {
            let rested = waits::rest(&self.port.at, poller, None, then);
            return rested.ok_or_else(|| self.port.at.why_empty());
        }
        let result = request.map(|request| then(&mut poller, request));
        self.port.at.leave(poller);
        result.ok_or_else(|| self.port.at.why_empty())
    }

    /// Replies to `request` and waits for the next message, in one operation: the rota times the reply's
    /// wake-up, if one is needed (an overloaded server wakes few clients at once), and the port is already
    /// being polled when the client posts again. For a one-way message or a notice no reply is sent, and this
    /// only waits.
    ///
    /// Busy: no system call, two copies. One system call if the caller sleeps.
    ///
    /// # Errors
    /// As [`Self::receive`]. A caller that has died in the meantime is no error.
    ///
    /// # Panics
    /// If `bytes` is longer than a message can be; see [`Request::reply`] for the form that
    /// returns an error.
    pub fn reply_and_receive(
        &self,
        request: Request,
        bytes: &[u8],
    ) -> Result<Request, ReceiveError> {
        self.reply_and_receive_by(request, bytes, None)
    }

    /// As [`Self::reply_and_receive`], waiting at the longest for `timeout`. The reply is sent
    /// in any case.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] then.
    ///
    /// # Panics
    /// As [`Self::reply_and_receive`].
    pub fn reply_and_receive_timeout(
        &self,
        request: Request,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<Request, ReceiveError> {
        self.reply_and_receive_by(request, bytes, Some(clock::deadline_ns(timeout)))
    }

    /// As [`Self::reply_and_receive_timeout`], until `deadline`.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As [`Self::reply_and_receive`].
    pub fn reply_and_receive_deadline(
        &self,
        request: Request,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<Request, ReceiveError> {
        self.reply_and_receive_by(request, bytes, Some(clock::instant_ns(deadline)))
    }

    /// Replies, and takes a message if one waits. Never blocks.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when none waits.
    ///
    /// # Panics
    /// As [`Self::reply_and_receive`].
    pub fn reply_and_try_receive(
        &self,
        request: Request,
        bytes: &[u8],
    ) -> Result<Request, ReceiveError> {
        let _ = request.reply(bytes);
        self.try_receive()
    }

    #[inline]
    fn reply_and_receive_by(
        &self,
        request: Request,
        bytes: &[u8],
        deadline_ns: Option<u64>,
    ) -> Result<Request, ReceiveError> {
        self.check()?;
        let mut guard = self.at.try_lock();
        // The reply right is used in place and taken only then: moving it would cost more than using it.
        let woke = match (&mut guard, request.reply_right()) {
            (_, None) => false,
            (Some(poller), Some(reply)) if reply.receiver() == self.at.index => {
                poller.answer(reply, bytes)
            }
            // No thread polls, or the call came through another port, whose poller knows its lane.
            (_, Some(reply)) => reply.answer(Kind::Message, bytes),
        };
        if woke {
            self.at.woke_caller();
        }
        if let Some(received) = request.answered() {
            match &mut guard {
                Some(poller) => poller.give_back(received),
                // Now: it would keep a dead link while this thread waits.
                None => received.pool(),
            }
        }
        self.at.wait(guard, deadline_ns, |_, request| request)
    }

    fn receive_by(&self, deadline_ns: Option<u64>) -> Result<Request, ReceiveError> {
        self.check()?;
        let guard = self.at.try_lock();
        self.at.wait(guard, deadline_ns, |_, request| request)
    }

    #[inline]
    pub(crate) fn check(&self) -> Result<(), ReceiveError> {
        if self.epoch == handfast_sys::process::fork_epoch() {
            Ok(())
        } else {
            Err(ReceiveError::Misuse(Misuse::Forked))
        }
    }

    pub(crate) const fn port(&self) -> &Arc<Port> {
        &self.port
    }

    fn publish_name(&self, bound: bool) {
        let tally = &self.port.process.counting.tally;
        let mut name = [0; counters::NAME_BYTES];
        if bound {
            name[..self.port.name.len()].copy_from_slice(self.port.name.as_bytes());
        }
        for (word, bytes) in name.chunks_exact(8).enumerate() {
            let value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            tally.store(counters::port_name(self.port.receiver) + word * 8, value);
        }
        for column in 0..counters::ROW_WORDS {
            let in_use = u64::from(bound && column == 0);
            tally.store(counters::port_word(self.port.receiver, column), in_use);
        }
    }
}

impl core::fmt::Debug for ReceiveRight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ReceiveRight")
            .field("name", &self.port.name)
            .finish_non_exhaustive()
    }
}

impl ReceiveRight {
    /// Closes a port that was not received, in a closing thread of the user it came from: closing takes the lock of
    /// its receiver and tells the application, and this thread may hold the lock of another.
    pub(crate) fn close_apart(self, users: &Arc<Users>, user: u32) {
        users.expend(user, move || drop(self));
    }
}

impl Drop for ReceiveRight {
    fn drop(&mut self) {
        if self.epoch != handfast_sys::process::fork_epoch() {
            return;
        }
        let process = &self.port.process;
        if let Some(bound) = &self.bound {
            bound.remove_file();
            bound.deafen(process, self.port.receiver);
        }
        ports::ends(process).close(&self.port, self.is_quiet);
        self.publish_name(false);
        ports::remove(process, self.port.receiver);
        // Rings of links that have ended since the poller looked: rights to the port may last longer than the
        // poller.
        drop(self.port.at.take_rung());
        ports::watch_unbound(process);
        crate::guest::tell!(info, name = self.port.name, "unbound");
    }
}
