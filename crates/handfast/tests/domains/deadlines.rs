//! Deadlines of calls to ports that domains serve.

use crate::common::{self, PATIENCE, within_patience};
use handfast::domain::{CallContext, Domain, DomainOptions, LoadError, Port, Table, take_rights};
use handfast::error::{DomainError, SendError};
use handfast::{OwnRight, ReceiveRight, SendRight};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(60);
const ENDED: SendError = SendError::Domain(DomainError::Deadline);

/// Answers what it is called with, but for `keep`.
pub(crate) fn silent(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut kept = Vec::new();
    while let Ok(request) = port.receive() {
        if request.bytes() == b"keep" {
            kept.push(request);
        } else if request.is_call() {
            let bytes = request.bytes().to_vec();
            request.reply(&bytes).unwrap();
        }
    }
}

pub(crate) fn domain_server(name: &str) {
    let domain = load().unwrap();
    let receive = handfast::bind(name).unwrap();
    let _port = Port::with_limit(receive, &domain, 0, 1, 4 * SHORT).unwrap();
    common::say("ready");
    while common::told().is_some() {}
}

/// The process that domains here call, for each badge. Without a lock, which a function that is ended would keep.
static PROCESSES: [OnceLock<SendRight>; 3] = [const { OnceLock::new() }; 3];

/// The right that they connect to.
static OWN: OnceLock<OwnRight> = OnceLock::new();

fn process(badge: u64) -> &'static SendRight {
    PROCESSES[badge as usize].get().unwrap()
}

/// Serves calls that name the process to call by their badge.
fn serve(count: &AtomicU64, call: &mut CallContext<'_>) {
    let badge = call.sender().badge;
    match call.request() {
        b"spin" => loop {
            black_box(0);
        },
        // It waits for what does not come; and goes on when it is told that it has come to nothing.
        b"call" => {
            let got = process(badge).call(b"keep").map(drop);
            assert_eq!(got, Err(SendError::TimedOut));
            loop {
                black_box(0);
            }
        }
        b"calls" => loop {
            let right = process(badge);
            let mut reply = [0; 8];
            let _ = right.call(b"x");
            let _ = right.call_into(b"y", &mut reply);
            let _ = right.send(b"z");
            let _ = right.with([]).call(&[7; 3000]);
        },
        b"connects" => loop {
            drop(OWN.get().unwrap().connect().unwrap());
        },
        // Of the caller's, who does not answer.
        b"back" => {
            let right = common::send_rights(take_rights()).remove(0);
            let _ = right.call(b"keep");
            loop {
                black_box(0);
            }
        }
        _ => {}
    }
    let sum = count.fetch_add(1, Ordering::Relaxed) + 1;
    call.reply()[..8].copy_from_slice(&sum.to_le_bytes());
    call.set_reply_len(8);
}

fn load() -> Option<Domain> {
    crate::record_missing_keys();
    let table = Table::new(|_| AtomicU64::new(0)).entry(serve);
    // SAFETY: the function lends nothing, and what it does outside of the domain is what is tested.
    match unsafe { Domain::new(&table, DomainOptions::new()) } {
        Err(LoadError::NoKeys) => None,
        loaded => Some(loaded.unwrap()),
    }
}

fn anonymous() -> ReceiveRight {
    handfast::anonymous().unwrap()
}

/// The sum that a call brings; on a busy machine a call that does next to nothing may miss its deadline.
fn sum(right: &SendRight) -> u64 {
    let mut sum = None;
    assert!(within_patience(|| {
        let answer = match right.call(b"") {
            Err(ENDED) => return false,
            answer => answer.unwrap(),
        };
        sum = Some(u64::from_le_bytes(answer.as_ref().try_into().unwrap()));
        true
    }));
    sum.unwrap()
}

/// A right by which the domain's functions call the process.
fn with_process(port: &Port, badge: u64, process: SendRight) -> SendRight {
    PROCESSES[badge as usize].set(process).unwrap();
    port.mint(badge).connect().unwrap()
}

#[test]
fn the_error_is_the_same_by_a_right_of_this_process_and_by_a_link() {
    let _alone = common::alone();
    let Some(domain) = load() else { return };
    let port = Port::new(anonymous(), &domain, 0).unwrap();
    let here = port.connect().unwrap();
    let name = common::name("deadline-link");
    let mut server = common::start("domain with a limit", &[&name]);
    server.expect("ready");
    let there = handfast::connect(&name).unwrap();
    let limited_domain = load().unwrap();
    let limited = Port::with_limit(anonymous(), &limited_domain, 0, 1, SHORT).unwrap();
    let limited = limited.connect().unwrap();
    for _ in 0..5 {
        assert!(sum(&here) >= 1);
        let start = Instant::now();
        assert_eq!(here.call_timeout(b"spin", SHORT).map(drop), Err(ENDED));
        assert!(start.elapsed() >= SHORT && start.elapsed() < PATIENCE);
        assert_eq!(sum(&here), 1);
        let with_rights = here.with([]).call_timeout(b"spin", SHORT);
        assert_eq!(
            with_rights.map(drop).map_err(|failed| failed.error),
            Err(ENDED)
        );
        assert_eq!(sum(&here), 1);
        assert!(here.call_timeout(b"", LONG).is_ok());
        // The port's own limit, whoever calls and however; a caller's deadline is its own.
        assert_eq!(there.call(b"spin").map(drop), Err(ENDED));
        assert_eq!(sum(&there), 1);
        let timed_out = there.call_timeout(b"spin", SHORT / 5).map(drop);
        // On a busy machine it looks when that has passed, too.
        assert!(matches!(timed_out, Err(SendError::TimedOut | ENDED)));
        // Behind it.
        assert!(within_patience(|| there.call(b"").is_ok()));
        assert_eq!(limited.call(b"spin").map(drop), Err(ENDED));
        assert_eq!(limited.call_into(b"spin", &mut [0; 8]), Err(ENDED));
        assert_eq!(limited.call_timeout(b"spin", LONG).map(drop), Err(ENDED));
        assert_eq!(sum(&limited), 1);
    }
    server.kill();
}

#[test]
fn a_function_that_waits_for_another_process_is_ended_and_nothing_of_the_call_is_left() {
    let _alone = common::alone();
    let Some(domain) = load() else { return };
    let name = common::name("deadline-silent");
    let mut server = common::start("silent", &[&name]);
    server.expect("ready");
    let process = handfast::connect(&name).unwrap();
    let port = Port::new(anonymous(), &domain, 0).unwrap();
    let right = with_process(&port, 1, process.clone());
    // More often than a thread has calls.
    for _ in 0..12 {
        assert_eq!(right.call_timeout(b"call", SHORT).map(drop), Err(ENDED));
        assert_eq!(&*process.call(b"still").unwrap(), b"still");
        assert_eq!(sum(&right), 1);
    }
    server.kill();
}

#[test]
fn a_function_that_calls_back_is_ended_and_the_client_goes_on() {
    let _alone = common::alone();
    let Some(domain) = load() else { return };
    let port = Port::new(anonymous(), &domain, 0).unwrap();
    let right = port.connect().unwrap();
    let own = anonymous();
    std::thread::scope(|scope| {
        // A thread of the client's that keeps the call-back for longer than the deadline, and answers then.
        scope.spawn(|| {
            // On a busy machine some end before they call back.
            loop {
                let request = own.receive().unwrap();
                if !request.is_call() {
                    break;
                }
                assert!(within_patience(|| request.is_cancelled()));
                let _ = request.reply(b"late");
            }
        });
        for _ in 0..3 {
            let called = right
                .with([own.mint(1).into()])
                .call_timeout(b"back", SHORT);
            assert_eq!(called.map(drop).map_err(|failed| failed.error), Err(ENDED));
            assert_eq!(sum(&right), 1);
        }
        own.mint(2).connect().unwrap().send(b"over").unwrap();
    });
}

#[test]
fn functions_ended_in_the_middle_of_calls_keep_no_lock_of_the_links() {
    let _alone = common::alone();
    let Some(domain) = load() else { return };
    let name = common::name("deadline-locks");
    let mut server = common::start("silent", &[&name]);
    server.expect("ready");
    let process = handfast::connect(&name).unwrap();
    let port = Port::new(anonymous(), &domain, 0).unwrap();
    let right = with_process(&port, 2, process.clone());
    let (done, others) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut random = common::Random::seeded("deadlines in the middle of calls");
    let end = Instant::now() + common::campaign(2);
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _stop = Stop(&done);
        // Past the number of lanes, threads share one.
        for _ in 0..14 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(&*process.call(b"other").unwrap(), b"other");
                    others.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut ended = 0;
        while Instant::now() < end {
            let timeout = Duration::from_micros(50 + random.below(500));
            assert_eq!(right.call_timeout(b"calls", timeout).map(drop), Err(ENDED));
            assert_eq!(&*process.call(b"own").unwrap(), b"own");
            ended += 1;
        }
        println!("{ended} ended");
        let before = others.load(Ordering::Relaxed);
        assert!(within_patience(
            || others.load(Ordering::Relaxed) > before + 100
        ));
    });
    server.kill();
}

#[test]
fn functions_ended_in_the_middle_of_connecting_keep_no_lock_of_the_process() {
    let _alone = common::alone();
    let Some(domain) = load() else { return };
    let port = Port::new(anonymous(), &domain, 0).unwrap();
    let own = OWN.get_or_init(|| port.mint(3));
    let right = port.connect().unwrap();
    let mut random = common::Random::seeded("deadlines in the middle of connecting");
    let end = Instant::now() + common::campaign(1);
    while Instant::now() < end {
        let timeout = Duration::from_micros(50 + random.below(300));
        assert_eq!(
            right.call_timeout(b"connects", timeout).map(drop),
            Err(ENDED)
        );
        drop(own.connect().unwrap());
    }
}

#[test]
fn a_domain_without_protection_refuses_deadlines() {
    let _alone = common::alone();
    let table = Table::new(|_| AtomicU64::new(0)).entry(serve);
    // SAFETY: as in `load`.
    let domain = unsafe { Domain::new(&table, DomainOptions::new().unprotected()) }.unwrap();
    let port = Port::new(anonymous(), &domain, 0).unwrap();
    let right = port.connect().unwrap();
    assert_eq!(
        right.call_timeout(b"", LONG).map(drop),
        Err(SendError::Domain(DomainError::NoDeadline))
    );
    assert_eq!(sum(&right), 1);
}
