//! Claims of rights that are provided later, or never, and messages that wait for them.

use crate::common;
use crate::forger::introductions::{claim, provide};
use crate::forger::{Hand, OWN_SLOT, start_honest};
use handfast_layout::link::{Kind, LANES};
use handfast_layout::part::receiver_of;
use std::time::Duration;

/// Of a port that has moved: its claims wait for a minute.
const OF_MOVED: u64 = 1 << 63;

/// Claims a number in one lane, and calls by its word in another.
fn claim_and_call(
    hand: &mut Hand,
    introducer: &Hand,
    (to_claim, to_call): (u32, u32),
    number: u64,
) {
    let (receiver, port) = (receiver_of(hand.welcome.port), hand.welcome.handle);
    let word = to_call + 1;
    let said = claim(word, number, introducer).encode();
    let named = (port, OWN_SLOT + to_call, 1);
    hand.post_to((to_claim, receiver), Kind::CONTROL, named, (&said, &[]));
    let called = (word, to_call, 1);
    hand.post_to((to_call, receiver), Kind::Call, called, (b"waits", &[]));
}

/// Lanes whose messages wait took each a place among those that are served, and with more of them than places nobody slept.
#[test]
fn a_server_sleeps_while_all_lanes_wait_and_serves_each_as_what_it_waits_for_comes() {
    let (mut server, name) = start_honest("all-wait");
    let mut introducer = Hand::new(&name, 1);
    let mut hand = Hand::new(&name, 2);
    for lane in 0..LANES {
        let number = OF_MOVED | u64::from(lane + 1);
        claim_and_call(&mut hand, &introducer, (lane, lane), number);
    }
    // So many looks in a row: one that looks around does not sleep in all of them.
    let pid = server.pid();
    assert!(common::within_patience(
        || (0..50).all(|_| common::sleeps(pid))
    ));
    let mut other = Hand::new(&name, 3);
    let handle = other.welcome.handle;
    assert_eq!(other.call(handle, b"other").1, b"other");
    for lane in (0..LANES).rev() {
        introducer.tell(provide(OF_MOVED | u64::from(lane + 1), &hand));
        let waits = (Kind::Message, b"waits".to_vec());
        assert_eq!(hand.outcome(lane, 1), Some(waits));
    }
    assert_eq!(server.said(), None);
    server.finish();
}

/// A claim behind a waiting message, in another lane of its sender's, passed for one that had never been made: the link was cut.
#[test]
fn a_claim_behind_what_waits_is_waited_for() {
    let (mut server, name) = start_honest("behind-waiting");
    let mut introducer = Hand::new(&name, 1);
    let mut hand = Hand::new(&name, 2);
    let numbers = [OF_MOVED | 1, 2];
    introducer.tell(provide(numbers[1], &hand));
    for (place, number) in numbers.into_iter().enumerate() {
        claim_and_call(&mut hand, &introducer, (0, place as u32), number);
    }
    // Sleep: longer than the limit for a claim that does not come.
    std::thread::sleep(Duration::from_millis(500));
    introducer.tell(provide(numbers[0], &hand));
    for lane in 0..2 {
        let waits = (Kind::Message, b"waits".to_vec());
        assert_eq!(hand.outcome(lane, 1), Some(waits));
    }
    assert_eq!(server.said(), None);
    server.finish();
}

/// A server that only looks, and never sleeps in the library.
pub(crate) fn looks(name: &str) {
    let mut set = handfast::WaitSet::new().unwrap();
    set.add(handfast::bind(name).unwrap());
    common::say("ready");
    loop {
        match set.try_receive() {
            Ok(handfast::Event::Message(_, request)) => {
                let bytes = request.bytes().to_vec();
                request.reply(&bytes).unwrap();
            }
            Ok(_) => unreachable!(),
            Err(_) => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_claim_of_nothing_ends_in_time_in_a_set_that_is_only_looked_at() {
    let name = common::name("only-looks");
    let mut server = common::start("looks", &[&name]);
    server.expect("ready");
    let introducer = Hand::new(&name, 1);
    let mut hand = Hand::new(&name, 2);
    claim_and_call(&mut hand, &introducer, (0, 1), 1);
    assert_eq!(hand.outcome(1, 1), Some((Kind::DeadPort, Vec::new())));
    server.kill();
}
