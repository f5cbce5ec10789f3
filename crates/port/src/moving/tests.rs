use super::*;
use crate::descriptors::tests::link;
use crate::link_life;
use crate::links;
use crate::receive::anonymous;

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
    link_life::end_link(&process, &link);
    stays(&process, token);
    assert!(!is_leaving(), "its link has ended");
}
