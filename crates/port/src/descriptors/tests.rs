use super::*;
use crate::link::hearing::Hearing;
use crate::link::inbox::{self, UNHEARD_MAX, Unheard};
use crate::link::{Parts, backlog};
use crate::peer_bells::PeerBells;
use crate::port::ports;
use crate::users::Foreign;
use crate::{lifecycle, link_end, links};
use core::sync::atomic::{AtomicU32, AtomicU64};
use handfast_layout::bell;
use handfast_layout::control::CONTROL_BYTES_MAX;
use handfast_layout::link::{REGION_BYTES, Side};
use handfast_layout::part::Descriptors;
use handfast_region::Region;
use handfast_sys::{OwnedFd, clock, socket};
use handfast_testing::forge::Packet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A link that no control thread listens to unless it is told of, and the peer's end of its socket.
pub(crate) fn link() -> (Arc<Process>, Arc<Link>, OwnedFd) {
    link_of(handfast_sys::process::uid())
}

/// Checks that this link has no other owner any more; other threads of the tests' process may have it for a
/// moment.
pub(crate) fn expect_let_go(link: &Arc<Link>) {
    let is_let_go = || Arc::strong_count(link) == 1;
    assert!(
        handfast_testing::within_patience(is_let_go),
        "something holds a dead link"
    );
}

/// As [`link`], with a process of this user.
pub(crate) fn link_of(uid: u32) -> (Arc<Process>, Arc<Link>, OwnedFd) {
    link_as(uid, Side::Connector)
}

/// As [`link_of`]; this process has connected, or the peer has, and waits for its welcome.
pub(crate) fn link_as(uid: u32, calls: Side) -> (Arc<Process>, Arc<Link>, OwnedFd) {
    let process = lifecycle::current().ok().unwrap();
    let (link, peer) = link_in(&process, uid, calls);
    (process, link, peer)
}

/// A link of this node.
pub(crate) fn link_in(process: &Arc<Process>, uid: u32, calls: Side) -> (Arc<Link>, OwnedFd) {
    // Tests that run at once, in one node, hear nothing of each other's peers. Relaxed: a number.
    static PEERS: AtomicU64 = AtomicU64::new(0);
    let number = PEERS.fetch_add(1, Ordering::Relaxed);
    link_with(process, uid, calls, u128::from(number).to_be_bytes())
}

/// As [`link_in`], with another peer.
pub(crate) fn link_with(
    process: &Arc<Process>,
    uid: u32,
    calls: Side,
    incarnation: [u8; 16],
) -> (Arc<Link>, OwnedFd) {
    let (socket, peer) = socket::pair().unwrap();
    socket::set_nonblocking(&socket, true).unwrap();
    let as_kernel_says = socket::peer(&socket).unwrap();
    let parts = Parts {
        agreed: false,
        region: Region::heap(REGION_BYTES),
        calls,
        peer_bells: PeerBells {
            region: Region::heap(bell::REGION_BYTES),
            is_published: false,
        },
        peer_index: 0,
        place: ports::reserve(process, handfast_sys::process::uid())
            .ok()
            .unwrap(),
        peer: socket::Peer {
            uid,
            ..as_kernel_says
        },
        process: None,
        socket: Foreign::new(&process.users, 0, socket),
        charges: Vec::new(),
        incarnation,
    };
    // No other link has such a number. Relaxed: a number.
    static SERIAL: AtomicU32 = AtomicU32::new(u32::MAX);
    let serial = SERIAL.fetch_sub(1, Ordering::Relaxed);
    let link = Arc::new(Link::new(
        process.clone(),
        parts,
        serial,
        process.counting.rows.take(),
    ));
    (link, peer)
}

fn send(peer: &OwnedFd, first: u32, fds: &[BorrowedFd<'_>]) {
    let count = fds.len() as u32;
    let message = ControlMessage::Descriptors(Descriptors { count, first }).encode();
    socket::send(peer, &message, fds).unwrap();
}

#[test]
fn what_is_read_in_search_of_a_descriptor_is_heard_in_its_order() {
    let (process, link, peer) = link();
    socket::send(&peer, &Packet::unknown(1), &[]).unwrap();
    send(&peer, 0, &[peer.as_fd(), peer.as_fd()]);
    socket::send(&peer, &Packet::unknown(2), &[]).unwrap();
    send(&peer, 2, &[peer.as_fd()]);
    socket::send(&peer, &Packet::unknown(3), &[]).unwrap();
    for number in [2, 0, 1] {
        let claimed = inbox::claim_descriptor(&link, &process, number);
        assert!(matches!(claimed, Ok(Some(_))), "{number}");
        let again = inbox::claim_descriptor(&link, &process, number);
        assert!(again.is_err(), "{number}, twice");
    }
    let claimed = link
        .region
        .load(Side::Acceptor.claimed(), Ordering::Relaxed);
    assert_eq!(claimed, 3);
    let mut bytes = [0; CONTROL_BYTES_MAX];
    for number in 1..4 {
        assert!(matches!(inbox::hear(&link, &mut bytes), Ok((2, _))));
        assert_eq!(bytes[1], number);
    }
    let nothing = inbox::hear(&link, &mut bytes);
    assert!(matches!(nothing, Err(Unheard::Os(Errno::AGAIN))));
}

#[test]
fn the_control_thread_is_told_of_what_others_have_read() {
    let (process, link, peer) = link();
    links::list(&process).push(Some(link.clone()));
    let port = 0x100;
    for _ in 0..100 {
        socket::send(&peer, &Packet::unknown(0), &[]).unwrap();
    }
    let closed = ControlMessage::Closed {
        has_moved: false,
        port,
    };
    socket::send(&peer, &closed.encode(), &[]).unwrap();
    send(&peer, 0, &[peer.as_fd()]);
    assert!(link.failure(port).is_none());
    assert!(inbox::claim_descriptor(&link, &process, 0).is_ok());
    assert!(handfast_testing::within_patience(|| link
        .failure(port)
        .is_some()));
    link_end::end_link(&process, &link);
}

/// An answer that the peer gave before its end may be taken after that.
#[test]
fn what_a_dead_peer_has_sent_is_there_after_the_end_of_its_connection() {
    let (process, link, peer) = link();
    socket::send(&peer, &Packet::unknown(1), &[]).unwrap();
    send(&peer, 0, &[peer.as_fd(); 2]);
    drop(peer);
    // No thread takes messages from it any more.
    drop(Hearing::new(&link));
    assert!(handfast_testing::within_patience(|| {
        link.connection.socket().is_err()
    }));
    for number in [1, 0] {
        let claimed = inbox::claim_descriptor(&link, &process, number);
        assert!(matches!(claimed, Ok(Some(_))), "{number}");
    }
    assert!(inbox::claim_descriptor(&link, &process, 2).is_err());
    link.say(ControlMessage::Free);
    assert!(backlog::say_again(&link).is_ok());
}

#[test]
fn numbers_go_round() {
    let (process, link, peer) = link();
    *link.parts.under_way.sent.lock() = u32::MAX - 1;
    link.region
        .store(Side::Connector.claimed(), u32::MAX - 3, Ordering::Relaxed);
    let fds = [peer.as_fd(); 4];
    assert_eq!(send_descriptors(&link, &fds).ok(), Some(u32::MAX - 1));
    assert_eq!(*link.parts.under_way.sent.lock(), 2);
    // The same as received.
    inbox::inbox(&link).arrived = u32::MAX - 1;
    send(&peer, u32::MAX - 1, &fds);
    for number in [0, u32::MAX, 1, u32::MAX - 1] {
        assert!(matches!(
            inbox::claim_descriptor(&link, &process, number),
            Ok(Some(_))
        ));
    }
    assert!(inbox::claim_descriptor(&link, &process, 2).is_err());
}

#[test]
fn a_search_among_messages_without_end_ends() {
    let (process, link, peer) = link();
    socket::set_nonblocking(&peer, true).unwrap();
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut sent = 0;
            while !link.is_down() {
                sent += u32::from(socket::send(&peer, &Packet::unknown(0), &[]).is_ok());
            }
            sent
        });
        let fault = loop {
            // None is there for a moment, at times.
            match inbox::claim_descriptor(&link, &process, 0) {
                Err(fault) if inbox::inbox(&link).unheard.len() >= UNHEARD_MAX => break fault,
                claimed => assert!(claimed.is_err()),
            }
        };
        assert_eq!(fault.rule, Rule::Descriptor);
        link.take_down();
        println!("{} messages", flood.join().unwrap());
    });
}

#[test]
fn what_a_peer_that_is_cut_off_has_sent_is_closed_whoever_holds_the_link() {
    let (process, link, peer) = link();
    links::list(&process).push(Some(link.clone()));
    let (sent, other) = socket::pair().unwrap();
    send(&peer, 0, &[sent.as_fd()]);
    drop(sent);
    assert!(inbox::claim_descriptor(&link, &process, 7).is_err());
    assert!(!socket::is_closed(&other));
    link.poison(Rule::Descriptor.broken());
    link_end::end_link(&process, &link);
    // By its user's closing thread.
    let end = Instant::now() + Duration::from_secs(10);
    while !socket::is_closed(&other) {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
}

/// On a busy machine a receiver once gave up after 10 ms, and an honest peer's link was cut.
#[test]
fn a_receiver_waits_for_a_closing_thread_that_waits_for_a_processor() {
    let (process, link, peer) = link();
    inbox::inbox(&link).discarding_since_ns = clock::now_ns();
    let discarding = link.parts.under_way.discarding.clone();
    discarding.store(true, Ordering::Release);
    send(&peer, 0, &[peer.as_fd()]);
    let closes = std::thread::spawn(move || {
        // Sleep: stands for the wait for a processor.
        std::thread::sleep(Duration::from_millis(50));
        discarding.store(false, Ordering::Release);
    });
    assert!(matches!(
        inbox::claim_descriptor(&link, &process, 0),
        Ok(Some(_))
    ));
    closes.join().unwrap();
}
