//! Servers that hear that their caller has given up, in whatever way, without asking for it.

use crate::common;
use crate::common::{Child, Pace, Random};
use handfast::error::{Gone, SendError};
use handfast::{ReceiveRight, Request, SendRight};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Makes a call, and ends it as it is told: at a deadline in milliseconds, by dropping it, or not at all.
pub(crate) fn client(name: &str) {
    let port = handfast::connect(name).unwrap();
    common::say("ready");
    while let Some(order) = common::told() {
        match order.as_str() {
            "drop" => {
                let call = port.try_call(b"dropped").unwrap();
                common::say("calls");
                common::told();
                drop(call);
                common::say("dropped");
            }
            "stay" => {
                let outcome = port.call(b"stays");
                common::say(&format!("{:?}", outcome.map(|reply| reply.to_vec())));
            }
            deadline_ms => {
                let timeout = Duration::from_millis(deadline_ms.parse().unwrap());
                let outcome = port.call_timeout(b"until", timeout);
                common::say(&format!("{:?}", outcome.map(|reply| reply.to_vec())));
            }
        }
    }
}

/// Waits for each of its callers to give up, for a while, and says so. Answers `echo` at once.
pub(crate) fn waits(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        if request.bytes() == b"echo" {
            let _ = request.reply(b"echo");
            continue;
        }
        common::say("got");
        common::say(match request.wait_cancelled_timeout(common::PATIENCE) {
            true => "given up",
            false => "nothing",
        });
    }
}

/// Waits for callers to give up for random times, in a task or not, and answers, or not.
pub(crate) fn races(name: &str, seed: u64) {
    let port = handfast::bind(name).unwrap();
    let mut random = Random::of(seed);
    let runtime = common::runtime(1);
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        if request.bytes() == b"echo" {
            let _ = request.reply(b"echo");
            continue;
        }
        let brief = Duration::from_micros(random.below(100));
        match random.below(4) {
            0 => _ = request.wait_cancelled_timeout(brief),
            1 => runtime.block_on(async {
                let _ = tokio::time::timeout(brief, request.cancelled()).await;
            }),
            2 => assert!(request.wait_cancelled_timeout(common::PATIENCE)),
            _ => {}
        }
        match random.below(3) {
            0 => drop(request),
            _ => _ = request.reply(b"late"),
        }
    }
}

pub(crate) fn bind(what: &str) -> (ReceiveRight, String) {
    let name = common::name(what);
    (handfast::bind(&name).unwrap(), name)
}

pub(crate) fn start(role: &'static str, arguments: &[&str]) -> Child {
    let child = common::start(role, arguments);
    child.expect("ready");
    child
}

pub(crate) fn receive(port: &ReceiveRight) -> Request {
    port.receive_timeout(common::PATIENCE).unwrap()
}

/// How long after `since` a task hears that the caller has given up.
fn heard_by_task(
    runtime: &Runtime,
    request: &Request,
    since: impl FnOnce() -> Instant,
) -> Duration {
    runtime.block_on(async {
        let heard = tokio::time::timeout(common::PATIENCE, request.cancelled()).await;
        let heard = heard.map(|()| Instant::now());
        heard
            .expect("it is not heard of")
            .saturating_duration_since(since())
    })
}

/// Nobody waits by a clock of less.
pub(crate) const SOON: Duration = Duration::from_millis(20);

/// Half of them have been heard soon, as far as the machine allows.
pub(crate) fn heard_soon(what: &str, limit: Duration, delays: &mut [Duration], pace: &Pace) {
    let (middle, _, longest) = common::spread(delays);
    let limit = pace.allows(limit);
    println!("{what}: heard after {middle:?}, {longest:?} at the longest; {limit:?} is soon");
    assert!(middle < limit, "{what}: {middle:?}, {limit:?}");
}

#[test]
fn futures_can_be_sent_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let (port, name) = bind("send");
    let client = handfast::connect(&name).unwrap();
    let _call = client.try_call(b"held").unwrap();
    let request = receive(&port);
    is_send(&request.cancelled());
    is_send(&async { request.cancelled().await });
}

#[test]
fn a_deadline_that_passes_reaches_a_server_that_waits() {
    let (port, name) = bind("deadline");
    let mut client = start("client", &[&name]);
    let runtime = common::runtime(1);
    let (mut delays, mut pace) = (Vec::new(), Pace::new());
    for round in 0..40 {
        pace.look();
        client.tell("3");
        let request = receive(&port);
        let end = Instant::now() + request.time_left().unwrap();
        let delay = if round % 2 == 0 {
            heard_by_task(&runtime, &request, || end)
        } else {
            assert!(request.wait_cancelled_timeout(common::PATIENCE));
            end.elapsed()
        };
        delays.push(delay);
        assert!(request.is_cancelled());
        drop(request);
        client.expect("Err(TimedOut)");
    }
    heard_soon("a deadline", SOON, &mut delays, &pace);
}

#[test]
fn a_call_that_is_dropped_reaches_a_server_that_waits() {
    let (port, name) = bind("dropped");
    let client = handfast::connect(&name).unwrap();
    let runtime = common::runtime(1);
    let (mut delays, mut pace) = (Vec::new(), Pace::new());
    for _ in 0..40 {
        pace.look();
        let call = client.try_call(b"dropped").unwrap();
        let request = receive(&port);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                assert!(request.wait_cancelled_timeout(common::PATIENCE));
                Instant::now()
            });
            // Sleep: the thread waits by then, or is about to.
            std::thread::sleep(Duration::from_millis(1));
            assert!(!request.is_cancelled());
            let dropped = Instant::now();
            drop(call);
            delays.push(waiting.join().unwrap().saturating_duration_since(dropped));
        });
    }
    heard_soon("a call", SOON, &mut delays, &pace);
    // In another process.
    let mut other = start("client", &[&name]);
    other.tell("drop");
    other.expect("calls");
    let request = receive(&port);
    other.tell("now");
    heard_by_task(&runtime, &request, Instant::now);
    other.expect("dropped");
}

#[test]
fn a_future_that_is_dropped_reaches_a_server_that_waits() {
    let (port, name) = bind("future");
    let client = handfast::connect(&name).unwrap();
    let runtime = common::runtime(2);
    for _ in 0..40 {
        runtime.block_on(async {
            let mut call = client.call_async(b"dropped");
            // Sent, and asleep.
            let brief = Duration::from_micros(200);
            assert!(tokio::time::timeout(brief, &mut call).await.is_err());
            let request = port.receive_async().await.unwrap();
            tokio::select! {
                biased;
                () = request.cancelled() => panic!("it waits still"),
                // Sleep: the time in which nothing may be cancelled.
                () = tokio::time::sleep(brief) => {}
            }
            drop(call);
            let heard = tokio::time::timeout(common::PATIENCE, request.cancelled()).await;
            heard.expect("it is not heard of");
            // Again, and at once.
            request.cancelled().await;
        });
    }
}

#[test]
fn a_caller_that_is_killed_reaches_a_server_that_waits() {
    let (port, name) = bind("killed");
    let runtime = common::runtime(1);
    let (mut delays, mut pace) = (Vec::new(), Pace::new());
    for round in 0..20 {
        pace.look();
        let mut client = start("client", &[&name]);
        client.tell("stay");
        let request = receive(&port);
        if round % 4 == 3 {
            // Before anybody waits.
            client.kill();
            assert!(request.wait_cancelled_timeout(common::PATIENCE));
            continue;
        }
        let killer = std::thread::spawn(move || {
            // Sleep: the thread waits by then, or is about to.
            std::thread::sleep(Duration::from_millis(1));
            let killed = Instant::now();
            client.kill();
            killed
        });
        delays.push(heard_by_task(&runtime, &request, || killer.join().unwrap()));
    }
    heard_soon("a caller", SOON, &mut delays, &pace);
}

#[test]
fn who_waits_in_vain_goes_on_and_many_may_wait_for_one() {
    let (port, name) = bind("in-vain");
    let client = handfast::connect(&name).unwrap();
    let call = client.try_call(b"stays").unwrap();
    let request = receive(&port);
    assert!(!request.wait_cancelled_timeout(Duration::from_millis(2)));
    assert!(!request.wait_cancelled_timeout(Duration::ZERO));
    request.reply(b"here").unwrap();
    assert_eq!(&*call.wait().unwrap(), b"here");
    client.send(b"one way").unwrap();
    assert!(!receive(&port).wait_cancelled_timeout(Duration::from_millis(2)));
    // Several threads.
    let call = client.try_call(b"dropped").unwrap();
    let request = receive(&port);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| request.wait_cancelled_timeout(common::PATIENCE)))
            .collect();
        assert!(!request.wait_cancelled_timeout(Duration::from_millis(1)));
        drop(call);
        for thread in waiting {
            assert!(thread.join().unwrap());
        }
    });
}

#[test]
fn a_call_that_was_passed_on_tells_its_last_holder() {
    for how in ["path", "vine"] {
        let (name, middle_name) = (
            common::name(&format!("last-{how}")),
            common::name(&format!("middle-{how}")),
        );
        let start_here = |role, arguments: &[&str]| {
            let child = common::start_with(role, arguments, |command| {
                if how == "vine" {
                    command.env("HANDFAST_INTRODUCTIONS", "vine");
                }
            });
            child.expect("ready");
            child
        };
        let last = start_here("waits", &[&name]);
        let _middle = start_here("plain middle", &[&middle_name, &name]);
        let mut client = start("client", &[&middle_name]);
        let right = handfast::connect(&middle_name).unwrap();
        // Until there is a path, where there can be one.
        for _ in 0..40 {
            right.call_timeout(b"echo", common::PATIENCE).unwrap();
        }
        let (mut delays, mut pace) = (Vec::new(), Pace::new());
        for round in 0..20 {
            pace.look();
            if round % 2 == 0 {
                client.tell("2");
                last.expect("got");
                last.expect("given up");
                client.expect("Err(TimedOut)");
            } else {
                let call = right.try_call(b"dropped").unwrap();
                last.expect("got");
                let dropped = Instant::now();
                drop(call);
                last.expect("given up");
                delays.push(dropped.elapsed());
            }
        }
        heard_soon(how, SOON, &mut delays, &pace);
        client.tell("stay");
        last.expect("got");
        client.kill();
        last.expect("given up");
    }
}

/// A call's end at random: at once, at a deadline, before or after the answer.
fn race(right: &SendRight, random: &mut Random) {
    let brief = Duration::from_micros(random.below(120));
    match random.below(3) {
        0 => match right.try_call(b"race") {
            Ok(call) => drop(call),
            Err(error) => assert_eq!(error, SendError::Full),
        },
        1 => match right.try_call(b"race") {
            Ok(call) => _ = call.wait_timeout(brief),
            Err(error) => assert_eq!(error, SendError::Full),
        },
        _ => match right.call_timeout(b"race", brief) {
            Ok(_) | Err(SendError::TimedOut | SendError::Gone(Gone::Reply)) => {}
            Err(error) => panic!("{error}"),
        },
    }
}

#[test]
fn ten_thousand_races_of_cancellation_and_completion_leave_no_slot_behind() {
    let name = common::name("races");
    let mut random = Random::seeded("cancellations");
    let server = start("races", &[&name, &random.next().to_string()]);
    let right = Arc::new(handfast::connect(&name).unwrap());
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (right, mut random) = (right.clone(), Random::of(random.next()));
            std::thread::spawn(move || {
                for _ in 0..5000 {
                    race(&right, &mut random);
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    all_slots_are_free(&right);
    drop(server);
}

/// The lanes to a port have room for as many calls as ever: twelve, for 16 calls each.
fn all_slots_are_free(right: &SendRight) {
    const CALLS: usize = 12 * 16;
    let mut calls = Vec::new();
    let are_all_used = || {
        while let Ok(call) = right.try_call(b"echo") {
            calls.push(call);
        }
        calls.len() >= CALLS
    };
    assert!(common::within_patience(are_all_used), "{}", calls.len());
    assert_eq!(calls.len(), CALLS);
    for call in calls {
        assert_eq!(&*call.wait_timeout(common::PATIENCE).unwrap(), b"echo");
    }
}

#[test]
fn servers_and_callers_that_are_killed_in_the_middle_of_it_leave_the_others_well() {
    let mut random = Random::seeded("kills");
    for round in 0..6 {
        let name = common::name(&format!("kills{round}"));
        let mut server = start("races", &[&name, &random.next().to_string()]);
        let right = handfast::connect(&name).unwrap();
        let mut client = start("client", &[&name]);
        client.tell("stay");
        let mut random = Random::of(random.next());
        let killer = std::thread::spawn(move || {
            // Sleep: a moment chosen at random.
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            client.kill();
            // Sleep: a moment chosen at random.
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            if round % 2 == 0 {
                server.kill();
            }
            server
        });
        let mut random = Random::of(round);
        while !killer.is_finished() {
            let brief = Duration::from_micros(random.below(200));
            match right.call_timeout(b"race", brief) {
                Ok(_)
                | Err(
                    SendError::TimedOut
                    | SendError::Full
                    | SendError::Gone(Gone::Reply | Gone::Process),
                ) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let server = killer.join().unwrap();
        if round % 2 == 1 {
            all_slots_are_free(&right);
        }
        drop(server);
    }
}
