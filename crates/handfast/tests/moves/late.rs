//! New homes that receive late, while old homes pass on messages with rights that go home there.

use crate::common;
use crate::ring;
use handfast::{Node, ReceiveRight, Right, SendRight};
use std::time::Duration;

/// A port that has moved from one node to another, and another port of the new home.
struct Moved {
    nodes: [Node; 3],
    port: ReceiveRight,
    other: ReceiveRight,
    to_other: SendRight,
}

impl Moved {
    /// A third node has sent so many messages, each with a right to the other port, and one without, before the port arrived.
    fn new(what: &str, count: u8) -> Self {
        let nodes = [(); 3].map(|()| ring::node());
        let [old, new, sender] = &nodes;
        let [name, mail, other] =
            ["port", "mail", "other"].map(|port| common::name(&format!("{what}-{port}")));
        let port = old.bind(&name).unwrap();
        let (mail, other) = (new.bind(&mail).unwrap(), new.bind(&other).unwrap());
        let to_other = sender.connect(other.name()).unwrap();
        let sender = sender.connect(&name).unwrap();
        let to_mail = old.connect(mail.name()).unwrap();
        to_mail.with([port.into()]).send(b"").unwrap();
        for number in 0..count {
            let with = sender.with([to_other.clone().into()]);
            with.send(&[number]).unwrap();
        }
        sender.send(b"last").unwrap();
        let rights = mail.receive().unwrap().take_rights();
        let [Right::Receive(port)] = <[Right; 1]>::try_from(rights).unwrap() else {
            panic!("no port came");
        };
        Self {
            nodes,
            port,
            other,
            to_other,
        }
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        self.nodes.iter().for_each(Node::shutdown);
    }
}

/// The old home waited for 0.2 s for the new home's word on such a right, and dropped the message then.
#[test]
fn one_way_messages_with_rights_of_a_new_home_that_receives_late_arrive() {
    const COUNT: u8 = 3;
    let moved = Moved::new("late", COUNT);
    // The new home does something else.
    let quiet = moved.nodes[1].anonymous().unwrap();
    assert!(quiet.receive_timeout(Duration::from_millis(600)).is_err());
    std::thread::scope(|threads| {
        threads.spawn(|| moved.other.receive_timeout(common::PATIENCE));
        for number in 0..COUNT {
            let mut request = moved.port.receive_timeout(common::PATIENCE).unwrap();
            assert_eq!(request.bytes(), [number]);
            assert_eq!(request.take_rights().len(), 1);
        }
        let request = moved.port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(request.bytes(), b"last");
        moved.to_other.send(b"").unwrap();
    });
}

/// Each of the messages before it would have waited for 2 s; senders lose the port after a minute.
#[test]
fn a_new_home_that_receives_only_at_the_port_is_waited_for_once() {
    let moved = Moved::new("never", 20);
    loop {
        let request = moved.port.receive_timeout(Duration::from_secs(20)).unwrap();
        if request.bytes() == b"last" {
            break;
        }
    }
}
