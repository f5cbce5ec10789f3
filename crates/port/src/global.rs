//! The free functions, which use the global node ([`Node::global`](crate::Node::global)).

use crate::binding;
use crate::connect::{connect_at, connect_behind, left_until};
use crate::error::{BindError, ConnectError, NodeError};
use crate::lifecycle;
use crate::limits;
use crate::moving;
use crate::options::Options;
use crate::quotas::{Quotas, of_peer};
use crate::receive_right::ReceiveRight;
use crate::send::SendRight;
use core::time::Duration;
use handfast_layout::name;
use handfast_sys::OwnedFd;
use handfast_sys::socket::Peer;
use std::time::Instant;

/// Makes a port without a name, with default options. See [`anonymous_with`].
///
/// # Errors
/// The errors of [`anonymous_with`].
pub fn anonymous() -> Result<ReceiveRight, BindError> {
    anonymous_with(Options::new())
}

/// Makes a port without a name, which is reached only through rights that were
/// [minted](ReceiveRight::mint) and sent. No descriptor, no file; no system call except at the first use
/// of the library in a process.
///
/// # Errors
/// [`BindError::Exhausted`] when the process has as many ports as it can have.
pub fn anonymous_with(options: Options) -> Result<ReceiveRight, BindError> {
    Ok(binding::nameless(&lifecycle::current()?, options)?)
}

/// Binds `name` with default options. See [`bind_with`].
///
/// # Errors
/// The errors of [`bind_with`].
pub fn bind(name: &str) -> Result<ReceiveRight, BindError> {
    bind_with(name, Options::new())
}

/// Binds `name` and returns the right to receive messages that are sent to it. A name has 1 to 64 ASCII letters, digits, `.`, `_` and `-`,
/// and begins with neither `.` nor `-`.
///
/// A socket file appears in the [rendezvous directory](crate::rendezvous::directory); one left by a dead
/// server is replaced silently. The first use of the library in a process starts its control thread
/// and measures the machine (about 5 ms). Blocks for about a second at most, while others bind.
///
/// # Errors
/// Each failure of [`BindError`] says what to do.
pub fn bind_with(name: &str, options: Options) -> Result<ReceiveRight, BindError> {
    name::check(name).map_err(BindError::BadName)?;
    // First, so that a process that cannot have its own memory leaves no file.
    binding::bind_at(&lifecycle::current()?, name, options)
}

/// Connects to the port bound as `name`, with default options. See [`connect_with`].
///
/// # Errors
/// The errors of [`connect_with`].
pub fn connect(name: &str) -> Result<SendRight, ConnectError> {
    connect_with(name, Options::new())
}

/// Connects to the port bound as `name` and returns a right to send to it.
///
/// The first connection to a process makes a link (a socket, a process descriptor, a sealed region of which
/// only touched pages exist); further connections share it. Connections to this process itself, or to one that cannot
/// be seen from here (in another PID namespace), each make a link, with its descriptors. This function first waits for
/// other threads of this process that connect to the same name. Then it blocks for at most five seconds: for
/// threads that connect to another name of the same process, and for the handshake. The options say how this
/// right's callers wait for replies.
///
/// # Errors
/// Each failure of [`ConnectError`] says what to do.
pub fn connect_with(name: &str, options: Options) -> Result<SendRight, ConnectError> {
    name::check(name).map_err(ConnectError::BadName)?;
    connect_at(&lifecycle::current()?, name, (options, None))
}

/// Like [`connect`], for at most `timeout`, which covers the wait for other threads of this process that
/// connect to the same server. The first use of the library in a process measures the machine, which takes
/// about 5 ms more.
///
/// # Errors
/// [`ConnectError::TimedOut`] then; other errors as of [`connect_with`].
pub fn connect_timeout(name: &str, timeout: Duration) -> Result<SendRight, ConnectError> {
    name::check(name).map_err(ConnectError::BadName)?;
    connect_at(
        &lifecycle::current()?,
        name,
        (Options::new(), Some(timeout)),
    )
}

/// As [`connect_timeout`], until `deadline`.
///
/// # Errors
/// As there.
pub fn connect_deadline(name: &str, deadline: Instant) -> Result<SendRight, ConnectError> {
    connect_timeout(name, left_until(deadline))
}

/// Waits until the ports that this process has given away ([`Right::Receive`](crate::Right::Receive)) no longer need this process: all
/// their senders have found the new homes. If the process ends before, the messages and senders
/// that still go through it are lost. Returns whether all ports were free of it within `timeout`.
///
/// The messages of senders that cannot have a link with the new home go through this process for as long as those senders
/// have their rights. Blocks in the kernel.
#[must_use]
pub fn wait_moved_timeout(timeout: Duration) -> bool {
    lifecycle::current().map_or(true, |process| moving::wait_moved_at(&process, timeout))
}

/// Sets the quotas of each peer of this process, from now on. Some stores for each link.
///
/// # Errors
/// The first use of the library in a process starts its node ([`Node::global`](crate::Node::global)), which may fail: so this has the
/// errors of that, and [`Node::set_quotas`](crate::Node::set_quotas), of a node that has started, [`Misuse`](crate::error::Misuse) alone.
pub fn set_quotas(quotas: Quotas) -> Result<(), NodeError> {
    set_quotas_by(move |_| quotas)
}

/// Like [`set_quotas`], by the identity of the peer, as the kernel vouches for it. `quotas_of` is called now for each peer,
/// and by the control thread for later peers: it must not block.
///
/// # Errors
/// The errors of [`set_quotas`].
pub fn set_quotas_by(
    quotas_of: impl Fn(&Peer) -> Quotas + Send + Sync + 'static,
) -> Result<(), NodeError> {
    let process = lifecycle::current()?;
    Ok(limits::set_at(&process, of_peer(quotas_of))?)
}

/// Makes a port without a name that any holder of a descriptor can reach ([`connect_by_descriptor`]). Uses the rendezvous directory
/// for a moment. For crates above.
///
/// # Errors
/// The errors of [`bind`], except those about names.
#[doc(hidden)]
pub fn behind_descriptor() -> Result<(ReceiveRight, OwnedFd), BindError> {
    binding::behind_descriptor(&lifecycle::current()?)
}

/// Connects to the port behind a descriptor that the port's process has made by [`behind_descriptor`]. For crates above.
///
/// # Errors
/// The errors of [`connect_with`].
#[doc(hidden)]
pub fn connect_by_descriptor(descriptor: &OwnedFd) -> Result<SendRight, ConnectError> {
    connect_behind(&lifecycle::current()?, descriptor)
}
