//! Ports to which a process comes after it has had many calls under way to others: as many may be under way there.

use crate::common;
use crate::common::PATIENCE;
use handfast::{ReceiveRight, SendRight};
use std::sync::Barrier;

const PORTS: usize = 3;
/// More calls than a lane has, fewer than a port.
const CALLS: usize = 40;

/// Ports whose handlers answer when so many calls have come, and not before.
pub(crate) fn gathering(name: &str) {
    let ports = (0..PORTS).map(|number| handfast::bind(&format!("{name}-{number}")).unwrap());
    let ports: Vec<_> = ports.collect();
    common::say("ready");
    let answer = |port: &ReceiveRight, barrier: &Barrier| {
        loop {
            let request = port.receive().unwrap();
            if request.is_call() {
                barrier.wait();
                request.reply(b"all came").unwrap();
            }
        }
    };
    let barriers: Vec<_> = (0..PORTS).map(|_| Barrier::new(CALLS)).collect();
    std::thread::scope(|scope| {
        for (port, barrier) in ports.iter().zip(&barriers) {
            for _ in 0..CALLS {
                scope.spawn(|| answer(port, barrier));
            }
        }
    });
}

/// As `gathering`, at a port that is served on each CPU.
pub(crate) fn gathering_per_cpu(name: &str) {
    let barrier = Barrier::new(CALLS);
    let port = handfast::bind(name).unwrap();
    let _served = port.serve_per_cpu(move |worker, request| {
        barrier.wait();
        let _ = worker.reply(request, b"all came");
    });
    common::say("ready");
    while common::told().is_some() {}
}

/// All ports are of one link.
fn rights(name: &str) -> Vec<SendRight> {
    let right = |number: usize| handfast::connect(&format!("{name}-{number}")).unwrap();
    (0..PORTS).map(right).collect()
}

/// The first port had twelve lanes, and each one that came later a single lane: sixteen calls, of which none ended before the others
/// came.
#[test]
fn as_many_calls_are_under_way_to_a_late_port_as_to_the_first() {
    let name = common::name("gathering");
    let server = common::start("gathering", &[&name]);
    server.expect("ready");
    let rights = rights(&name);
    for right in rights.iter().chain(&rights) {
        std::thread::scope(|scope| {
            for _ in 0..CALLS {
                scope.spawn(|| {
                    // Not overtaken by the call, whatever lane that takes.
                    right.send(b"").unwrap();
                    assert_eq!(&*right.call_timeout(b"", PATIENCE).unwrap(), b"all came");
                });
            }
        });
    }
}

/// As those of threads.
#[test]
fn attempts_to_call_a_late_port_find_room() {
    let name = common::name("gathering-attempts");
    let server = common::start("gathering", &[&name]);
    server.expect("ready");
    for right in &rights(&name) {
        std::thread::scope(|scope| {
            for _ in 0..CALLS {
                scope.spawn(|| {
                    let mut call = None;
                    let is_begun = || {
                        call = right.try_call(b"").ok();
                        call.is_some()
                    };
                    assert!(common::within_patience(is_begun));
                    let answer = call.unwrap().wait_timeout(PATIENCE).unwrap();
                    assert_eq!(&*answer, b"all came");
                });
            }
        });
    }
}

/// Threads that came from one CPU's receiver to another's shared a lane there, and workers were left without calls.
#[test]
fn as_many_calls_are_under_way_to_a_port_that_is_served_on_each_cpu() {
    let name = common::name("gathering-per-cpu");
    let server = common::start("gathering per cpu", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    for _ in 0..5 {
        std::thread::scope(|scope| {
            for _ in 0..CALLS {
                scope.spawn(|| {
                    let answer = right.call_timeout(b"", PATIENCE).unwrap();
                    assert_eq!(&*answer, b"all came");
                });
            }
        });
    }
}
