use super::*;
use crate::descriptors::tests::link_as;
use crate::{anonymous, link_end, link_life, links};
use handfast_layout::control::CONTROL_BYTES_MAX;
use handfast_layout::link::Side;
use handfast_layout::part::Descriptors;
use handfast_sys::OwnedFd;

/// The next message that the peer of a link reads, as it is sent.
fn next(peer: &OwnedFd) -> Option<Vec<u8>> {
    let mut bytes = [0; CONTROL_BYTES_MAX];
    let received = socket::receive_expected(peer, &mut bytes, |_| 0).ok()?;
    Some(bytes[..received.len_bytes].to_vec())
}

/// A message sent before a peer has read its welcome would be taken for the welcome: the link would be refused. A message
/// that is never sent would leave the peer a right that leads nowhere.
#[test]
fn a_port_that_is_dropped_before_the_welcome_is_told_of_after_it() {
    let (process, link, peer) = link_as(handfast_sys::process::uid(), Side::Acceptor);
    socket::set_nonblocking(&peer, true).unwrap();
    links::list(&process).push(Some(link.clone()));
    // At two receivers: of one, only the last port that has gone is told.
    let (one, other) = (anonymous().unwrap(), anonymous().unwrap());
    let (port, granted) = (one.port().id, other.port().clone());
    drop((one, other));
    assert_eq!(next(&peer), None, "before the welcome");
    assert!(link_life::welcome(&process, &link, Some(&granted)).is_ok());
    assert_eq!(
        next(&peer).as_deref(),
        Some(&*ControlMessage::Sealed.encode())
    );
    // Also messages about ports of other tests.
    for port in [port, granted.id] {
        let has_moved = false;
        let closed = ControlMessage::Closed { has_moved, port }.encode();
        while next(&peer).expect("the port's end is not told") != *closed {}
    }
    link_end::end_link(&process, &link);
}

#[test]
fn nothing_is_sent_before_the_welcome() {
    let (process, link, peer) = link_as(handfast_sys::process::uid(), Side::Acceptor);
    socket::set_nonblocking(&peer, true).unwrap();
    let ring = ControlMessage::Ring { receiver: 0 };
    tell(&link, ring);
    let (count, first) = (1, 0);
    let descriptors = ControlMessage::Descriptors(Descriptors { count, first });
    let fds = [handfast_sys::AsFd::as_fd(&peer)];
    assert_eq!(send_with(&link, descriptors, &fds), Err(Errno::AGAIN));
    assert_eq!(next(&peer), None);
    assert_eq!(welcome(&link), Ok(true));
    for said in [ControlMessage::Sealed, ring] {
        assert_eq!(next(&peer).as_deref(), Some(&*said.encode()));
    }
    link_end::end_link(&process, &link);
}
