//! Lanes that go round beside receivers that never let go of what they look at, tasks, and rights that are made anew.

use crate::common;
use crate::common::PATIENCE;
use handfast::{Options, ReceiveRight, Right, SendRight, Strategy};
use std::time::{Duration, Instant};

/// More than there are lanes.
const PORTS: usize = 40;

/// More than a process says to one that does not read.
const MANY_PORTS: usize = 10_000;

/// Calls all ports in turn, until its input ends.
pub(crate) fn caller(name: &str) {
    let rights = rights_of(name);
    std::thread::spawn(move || {
        loop {
            for right in &rights {
                if let Err(error) = right.call_timeout(b"", PATIENCE) {
                    common::say(&format!("{error:?}"));
                    std::process::exit(1);
                }
            }
        }
    });
    common::say("ready");
    while common::told().is_some() {
        common::say("calls");
    }
}

/// Gives a right to each of many ports, by its number; at the first few a thread spins.
pub(crate) fn ports(name: &str, spinning: usize) {
    tracing::subscriber::set_global_default(common::Cuts(common::say)).unwrap();
    let control = handfast::bind(name).unwrap();
    let mut rights = Vec::new();
    for number in 0..PORTS {
        let port = handfast::anonymous().unwrap();
        if number < spinning {
            port.set_options(Options::new().strategy(Strategy::Spin));
        }
        rights.push(port.mint(0));
        std::thread::spawn(move || serve(&port));
    }
    common::say("ready");
    loop {
        let request = control.receive().unwrap();
        let said = String::from_utf8_lossy(request.bytes());
        let Ok(number) = said.parse::<usize>() else {
            // Each of them is a word to every peer.
            for _ in 0..MANY_PORTS {
                drop(handfast::anonymous().unwrap());
            }
            request.reply(b"").unwrap();
            continue;
        };
        let right = rights[number].clone();
        request.reply_with(b"", [right.into()]).unwrap();
    }
}

/// Answers a call with how many messages have come before it.
fn serve(port: &ReceiveRight) {
    let mut count = 0_u64;
    loop {
        let request = port.receive().unwrap();
        if request.is_call() {
            request.reply(&count.to_le_bytes()).unwrap();
        } else {
            count += 1;
        }
    }
}

/// The child, and a right to each of its ports.
fn start(what: &str, spinning: usize) -> (common::Child, Vec<SendRight>) {
    let name = common::name(&format!("wanted-{what}"));
    let child = common::start("ports", &[&name, &spinning.to_string()]);
    child.expect("ready");
    let rights = rights_of(&name);
    (child, rights)
}

fn rights_of(name: &str) -> Vec<SendRight> {
    let control = handfast::connect(name).unwrap();
    let rights = (0..PORTS).map(|number| {
        let mut answer = control.call(number.to_string().as_bytes()).unwrap();
        match answer.take_rights().pop() {
            Some(Right::Send(right)) => right,
            other => panic!("{other:?}"),
        }
    });
    rights.collect()
}

#[test]
fn a_receiver_that_never_sleeps_lets_go_of_lanes() {
    let (_child, rights) = start("spin", 1);
    for _ in 0..5 {
        for (number, right) in rights.iter().enumerate() {
            let answer = right.call_timeout(b"", PATIENCE);
            assert!(answer.is_ok(), "{number}: {answer:?}");
        }
    }
}

#[test]
fn messages_to_a_receiver_that_never_sleeps_are_said_to_be_taken() {
    let (_child, rights) = start("spin-sends", 1);
    for _ in 0..5 {
        for (number, right) in rights.iter().enumerate() {
            let sent = right.send_timeout(b"", PATIENCE);
            assert!(sent.is_ok(), "{number}: {sent:?}");
        }
    }
}

#[test]
fn tasks_call_and_send_to_more_ports_than_there_are_lanes() {
    let (_child, rights) = start("tasks", 0);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    let mut round = 0_u64;
    // Not by a clock.
    assert!(common::within_at_best(Duration::from_secs(2), || {
        let begun = Instant::now();
        for _ in 0..3 {
            round += 1;
            for (number, right) in rights.iter().enumerate() {
                let sent = runtime.block_on(right.send_async(b""));
                assert!(sent.is_ok(), "{round} {number}: {sent:?}");
            }
            for (number, right) in rights.iter().enumerate() {
                let answer = runtime.block_on(right.call_async(b""));
                let answer = answer.unwrap_or_else(|error| panic!("{round} {number}: {error:?}"));
                assert_eq!(*answer, round.to_le_bytes());
            }
        }
        begun.elapsed()
    }));
}

#[test]
fn rights_to_more_ports_than_there_are_lanes_are_attenuated() {
    let (_child, rights) = start("attenuated", 0);
    for (number, right) in rights.iter().enumerate() {
        right.call(b"").unwrap();
        let less = right.attenuate(0);
        assert!(less.is_ok(), "{number}: {less:?}");
    }
    for (number, right) in rights.iter().enumerate() {
        let less = right.attenuate(0);
        assert!(less.is_ok(), "{number}: {less:?}");
    }
}

#[test]
fn who_stood_still_while_much_was_said_to_it_is_given_lanes() {
    let name = common::name("wanted-behind");
    let server = common::start("ports", &[&name, "0"]);
    server.expect("ready");
    let mut caller = common::start("caller of many", &[&name]);
    caller.expect("ready");
    let control = handfast::connect(&name).unwrap();
    for _ in 0..5 {
        caller.stop();
        control.call_timeout(b"many", PATIENCE).unwrap();
        caller.resume();
        caller.tell("");
        caller.expect("calls");
        assert_eq!(server.said(), None);
    }
    caller.finish();
    assert_eq!((server.said(), caller.said()), (None, None));
}
