//! Threads that a peer moves from the words in which they sleep to one of its own (`FUTEX_REQUEUE`): no wake-up finds them there.

use crate::claims;
use crate::common;
use crate::forger::introductions::OWN;
use crate::forger::{Hand, requeue};
use handfast::{Event, Right, WaitSet};
use handfast_channel::bell;
use handfast_channel::reply::Slot;
use handfast_layout::bell as layout;
use handfast_layout::link::{Kind, LANES, REPLIES, Side};
use handfast_layout::part::receiver_of;
use handfast_region::Memory;
use handfast_ring::lane::Place;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// Sleeps for something of its peer, by a right that the peer has sent, and says what comes of that.
pub(crate) fn sleeper(name: &str, how: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let Some(Right::Send(right)) = port.receive().unwrap().take_rights().pop() else {
        panic!("no right");
    };
    common::say("sleeps");
    let error = match how {
        "call" => right.call(b"").unwrap_err(),
        "room" => loop {
            if let Err(error) = right.send(b"") {
                break error;
            }
        },
        "set" => {
            let mut set = WaitSet::new().unwrap();
            set.add_call(right.try_call(b"").unwrap());
            match set.receive().unwrap() {
                Event::Reply(_, outcome) => outcome.unwrap_err(),
                other => panic!("{other:?}"),
            }
        }
        _ => unreachable!(),
    };
    common::say(&format!("{error:?}"));
}

/// Such threads hear nevertheless that the peer is gone.
#[test]
fn threads_that_were_moved_away_hear_that_the_peer_is_gone() {
    for how in ["call", "room", "set"] {
        let name = common::name(how);
        let mut victim = common::start("sleeper", &[&name, how]);
        victim.expect("ready");
        let mut hand = Hand::new(&name, 1);
        hand.send(b"", &[OWN]);
        victim.expect("sleeps");
        let replies = (0..REPLIES).map(|index| Slot::of(Side::Acceptor, index).wait());
        let lanes = (0..LANES).map(|lane| Place::of(Side::Acceptor, lane).space());
        let words: Vec<_> = replies.chain(lanes).collect();
        let elsewhere = AtomicU32::new(0);
        let mut first = None;
        // Threads that sleep again are moved again.
        let are_moved = || {
            let moved = words
                .iter()
                .map(|at| requeue(hand.word(*at), i32::MAX, elsewhere.as_ptr()));
            if moved.sum::<u32>() > 0 {
                first.get_or_insert_with(Instant::now);
            }
            first.is_some_and(|first: Instant| first.elapsed() > Duration::from_millis(200))
        };
        assert!(common::within_patience(are_moved), "{how}");
        drop(hand);
        let said = victim.line();
        assert!(said.contains("Gone(Process)"), "{how}: {said}");
        victim.finish();
    }
}

/// Two threads receive; one keeps what comes first until it is told to go on.
pub(crate) fn two_receivers(name: &str) {
    claims::by_two_threads(name, |request| {
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        common::say(&text);
        if text == "keeps" {
            common::told();
            std::process::exit(0);
        }
    });
}

/// One thread handles a message, and the other has been moved away: it is woken for the next message nevertheless.
#[test]
fn a_receiver_that_was_moved_away_takes_what_another_leaves() {
    let name = common::name("two");
    let mut server = common::start("two receivers", &[&name]);
    server.expect("ready");
    let mut hand = Hand::new(&name, 1);
    let elsewhere = AtomicU32::new(0);
    let (bell, away) = (hand.bell(), elsewhere.as_ptr());
    let mut moved = 0;
    let both_sleep = || {
        moved += requeue(bell, i32::MAX, away);
        moved >= 2
    };
    assert!(common::within_patience(both_sleep));
    // One is back.
    assert_eq!(requeue(away, 1, bell), 1);
    let port = hand.welcome.handle;
    for bytes in [b"keeps", b"taken"] {
        hand.put(0, (Kind::Message, port, 0, 0), (bytes, &[]));
    }
    // As a sender of this user rings, which tells the process nothing else.
    let receiver = receiver_of(hand.welcome.port);
    let at = (Side::Connector, 0);
    let asleep = bell::ring(&*hand.region, &hand.bells, at, receiver, hand.welcome.link);
    assert!(asleep.is_some());
    assert_eq!(
        hand.bells.wake(layout::bell(receiver) + layout::SLEEP, 1),
        1
    );
    server.expect("keeps");
    server.expect("taken");
    server.finish();
}
