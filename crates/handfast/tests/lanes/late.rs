//! Ports to which a process comes after it has had many calls under way to others: as many may be under way there.

use crate::common;
use crate::common::PATIENCE;
use handfast::{Event, ReceiveRight, SendRight};
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PORTS: usize = 3;
/// More calls than a lane has, fewer than a port.
const CALLS: usize = 40;
/// As many as have lanes of their own.
const FEW: usize = 11;

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
    let (barrier, came) = (Barrier::new(CALLS), AtomicUsize::new(0));
    let port = handfast::bind(name).unwrap();
    let _served = port.serve_per_cpu(move |worker, request| {
        if came.fetch_add(1, Ordering::Relaxed) + 1 == FEW {
            common::say("a few");
        }
        barrier.wait();
        let _ = worker.reply(request, b"all came");
    });
    common::say("ready");
    while common::told().is_some() {}
}

/// Two ports, from which one thread receives, slowly. It answers the calls when so many have come, and says whether one has overtaken a message
/// of its thread.
pub(crate) fn ordering(name: &str) {
    let mut set = handfast::WaitSet::new().unwrap();
    for number in 0..2 {
        set.add(handfast::bind(&format!("{name}-{number}")).unwrap());
    }
    common::say("ready");
    let (mut sent, mut held) = (HashMap::new(), Vec::new());
    loop {
        let Event::Message(_, request) = set.receive().unwrap() else {
            unreachable!("only ports are there")
        };
        // Sleep: stands for work. Messages lie in the lanes meanwhile.
        std::thread::sleep(Duration::from_micros(200));
        let [thread, round] = *request.bytes() else {
            unreachable!("two bytes")
        };
        let last = sent.entry(thread).or_insert(0);
        if !request.is_call() {
            *last = round;
            continue;
        }
        if *last != round {
            common::say(&format!("a call of round {round} came after {last}"));
        }
        held.push(request);
        if held.len() == CALLS {
            held.drain(..)
                .for_each(|request| request.reply(b"all came").unwrap());
        }
    }
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

/// Threads of one CPU have all lanes but those that are kept, and none of these is at rest: the threads of another CPU, which
/// has but one lane, call the port's receivers elsewhere.
#[test]
fn a_crowd_on_one_cpu_is_not_kept_waiting_by_the_lanes_of_a_few_on_another() {
    let cpus = handfast_sys::cpu::allowed();
    let [one, other, ..] = cpus[..] else {
        handfast_testing::not_exercised("one CPU");
        return;
    };
    let name = common::name("crowd-per-cpu");
    let server = common::start("gathering per cpu", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let call_on = |cpu| {
        handfast_sys::cpu::pin(&[cpu]).unwrap();
        let answer = right.call_timeout(b"", PATIENCE).unwrap();
        assert_eq!(&*answer, b"all came");
    };
    std::thread::scope(|scope| {
        for _ in 0..FEW {
            scope.spawn(|| call_on(one));
        }
        server.expect("a few");
        for _ in FEW..CALLS {
            scope.spawn(|| call_on(other));
        }
    });
}

/// A thread that gets another lane for its call has sent a message in the one that it had.
#[test]
fn no_call_overtakes_a_message_of_its_thread_where_it_goes_by_another_lane() {
    let name = common::name("ordering");
    let server = common::start("ordering", &[&name]);
    server.expect("ready");
    let rights = (0..2).map(|number| handfast::connect(&format!("{name}-{number}")).unwrap());
    let rights: Vec<_> = rights.collect();
    let mut round = 0;
    for right in rights.iter().chain(&rights) {
        for _ in 0..3 {
            round += 1;
            std::thread::scope(|scope| {
                for thread in 0..CALLS as u8 {
                    scope.spawn(move || {
                        right.send(&[thread, round]).unwrap();
                        let answer = right.call_timeout(&[thread, round], PATIENCE).unwrap();
                        assert_eq!(&*answer, b"all came");
                    });
                }
            });
        }
    }
    assert_eq!(server.said(), None);
}
