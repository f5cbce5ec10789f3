//! The events that the counters of a port count, whichever way its calls are answered.

use crate::common;
use crate::forger::{Hand, expect_cut, serves, start_honest};
use handfast::domain::{CallContext, Domain, LoadError, Table};
use handfast::error::Rule;
use handfast::{Counters, Options, ReceiveRight, Request, SendRight, Strategy};
use handfast_layout::link::{Kind, REPLIES};
use rustix::thread::Pid;
use std::sync::Barrier;
use std::time::Duration;

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
    let polling_with_rights = |port: &ReceiveRight, request| {
        let rights = [port.mint(1).into()];
        port.reply_with_and_receive_timeout(request, b"answer", rights, Duration::ZERO)
            .ok()
    };
    let ways: [(&str, u64, Answer<'_>); 5] = [
        ("by-request", 6, &by_request),
        ("with-rights", 6, &with_rights),
        ("polling", 6, &polling),
        ("polling-with-rights", 6, &polling_with_rights),
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

/// Calls and one-way messages of each thread.
const EACH: u64 = 50;

/// Waits until the row of the port has these numbers.
fn expect_counted(right: &SendRight, name: &str, (calls, sends): (u64, u64), look: impl Fn()) {
    let both = || (count(right, name, "calls"), count(right, name, "sends"));
    let is_counted = common::within_patience(|| {
        look();
        both() == (calls, sends)
    });
    assert!(is_counted, "{:?} and not {:?}", both(), (calls, sends));
}

#[test]
fn calls_and_messages_are_counted_once_each() {
    const THREADS: u64 = 4;
    let _alone = common::alone();
    let name = common::name("counted-once");
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = None;
            for _ in 0..THREADS * EACH * 2 {
                let request = next.take().unwrap_or_else(|| port.receive().unwrap());
                if request.is_call() {
                    next = port
                        .reply_and_receive_timeout(request, b"", Duration::ZERO)
                        .ok();
                }
            }
        });
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let _ = right.call(b"call").unwrap();
                    right.send(b"send").unwrap();
                }
            });
        }
    });
    // A receiver publishes what it has counted when it sleeps.
    let look = || assert!(port.receive_timeout(Duration::from_millis(1)).is_err());
    expect_counted(&right, &name, (THREADS * EACH, THREADS * EACH), look);
    // The row of the link has both, and no other link has come.
    let counters = right.counters().unwrap();
    let of_links = counters.links.iter();
    let sum: u64 = of_links.map(|row| Counters::value(row, "calls")).sum();
    assert_eq!(sum, THREADS * EACH * 2);
}

fn nothing((): &(), _: &mut CallContext<'_>) {}

/// So many that several share a place to count in.
#[test]
fn calls_of_a_domain_are_counted_once_each_by_however_many_threads() {
    const THREADS: u64 = 200;
    let _alone = common::alone();
    let table = Table::new(|_| ()).entry(nothing);
    // SAFETY: the function does nothing.
    let load = |options| unsafe { Domain::new(&table, options) };
    if !handfast_sys::keys::are_supported() {
        common::not_exercised("no memory keys");
    }
    let domain = match load(handfast::domain::DomainOptions::new()) {
        Err(LoadError::NoKeys) => load(handfast::domain::DomainOptions::new().unprotected()),
        loaded => loaded,
    };
    let name = common::name("counted-domain");
    let receive = handfast::bind(&name).unwrap();
    let port = handfast::domain::Port::new(receive, &domain.unwrap(), 0).unwrap();
    let within = port.connect().unwrap();
    let across = handfast::connect(&name).unwrap();
    let all_live = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            // Some by the link of this process with itself.
            let right = if number % 10 == 0 { &across } else { &within };
            let all_live = &all_live;
            scope.spawn(move || {
                all_live.wait();
                (0..EACH).for_each(|_| drop(right.call(b"").unwrap()));
            });
        }
    });
    expect_counted(&across, &name, (THREADS * EACH, 0), || ());
}
