//! Reply rights that are called on, and that are kept by other processes.

use crate::common;
use handfast::Right;
use handfast::error::{Gone, SendError};
use std::time::Duration;

/// A generator: `count N` yields N numbers, each of which the caller answers; at last their sum.
/// `keep`: keeps the reply right that comes with it; `use`: answers with it. `mute`: drops what it is
/// answered with.
pub(crate) fn generator(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut kept = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let rights = request.take_rights();
        let (_, right) = request.split();
        let right = right.unwrap();
        match text.split_once(' ') {
            Some(("count", count)) => {
                let (mut right, mut sum) = (Some(right), 0u64);
                for number in 0..count.parse().unwrap() {
                    let turn = right.take().unwrap();
                    let Ok(mut answer) = turn.call(format!("{number}").as_bytes()) else {
                        break;
                    };
                    let text = String::from_utf8_lossy(&answer).into_owned();
                    sum += text.parse::<u64>().unwrap();
                    right = answer.take_reply_right();
                }
                if let Some(right) = right {
                    right.reply(format!("sum {sum}").as_bytes()).unwrap();
                }
            }
            _ if text == "keep" => {
                kept.extend(rights);
                right.reply(b"kept").unwrap();
            }
            _ if text == "use" => {
                let count = kept.len();
                for right in kept.drain(..) {
                    match right {
                        Right::Reply(right) => right.reply(b"used").unwrap(),
                        other => panic!("{other:?}"),
                    }
                }
                right.reply(count.to_string().as_bytes()).unwrap();
            }
            _ if text == "mute" => {
                let answer = right.call(b"say something");
                common::say(&format!("{:?}", answer.map(|_| ()).unwrap_err()));
            }
            _ => unreachable!(),
        }
    }
}

#[test]
fn coroutines_take_turns_until_one_ends() {
    let name = common::name("generator");
    let mut child = common::start("generator", &[&name]);
    child.expect("ready");
    let right = handfast::connect(&name).unwrap();
    for count in [1u64, 2, 17, 1000] {
        let mut answer = right.call(format!("count {count}").as_bytes()).unwrap();
        let mut numbers = 0;
        while let Some(turn) = answer.take_reply_right() {
            let number: u64 = String::from_utf8_lossy(&answer).parse().unwrap();
            assert_eq!(number, numbers);
            numbers += 1;
            let twice = (2 * number).to_string();
            answer = turn.call(twice.as_bytes()).unwrap();
        }
        assert_eq!(numbers, count);
        let sum: u64 = (0..count).map(|number| 2 * number).sum();
        assert_eq!(&*answer, format!("sum {sum}").as_bytes());
    }
    // A process that drops its turn ends the other's wait; one that dies, too.
    let mut answer = right.call(b"mute").unwrap();
    drop(answer.take_reply_right().unwrap());
    child.expect("Gone(Reply)");
    let mut answer = right.call(b"count 5").unwrap();
    let turn = answer.take_reply_right().unwrap();
    child.kill();
    assert_eq!(turn.call(b"0").unwrap_err(), SendError::Gone(Gone::Process));
}

#[test]
fn a_turn_keeps_the_link_when_the_last_right_is_dropped() {
    let name = common::name("turn-alone");
    let child = common::start("generator", &[&name]);
    child.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let mut answer = right.call(b"count 3").unwrap();
    drop(right);
    for number in ["0", "1", "2"] {
        assert_eq!(&*answer, number.as_bytes());
        let turn = answer.take_reply_right().unwrap();
        answer = turn.call(b"1").unwrap();
    }
    assert_eq!(&*answer, b"sum 3");
}

#[test]
fn a_turn_that_takes_too_long_is_given_up_and_its_place_is_used_again() {
    let name = common::name("slow");
    let port = handfast::bind(&name).unwrap();
    let mut child = common::start("caller of turns", &[&name]);
    for _ in 0..600 {
        let (_, right) = port.receive().unwrap().split();
        let waited = right.unwrap().call_timeout(b"", Duration::from_micros(50));
        assert_eq!(waited.map(|_| ()).unwrap_err(), SendError::TimedOut);
    }
    drop(port);
    child.expect("600 turns");
    child.finish();
}

/// Calls until the port is gone, and drops each turn it is given, late.
pub(crate) fn caller_of_turns(name: &str) {
    let right = handfast::connect(name).unwrap();
    let (mut turns, mut last) = (0, None);
    while let Ok(mut answer) = right.call(b"") {
        let turn = answer.take_reply_right();
        turns += u32::from(turn.is_some());
        // By now the other side has given up the last one.
        drop(core::mem::replace(&mut last, turn));
    }
    common::say(&format!("{turns} turns"));
    while common::told().is_some() {}
}

#[test]
fn a_reply_right_is_kept_by_another_process_and_used_there_once() {
    let (name, own) = (common::name("holder"), common::name("held"));
    let mut holder = common::start("generator", &[&name]);
    holder.expect("ready");
    let port = handfast::bind(&own).unwrap();
    let mut caller = common::start("caller", &[&own, &name]);
    let to = handfast::connect(&name).unwrap();
    for round in 0..20 {
        // Three at once, by the vine first and by a path later.
        let rights = (0..3).map(|_| Right::from(port.receive().unwrap().split().1.unwrap()));
        assert_eq!(&*to.with(rights).call(b"keep").unwrap(), b"kept");
        assert_eq!(&*to.call(b"use").unwrap(), b"3", "round {round}");
        for _ in 0..3 {
            caller.expect("used");
        }
    }
    // Rights that are dropped there, or die with it, end their calls.
    let right = Right::from(port.receive().unwrap().split().1.unwrap());
    assert_eq!(&*to.with([right]).call(b"keep").unwrap(), b"kept");
    holder.kill();
    let mut said = None;
    assert!(common::within_patience(|| {
        said = caller.said();
        said.is_some()
    }));
    let line = said.unwrap();
    assert!(line == "Gone(Process)" || line == "Gone(Reply)", "{line}");
    // A right that cannot be sent comes back and is good, once it is known here that it cannot.
    assert!(common::within_patience(|| to.try_send(b"").is_err()));
    let right = port.receive().unwrap().split().1.unwrap();
    let back = to.with([right.into()]).call(b"keep").unwrap_err();
    assert_eq!(back.error, SendError::Gone(Gone::Process));
    for right in back.rights {
        match right {
            Right::Reply(right) => right.reply(b"mine").unwrap(),
            other => panic!("{other:?}"),
        }
    }
    caller.expect("mine");
    caller.kill();
}

/// Three threads that call and say what they are answered.
pub(crate) fn caller(name: &str, other: &str) {
    let right = handfast::connect(name).unwrap();
    let _link = handfast::connect(other).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    match right.call(b"") {
                        Ok(answer) => common::say(&String::from_utf8_lossy(&answer)),
                        Err(SendError::Gone(gone)) => common::say(&format!("Gone({gone:?})")),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
}
