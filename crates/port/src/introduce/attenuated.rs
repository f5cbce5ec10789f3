//! The exporter's half of [`attenuate`](crate::SendRight::attenuate): the peer makes a right of one that it has.

use super::named;
use crate::link::Link;
use crate::link::introductions::Named;
use crate::port::{exported, ports};
use crate::process::Process;
use handfast_proto::introductions::Claim;
use std::sync::Arc;

/// Exporter: the peer has a right like the one it names by `by`, attenuated. `None`: that is nothing an honest peer
/// names.
pub(super) fn attenuated(
    link: &Arc<Link>,
    process: &Process,
    by: u32,
    (mask, bound_now_ns): (u16, Option<u64>),
) -> Option<Claim> {
    let is_bound = bound_now_ns.is_some();
    let now_ns = bound_now_ns.unwrap_or_default();
    loop {
        let revocations = process.revocations.number();
        let target = match named(link, process, by, now_ns) {
            Named::To(target) => target.attenuated(mask),
            Named::Revoked => return Some(Claim::Revoked),
            Named::Dead => return Some(Claim::Dead),
            // A receiver has waited for these rights; where the port is gone, none waits.
            Named::NotYet(_) | Named::Unclaimed if !is_bound => return Some(Claim::Dead),
            Named::Trail(_) | Named::NotYet(_) | Named::Unclaimed | Named::Unknown => return None,
        };
        let Some(port) = ports::by_id(process, target.port) else {
            return Some(Claim::Dead);
        };
        if ports::is_vine(process, port.id) || port.once.is_some() {
            // The right behind the vine, which this process sends by, has all permissions still. A send-once right has them always.
            return Some(Claim::Dead);
        }
        // Again as often as this process revokes something meanwhile.
        if let Some(granted) = exported::export_again(link, &port, target, revocations) {
            // Beyond its quota, too.
            return Some(granted.map_or(Claim::Revoked, Claim::Granted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::tests::link;
    use crate::link_end;
    use handfast_proto::rights::Target;

    #[test]
    fn a_right_that_goes_through_this_process_is_attenuated_to_nothing() {
        let (process, link, _peer) = link();
        let vine = crate::vine::of(&process).get_or_start(&process).unwrap();
        let handle = exported::export(&link, &vine.port, Target::full(vine.port.id, 5)).unwrap();
        let claim = attenuated(&link, &process, handle, (1, Some(0)));
        assert_eq!(claim, Some(Claim::Dead));
        link_end::end_link(&process, &link);
    }
}
