//! Making ports: bound to a name, without one, or with one that has come from another process.

use crate::bound::{Bound, Moving};
use crate::error::{BindError, Exhausted, Resource};
use crate::options::Options;
use crate::polling;
use crate::port::notices::Notices;
use crate::port::{Port, ports};
use crate::process::Process;
use crate::receive_right::ReceiveRight;
use crate::rendezvous::{self, SocketFile};
use crate::users::Charge;
use handfast_layout::name;
use handfast_proto::users::Quota;
use handfast_sys::OwnedFd;
use handfast_wait::Waiter;
use std::sync::Arc;

/// Makes a port without a name, which the caller announces to its peers.
pub(crate) fn nameless(process: &Arc<Process>, options: Options) -> Result<ReceiveRight, Resource> {
    make(process, "", options, None, None)
}

fn make(
    process: &Arc<Process>,
    name: &str,
    options: Options,
    bound: Option<Bound>,
    charge: Option<Charge>,
) -> Result<ReceiveRight, Resource> {
    let (strategy, cap) = process.configuration.resolve(options);
    let port = ports::add(process, |id| {
        let waiter = Waiter::new(strategy, cap);
        let notices = Arc::new(Notices::default());
        let number = Port::number(id);
        let at = polling::receiver(process, (id.0, number), &notices, waiter);
        Arc::new(Port::new(Arc::new(at), number, name, notices))
    });
    if port.is_err()
        && let Some(bound) = &bound
    {
        bound.remove_file();
    }
    let port = port?;
    Ok(ReceiveRight::new(port, bound, charge))
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
    let right = make(process, name, options, Some(bound), None)?;
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
    let right = make(
        process,
        BEHIND_DESCRIPTOR,
        Options::new(),
        Some(bound),
        None,
    )?;
    right.listen()?;
    Ok((right, descriptor))
}

/// The name of such a port in counters and for connectors, which come by its own socket: the name need not be unique.
pub(crate) const BEHIND_DESCRIPTOR: &str = "domain";

/// The charge for a port that came from a process of this user, where that is another one.
pub(crate) fn charge_port(process: &Process, user: u32) -> Result<Option<Charge>, Resource> {
    let is_foreign = user != handfast_sys::process::uid();
    let charge = is_foreign.then(|| process.users.charge(user, Quota::Ports, 1));
    charge.transpose().map_err(|refused| {
        Resource::Exhausted(Exhausted {
            what: "ports that processes of one other user may have sent here",
            advice: Some("drop some"),
            limit: refused.limit(),
        })
    })
}

/// A receive right that came from a process of this user, with a name not yet taken up. Waits by default options.
pub(crate) fn arrive(
    process: &Arc<Process>,
    user: u32,
    moving: Option<Moving>,
) -> Result<ReceiveRight, Resource> {
    let charge = charge_port(process, user)?;
    let name = moving.as_ref().map(|moving| moving.name.name.clone());
    let bound = moving.map(Bound::moved);
    make(
        process,
        &name.unwrap_or_default(),
        Options::new(),
        bound,
        charge,
    )
}
