//! Rights by names that both processes of a link know: to ports of the peer, and to those of this process.

use crate::arriving::come;
use crate::error::RightError;
use crate::link::introductions::Named;
use crate::link::{Link, releases, tables};
use crate::port::own::OwnRight;
use crate::port::ports;
use crate::process::Process;
use crate::right::Right;
use crate::send::SendRight;
use crate::send_once::SendOnceRight;
use crate::{introduce, redirect, vine};
use core::sync::atomic::Ordering;
use handfast_proto::rights::{Handle, Target};
use handfast_ring::{Fault, Rule};
use std::sync::Arc;

/// A right to a port of the peer.
pub(crate) fn import(
    process: &Arc<Process>,
    link: &Arc<Link>,
    (handle, port): (Handle, u32),
) -> Result<SendRight, Fault> {
    let moved = |name| redirect::arrived_moved(link, process, name);
    come(process, link, (handle, port), moved)
}

/// A right to a port of this process, which the peer has.
pub(crate) fn own(process: &Process, link: &Arc<Link>, handle: Handle) -> Result<Right, Fault> {
    loop {
        let revocations = process.revocations.number();
        // A message that names it knows it: no wait.
        let target = match introduce::named(link, process, handle, 0) {
            Named::To(target) => target,
            Named::Dead | Named::Revoked => return Ok(Right::Dead),
            Named::Trail(_) | Named::NotYet(_) | Named::Unclaimed | Named::Unknown => {
                return Err(Rule::RightHandle.broken());
            }
        };
        // Looked up again as often as this process revokes something meanwhile.
        if let Some(right) = to_target(process, target, revocations) {
            return Ok(right);
        }
    }
}

/// A right to a port of this process that has gone by a link of it with itself. The name it has there is given back.
#[inline(never)]
pub(crate) fn own_around(
    process: &Arc<Process>,
    link: &Arc<Link>,
    (handle, port): (Handle, u32),
) -> Result<Right, Fault> {
    tables::arrive(link, handle, port).map_err(|_| Rule::RightHandle.broken())?;
    let right = match link.twin() {
        Some(twin) => own(process, &twin, handle),
        None => Ok(Right::Dead),
    };
    releases::dropped(link, handle, port, 0);
    right
}

/// The right that a right of this process by a link of it with itself stands for. Waits a while for the port's
/// word, if that is still to come.
pub(crate) fn own_of(process: &Process, right: &SendRight) -> Result<Right, RightError> {
    let handle = right
        .origin()
        .handle_at_home(right.handle(), right.link())?;
    let twin = right.link().twin().ok_or(RightError::Dead)?;
    own(process, &twin, handle).map_err(|_| RightError::Dead)
}

/// A right of this process to a target of its own, which was good when it had revoked `revocations` rights.
/// `None`: the process has revoked another since, perhaps this one.
pub(crate) fn to_target(process: &Process, target: Target, revocations: u64) -> Option<Right> {
    Some(match ports::by_id(process, target.port) {
        // The right behind the vine's port comes home. Relaxed: set before any right to the port was given.
        Some(port) if port.is_vine.load(Ordering::Relaxed) => vine::of(process)
            .get()
            .and_then(|vine| vine.target(target.badge))
            .map_or(Right::Dead, |(right, is_once)| {
                Right::elsewhere((*right).clone(), is_once)
            }),
        Some(port) => {
            let is_once = port.once.is_some();
            let home = OwnRight::home(port, target, revocations);
            return home.map(|own| match is_once {
                true => Right::SendOnce(SendOnceRight::here(own)),
                false => Right::Own(own),
            });
        }
        None => Right::Dead,
    })
}
