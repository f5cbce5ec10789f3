//! The rights that are described with one look, and without a word to the peer: to a port of this process, a block, and what
//! the peer has already. They are most.

use super::Undo;
use crate::again;
use crate::lending;
use crate::link::Link;
use crate::port::exported;
use crate::port::own::OwnRight;
use crate::process::Process;
use crate::right::Right;
use crate::send::{self, Origin, SendRight, ended, route};
use handfast_layout::part::Part;
use handfast_proto::rights::Handle;
use std::sync::Arc;

/// The arm of [`part_of`](super::part_of) for such a right; `None` for another, and where something stands in the way.
/// [`Undo::take_back`] or [`Undo::sent`] must follow. The name of a port of the peer is good until the link's next trouble only.
pub(crate) fn part_now(
    (process, link): (&Arc<Process>, &Arc<Link>),
    right: &Right,
) -> Option<(Part, Undo)> {
    match right {
        Right::Own(own) => {
            let (handle, port) = own_now((process, link), own)?;
            Some((Part::OfSender { handle, port }, Undo::Exported(handle)))
        }
        Right::Send(right) => known((process, link), right),
        Right::Block(block) => {
            let lent = lending::lend_now(link, block)?;
            Some((Part::Loan(lent), Undo::Lent(lent.loan)))
        }
        _ => None,
    }
}

/// As [`part_now`], of a right to a port of this process: what [`Part::OfSender`] says of it.
#[inline(always)]
pub(crate) fn own_now(
    (process, link): (&Arc<Process>, &Arc<Link>),
    own: &OwnRight,
) -> Option<(Handle, u32)> {
    let port = own.port();
    let is_other = !Arc::ptr_eq(&port.process, process);
    if port.home.get().is_some() || own.is_over() || is_other {
        return None;
    }
    let handle = exported::export_own(link, own)?.ok()?;
    Some((handle, port.id))
}

/// A right of the peer's own, or one of a third process's that the peer keeps.
#[inline]
fn known((process, link): (&Arc<Process>, &Arc<Link>), right: &SendRight) -> Option<(Part, Undo)> {
    if matches!(right.origin(), Origin::Home(_)) {
        return None;
    }
    let right = route::best(right);
    if send::is_forked(right) || ended::is_down(right) || ended::is_revoked(right) {
        return None;
    }
    if Arc::ptr_eq(right.link(), link) {
        let handle = right.handle();
        let is_its = matches!(right.origin(), Origin::Exporter);
        return is_its.then_some((Part::OfReceiver { handle }, Undo::Nothing));
    }
    if !Arc::ptr_eq(right.process(), process) {
        return None;
    }
    let number = again::give_again(link, right)?;
    Some((Part::Again { number }, Undo::Again(number)))
}
