//! New home: ports that have come.

use crate::binding;
use crate::link::{Link, UNSAID_MAX, backlog};
use crate::member::MemberPort;
use crate::port::{Port, exported, notice, ports};
use crate::process::Process;
use crate::receive_right::close_apart;
use crate::right::Right;
use core::sync::atomic::Ordering;
use handfast_layout::control::ControlMessage;
use std::sync::Arc;

/// New home: makes a port of a receive right that has come.
pub(crate) fn settle_in(
    process: &Arc<Process>,
    link: &Arc<Link>,
    (token, asks): (u32, bool),
    bound: Option<crate::bound::Moving>,
) -> Right {
    match binding::arrive(process, link.peer.uid, bound) {
        // Without a table of rights the link is gone; the port is, too, for all others.
        Ok(receive) => match arrives(link, receive.port(), (token, asks)) {
            Some(()) => Right::Receive(receive),
            None => {
                close_apart(receive, &process.users, link.peer.uid);
                Right::Dead
            }
        },
        Err(resource) => {
            refuse(link, token);
            crate::descriptors::lost_of(resource)
        }
    }
}

/// New home: as [`settle_in`], of a port that is to share this receiver.
pub(crate) fn settle_beside(
    process: &Arc<Process>,
    link: &Arc<Link>,
    (token, asks): (u32, bool),
    receiver: u32,
) -> Right {
    let charge = binding::charge_port(process, link.peer.uid);
    let made = charge.and_then(|charge| {
        let port = ports::at(process, receiver);
        // Acquire: pairs with the Release in `MemberPort::accept_at`.
        let port = port.filter(|port| port.at.takes_members.load(Ordering::Acquire));
        let member = port.map(|port| ports::add_member(&port, None));
        Ok((member.transpose()?, charge))
    });
    match made {
        Ok((Some(port), charge)) => match arrives(link, &port, (token, asks)) {
            Some(()) => Right::Member(MemberPort::new(port, charge)),
            None => {
                let member = MemberPort::new(port, charge);
                process.users.expend(link.peer.uid, move || drop(member));
                Right::Dead
            }
        },
        Ok((None, _)) => {
            refuse(link, token);
            Right::Dead
        }
        Err(resource) => {
            refuse(link, token);
            crate::descriptors::lost_of(resource)
        }
    }
}

/// New home: tells the old one that a port has arrived. `None`: the link has ended.
fn arrives(link: &Arc<Link>, port: &Arc<Port>, (token, asks): (u32, bool)) -> Option<()> {
    let _ = port.came_from.set(link.serial);
    let handle = exported::export_trail(link, port).ok()?;
    let arrived = ControlMessage::Arrived {
        token,
        port: port.id,
        handle,
    };
    link.say(arrived);
    if asks {
        notice::ask_no_senders(port);
    }
    Some(())
}

/// New home: whether the peer has sent more ports than there can be without reading their outcomes.
pub(crate) fn is_unread(link: &Link) -> bool {
    use ControlMessage as M;
    let is_answer =
        |message: ControlMessage<'_>| matches!(message, M::Arrived { .. } | M::NotArrived { .. });
    backlog::has_unsaid(link, UNSAID_MAX, is_answer)
}

/// New home: there is no room for a port that has come.
pub(crate) fn refuse(link: &Link, token: u32) {
    link.say(ControlMessage::NotArrived { token });
}
