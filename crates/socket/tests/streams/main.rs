//! Streams between processes: whole bytes in order, ends, deaths, peers without the library.

use handfast_socket::{Listener, Reason, Stream};
use handfast_testing::{self as testing, Random, say, within_patience};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

mod leaving;
mod timeouts;

/// The byte of a stream at this position.
fn byte(position: u64) -> u8 {
    (position ^ position >> 8 ^ position >> 16) as u8
}

fn listen() -> (Listener, SocketAddr) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Two ends within this process, both of whose directions go through the ring.
fn upgraded() -> (Stream, Stream) {
    let (listener, address) = listen();
    let connector = Stream::connect(address).unwrap();
    let (acceptor, _) = listener.accept().unwrap();
    for _ in 0..4 {
        ping(&connector, &acceptor);
    }
    assert_eq!(connector.reason(), Reason::Upgraded);
    assert_eq!(acceptor.reason(), Reason::Upgraded);
    (connector, acceptor)
}

fn ping(mut from: &Stream, mut to: &Stream) {
    let mut bytes = [0; 4];
    from.write_all(b"ping").unwrap();
    to.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"ping");
    to.write_all(b"pong").unwrap();
    from.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"pong");
}

/// Accepts one connection and sends back what comes, until its end.
fn echo(address: &str) {
    let listener = Listener::bind(address.parse().unwrap()).unwrap();
    say(&listener.local_addr().unwrap().to_string());
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = vec![0; 100_000];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(len) => stream.write_all(&bytes[..len]).unwrap(),
            Err(error) => return say(&error.to_string()),
        }
    }
}

/// As `echo`, until it has sent back so many bytes; then it waits to be killed.
fn echo_some(count: &str) {
    let (listener, address) = listen();
    say(&address.to_string());
    let (mut stream, _) = listener.accept().unwrap();
    let mut left: usize = count.parse().unwrap();
    let mut bytes = [0; 1000];
    while left > 0 {
        let most = left.min(bytes.len());
        let len = stream.read(&mut bytes[..most]).unwrap();
        stream.write_all(&bytes[..len]).unwrap();
        left -= len;
    }
    say("done");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_child_process_plays_its_role() {
    testing::play(|role, arguments| match role {
        "echo" => echo(arguments[0]),
        "echo some" => echo_some(arguments[0]),
        _ => unreachable!("{role}"),
    });
}

#[test]
fn bytes_in_any_pieces_arrive_whole_and_in_order_from_before_the_upgrade_on() {
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
        let server = testing::start("echo", &[address]);
        let mut to: SocketAddr = server.line().parse().unwrap();
        if to.ip().is_unspecified() {
            to.set_ip([127, 0, 0, 1].into());
        }
        let stream = Stream::connect(to).unwrap();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut random = Random::seeded("pieces");
                let (mut sent, mut after) = (0, 0);
                // So many after the upgrade.
                while after < 2_000_000 && sent < 500_000_000 {
                    let most = 1 << random.below(18);
                    let len = 1 + random.below(most);
                    let bytes: Vec<u8> = (sent..sent + len).map(byte).collect();
                    (&stream).write_all(&bytes).unwrap();
                    sent += len;
                    after += match stream.reason() {
                        Reason::Upgraded => len,
                        _ => 0,
                    };
                }
                stream.shutdown(Shutdown::Write).unwrap();
                let error = (&stream).write(b"more").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::BrokenPipe);
                sent
            });
            let (mut got, mut bytes) = (0, vec![0; 70_000]);
            loop {
                let len = (&stream).read(&mut bytes).unwrap();
                if len == 0 {
                    break;
                }
                let is_right = |(at, found): (usize, &u8)| *found == byte(got + at as u64);
                assert!(bytes[..len].iter().enumerate().all(is_right), "after {got}");
                got += len as u64;
            }
            assert_eq!(got, writing.join().unwrap());
        });
        assert_eq!(stream.reason(), Reason::Upgraded, "{address}");
    }
}

#[test]
fn a_peer_without_the_library_notices_nothing() {
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = Stream::connect(plain.local_addr().unwrap()).unwrap();
    let (mut peer, _) = plain.accept().unwrap();
    let mut bytes = [0; 4];
    for _ in 0..4 {
        stream.write_all(b"ping").unwrap();
        peer.read_exact(&mut bytes).unwrap();
        peer.write_all(&bytes).unwrap();
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"ping");
    }
    assert_eq!(stream.reason(), Reason::NoPeer);
    let (listener, address) = listen();
    let mut peer = TcpStream::connect(address).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    for _ in 0..4 {
        peer.write_all(b"ping").unwrap();
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
        peer.read_exact(&mut bytes).unwrap();
    }
    assert_eq!(stream.reason(), Reason::Young);
    drop(peer);
    assert_eq!(stream.read(&mut bytes).unwrap(), 0);
}

#[test]
fn connections_for_one_request_stay_with_the_kernel() {
    let (listener, address) = listen();
    let mut connector = Stream::connect(address).unwrap();
    let (mut acceptor, _) = listener.accept().unwrap();
    connector.write_all(b"request").unwrap();
    let mut bytes = [0; 7];
    acceptor.read_exact(&mut bytes).unwrap();
    acceptor.write_all(b"answers").unwrap();
    drop(acceptor);
    let mut answer = String::new();
    connector.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answers");
    assert_eq!(connector.reason(), Reason::Young);
}

#[test]
fn what_was_written_is_read_and_then_the_end() {
    for how in ["shutdown", "drop"] {
        let (mut connector, mut acceptor) = upgraded();
        connector.write_all(b"last words").unwrap();
        if how == "shutdown" {
            connector.shutdown(Shutdown::Write).unwrap();
            // The other direction goes on.
            acceptor.write_all(b"still").unwrap();
            let mut bytes = [0; 5];
            connector.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"still");
        }
        drop(connector);
        let mut words = String::new();
        acceptor.read_to_string(&mut words).unwrap();
        assert_eq!(words, "last words");
        let error = acceptor.write(b"nobody reads this").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}

#[test]
fn a_thread_that_waits_is_woken_by_bytes_by_room_and_by_the_end() {
    let (connector, acceptor) = upgraded();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut bytes = vec![0; 1_000_000];
            (&acceptor).read_exact(&mut bytes).unwrap();
            // Waits for what does not come.
            assert_eq!((&acceptor).read(&mut bytes).unwrap(), 0);
        });
        // More than the ring has room for.
        (&connector).write_all(&vec![7; 1_000_000]).unwrap();
        connector.shutdown(Shutdown::Write).unwrap();
        reading.join().unwrap();
    });
}

#[test]
fn a_read_that_waits_ends_when_another_thread_shuts_the_stream_down() {
    for how in [Shutdown::Read, Shutdown::Both] {
        let (connector, acceptor) = upgraded();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| (&acceptor).read(&mut [0; 8]).unwrap());
            acceptor.shutdown(how).unwrap();
            assert_eq!(reading.join().unwrap(), 0);
        });
        drop(connector);
    }
}

#[test]
fn the_words_of_a_killed_peer_are_read_and_then_the_end() {
    let mut server = testing::start("echo some", &["5000"]);
    let stream = Stream::connect(server.line().parse().unwrap()).unwrap();
    let mut bytes = [0; 50];
    for _ in 0..90 {
        (&stream).write_all(&[7; 50]).unwrap();
        (&stream).read_exact(&mut bytes).unwrap();
    }
    // The answer to these is not read before the server is dead.
    (&stream).write_all(&[8; 500]).unwrap();
    server.expect("done");
    assert_eq!(stream.reason(), Reason::Upgraded);
    server.kill();
    let mut rest = Vec::new();
    (&stream).read_to_end(&mut rest).unwrap();
    assert_eq!(rest, [8; 500]);
    // As with the kernel's sockets, a write or more may seem to succeed.
    assert!(within_patience(|| (&stream).write(&[9; 4096]).is_err()));
}

#[test]
fn a_writer_that_waits_for_room_hears_of_the_death_of_its_peer() {
    let mut server = testing::start("echo some", &["200"]);
    let stream = Stream::connect(server.line().parse().unwrap()).unwrap();
    let mut bytes = [0; 50];
    for _ in 0..4 {
        (&stream).write_all(&[7; 50]).unwrap();
        (&stream).read_exact(&mut bytes).unwrap();
    }
    server.expect("done");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| (&stream).write_all(&[8; 1_000_000]).unwrap_err());
        server.kill();
        assert_eq!(writing.join().unwrap().kind(), ErrorKind::BrokenPipe);
    });
}
