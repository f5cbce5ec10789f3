//! What `handfast abuse` has found.

mod common;

use handfast::error::SendError;
use handfast::{ReceiveRight, SendRight};
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
