use super::*;

#[test]
#[cfg_attr(miri, ignore = "miri has no sequenced-packet sockets")]
fn messages_keep_their_bounds_and_descriptors() {
    let (a, b) = pair().unwrap();
    let (c, _d) = pair().unwrap();
    send(&a, b"one", &[c.as_fd()]).unwrap();
    send(&a, b"two", &[]).unwrap();
    let mut bytes = [0; 16];
    let (len, fds) = receive(&b, &mut bytes, 4).unwrap();
    assert_eq!((&bytes[..len], fds.len()), (&b"one"[..], 1));
    let (len, fds) = receive(&b, &mut bytes, 4).unwrap();
    assert_eq!((&bytes[..len], fds.len()), (&b"two"[..], 0));
    assert!(!is_closed(&b));
    shutdown(&a);
    assert!(is_closed(&b));
    drop(a);
    assert_eq!(receive(&b, &mut bytes, 4).unwrap().0, 0);
}

/// Each hello from a connection that another process's listener had so prepared left a process descriptor behind, charged to
/// nobody.
#[test]
#[cfg_attr(miri, ignore = "miri has no sequenced-packet sockets")]
fn a_listener_hands_down_nothing_that_brings_more_than_was_sent() {
    let path = std::env::temp_dir().join(format!("handfast-accept-{}", std::process::id()));
    let listener = listen(&path, 1).unwrap();
    for option in HANDED_DOWN {
        set_option(listener.as_fd(), option, true).unwrap();
    }
    let second = core::time::Duration::from_secs(1);
    let connector = connect(&path, second).unwrap();
    let accepted = accept(&listener).unwrap();
    let _ = std::fs::remove_file(&path);
    send(&connector, b"hello", &[]).unwrap();
    let mut bytes = [0; 16];
    let mut space = [MaybeUninit::uninit(); 256];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = look(accepted.as_fd(), &mut bytes, &mut control).unwrap();
    assert_eq!(&bytes[..message.bytes], b"hello");
    assert!(!message.flags.contains(ReturnFlags::CTRUNC));
    assert_eq!(control.drain().count(), 0);
    // The kernel says there was more than there was room for, if so.
    let none = look(
        accepted.as_fd(),
        &mut bytes,
        &mut RecvAncillaryBuffer::default(),
    );
    assert!(!none.unwrap().flags.contains(ReturnFlags::CTRUNC));
}

#[test]
#[cfg_attr(miri, ignore = "miri has no sequenced-packet sockets")]
fn a_message_with_more_descriptors_than_expected_stays_in_the_queue() {
    let (a, b) = pair().unwrap();
    let (c, d) = pair().unwrap();
    let mut bytes = [0; 16];
    for (sent, expected) in [(1, 0), (2, 1), (3, 2), (4, 1)] {
        let fds = [c.as_fd(), d.as_fd(), c.as_fd(), d.as_fd()];
        send(&a, b"one", &fds[..sent]).unwrap();
        let received = receive_expected(&b, &mut bytes, |_| expected).unwrap();
        assert!(
            received.is_surplus && !received.is_short,
            "{sent} {expected}"
        );
        assert!(!is_all_read(&a));
        discard(&b).unwrap();
        assert!(is_all_read(&a));
    }
    send(&a, b"two", &[c.as_fd()]).unwrap();
    let received = receive_expected(&b, &mut bytes, |bytes| bytes.len()).unwrap();
    assert_eq!((received.fds.len(), received.is_surplus), (1, false));
    // Fewer than were expected are for the caller to judge.
    assert!(!received.is_short);
}

#[test]
#[cfg_attr(miri, ignore = "miri has no sequenced-packet sockets")]
fn sockets_refuse_descriptors_until_they_are_told_to_take_them() {
    let (a, b) = pair().unwrap();
    if pass_descriptors(&b, false) == Err(Errno::NOPROTOOPT) {
        return handfast_testing::not_exercised("no SO_PASSRIGHTS (Linux 6.16)");
    }
    assert_eq!(send(&a, b"one", &[a.as_fd()]), Err(Errno::PERM));
    pass_descriptors(&b, true).unwrap();
    send(&a, b"one", &[a.as_fd()]).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "miri has no sequenced-packet sockets")]
fn the_kernel_names_the_peer() {
    let (a, _b) = pair().unwrap();
    let own = Peer {
        pid: std::process::id(),
        uid: crate::process::uid(),
    };
    assert_eq!(peer(&a), Ok(own));
}
