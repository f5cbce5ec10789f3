//! Messages for a port that shared a receiver and has moved to a process which says nothing: they wait at its old home.

use crate::common;
use crate::forger::{Hand, serves};
use crate::moves::{arrived, departs, hears_of_move, is_given, moving, new_port, own};
use handfast_layout::control::ControlMessage;
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::{Kind, passed_word};
use handfast_layout::part::receiver_of;
use handfast_testing::forge::Packet;
use std::time::{Duration, Instant};

/// As many messages of one user have room.
const ROOM: u32 = 1024;
/// Longer than a message waits for the claim of the right it names.
const UNCLAIMED: Duration = Duration::from_millis(500);

/// A port that has left for a home which has said nothing yet, and a sender that has a right to it.
struct Away {
    server: common::Child,
    name: String,
    home: Hand,
    sender: Hand,
    /// Its handle, and the port.
    right: (u32, u32),
    token: u32,
}

impl Away {
    fn new(what: &str) -> Self {
        let (mut server, name, mut home) = moving(what);
        let mut sender = Hand::new(&name, 3);
        let right = is_given(&mut server, "member", &mut sender);
        let token = departs(&mut server, &mut home);
        Self {
            server,
            name,
            home,
            sender,
            right,
            token,
        }
    }
}

#[test]
fn a_claim_behind_a_message_that_waits_for_room_is_waited_for() {
    let Away {
        mut server,
        name,
        home,
        mut sender,
        right: (handle, port),
        ..
    } = Away::new("no-room");
    let at = |lane| (lane, receiver_of(port));
    let message = |sender: &mut Hand| {
        sender.post_to(at(1), Kind::Message, (handle, 0, 0), (b"x", &[]));
    };
    (0..=ROOM).for_each(|_| message(&mut sender));
    // An attenuated right to the receiver's own port, and a message by that in another lane.
    let own_port = sender.welcome.handle;
    let word = 9;
    let said = LaneControl::Attenuate { word, mask: 1 };
    let by = (own_port, passed_word(0, 0), 1);
    sender.post_to(at(1), Kind::CONTROL, by, (&said.encode(), &[]));
    sender.post_to(at(2), Kind::Message, (word, 0, 0), (b"behind", &[]));
    let until = Instant::now() + UNCLAIMED;
    while Instant::now() < until {
        sender.settle_quietly();
    }
    serves(&name);
    assert_eq!(server.said(), None, "the sender has been cut");
    drop((home, sender));
    server.finish();
}

/// The parts of messages are taken apart before they wait.
#[test]
fn messages_that_wait_end_with_the_new_home() {
    let Away {
        mut server,
        name,
        home,
        mut sender,
        right: (handle, port),
        ..
    } = Away::new("no-home");
    let at = (1, receiver_of(port));
    let parts = crate::forger::units(&[own(11)]);
    sender.post_to(at, Kind::Message, (handle, 0, 0), (b"x", &parts));
    sender.settle();
    drop(home);
    assert!(sender.try_hear().is_some(), "the right has ended");
    serves(&name);
    assert_eq!(server.said(), None);
    drop(sender);
    server.finish();
}

/// A sender that does not follow has its right at the old home.
#[test]
fn the_end_of_a_port_that_shared_a_receiver_is_told_at_its_old_home() {
    let Away {
        mut server,
        name,
        home,
        sender,
        right: (handle, _),
        token,
    } = Away::new("ended-there");
    assert!(home.say(arrived(token, new_port(0), 1 << 31 | 100)));
    let _ = hears_of_move(&sender);
    let revoked = |name: &[u32]| {
        Packet::of(ControlMessage::Revoked {
            in_vain: false,
            names: name.into(),
        })
    };
    assert!(home.say(revoked(&[1 << 31 | 100])));
    let heard = sender.hear();
    assert_eq!(heard.message(), revoked(&[handle]).message());
    serves(&name);
    assert_eq!(server.said(), None);
    server.finish();
}
