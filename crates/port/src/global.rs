//! The free functions, which use the global node ([`Node::global`](crate::Node::global)).

use crate::binding;
use crate::connect::{connect_at, connect_behind};
use crate::error::{BindError, ConnectError, NodeError};
use crate::lifecycle;
use crate::limits;
use crate::moving;
use crate::options::Options;
use crate::quotas::Quotas;
use crate::receive_right::ReceiveRight;
use crate::send::SendRight;
use core::time::Duration;
use handfast_layout::name;
use handfast_sys::OwnedFd;
use handfast_sys::socket::Peer;
use std::sync::Arc;

/// Makes a port without a name, with default options. See [`anonymous_with`].
///
/// # Errors
/// As [`anonymous_with`].
pub fn anonymous() -> Result<ReceiveRight, BindError> {
    anonymous_with(Options::new())
}

/// Makes a port without a name, which is reached only through rights that were
/// [minted](ReceiveRight::mint) and sent. No descriptor, no file; no system call but for the first use
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
/// As [`bind_with`].
pub fn bind(name: &str) -> Result<ReceiveRight, BindError> {
    bind_with(name, Options::new())
}

/// Binds `name` and returns the right to receive what is sent to it. A name has 1 to 64 ASCII letters, digits, `.`, `_` and `-`,
/// and begins with neither `.` nor `-`.
///
/// A socket file appears in the [rendezvous directory](crate::rendezvous::directory); one left by a dead
/// server is replaced silently. The first use of the library in a process starts its keeper thread
/// and measures the machine (about 5 ms). Blocks at most about a second, for other binders.
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
/// As [`connect_with`].
pub fn connect(name: &str) -> Result<SendRight, ConnectError> {
    connect_with(name, Options::new())
}

/// Connects to the port bound as `name` and returns a right to send to it.
///
/// The first connection to a process makes a link (a socket, a process descriptor, a sealed region of which
/// only touched pages exist); further ones share it. Connections to this process itself, or to one that cannot
/// be seen from here (in another PID namespace), each make a link, with its descriptors. First waits its turn
/// behind other threads of this process that connect to the same name. Then blocks at most five seconds: for
/// threads that connect to another name of the same process, and for the handshake. The options say how this
/// right's callers wait for replies.
///
/// # Errors
/// Each failure of [`ConnectError`] says what to do.
pub fn connect_with(name: &str, options: Options) -> Result<SendRight, ConnectError> {
    name::check(name).map_err(ConnectError::BadName)?;
    connect_at(&lifecycle::current()?, name, (options, None))
}

/// As [`connect`], at the longest for `timeout`, which covers the wait for other threads of this process that
/// connect to the same server. The first use of the library in a process measures the machine, which takes
/// about 5 ms more.
///
/// # Errors
/// [`ConnectError::TimedOut`] then; others as [`connect_with`].
pub fn connect_timeout(name: &str, timeout: Duration) -> Result<SendRight, ConnectError> {
    name::check(name).map_err(ConnectError::BadName)?;
    connect_at(
        &lifecycle::current()?,
        name,
        (Options::new(), Some(timeout)),
    )
}

/// Waits until the ports that this process has given away ([`Right::Receive`](crate::Right::Receive)) do not need it any more: all
/// their senders have found the new homes. A process that ends before takes with it the messages and senders
/// that still go through it. Returns whether that was so within `timeout`.
///
/// Senders that cannot have a link with the new home keep this process in the way for as long as they
/// have their rights. Blocks in the kernel.
#[must_use]
pub fn wait_moved(timeout: Duration) -> bool {
    lifecycle::current().map_or(true, |process| moving::wait_moved_at(&process, timeout))
}

/// Sets the quotas of each peer of this process, from now on. Some stores for each link.
///
/// # Errors
/// As [`anonymous`](crate::anonymous), of the first use of the library in a process.
pub fn set_quotas(quotas: Quotas) -> Result<(), NodeError> {
    set_quotas_by(move |_| quotas)
}

/// As [`set_quotas`], by the identity of the peer, as the kernel vouches for it. `quotas_of` is asked now for each peer,
/// and by the control thread for those that come: it must not block.
///
/// # Errors
/// As there.
pub fn set_quotas_by(
    quotas_of: impl Fn(&Peer) -> Quotas + Send + Sync + 'static,
) -> Result<(), NodeError> {
    let process = lifecycle::current()?;
    Ok(limits::set_at(&process, Arc::new(quotas_of))?)
}

/// Makes a port without a name that is reached by any holder of a descriptor ([`connect_by_descriptor`]). The rendezvous directory
/// is used for a moment. For crates above.
///
/// # Errors
/// As [`bind`], but for names.
#[doc(hidden)]
pub fn behind_descriptor() -> Result<(ReceiveRight, OwnedFd), BindError> {
    binding::behind_descriptor(&lifecycle::current()?)
}

/// Connects to the port behind a descriptor that its process has got by [`behind_descriptor`]. For crates above.
///
/// # Errors
/// As [`connect_with`].
#[doc(hidden)]
pub fn connect_by_descriptor(descriptor: &OwnedFd) -> Result<SendRight, ConnectError> {
    connect_behind(&lifecycle::current()?, descriptor)
}
