//! Peers that do not keep to the protocol.

use super::*;
use crate::Listener;
use crate::offer::name;
use handfast_layout::stream::{direction, words as at};
use handfast_region::Memory;
use handfast_sys::socket;
use std::io::ErrorKind;

fn listen() -> (Listener, SocketAddr) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn ping(mut from: &Stream, mut to: &Stream) {
    let mut bytes = [0; 4];
    from.write_all(b"ping").unwrap();
    to.read_exact(&mut bytes).unwrap();
    to.write_all(&bytes).unwrap();
    from.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"ping");
}

fn pair(listener: &Listener, address: SocketAddr) -> (Stream, Stream) {
    let connector = Stream::connect(address).unwrap();
    let (acceptor, _) = listener.accept().unwrap();
    (0..4).for_each(|_| ping(&connector, &acceptor));
    (connector, acceptor)
}

#[test]
fn counts_and_states_that_no_honest_peer_writes_end_reads_and_writes_with_an_error() {
    let (listener, address) = listen();
    let words = [
        (direction::TAIL, u32::MAX / 2),
        (direction::STATE, 77),
        (direction::FROM, 0),
        (direction::FROM + 4, u32::MAX),
    ];
    for (word, value) in words {
        let (mut connector, acceptor) = pair(&listener, address);
        let region = &acceptor.shared.get().unwrap().region;
        region.store(at(End::Acceptor) + word, value, Ordering::Relaxed);
        if word == direction::FROM + 4 {
            // So many bytes would come through the kernel before, and do not.
            drop(acceptor);
            assert_eq!(connector.read(&mut [0; 8]).unwrap(), 0);
            continue;
        }
        let error = connector.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{word}");
    }
    let (mut connector, acceptor) = pair(&listener, address);
    let region = &acceptor.shared.get().unwrap().region;
    let head = at(End::Connector) + direction::HEAD;
    region.store(head, 1 << 30, Ordering::Relaxed);
    let written = (0..100).find_map(|_| connector.write(&[0; 4096]).err());
    assert_eq!(written.unwrap().kind(), ErrorKind::InvalidData);
}

#[test]
fn askers_that_say_nonsense_or_nothing_change_nothing_for_others() {
    let (listener, address) = listen();
    let name = name(address);
    let mut open = Vec::new();
    for len in [0, 1, 23, 24, 25, 4096] {
        let asker = socket::connect_abstract(&name).unwrap();
        if len > 0 {
            socket::send(&asker, &vec![0xff; len], &[]).unwrap();
        }
        open.push(asker);
    }
    // Descriptors are not taken from askers, where the kernel can refuse them.
    let asker = socket::connect_abstract(&name).unwrap();
    let _ = socket::send(&asker, &[1; 24], &[asker.as_fd()]);
    open.push(asker);
    for _ in 0..3 {
        let (connector, acceptor) = pair(&listener, address);
        assert_eq!(connector.reason(), Reason::Upgraded);
        assert_eq!(acceptor.reason(), Reason::Upgraded);
    }
}

#[test]
fn a_listener_whose_name_is_taken_stays_with_the_kernel() {
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = plain.local_addr().unwrap();
    // A socket of another process that has the name, and answers nobody.
    let _taken = socket::listen_abstract(&name(address), 8).unwrap();
    let listener = Listener::try_from(plain).unwrap();
    let (connector, acceptor) = pair(&listener, address);
    assert_eq!(acceptor.reason(), Reason::NameTaken);
    assert_eq!(connector.reason(), Reason::Asked);
    ping(&connector, &acceptor);
}
