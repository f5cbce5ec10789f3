//! The right to receive from a port, as a value. `receive` receives by it, `binding` makes ports.

use crate::bound::Bound;
use crate::error::{BindError, Misuse, ReceiveError, Resource};
use crate::port::Port;
use crate::port::ports;
use crate::port::receiver::Receiver;
use crate::users::{Charge, Foreign, Users};
use handfast_layout::counters;
use handfast_layout::part::Bound as BoundName;
use std::sync::Arc;

mod mint;

/// The right to receive from a port. One port has one; threads may share it by reference.
///
/// Dropping the right unbinds the name. Calls that were not received end with [`Gone::Port`](crate::error::Gone::Port) at their
/// callers. A [`Request`](crate::Request) that was received, or passed on, can still be answered; dropping it ends its
/// call with [`Gone::Reply`](crate::error::Gone::Reply).
///
/// A port has one receive right, which cannot be cloned:
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
    _charge: Option<Charge>,
}

impl ReceiveRight {
    /// The right to a port that has just been made.
    pub(crate) fn new(port: Arc<Port>, bound: Option<Bound>, charge: Option<Charge>) -> Self {
        let right = Self {
            at: port.at.clone(),
            epoch: port.process.epoch,
            port,
            bound,
            is_quiet: false,
            _charge: charge,
        };
        publish_name(&right.port, true);
        right
    }

    /// Has the control thread take connections to its name.
    pub(crate) fn listen(&self) -> Result<(), Resource> {
        let bound = self.bound.as_ref();
        bound.map_or(Ok(()), |bound| {
            bound.listen(&self.port.process, self.port.receiver)
        })
    }

    /// Takes up the name that came with this right: from now on its connectors come here, through a thread that sleeps in
    /// `accept`. The library does not do this by itself: the old home keeps the socket behind the name, too, and can hold up
    /// that thread, and answer connectors. Take up the name where you trust the sender with it. No effect for a right that came without a
    /// name. Connectors wait meanwhile, as long as they do for a server. Some ten system calls.
    ///
    /// # Errors
    /// [`BindError`] without descriptors or threads; try again later.
    /// [`BindError::Misuse`] in a forked child, or once the node was shut down.
    pub fn take_up_name(&mut self) -> Result<(), BindError> {
        let port = self.port().clone();
        port.process.check()?;
        if let Some(bound) = &mut self.bound {
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

    /// The socket behind the name by which others connect to it, if there is one.
    pub(crate) fn listener(&self) -> Option<&Foreign> {
        self.bound.as_ref().map(Bound::listener)
    }

    /// The description of the name for the new home.
    pub(crate) fn moving_name(&self) -> Option<BoundName> {
        self.bound.as_ref().map(|bound| BoundName {
            file: bound.identity(),
            name: self.port.name.clone(),
        })
    }

    /// The bound name; empty for a port without one. A port that came from another process has its name before the name is
    /// [taken up](Self::take_up_name).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.port.name
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

    #[inline(always)]
    pub(crate) const fn receiver(&self) -> &Arc<Receiver> {
        &self.at
    }
}

/// Shows its name in the counters, or that it is there no more.
fn publish_name(port: &Port, bound: bool) {
    let tally = &port.process.counting.tally;
    let mut name = [0; counters::NAME_BYTES];
    if bound {
        name[..port.name.len()].copy_from_slice(port.name.as_bytes());
    }
    for (word, bytes) in name.chunks_exact(8).enumerate() {
        let value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        tally.store(counters::port_name(port.receiver) + word * 8, value);
    }
    for column in 0..counters::ROW_WORDS {
        let in_use = u64::from(bound && column == 0);
        tally.store(counters::port_word(port.receiver, column), in_use);
    }
}

impl core::fmt::Debug for ReceiveRight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ReceiveRight")
            .field("name", &self.port.name)
            .finish_non_exhaustive()
    }
}

/// Closes a port that was not received, in a closing thread of the user it came from: closing takes the lock of
/// its receiver and tells the application, and this thread may hold the lock of another.
pub(crate) fn close_apart(right: ReceiveRight, users: &Arc<Users>, user: u32) {
    users.expend(user, move || drop(right));
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
        publish_name(&self.port, false);
        ports::remove(process, self.port.receiver);
        // Rings of links that have ended since the poller looked: rights to the port may last longer than the
        // poller.
        drop(self.port.at.take_rung());
        ports::watch_unbound(process);
        crate::guest::tell!(info, name = self.port.name, "unbound");
    }
}
