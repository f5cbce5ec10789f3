//! A new port is empty, whatever was sent to ports that were there before it.

use crate::common;
use crate::common::PATIENCE;
use handfast::error::SendError;
use handfast::{Node, ReceiveRight, SendRight};
use std::time::{Duration, Instant};

/// Sends until the port is known to be gone.
fn fill(right: &SendRight, message: &[u8]) {
    let since = Instant::now();
    loop {
        match right.try_send(message) {
            Ok(()) => {}
            Err(SendError::Full) => std::thread::yield_now(),
            Err(SendError::Gone(_)) => return,
            Err(other) => panic!("{other:?}"),
        }
        assert!(since.elapsed() < PATIENCE, "nobody says that it is gone");
    }
}

/// A thread that makes a port, uses it by its own right, and sends to it until it is gone.
fn comes_and_goes(
    node: &Node,
    message: &[u8],
    first: impl Fn(&SendRight) -> Result<(), SendError>,
) {
    let port = node.anonymous().unwrap();
    let right = port.mint(1).connect().unwrap();
    assert_eq!(first(&right), Ok(()), "the first message to a new port");
    drop(port);
    fill(&right, message);
}

/// Two threads, so that the link between their rights and the process itself stays, and the ports change places.
fn two_threads_come_and_go(first: impl Fn(&SendRight) -> Result<(), SendError> + Sync) {
    // Of its own: other tests use the lanes of this process, and a thread without one finds no room.
    let node = Node::builder().start().unwrap();
    let (node, first) = (&node, &first);
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            scope.spawn(move || (0..300).for_each(|_| comes_and_goes(node, &[thread; 8], first)));
        }
    });
    node.shutdown();
}

/// Soundness finding 11: a lane that was full of messages for a port that was gone made the first message to the next port at
/// its receiver wait for ever.
#[test]
fn the_first_message_to_a_new_port_of_this_process_finds_room_at_once() {
    two_threads_come_and_go(|right| right.try_send(b"first"));
}

#[test]
fn as_many_messages_as_a_port_holds_find_room_at_a_new_one() {
    two_threads_come_and_go(|right| (0..64).try_for_each(|_| right.try_send(b"one of them")));
}

#[test]
fn calls_to_a_new_port_of_this_process_find_room_at_once() {
    two_threads_come_and_go(|right| {
        let calls: Result<Vec<_>, _> = (0..16).map(|_| right.try_call(b"first")).collect();
        calls.map(drop)
    });
}

/// Has one port, from which it never receives; gives a right to a new one, in the place of the last, to who asks.
pub(crate) fn renewer(name: &str) {
    let control = handfast::bind(name).unwrap();
    common::say("ready");
    let mut last: Option<ReceiveRight> = None;
    while let Ok(request) = control.receive() {
        drop(last.take());
        let port = handfast::anonymous().unwrap();
        let right = port.mint(1);
        last = Some(port);
        request.reply_with(b"", [right.into()]).unwrap();
    }
}

/// Soundness finding 11, between processes: this one sends to the last port while the other has a new one already.
#[test]
fn messages_to_a_dead_port_of_another_process_take_no_room_from_the_next_one() {
    let name = common::name("renewer");
    let mut child = common::start("renewer", &[&name]);
    child.expect("ready");
    let control = handfast::connect(&name).unwrap();
    let mut last: Option<SendRight> = None;
    for round in 0..100 {
        let asked = control.try_call(b"").unwrap();
        if let Some(last) = &last {
            fill(last, b"to the last one");
        }
        let mut reply = asked.wait().unwrap();
        let right = common::send_rights(reply.take_rights()).remove(0);
        for number in 0..64 {
            let sent = right.send_timeout(b"to the next one", PATIENCE);
            assert_eq!(sent, Ok(()), "message {number} of round {round}");
        }
        last = Some(right);
    }
    child.kill();
}

/// As that; the right to the new port is used before the end of the last one is known, and both after it.
#[test]
fn a_port_ends_for_its_senders_when_the_next_one_at_its_place_is_used() {
    let name = common::name("renewer");
    let mut child = common::start("renewer", &[&name]);
    child.expect("ready");
    let control = handfast::connect(&name).unwrap();
    let renew = || {
        let mut reply = control.call(b"").unwrap();
        common::send_rights(reply.take_rights()).remove(0)
    };
    let mut last: SendRight = renew();
    for round in 0..100 {
        last.send(b"before").unwrap();
        let right = renew();
        let sent = right.send_timeout(b"first", PATIENCE);
        assert_eq!(sent, Ok(()), "round {round}");
        let ended = last.try_send(b"after");
        assert!(matches!(ended, Err(SendError::Gone(_))), "{ended:?}");
        // And one more in the next round.
        for number in 1..63 {
            let sent = right.send_timeout(b"more", PATIENCE);
            assert_eq!(sent, Ok(()), "message {number} of round {round}");
        }
        last = right;
    }
    child.kill();
}

/// The messages received are those that were sent to the new port, and all of them.
#[test]
fn a_new_port_receives_what_was_sent_to_it_and_nothing_else() {
    let last = handfast::anonymous().unwrap();
    let keeps_the_link = handfast::anonymous().unwrap();
    let _kept = keeps_the_link.mint(1).connect().unwrap();
    let mut right = last.mint(1).connect().unwrap();
    let mut port = last;
    for round in 0..200u32 {
        drop(port);
        fill(&right, b"dead");
        port = handfast::anonymous().unwrap();
        right = port.mint(1).connect().unwrap();
        for number in 0..40u32 {
            right.send(&(round + number).to_le_bytes()).unwrap();
        }
        for number in 0..40u32 {
            let got = port.receive_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(got.bytes(), (round + number).to_le_bytes());
        }
    }
}
