use super::*;
use crate::error::{Gone, SendError};
use crate::port::Once;
use crate::{Node, Notice, anonymous};

#[test]
fn thousands_of_ports_share_a_receiver() {
    let server = anonymous().unwrap();
    let members: Vec<_> = (0..2000).map(|_| server.member().unwrap()).collect();
    let connect = |member: &MemberPort| member.mint(1).connect().unwrap();
    let rights: Vec<_> = members.iter().map(connect).collect();
    let own = server.mint(3).connect().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..=members.len() {
                let request = server.receive().unwrap();
                let key = request.member().unwrap_or_default();
                request.reply(&key.to_le_bytes()).unwrap();
            }
        });
        for (member, right) in members.iter().zip(&rights) {
            assert_eq!(&*right.call(b"").unwrap(), member.key().to_le_bytes());
        }
        assert_eq!(&*own.call(b"").unwrap(), [0; 4]);
    });
}

#[test]
fn each_port_has_notices_and_an_end_of_its_own() {
    let server = anonymous().unwrap();
    let (one, two) = (server.member().unwrap(), server.member().unwrap());
    one.notify_no_senders();
    two.notify_no_senders_of(7);
    let (to_one, to_two) = (
        one.mint(1).connect().unwrap(),
        two.mint(7).connect().unwrap(),
    );
    drop(to_one);
    let notice = server.receive().unwrap();
    assert_eq!(
        (notice.notice(), notice.member()),
        (Some(Notice::NoSenders), Some(one.key()))
    );
    let again = two.mint(7);
    drop(to_two);
    drop(again);
    let notice = server.receive().unwrap();
    let expected = Some(Notice::NoSendersOf(7));
    assert_eq!(
        (notice.notice(), notice.member()),
        (expected, Some(two.key()))
    );

    let (to_one, to_two) = (
        one.mint(2).connect().unwrap(),
        two.mint(2).connect().unwrap(),
    );
    let number = 40;
    to_one.notify_death(&server, number);
    drop(one);
    assert_eq!(
        server.receive().unwrap().notice(),
        Some(Notice::Dead(number))
    );
    let ended = to_one.send(b"").unwrap_err();
    assert!(matches!(ended, SendError::Gone(Gone::Right)), "{ended:?}");
    to_two.send(b"to two").unwrap();
    assert_eq!(server.receive().unwrap().member(), Some(two.key()));
}

#[test]
fn notices_of_ports_that_have_ended_keep_nothing_and_come_to_nobody() {
    let server = anonymous().unwrap();
    let (one, two) = (server.member().unwrap(), server.member().unwrap());
    for member in [&one, &two] {
        member.notify_no_senders();
        drop(member.mint(1).connect().unwrap());
    }
    let at = Arc::downgrade(&one.port.at);
    // Told when the control thread has given the rights back.
    let due = || at.upgrade().is_some_and(|at| at.members_due.len() == 2);
    while !due() {
        handfast_sys::clock::nap();
    }
    drop(one);
    let (notice, id) = (server.receive().unwrap(), Some(two.key()));
    assert_eq!(
        (notice.notice(), notice.member()),
        (Some(Notice::NoSenders), id)
    );

    let three = server.member().unwrap();
    three.notify_no_senders();
    drop(three.mint(1).connect().unwrap());
    while at.upgrade().is_none_or(|at| at.members_due.len() == 0) {
        handfast_sys::clock::nap();
    }
    drop(server);
    drop((two, three, notice));
    // The control thread may look at it still.
    while at.strong_count() > 0 {
        handfast_sys::clock::nap();
    }
}

#[test]
fn a_notice_comes_behind_those_of_many_ports_that_have_ended() {
    let server = anonymous().unwrap();
    let members: Vec<_> = (0..200).map(|_| server.member().unwrap()).collect();
    for member in &members {
        member.notify_no_senders();
        // Of this process: told at once.
        drop(member.mint(1));
    }
    let last = server.member().unwrap();
    last.notify_no_senders();
    drop(last.mint(1));
    assert_eq!(server.port().at.members_due.len(), 201);
    drop(members);
    assert_eq!(server.try_receive().unwrap().member(), Some(last.key()));
}

#[test]
fn a_port_that_has_ended_does_nothing_to_a_later_one_with_its_number() {
    let node = Node::builder().start().unwrap();
    let first = node.anonymous().unwrap();
    let old = first.member().unwrap();
    drop(first);
    // Four million others later, at the same receiver.
    let second = node.anonymous().unwrap();
    ports::number_again(&second.port().process, old.key());
    let new = second.member().unwrap();
    assert_eq!(new.key(), old.key());
    let right = new.mint(1).connect().unwrap();
    old.revoke(1);
    old.notify_no_senders_of(1);
    drop(old);
    right.send(b"still").unwrap();
    assert_eq!(second.try_receive().unwrap().member(), Some(new.key()));
    drop(right);
    node.shutdown();
}

#[test]
fn a_port_ends_with_the_one_whose_receiver_it_shares() {
    let server = anonymous().unwrap();
    let member = server.member().unwrap();
    let right = member.mint(1).connect().unwrap();
    drop(server);
    // Holders hear of it from the control thread.
    let ended = loop {
        match right.send(b"") {
            Ok(()) => handfast_sys::clock::nap(),
            Err(ended) => break ended,
        }
    };
    assert!(matches!(ended, SendError::Gone(_)), "{ended:?}");
    // The next port at the receiver gets nothing of it.
    let next = anonymous().unwrap();
    assert!(next.try_receive().is_err());
}

#[test]
fn nothing_is_added_to_a_port_that_is_being_dropped() {
    let server = anonymous().unwrap();
    let port = server.port().clone();
    drop(server);
    assert!(ports::add_member(&port, None).is_err());
    assert!(ports::add_member(&port, Some(Once::new(1))).is_err());
}

/// A name for it would be one for the next port with its number.
#[test]
fn the_port_of_a_send_once_right_that_has_ended_gets_no_other_right() {
    let server = anonymous().unwrap();
    let right = server.mint_once(1).unwrap();
    let (id, _) = ports::unused_once(server.port())[0];
    let port = ports::by_id(&server.port().process, id).unwrap();
    drop(right);
    // Comes home in a message.
    let home = OwnRight::to(&port, 1, ALL_PERMISSIONS);
    assert!(home.is_good());
    assert!(server.try_receive().is_err());
    drop(home);
    let told = server.receive().unwrap();
    assert_eq!(told.notice(), Some(Notice::SendOnceUnused(1)));
    assert!(!OwnRight::to(&port, 1, ALL_PERMISSIONS).is_good());
    assert!(!port.notices.added());
    assert!(ports::by_id(&server.port().process, id).is_none());
}

/// A sender whose lanes are all in use asks for what lies there for ports that have gone to be taken.
#[test]
fn messages_for_a_member_are_not_taken_for_those_of_a_port_that_has_gone() {
    let server = anonymous().unwrap();
    let member = server.member().unwrap();
    let right = member.mint(1).connect().unwrap();
    right.send(b"to a member").unwrap();
    let there = right.link().twin().unwrap();
    crate::left_lanes::say_taken(&there, &server.port().process);
    let received = server.try_receive().map(|request| request.member());
    assert_eq!(received.unwrap(), Some(member.key()));
}
