//! Peers that make a process say something, again and again, to one that does not read it.

use crate::common::{self, own_kib};
use crate::forger::{Hand, expect_cut, serves, start_honest, units};
use handfast::error::Rule;
use handfast_layout::control::{ControlKind, ControlMessage};
use handfast_layout::link::Kind;
use handfast_layout::part::Part;

/// Far more than may wait to be read.
const ASKED: usize = 100_000;

/// A right of the hand's own, which the process keeps.
const OWN: Part = Part::OfSender {
    handle: 1 << 31 | 5,
    port: 0x100,
};

#[test]
fn who_does_not_use_a_link_and_does_not_read_that_it_is_used_costs_no_more_than_a_limit() {
    let (mut server, name) = start_honest("unread-use");
    let mut hand = Hand::new(&name, 1);
    hand.send(b"", &[OWN]);
    hand.settle();
    let before = own_kib(server.pid());
    for _ in 0..ASKED {
        assert!(hand.say(ControlMessage::Unused));
    }
    hand.settle_quietly();
    let grown = own_kib(server.pid()).saturating_sub(before);
    println!("{grown} KiB");
    assert!(grown < 3000, "{grown} KiB");
    serves(&name);
    assert_eq!(server.said(), None);
    server.finish();
}

/// Drops many ports when it is told to.
pub(crate) fn closer(name: &str) {
    let _port = handfast::bind(name).unwrap();
    common::say("ready");
    while common::told().is_some() {
        for _ in 0..ASKED {
            drop(handfast::anonymous().unwrap());
        }
        common::say("dropped");
    }
    std::process::exit(0);
}

#[test]
fn who_does_not_read_that_ports_are_gone_costs_no_more_than_a_limit() {
    let name = common::name("unread-ends");
    let mut closer = common::start("closer", &[&name]);
    closer.expect("ready");
    let hand = Hand::new(&name, 1);
    let before = own_kib(closer.pid());
    closer.tell("drop them");
    closer.expect("dropped");
    let grown = own_kib(closer.pid()).saturating_sub(before);
    println!("{grown} KiB");
    assert!(grown < 1000, "{grown} KiB");
    assert_eq!(hand.hear().kind(), ControlKind::Closed);
    closer.kill();
}

#[test]
fn who_asks_for_the_door_of_one_who_does_not_read_costs_no_more_than_a_limit() {
    let (mut server, name) = start_honest("unread-doors");
    let deaf = Hand::new(&name, 1);
    let mut asker = Hand::new(&name, 2);
    let before = own_kib(server.pid());
    let exporter = deaf.process;
    let mut shown = 0;
    for number in 1..=ASKED {
        assert!(asker.say(ControlMessage::DoorWhere { exporter }));
        if number % 100 == 0 {
            // It reads what it is answered.
            for said in asker.said_meanwhile() {
                assert_eq!(said.kind(), ControlKind::DoorOf);
                shown += 1;
            }
        }
    }
    asker.settle();
    let grown = own_kib(server.pid()).saturating_sub(before);
    println!("{shown} without a door, {grown} KiB");
    assert!(grown < 3000, "{grown} KiB");
    assert!(shown > ASKED / 2, "{shown}");
    serves(&name);
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn who_moves_ports_and_does_not_read_whether_they_have_arrived_is_cut_off() {
    let (mut server, name) = start_honest("unread-moves");
    let mut hand = Hand::new(&name, 1);
    let part = Part::Receive {
        token: 1,
        number: 0,
        name_bytes: 0,
        asks: false,
    };
    let units = units(&[part]);
    let handle = hand.welcome.handle;
    for _ in 0..8000 {
        hand.post(Kind::Message, (handle, 0, 0), (b"", &units));
    }
    expect_cut(&server, Rule::Introduction, "unread");
    hand.expect_end();
    serves(&name);
    server.finish();
}
