//! Attackers whose descriptors take a minute to close. Each is a process that starts no other: a child that is forked has copies
//! of them, of which its `exec` may close the last.

use super::StoreClient;
use crate::common;
use crate::forger::Hand;
use handfast::Right;
use handfast_layout::control::ControlMessage;
use handfast_layout::hello::Hello;
use handfast_layout::part::Descriptors;
use handfast_sys::socket;
use handfast_testing::forge::Packet;
use rustix::fd::{AsFd, OwnedFd};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Sockets that linger, with their far ends, which nobody reads.
#[derive(Default)]
struct Lingering {
    far_ends: Vec<TcpStream>,
}

impl Lingering {
    /// A TCP socket whose last close takes a minute: there is data on its way.
    fn next(&mut self) -> OwnedFd {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        self.far_ends.push(listener.accept().unwrap().0);
        let linger = Some(Duration::from_secs(60));
        rustix::net::sockopt::set_socket_linger(&near, linger).unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[7; 1 << 16]).is_ok() {}
        near.into()
    }
}

/// Closes this process's own copies, of which one may be the last by now, where that may take long.
fn close(fds: Vec<OwnedFd>) {
    std::thread::spawn(move || drop(fds));
}

/// Says what has been done, and waits until it has been looked at.
fn done(what: &str) {
    common::say(what);
    common::told();
}

/// Says hello by hand, with these descriptors.
fn hello(name: &str, incarnation: [u8; 16], fds: Vec<OwnedFd>) -> OwnedFd {
    let socket = common::knock(name);
    let hello = Hello::new(incarnation, name, 3, None).to_bytes();
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    socket::send(&socket, &hello, &borrowed).unwrap();
    close(fds);
    socket
}

fn bells() -> OwnedFd {
    let bytes = handfast_layout::bell::REGION_BYTES;
    handfast_sys::memory::create_sealed("fake", bytes).unwrap()
}

/// In the place of the bells, beside them, behind the hello, in the queue of a connection that says nothing, with a control
/// message, and claimed by none.
pub(super) fn everywhere(name: &str) {
    let mut lingering = Lingering::default();
    for round in 0..3 {
        let incarnation = common::incarnation(round);
        drop(hello(name, incarnation, vec![lingering.next()]));
        done("in the place of bells");
        let fds = vec![bells(), lingering.next(), lingering.next()];
        drop(hello(name, incarnation, fds));
        done("beside the bells");
        let socket = common::knock(name);
        let sent = lingering.next();
        socket::send(&socket, b"", &[sent.as_fd()]).unwrap();
        close(vec![socket, sent]);
        done("with a message of no bytes");
        let socket = hello(name, incarnation, vec![bells()]);
        let first = lingering.next();
        // It may be welcomed by then: in the queue of a handshake, or of a link.
        let _ = socket::send(&socket, &Packet::unknown(0), &[first.as_fd()]);
        close(vec![socket, first]);
        done("behind the hello");
        let hand = Hand::new(name, 10 + round);
        let sent = lingering.next();
        let asks = ControlMessage::ShowCounters.encode();
        socket::send(&hand.socket, &asks, &[sent.as_fd()]).unwrap();
        close(vec![sent]);
        done("with a control message");
        let hand = Hand::new(name, 20 + round);
        for first in 0..3 {
            let message = ControlMessage::Descriptors(Descriptors { count: 1, first }).encode();
            let sent = lingering.next();
            socket::send(&hand.socket, &message, &[sent.as_fd()]).unwrap();
            close(vec![sent]);
        }
        drop(hand);
        done("claimed by none");
    }
    done("end");
}

/// With requests whose receiver does not take them.
pub(super) fn in_requests(name: &str) {
    let right = handfast::connect(name).unwrap();
    let mut lingering = Lingering::default();
    for _ in 0..5 {
        let near = lingering.next();
        let copy = near.try_clone().unwrap();
        let message = right.with([Right::Descriptor(near)]);
        message.call(b"take it").unwrap();
        close(vec![copy]);
        done("left in a request");
    }
    done("end");
}

/// With calls of a typed service, in the place of another right.
pub(super) fn in_requests_of_a_service(name: &str) {
    let words = words_of_put();
    let right = handfast::connect(name).unwrap();
    let mut lingering = Lingering::default();
    for _ in 0..6 {
        let near = lingering.next();
        let copy = near.try_clone().unwrap();
        let call = right.with([Right::Descriptor(near)]).try_call(&words);
        // While another one is on its way: nearly always the server has the last.
        close(vec![copy]);
        let answer = call.unwrap().wait();
        assert!(answer.is_ok(), "{answer:?}");
        done("dropped by a service");
    }
    done("end");
}

/// The bytes by which a client of the service puts a right there.
fn words_of_put() -> Vec<u8> {
    let port = handfast::anonymous().unwrap();
    let right = |badge| port.mint(badge).connect().unwrap();
    let (to, other) = (right(1), right(2));
    std::thread::scope(|scope| {
        scope.spawn(move || assert!(StoreClient::new(to).put(other).is_err()));
        port.receive().unwrap().bytes().to_vec()
    })
}
