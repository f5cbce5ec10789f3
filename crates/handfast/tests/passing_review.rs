//! Reply rights and rights of third processes where several things meet: ports, links that end, forks,
//! peers that say what is not theirs to say.

mod common;

use handfast::{Right, SendRight};
use std::time::Duration;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "last" => last(arguments[0]),
        "middle" => middle(arguments[0], arguments[1]),
        "two ports" => two_ports(arguments[0], arguments[1]),
        "middle that lets go" => middle_that_lets_go(arguments[0], arguments[1]),
        "slow exporter" => slow_exporter(arguments[0]),
        "silent exporter" => silent_exporter(arguments[0], arguments[1]),
        "recipient" => recipient(arguments[0], arguments[1], arguments.get(2).copied()),
        "one caller" => one_caller(arguments[0], arguments[1]),
        _ => unreachable!(),
    });
}

/// Answers calls with what they say.
fn last(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut received = port.receive().unwrap();
    loop {
        let bytes = received.bytes().to_vec();
        received = port.reply_and_receive(received, &bytes).unwrap();
    }
}

/// Passes every call on, with its bytes and rights.
fn middle(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    let to = handfast::connect(to).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let rights = request.take_rights();
        let message = request.take_message();
        let _ = request.forward_with(&to, &message, rights);
    }
}

/// Calls until replies come by a path.
fn warm(right: &SendRight) {
    let vines = || {
        let counters = right.counters().unwrap();
        let values = counters.links.iter();
        values
            .map(|row| handfast::Counters::value(row, "vines"))
            .sum::<u64>()
    };
    assert!(common::within_patience(|| {
        let before = vines();
        for _ in 0..20 {
            let _ = right.call(b"warm").unwrap();
        }
        before == vines()
    }));
}

/// Serves two ports. A call `swap` at the first is answered while the second is received from.
fn two_ports(first: &str, second: &str) {
    let ports = [first, second].map(|name| handfast::bind(name).unwrap());
    common::say("ready");
    loop {
        for port in &ports {
            let Ok(request) = port.try_receive() else {
                continue;
            };
            if request.bytes() == b"swap" {
                let next = ports[1].reply_and_receive(request, b"swapped").unwrap();
                let bytes = next.bytes().to_vec();
                next.reply(&bytes).unwrap();
            } else {
                let bytes = request.bytes().to_vec();
                request.reply(&bytes).unwrap();
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_reply_through_another_port_does_not_change_where_that_port_replies() {
    let names = ["swap-one", "swap-two", "swap-a", "swap-b"].map(common::name);
    let server = common::start("two ports", &[&names[0], &names[1]]);
    server.expect("ready");
    let _link = handfast::connect(&names[0]).unwrap();
    let middles: Vec<_> = (0..2)
        .map(|place| common::start("middle", &[&names[2 + place], &names[place]]))
        .collect();
    middles.iter().for_each(|middle| middle.expect("ready"));
    let [one, two] = [&names[2], &names[3]].map(|name| handfast::connect(name).unwrap());
    warm(&one);
    warm(&two);
    for round in 0..10 {
        assert_eq!(
            &*one.call_until(b"swap", common::PATIENCE).unwrap(),
            b"swapped"
        );
        let text = format!("round {round}");
        let answer = two.call_until(text.as_bytes(), common::PATIENCE).unwrap();
        assert_eq!(&*answer, text.as_bytes());
    }
}

/// Passes every call on through a right that it drops at once.
fn middle_that_lets_go(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let message = request.take_message();
        let to = handfast::connect(to).unwrap();
        request.forward(&to, &message).unwrap();
    }
}

#[test]
fn a_right_may_be_dropped_once_a_call_has_been_passed_on_through_it() {
    let names = ["let-go-last", "let-go-middle"].map(common::name);
    let last = common::start("last", &[&names[0]]);
    last.expect("ready");
    let middle = common::start("middle that lets go", &[&names[1], &names[0]]);
    middle.expect("ready");
    for is_linked in [false, true] {
        let _link = is_linked.then(|| handfast::connect(&names[0]).unwrap());
        let right = handfast::connect(&names[1]).unwrap();
        for round in 0..50 {
            let answer = right.call_until(b"x", common::PATIENCE);
            assert_eq!(answer.as_deref(), Ok(&b"x"[..]), "{is_linked}, {round}");
        }
    }
}

/// Takes long over what is `slow`.
fn slow_exporter(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        if request.is_call() {
            let bytes = request.bytes().to_vec();
            request.reply(&bytes).unwrap();
        } else {
            std::thread::sleep(Duration::from_millis(40));
        }
    }
}

/// Has a right of its own to a port of the exporter, and keeps those it is sent: `own TEXT`, `call
/// TEXT`, and `pass` them on.
fn recipient(name: &str, exporter: &str, further: Option<&str>) {
    let port = handfast::bind(name).unwrap();
    let own = handfast::connect(exporter).unwrap();
    common::say("ready");
    let mut kept: Vec<Right> = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        kept.extend(request.take_rights());
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let through = |right: &SendRight, text: &str| match right
            .call_until(text.as_bytes(), common::PATIENCE)
        {
            Ok(answer) => String::from_utf8_lossy(&answer).into_owned(),
            Err(error) => format!("{error:?}"),
        };
        let answer = match text.split_once(' ') {
            Some(("own", text)) => through(&own, text),
            Some(("call", text)) => match kept.last().unwrap() {
                Right::Send(right) => through(right, text),
                other => format!("{other:?}"),
            },
            _ if text == "pass" => {
                let to = handfast::connect(further.unwrap()).unwrap();
                to.with([kept.pop().unwrap()]).send(b"on").unwrap();
                String::new()
            }
            _ => String::new(),
        };
        request.reply(answer.as_bytes()).unwrap();
    }
}

#[test]
fn a_right_waits_for_an_exporter_that_is_busy_with_what_came_before() {
    let names = ["busy-exporter", "busy-recipient"].map(common::name);
    let exporter = common::start("slow exporter", &[&names[0]]);
    exporter.expect("ready");
    let recipient = common::start("recipient", &[&names[1], &names[0]]);
    recipient.expect("ready");
    let [right, to] = [&names[0], &names[1]].map(|name| handfast::connect(name).unwrap());
    for _ in 0..40 {
        right.send(b"slow").unwrap();
    }
    let _ = to.with([right.clone().into()]).call(b"keep").unwrap();
    assert_eq!(&*to.call(b"call x").unwrap(), b"x");
    assert_eq!(&*to.call(b"own y").unwrap(), b"y");
}

/// Does not receive from the first of its ports, and drops it when the second is told.
fn silent_exporter(name: &str, other: &str) {
    let mut silent = Some(handfast::bind(name).unwrap());
    let port = handfast::bind(other).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        if request.bytes() == b"drop" {
            drop(silent.take());
        }
        request.reply(b"here").unwrap();
    }
}

#[test]
fn a_port_that_is_dropped_with_introductions_in_its_lanes_cuts_nobody() {
    let names = [
        "silent",
        "silent-other",
        "silent-recipient",
        "silent-further",
    ];
    let names = names.map(common::name);
    let exporter = common::start("silent exporter", &[&names[0], &names[1]]);
    exporter.expect("ready");
    let further = handfast::bind(&names[3]).unwrap();
    let recipient = common::start("recipient", &[&names[2], &names[1], &names[3]]);
    recipient.expect("ready");
    let to = handfast::connect(&names[2]).unwrap();
    assert_eq!(&*to.call(b"own x").unwrap(), b"here");
    let right = handfast::connect(&names[0]).unwrap();
    let other = handfast::connect(&names[1]).unwrap();
    let _ = to.with([right.into()]).call(b"keep").unwrap();
    let _ = to.call(b"pass").unwrap();
    let _passed = further.receive().unwrap();
    assert_eq!(&*other.call(b"drop").unwrap(), b"here");
    // The keeper refuses within milliseconds what is left; a link that is cut stays so.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(&*to.call(b"own x").unwrap(), b"here");
}

/// Calls once through the middle, with a link to the last.
fn one_caller(middle: &str, last: &str) {
    let _link = handfast::connect(last).unwrap();
    let right = handfast::connect(middle).unwrap();
    warm(&right);
    common::say("called");
    while common::told().is_some() {}
}

#[test]
fn callers_that_are_killed_leave_nothing_at_the_last_one() {
    let names = ["leave-last", "leave-middle"].map(common::name);
    let last = common::start("last", &[&names[0]]);
    last.expect("ready");
    let middle = common::start("middle", &[&names[1], &names[0]]);
    middle.expect("ready");
    let before = (common::at_rest(last.pid()), common::at_rest(middle.pid()));
    for _ in 0..3 {
        let mut caller = common::start("one caller", &[&names[1], &names[0]]);
        caller.expect("called");
        caller.kill();
        assert!(common::settles_at(last.pid(), before.0), "at the last one");
        assert!(common::settles_at(middle.pid(), before.1), "in the middle");
    }
}
