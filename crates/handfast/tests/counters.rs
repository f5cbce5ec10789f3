//! The events that the counters of a port count, whichever way its calls are answered.

mod common;
mod forger;

use forger::{Hand, expect_cut, serves, start_honest};
use handfast::error::Rule;
use handfast::{Counters, Options, ReceiveRight, Request, SendRight, Strategy};
use handfast_layout::link::{Kind, REPLIES};
use rustix::thread::Pid;
use std::time::Duration;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "honest" => forger::honest(arguments[0], None),
        _ => unreachable!(),
    });
}

const CALLS: u64 = 20;

fn count(right: &SendRight, name: &str, column: &str) -> u64 {
    let ports = right.counters().unwrap().ports;
    let (_, row) = ports.iter().find(|(of, _)| of == name).unwrap();
    Counters::value(row, column)
}

/// Answers a request, and may have the next one then.
type Answer<'a> = &'a (dyn Fn(&ReceiveRight, Request) -> Option<Request> + Sync);

/// Has one call after the other answered when its caller is asleep.
fn answer_sleepers((port, right): (&ReceiveRight, &SendRight), answer: Answer<'_>) {
    let caller = rustix::thread::gettid();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = None;
            for _ in 0..CALLS {
                let request = next.unwrap_or_else(|| port.receive().unwrap());
                assert!(common::within_patience(|| is_asleep(caller)));
                next = answer(port, request);
            }
        });
        for _ in 0..CALLS {
            // Where nobody answers, that is an outcome, too.
            let _ = right.call_timeout(b"ask", common::PATIENCE);
        }
    });
}

fn is_asleep(thread: Pid) -> bool {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let stat = std::fs::read_to_string(stat).unwrap();
    stat.rsplit_once(')').unwrap().1.starts_with(" S")
}

#[test]
fn answers_and_those_whom_they_wake_are_counted_whichever_way_they_are_given() {
    let _alone = common::alone();
    let by_request = |_: &ReceiveRight, request: Request| {
        request.reply(b"answer").unwrap();
        None
    };
    let with_rights = |_: &ReceiveRight, request: Request| {
        request.reply_with(b"answer", []).unwrap();
        None
    };
    let polling = |port: &ReceiveRight, request| {
        port.reply_and_receive_timeout(request, b"answer", Duration::ZERO)
            .ok()
    };
    let not_at_all = |_: &ReceiveRight, request| {
        drop(request);
        None
    };
    let ways: [(&str, u64, Answer<'_>); 4] = [
        ("by-request", 6, &by_request),
        ("with-rights", 6, &with_rights),
        ("polling", 6, &polling),
        ("not-at-all", 0, &not_at_all),
    ];
    for (way, len_bytes, answer) in ways {
        let name = common::name(way);
        let sleeps = Options::new().strategy(Strategy::Block);
        let port = handfast::bind_with(&name, sleeps).unwrap();
        let right = handfast::connect_with(&name, sleeps).unwrap();
        answer_sleepers((&port, &right), answer);
        let of = |column| count(&right, &name, column);
        // A receiver publishes what it has counted when it sleeps.
        assert!(common::within_patience(|| {
            assert!(port.receive_timeout(Duration::from_millis(1)).is_err());
            of("wakes") >= CALLS
        }));
        assert_eq!(of("bytes_in"), CALLS * 3, "{way}");
        assert_eq!(of("bytes_out"), CALLS * len_bytes, "{way}");
        assert_eq!(of("wakes"), CALLS, "{way}");
        assert_eq!(of("faults"), 0, "{way}");
    }
}

#[test]
fn a_link_that_is_cut_for_what_came_to_a_port_is_a_fault_of_that_port() {
    let (mut server, name) = start_honest("counted-fault");
    let mut hand = Hand::new(&name, 1);
    let handle = hand.welcome.handle;
    hand.post(Kind::Call, (handle, REPLIES, 1), (b"", &[]));
    expect_cut(&server, Rule::ReplySlot, "a slot that is none");
    serves(&name);
    let right = handfast::connect(&name).unwrap();
    let faults = || count(&right, &name, "faults");
    assert!(common::within_patience(|| faults() > 0));
    assert_eq!(faults(), 1);
    server.finish();
}
