//! Peers that forge what is said of receivers on CPUs, send to wrong ones, and meddle with their bells.

use crate::common;
use crate::forger::{Forgery, Hand, refused_by_name, serves};
use crate::served::{pinned, serve, settle, where_handled};
use handfast::error::Rule;
use handfast_layout::bell;
use handfast_layout::control::{ControlMessage, OnCpu};
use handfast_layout::link::Kind;
use handfast_sys::cpu;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Says where a port is served: CPUs, and their receivers.
fn spread<const COUNT: usize>(hand: &Hand, port: u32, entries: [(u16, u8); COUNT]) {
    let entries = entries.map(|(cpu, receiver)| OnCpu { cpu, receiver });
    hand.say(ControlMessage::Spread {
        port,
        entries: (&entries).into(),
    });
}

const FORGERIES: [Forgery; 8] = [
    (
        "a receiver out of bounds",
        |hand| spread(hand, 1, [(0, 64)]),
        Rule::Spread,
    ),
    (
        "a CPU out of bounds",
        |hand| spread(hand, 1, [(1024, 2)]),
        Rule::Spread,
    ),
    (
        "a receiver twice",
        |hand| spread(hand, 1, [(0, 2), (1, 2)]),
        Rule::Spread,
    ),
    (
        "a CPU twice",
        |hand| spread(hand, 1, [(1, 2), (1, 3)]),
        Rule::Spread,
    ),
    (
        "its own receiver",
        |hand| spread(hand, 1, [(0, 1)]),
        Rule::Spread,
    ),
    (
        "a handle for a port",
        |hand| spread(hand, 1 << 31, [(0, 2)]),
        Rule::Spread,
    ),
    ("nothing", |hand| spread(hand, 1, []), Rule::Spread),
    (
        "another answer",
        |hand| {
            spread(hand, 1, [(0, 2)]);
            spread(hand, 1, [(0, 3)]);
        },
        Rule::Spread,
    ),
];

#[test]
fn forged_receivers_are_refused_by_name() {
    refused_by_name("forged-spread", &FORGERIES, |name, _| serves(name));
}

/// The right is to the port; the lanes go to each of its receivers, to another port's, and to some that are nobody's.
#[test]
fn messages_to_a_wrong_receiver_go_nowhere_and_harm_nobody() {
    let _alone = common::alone();
    let name = common::name("wrong");
    let server = serve(&name);
    let other = handfast::bind(&common::name("wrong-other")).unwrap();
    let right = handfast::connect(&name).unwrap();
    let mut hand = Hand::new(&name, 9);
    for (receiver, lane) in (0..12).chain([63]).zip(0..) {
        let words = (hand.welcome.handle, lane * 16, 1);
        hand.post_to((lane, receiver), Kind::Call, words, (b"where", &[]));
        hand.say(ControlMessage::Ring {
            receiver: receiver as u8,
        });
    }
    let short = Duration::from_millis(50);
    assert!(other.receive_timeout(short).is_err());
    for on in cpu::allowed() {
        pinned(on, || settle(&right, on));
    }
    drop(server);
    assert!(other.receive_timeout(short).is_err());
}

/// A peer of the same user takes back what others ring: they come late, all of them, and the control threads see to it.
#[test]
fn bells_that_a_peer_clears_delay_calls_and_lose_none() {
    let name = common::name("cleared");
    let mut server = common::start("server", &[&name, ""]);
    server.expect("ready");
    let mut clearer = common::start("clearer", &[&name]);
    clearer.expect("late, and there");
    clearer.finish();
    server.finish();
}

/// In a process of its own: no link of it ends while it writes to all bells that are mapped here.
pub(crate) fn clearer(name: &str) {
    let right = handfast::connect(name).unwrap();
    for on in cpu::allowed() {
        pinned(on, || settle(&right, on));
    }
    // The server's and this process's own; those lie idle.
    let bells = common::shared_words("handfast bells");
    for (on, receiver) in cpu::allowed().into_iter().zip(1..) {
        // The port's own receiver is the first.
        let summary = bell::bell(receiver) + bell::SUMMARY;
        let (is_over, mut pace) = (AtomicBool::new(false), common::Pace::new());
        let taken = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    for region in &bells {
                        region.word(summary).store(0, SeqCst);
                    }
                }
            });
            let mut call = || {
                pace.look();
                let start = Instant::now();
                assert_eq!(where_handled(&right).unwrap(), [on; 2]);
                start.elapsed()
            };
            let taken = pinned(on, || (0..21).map(|_| call()).collect::<Vec<_>>());
            is_over.store(true, SeqCst);
            taken
        });
        // A receiver that looks at the links' own words finds nearly all at once; the control threads find the rest.
        let late = pace.allows(LATE);
        let late = taken.iter().filter(|taken| **taken > late).count();
        assert!(late < taken.len() / 2, "CPU {on}: {taken:?}");
    }
    common::say("late, and there");
}

/// Sooner than a control thread looks after a caller.
const LATE: Duration = Duration::from_millis(40);
