//! Ends that leave the ring in the middle of the stream.

use super::*;
use handfast_socket::LeaveError;
use std::os::fd::AsFd;

/// The kernel's socket alone, as a program has it that knows nothing of the ring.
fn foreign(stream: &Stream) -> TcpStream {
    stream.as_fd().try_clone_to_owned().unwrap().into()
}

#[test]
fn a_program_without_the_library_goes_on_with_a_stream_that_has_left() {
    let server = testing::start("echo", &["127.0.0.1:0"]);
    let stream = Stream::connect(server.line().parse().unwrap()).unwrap();
    let mut bytes = [0; 50];
    for _ in 0..4 {
        (&stream).write_all(&[7; 50]).unwrap();
        (&stream).read_exact(&mut bytes).unwrap();
    }
    assert_eq!(stream.reason(), Reason::Upgraded);
    // The answers to these come through the ring, for a while.
    for part in 0..100 {
        (&stream).write_all(&[part; 500]).unwrap();
    }
    (&stream).read_exact(&mut [0; 500]).unwrap();
    stream.leave().unwrap();
    assert_eq!(stream.reason(), Reason::Left);
    let mut foreign = foreign(&stream);
    drop(stream);
    foreign.write_all(&[100; 500]).unwrap();
    foreign.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    foreign.read_to_end(&mut rest).unwrap();
    let expected: Vec<u8> = (1..=100).flat_map(|part| [part; 500]).collect();
    assert_eq!(rest.len(), expected.len());
    assert!(rest == expected);
}

#[test]
fn a_peer_that_sleeps_in_a_read_gives_the_kernel_its_bytes() {
    let (connector, acceptor) = upgraded();
    (&acceptor).write_all(b"in the ring").unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut rest = String::new();
            (&acceptor).read_to_string(&mut rest).unwrap();
            rest
        });
        connector.leave().unwrap();
        let mut bytes = [0; 11];
        foreign(&connector).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"in the ring");
        connector.shutdown(Shutdown::Write).unwrap();
        assert_eq!(reading.join().unwrap(), "");
    });
    assert_eq!(acceptor.reason(), Reason::Left);
}

#[test]
fn bytes_of_a_peer_that_has_left_before_are_to_be_read_first() {
    let (connector, acceptor) = upgraded();
    (&acceptor).write_all(b"first").unwrap();
    acceptor.leave().unwrap();
    (&acceptor).write_all(b"then").unwrap();
    let Err(LeaveError::Unread(5)) = connector.leave() else {
        panic!("left with bytes in the ring");
    };
    assert_eq!(connector.reason(), Reason::Upgraded);
    let mut bytes = [0; 5];
    (&connector).read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"first");
    connector.leave().unwrap();
    let mut bytes = [0; 4];
    foreign(&connector).read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"then");
}

/// Writes so many bytes in any pieces, and then ends the direction.
fn write(mut stream: &Stream, count: u64) {
    let mut random = Random::seeded("writing");
    let mut sent = 0;
    while sent < count {
        let most = 1 << random.below(16);
        let len = (1 + random.below(most)).min(count - sent);
        let bytes: Vec<u8> = (sent..sent + len).map(byte).collect();
        stream.write_all(&bytes).unwrap();
        sent += len;
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

/// Reads to the end, and expects so many; leaves after some of them. Reads by the kernel's socket alone from then on.
fn read(mut stream: &Stream, count: u64, leaves_after: u64) {
    let (mut got, mut bytes) = (0, vec![0; 40_000]);
    let mut foreign_one = None;
    loop {
        if got >= leaves_after && foreign_one.is_none() && stream.leave().is_ok() {
            foreign_one = Some(foreign(stream));
        }
        let len = match &mut foreign_one {
            Some(foreign) => foreign.read(&mut bytes).unwrap(),
            None => stream.read(&mut bytes).unwrap(),
        };
        if len == 0 {
            break;
        }
        let is_right = |(at, found): (usize, &u8)| *found == byte(got + at as u64);
        assert!(bytes[..len].iter().enumerate().all(is_right), "after {got}");
        got += len as u64;
    }
    assert_eq!(got, count);
}

#[test]
fn whoever_leaves_at_whatever_time_no_byte_is_lost_or_overtaken() {
    let mut random = Random::seeded("leaving");
    for _ in 0..30 {
        let (listener, address) = listen();
        let connector = Stream::connect(address).unwrap();
        let (acceptor, _) = listener.accept().unwrap();
        let mut after = || random.below(3) * random.below(400_000);
        let (count, one, other) = (300_000, after(), after());
        std::thread::scope(|scope| {
            scope.spawn(|| write(&connector, count));
            scope.spawn(|| write(&acceptor, count));
            scope.spawn(|| read(&connector, count, one));
            read(&acceptor, count, other);
        });
    }
}

#[test]
fn a_stream_that_leaves_before_it_is_upgraded_never_is() {
    let (listener, address) = listen();
    let connector = Stream::connect(address).unwrap();
    let (acceptor, _) = listener.accept().unwrap();
    ping(&connector, &acceptor);
    (&connector).write_all(b"asks").unwrap();
    assert_eq!(connector.reason(), Reason::Asked);
    connector.leave().unwrap();
    (&acceptor).read_exact(&mut [0; 4]).unwrap();
    for _ in 0..4 {
        ping(&connector, &acceptor);
    }
    assert_eq!(connector.reason(), Reason::Left);
    assert_ne!(acceptor.reason(), Reason::Upgraded);
}
