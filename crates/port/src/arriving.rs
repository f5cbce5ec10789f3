//! A right to a port of the peer, as it arrives: the only one in most messages that have any, so a poller makes it itself.

use crate::link::{Link, tables};
use crate::message::Message;
use crate::process::Process;
use crate::right::Right;
use crate::send::{self, SendRight};
use handfast_layout::part::Part;
use handfast_proto::rights::Handle;
use handfast_ring::{Fault, Rule};
use std::sync::Arc;

/// Makes a right of the only part of a message, where that is one to a port of the peer: whether it is. `may_have_moved` as for
/// [`come`].
///
/// # Errors
/// The rule the peer broke.
#[inline(always)]
pub(crate) fn adopt_one(
    process: &Arc<Process>,
    link: &Arc<Link>,
    message: &mut Message,
    may_have_moved: impl FnOnce(Handle),
) -> Result<bool, Fault> {
    message.clear();
    if let Some((units, rights)) = message.units_and_rights()
        && let [unit] = units
        && let Some((handle, port)) = Part::of_sender(unit)
        && !link.is_loop()
    {
        let right = Right::Send(come(process, link, (handle, port), may_have_moved)?);
        if rights.capacity() == 0 {
            // As it nearly always is; there is nothing to free.
            core::mem::forget(core::mem::replace(rights, vec![right]));
        } else {
            rights.push(right);
        }
        return Ok(true);
    }
    Ok(false)
}

/// A right to a port of the peer, by its name and the port's number. `may_have_moved` is told of the name of one whose port may have
/// moved.
///
/// # Errors
/// The rule the peer broke.
#[inline(always)]
pub(crate) fn come(
    process: &Arc<Process>,
    link: &Arc<Link>,
    (handle, port): (Handle, u32),
    may_have_moved: impl FnOnce(Handle),
) -> Result<SendRight, Fault> {
    tables::arrive(link, handle, port).map_err(|_| Rule::RightHandle.broken())?;
    if link.rights.redirects.has_any() {
        may_have_moved(handle);
    }
    Ok(send::usual(process, link.clone(), (handle, port)))
}
