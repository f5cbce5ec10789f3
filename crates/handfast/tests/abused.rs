//! What `handfast abuse` and the fuzzers have found.

mod common;
mod forger;

use handfast::error::SendError;
use handfast::{ReceiveRight, SendRight};
use handfast_layout::part::Part;
use std::sync::Arc;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "many ports" => many_ports(arguments[0]),
        _ => unreachable!(),
    });
}

/// More than a link has lanes.
const PORTS: usize = 20;

/// Gives a right to one of many ports, or closes it, by its number.
fn many_ports(name: &str) {
    let control = handfast::bind(name).unwrap();
    let mut ports: Vec<_> = (0..PORTS)
        .map(|_| Some(Arc::new(handfast::anonymous().unwrap())))
        .collect();
    common::say("ready");
    loop {
        let request = control.receive().unwrap();
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let (what, number) = text.split_once(' ').unwrap();
        let port = &mut ports[number.parse::<usize>().unwrap()];
        match what {
            "give" => {
                let port = port.clone().unwrap();
                let right = port.mint(0);
                request.reply_with(b"", [right.into()]).unwrap();
            }
            "answer" => {
                let port = port.clone().unwrap();
                request.reply(b"").unwrap();
                answer(&port);
            }
            _ => {
                *port = None;
                request.reply(b"").unwrap();
            }
        }
    }
}

/// One call, if it comes.
fn answer(port: &ReceiveRight) {
    if let Ok(request) = port.receive_until(common::PATIENCE / 10) {
        request.reply(b"answered").unwrap();
    }
}

#[test]
#[ignore = "lanes stay with a receiver whose port is gone, for as long as the link: CAVEATS.md, limits"]
fn ports_that_are_gone_leave_their_lanes_to_others() {
    let name = common::name("many");
    let child = common::start("many ports", &[&name]);
    child.expect("ready");
    let control = handfast::connect(&name).unwrap();
    let ask = |what: &str, number: usize| control.call(format!("{what} {number}").as_bytes());
    let rights = (0..PORTS).map(|number| {
        let mut reply = ask("give", number).unwrap();
        common::send_rights(reply.take_rights()).pop().unwrap()
    });
    let mut rights: Vec<_> = rights.collect();
    let call = |number: usize, right: &SendRight| {
        let _ = ask("answer", number).unwrap();
        right.call_until(b"", common::PATIENCE).map(|_| ())
    };
    let outcomes = rights
        .iter()
        .enumerate()
        .map(|(number, right)| call(number, right));
    let outcomes: Vec<_> = outcomes.collect();
    let (last, error) = (PORTS - 1, outcomes[PORTS - 1]);
    assert!(matches!(error, Err(SendError::Exhausted(_))), "{error:?}");
    for number in (0..last).filter(|number| outcomes[*number].is_ok()) {
        let _ = ask("close", number).unwrap();
    }
    // Nobody has a right to them any more, either.
    let right = rights.pop().unwrap();
    drop(rights);
    assert!(common::within_patience(|| call(last, &right).is_ok()));
}

/// Nobody takes up what comes for a port that has just been dropped; a port that comes is not made one of this process's
/// either, while the keeper sees to it that none is.
#[test]
fn a_port_that_comes_to_one_that_is_gone_is_refused_and_the_keeper_goes_on() {
    const NOT_ARRIVED: u8 = 41;
    let _directory = common::directory();
    let name = common::name("arrives-late");
    let port = handfast::bind(&name).unwrap();
    let mut hand = forger::Hand::new(&name, 1);
    drop(port);
    let token = 5;
    let moves = Part::Receive {
        token,
        number: 0,
        name_bytes: 0,
        asks: false,
    };
    hand.send(b"", &[moves]);
    let refused = forger::message(NOT_ARRIVED, &[token]);
    while hand.hear() != refused {}
    assert!(hand.say(&[forger::STAT, 0]));
    while hand.hear()[0] != forger::COUNTERS {}
    // Ports are made as before.
    let port = handfast::bind(&name).unwrap();
    drop(port);
}
