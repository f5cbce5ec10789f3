//! The behaviour of a receiver that finds a message at every look.

use crate::common;
use crate::forger::Hand;
use handfast::Counters;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};

/// Links to be of the dead.
const OF_THE_DEAD: u8 = 20;
/// As a receiver looks around every sixteenth time: twice, and some.
const LOOKS: u32 = 40;

fn links() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_link = |line: &&str| line.contains("memfd:handfast link");
    maps.lines().filter(is_link).count()
}

#[test]
fn links_of_the_dead_go_while_there_is_a_message_at_every_look() {
    let _alone = common::alone();
    if common::ran_in_own_process(links_of_the_dead_go_while_there_is_a_message_at_every_look) {
        return;
    }
    let name = common::name("busy");
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    right.send(b"").unwrap();
    port.receive().unwrap();
    let (own, counted) = (links(), || right.counters().unwrap().links.len());
    let alone = counted();
    for round in 0..10 {
        let mut hands: Vec<_> = (1..=OF_THE_DEAD).map(|at| Hand::new(&name, at)).collect();
        for hand in &mut hands {
            hand.send(b"", &[]);
            port.receive().unwrap();
        }
        assert!(links() > own);
        drop(hands);
        assert!(common::within_patience(|| counted() == alone));
        // More than are taken at a look: the next one finds another.
        right.send(b"").unwrap();
        for _ in 0..LOOKS {
            right.send(b"").unwrap();
            port.receive().unwrap();
        }
        assert!(
            common::within_patience(|| links() == own),
            "round {round}: {} of {own}",
            links()
        );
        port.receive().unwrap();
    }
}

#[test]
fn they_go_from_a_worker_of_one_cpu_too() {
    let _alone = common::alone();
    if common::ran_in_own_process(they_go_from_a_worker_of_one_cpu_too) {
        return;
    }
    let name = common::name("busy-cpu");
    let (permit, permits) = mpsc::channel();
    let permits = Mutex::new(permits);
    // Messages handled by a worker of a CPU.
    let handled = Arc::new(AtomicU32::new(0));
    let count = handled.clone();
    let server = handfast::bind(&name).unwrap();
    let server = server.serve_per_cpu(move |worker, request| {
        permits.lock().unwrap().recv().unwrap();
        count.fetch_add(u32::from(worker.cpu().is_some()), Ordering::SeqCst);
        drop(request);
    });
    let right = handfast::connect(&name).unwrap();
    let counted = || right.counters().unwrap();
    let handle_one = || {
        let before = handled.load(Ordering::SeqCst);
        right.send(b"").unwrap();
        permit.send(()).unwrap();
        common::within_patience(|| handled.load(Ordering::SeqCst) > before)
    };
    // Its first messages may go to the worker without a CPU.
    let sleeps = || -> u64 {
        let ports = counted().ports.into_iter();
        ports.map(|(_, row)| Counters::value(&row, "parks")).sum()
    };
    while handled.load(Ordering::SeqCst) == 0 {
        right.send(b"").unwrap();
        permit.send(()).unwrap();
        std::thread::yield_now();
    }
    assert!(handle_one());
    let (own, alone) = (links(), counted().links.len());
    let hands: Vec<_> = (1..=OF_THE_DEAD).map(|at| Hand::new(&name, at)).collect();
    // It has slept since, and known of all links then.
    let before = sleeps();
    while sleeps() == before {
        assert!(handle_one());
    }
    for _ in 0..=LOOKS {
        right.send(b"").unwrap();
    }
    drop(hands);
    assert!(common::within_patience(|| counted().links.len() == alone));
    for _ in 0..LOOKS {
        permit.send(()).unwrap();
    }
    assert!(
        common::within_patience(|| links() == own),
        "{} of {own}",
        links()
    );
    permit.send(()).unwrap();
    drop(server);
}
