use super::*;
use crate::anonymous;
use crate::configuration::Configuration;
use crate::descriptors::tests::{link, link_in};
use crate::lifecycle;
use crate::link_end;
use crate::links;
use handfast_layout::link::Side;

/// The link may end between the description of a right and its message, which is not sent then. A port that its owner still has
/// would refuse connections for ever.
#[test]
fn a_port_whose_link_ends_before_its_message_is_sent_takes_connections_again() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let port = anonymous().unwrap();
    let is_leaving = || port.port().is_leaving.load(Ordering::Acquire);
    let Ok((_, token)) = depart(&process, &link, &port) else {
        panic!("it cannot be sent");
    };
    assert!(is_leaving());
    stays(&process, token);
    assert!(!is_leaving(), "its message was not sent");
    let Ok((_, token)) = depart(&process, &link, &port) else {
        panic!("it cannot be sent");
    };
    link_end::end_link(&process, &link);
    stays(&process, token);
    assert!(!is_leaving(), "its link has ended");
}

/// A user that sends ports for a process to keep leaves receivers to others, and to the process itself.
#[test]
fn ports_of_one_user_leave_receivers_to_others() {
    let node = lifecycle::start(Configuration::new()).ok().unwrap();
    let link_with = |user| {
        let (link, peer) = link_in(&node, user, Side::Connector);
        links::list(&node).push(Some(link.clone()));
        (link, peer)
    };
    let (hostile, _peer) = link_with(3_000_000_127);
    let (other, _other_peer) = link_with(3_000_000_128);
    let (own, _own_peer) = link_with(handfast_sys::process::uid());
    let arrives = |link: &Arc<Link>| settle_in(&node, link, (1, false), None);
    let mut kept: Vec<_> = (0..100).map(|_| arrives(&hostile)).collect();
    kept.retain(|right| matches!(right, Right::Receive(_)));
    assert_eq!(kept.len(), 36);
    assert!(matches!(arrives(&hostile), Right::Lost(_)));
    assert!(matches!(arrives(&other), Right::Receive(_)));
    let owns: Vec<_> = (0..20).map(|_| arrives(&own)).collect();
    assert!(owns.iter().all(|right| matches!(right, Right::Receive(_))));
    // One for each that is dropped.
    drop(kept.pop());
    kept.push(arrives(&hostile));
    assert!(matches!(kept.last(), Some(Right::Receive(_))));
    assert!(matches!(arrives(&hostile), Right::Lost(_)));
    drop((kept, owns));
    for link in [hostile, other, own] {
        link_end::end_link(&node, &link);
    }
    lifecycle::shutdown(&node);
}
