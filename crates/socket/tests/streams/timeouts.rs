//! Streams that do not wait, or not for ever.

use super::*;
use std::time::{Duration, Instant};

#[test]
fn a_stream_that_does_not_block_says_so_before_and_after_the_upgrade() {
    let (listener, address) = listen();
    let mut connector = Stream::connect(address).unwrap();
    let (mut acceptor, _) = listener.accept().unwrap();
    connector.set_nonblocking(true).unwrap();
    let error = connector.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    connector.set_nonblocking(false).unwrap();
    for _ in 0..4 {
        ping(&connector, &acceptor);
    }
    assert_eq!(connector.reason(), Reason::Upgraded);
    connector.set_nonblocking(true).unwrap();
    acceptor.set_nonblocking(true).unwrap();
    let error = acceptor.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let mut written = 0;
    let error = loop {
        match connector.write(&[7; 5000]) {
            Ok(len) => written += len,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let mut got = 0;
    while got < written {
        got += acceptor.read(&mut [0; 3000]).unwrap();
    }
    assert!(connector.write(&[7; 5000]).unwrap() > 0);
}

#[test]
fn waits_of_a_stream_with_timeouts_end() {
    let (listener, address) = listen();
    let connector = Stream::connect(address).unwrap();
    let (acceptor, _) = listener.accept().unwrap();
    let timeout = Duration::from_millis(20);
    let expect_timeout = |wait: &mut dyn FnMut() -> std::io::Error| {
        let begun = Instant::now();
        assert_eq!(wait().kind(), ErrorKind::WouldBlock);
        assert!(begun.elapsed() >= timeout);
    };
    connector.set_read_timeout(Some(timeout)).unwrap();
    acceptor.set_read_timeout(Some(timeout)).unwrap();
    expect_timeout(&mut || (&connector).read(&mut [0; 8]).unwrap_err());
    // It has asked, and nobody gives it anything.
    (&connector).write_all(&[7; 5000]).unwrap();
    (&connector).write_all(&[7; 5000]).unwrap();
    expect_timeout(&mut || (&connector).read(&mut [0; 8]).unwrap_err());
    (&acceptor).read_exact(&mut [0; 10_000]).unwrap();
    for _ in 0..4 {
        ping(&connector, &acceptor);
    }
    assert_eq!(acceptor.reason(), Reason::Upgraded);
    expect_timeout(&mut || (&connector).read(&mut [0; 8]).unwrap_err());
    connector.set_write_timeout(Some(timeout)).unwrap();
    expect_timeout(&mut || {
        let mut writes = std::iter::repeat_with(|| (&connector).write(&[7; 5000]));
        writes.find_map(Result::err).unwrap()
    });
    acceptor.set_read_timeout(None).unwrap();
    assert_eq!((&acceptor).read(&mut [0; 8]).unwrap(), 8);
}
