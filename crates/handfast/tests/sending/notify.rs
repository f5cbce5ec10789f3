//! The *notify* strategy beside threads that wait otherwise, on one port.

use crate::common;
use handfast::{Batch, Node, Options, ReceiveRight, Strategy};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Sends a message whenever it is told to.
pub(crate) fn sender(name: &str) {
    let right = handfast::connect(name).unwrap();
    right.send(b"first").unwrap();
    common::say("ready");
    while common::told().is_some() {
        right.send(b"another").unwrap();
    }
}

static RINGS: AtomicU32 = AtomicU32::new(0);

/// Starts the strategy when its node has a link already.
pub(crate) fn late(name: &str) {
    let directory = common::directory().clone();
    let node = Node::builder().directory(directory).start().unwrap();
    let notified = Options::new().strategy(Strategy::Notify);
    let port = node.bind_with(name, notified).unwrap();
    common::say("bound");
    assert_eq!(port.receive().unwrap().bytes(), b"first");
    handfast::notify::notify(|| {
        RINGS.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    common::say("notified");
    while let Ok(request) = port.receive_timeout(common::PATIENCE) {
        drop(request);
        common::say(&RINGS.load(Ordering::Relaxed).to_string());
    }
}

#[test]
fn links_that_nodes_had_before_the_strategy_was_started_notify_as_well() {
    let name = common::name("late");
    let mut late = common::start("late", &[&name]);
    late.expect("bound");
    let right = handfast::connect(&name).unwrap();
    right.send(b"first").unwrap();
    late.expect("notified");
    // A receiver that sleeps is notified; one that is still awake is not.
    assert!(common::within_patience(|| {
        right.send(b"another").unwrap();
        late.said().is_some_and(|rings| rings != "0")
    }));
    late.kill();
}

/// An action of a second thread on a port at which the first one sleeps by notify.
type Meddle = fn(&ReceiveRight);

const MEDDLERS: [(&str, Meddle); 4] = [
    ("tries", |port| {
        let _ = port.try_receive();
    }),
    ("options", |port| {
        port.set_options(Options::new().strategy(Strategy::Notify));
    }),
    ("briefly", |port| {
        let _ = port.receive_timeout(Duration::from_millis(2));
    }),
    ("batch", |port| {
        let _ = port.receive_many_timeout(&mut Batch::new(), Duration::from_millis(2));
    }),
];

#[test]
fn a_sleeper_by_notify_hears_of_a_message_whatever_another_thread_does_with_the_port() {
    handfast::notify::notify(|| {}).unwrap();
    for (what, meddle) in MEDDLERS {
        let name = common::name(what);
        let port = handfast::bind_with(&name, Options::new().strategy(Strategy::Notify)).unwrap();
        let mut sender_process = common::start("sender that rings", &[&name]);
        sender_process.expect("ready");
        assert_eq!(
            port.receive_timeout(common::PATIENCE).unwrap().bytes(),
            b"first"
        );
        let (sender, received) = channel();
        let mut longest = Duration::ZERO;
        std::thread::scope(|scope| {
            let port = &port;
            scope.spawn(move || {
                for _ in 0..20 {
                    let request = port.receive_timeout(common::PATIENCE).unwrap();
                    sender.send(request.bytes().to_vec()).unwrap();
                }
            });
            for round in 0..20 {
                // Sleep: the thread sleeps by then, or is about to.
                std::thread::sleep(Duration::from_micros(200 * (round % 5)));
                meddle(port);
                let start = Instant::now();
                sender_process.tell("send");
                let got = received.recv_timeout(common::PATIENCE);
                assert_eq!(got.unwrap(), b"another", "{what}, round {round}");
                longest = longest.max(start.elapsed());
            }
        });
        println!("{what}: {longest:?}");
        sender_process.kill();
    }
}
