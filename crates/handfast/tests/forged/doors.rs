//! Control messages about rights that nobody gave, and about doors that nobody asked for.

use crate::common;
use crate::forger::introductions::third;
use crate::forger::{Hand, expect_cut, serves, start_honest};
use handfast::error::Rule;
use handfast_layout::control::{ControlKind, ControlMessage as M};
use handfast_testing::forge::Packet;
use rustix::fd::AsFd;

#[test]
fn what_is_said_of_rights_that_nobody_gave_is_answered_and_harms_nobody() {
    let (mut server, name) = start_honest("said-of-none");
    let hand = Hand::new(&name, 1);
    let number = 5;
    assert!(hand.say(M::Left { number }));
    for said in [M::Kept { number }, M::Leave { number, came: 3 }] {
        assert!(hand.say(said));
        assert_eq!(hand.hear(), M::Left { number });
    }
    // A peer that does not read the answers is cut.
    let mut said = 0;
    assert!(common::within_patience(|| {
        let leave = |number| M::Leave { number, came: 0 };
        while said < 100_000 && hand.say(leave(said)) {
            said += 1;
        }
        handfast_sys::socket::is_closed(&hand.socket)
    }));
    assert!(said < 100_000, "{said} answers are kept");
    expect_cut(&server, Rule::Introduction, "unread");
    serves(&name);
    server.finish();
}

fn doors_of(server: &common::Child) -> usize {
    common::threads_named(server.pid(), "handfast-door")
}

#[test]
fn doors_that_nobody_asked_for_are_not_knocked_at() {
    let (mut server, name) = start_honest("doors");
    let hand = Hand::new(&name, 1);
    // A listener there answers nobody: a process that knocks waits.
    let path = common::directory().join("deaf");
    let deaf = handfast_sys::socket::listen(&path, 100).unwrap();
    let flags = rustix::fs::OFlags::PATH;
    let door = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    let before = doors_of(&server);
    let unasked = M::DoorOf { exporter: [9; 20] }.encode();
    for _ in 0..50 {
        handfast_sys::socket::send(&hand.socket, &unasked, &[door.as_fd()]).unwrap();
        // One that was not shown, either.
        assert!(hand.say(M::Door { token: 1 }));
    }
    let said = hand.said_meanwhile();
    assert!(said.is_empty(), "{said:?}");
    assert_eq!(doors_of(&server), before);
    // Where it was asked for one, it knocks once.
    let mut hand = hand;
    hand.send(b"", &[third([9; 20])]);
    assert_eq!(hand.hear().kind(), ControlKind::DoorWhere);
    for _ in 0..50 {
        handfast_sys::socket::send(&hand.socket, &unasked, &[door.as_fd()]).unwrap();
    }
    hand.settle();
    assert!(doors_of(&server) <= before + 1);
    // This process, which it knocks at, does not get in meanwhile.
    drop(deaf);
    assert!(common::within_patience(|| doors_of(&server) == before));
    serves(&name);
    let (exporter, token) = ([0; 20], 0);
    let wrong = [
        Packet::of(M::DoorWhere { exporter }).cut(5),
        Packet::of(M::DoorAsk { token }).extended(&[0]),
        Packet::of(M::Door { token }).cut(1),
        Packet::of(M::DoorOf { exporter }).extended(&[0]),
    ];
    for (number, message) in (50..).zip(wrong) {
        let hand = Hand::new(&name, number);
        assert!(hand.say(message));
        expect_cut(&server, Rule::Introduction, "of a wrong length");
        hand.expect_end();
    }
    serves(&name);
    assert_eq!(server.said(), None);
    server.finish();
}
