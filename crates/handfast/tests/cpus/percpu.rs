//! Ports that are served on every CPU: who handles what, workers that come and go, and ends at every moment.

pub(crate) mod rights;

use crate::common::{self, PATIENCE, within_patience};
use crate::served::{NONE, handler, pinned, serve, settle, where_handled};
use handfast::SendRight;
use handfast::error::{Gone, SendError};
use handfast_sys::cpu;
use std::time::Duration;

/// Calls on every CPU in turn until it is killed.
pub(crate) fn client(name: &str) {
    let right = handfast::connect(name).unwrap();
    let cpus = cpu::allowed();
    for turn in 0.. {
        cpu::pin(&[cpus[turn % cpus.len()]]).unwrap();
        for _ in 0..20 {
            where_handled(&right).unwrap();
        }
        if turn == cpus.len() {
            common::say("calls");
        }
    }
}

/// Connects as soon as the name is there, and waits for its end, again and again.
pub(crate) fn fickle_client(name: &str) {
    loop {
        let Ok(right) = handfast::connect(name) else {
            std::thread::yield_now();
            continue;
        };
        while right.call(b"").is_ok() {
            // Sleep: the time between two calls of a client.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn each_request_is_handled_on_the_cpu_where_it_was_made() {
    let name = common::name("where");
    let mut server = common::start("server", &[&name, ""]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    std::thread::scope(|scope| {
        for on in cpu::allowed() {
            let right = &right;
            scope.spawn(move || {
                cpu::pin(&[on]).unwrap();
                settle(right, on);
                for _ in 0..2_000 {
                    assert_eq!(where_handled(right).unwrap(), [on; 2]);
                }
            });
        }
    });
    server.finish();
}

#[test]
fn workers_are_made_by_the_first_message_of_their_cpu_and_end_when_idle() {
    let _alone = common::alone();
    let name = common::name("demand");
    let server = serve(&name);
    let cpus = cpu::allowed();
    let right = handfast::connect(&name).unwrap();
    let started = |on| {
        let places = server.places();
        let place = places.iter().find(|place| place.cpu == Some(on)).unwrap();
        place.started
    };
    let all_idle = || within_patience(|| server.places().iter().all(|place| !place.is_served));
    assert!(all_idle());
    assert!(server.places().iter().all(|place| place.started == 0));
    for (done, on) in cpus.iter().enumerate() {
        pinned(*on, || settle(&right, *on));
        // Another one, where one has been idle for long meanwhile.
        for (place, other) in cpus.iter().enumerate() {
            assert_eq!(started(*other) > 0, place <= done, "CPU {other}");
        }
    }
    assert!(all_idle(), "{:?}", server.places());
    // Each goes to work again, with the first message and not before; by the same worker if that is just about to end.
    let before: u64 = cpus.iter().map(|on| started(*on)).sum();
    for _ in 0..3 {
        for on in &cpus {
            pinned(*on, || assert_eq!(where_handled(&right).unwrap(), [*on; 2]));
        }
        assert!(all_idle());
    }
    let after: u64 = cpus.iter().map(|on| started(*on)).sum();
    // Each with a spare one.
    let most = before + 2 * 3 * cpus.len() as u64;
    assert!(
        before + 3 <= after && after <= most,
        "{:?}",
        server.places()
    );
}

#[test]
fn a_message_that_comes_while_a_worker_ends_is_handled() {
    let _alone = common::alone();
    let name = common::name("between");
    let server = serve(&name);
    let right = handfast::connect(&name).unwrap();
    let on = cpu::allowed()[0];
    let mut random = common::Random::seeded("between");
    pinned(on, || {
        settle(&right, on);
        for _ in 0..30 {
            // About as long as a worker stays.
            let pause_us = 99_000 + random.below(2_000);
            // Sleep: about as long as a worker stays.
            std::thread::sleep(Duration::from_micros(pause_us));
            assert_eq!(where_handled(&right).unwrap(), [on; 2]);
        }
    });
    let place = server.places()[1];
    assert!(place.started > 1, "{place:?}");
}

#[test]
fn a_thread_that_moves_is_handled_where_it_is_and_its_messages_stay_in_order() {
    let name = common::name("moves");
    let mut server = common::start("server", &[&name, ""]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let cpus = cpu::allowed();
    pinned(cpus[0], || settle(&right, cpus[0]));
    let mut random = common::Random::seeded("moves");
    let seed = random.next();
    std::thread::scope(|scope| {
        // Some share lanes.
        for sender in 0..5 {
            let (right, cpus) = (&right, &cpus);
            let random = common::Random::of(seed.wrapping_add(sender.into()));
            scope.spawn(move || wander(right, cpus, random, sender));
        }
    });
    for on in cpus {
        pinned(on, || {
            let disorder = right.call_timeout(b"order", PATIENCE).unwrap();
            assert_eq!(&*disorder, [0; 8]);
        });
    }
    server.finish();
}

/// Sends numbers, and calls, from one CPU and another.
fn wander(right: &SendRight, cpus: &[u32], mut random: common::Random, sender: u8) {
    let mut number = 0u64;
    for _ in 0..300 {
        let on = cpus[random.below(cpus.len() as u64) as usize];
        cpu::pin(&[on]).unwrap();
        for _ in 0..random.below(40) {
            number += 1;
            let mut bytes = [sender; 9];
            bytes[1..].copy_from_slice(&number.to_le_bytes());
            right.send(&bytes).unwrap();
        }
        if random.below(4) == 0 {
            // It has to wait for the numbers before it.
            where_handled(right).unwrap();
            let handled = where_handled(right).unwrap();
            assert_eq!(handled, [on; 2]);
        }
    }
}

#[test]
fn a_server_on_few_cpus_serves_the_others_too() {
    let name = common::name("few");
    let cpus = cpu::allowed();
    let (first, others) = cpus.split_first().unwrap();
    if others.is_empty() {
        common::not_exercised("one processor");
    }
    let mut server = common::start("server", &[&name, &first.to_string()]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    pinned(*first, || settle(&right, *first));
    for on in others {
        // By the one that may be anywhere the server may.
        pinned(*on, || {
            assert_eq!(where_handled(&right).unwrap(), [NONE, *first])
        });
    }
    pinned(*first, || {
        assert_eq!(where_handled(&right).unwrap(), [*first; 2])
    });
    server.finish();
}

/// A process that already has a right when the port begins to be served per CPU follows, behind what it has sent.
#[test]
fn senders_from_before_are_told() {
    let _alone = common::alone();
    let name = common::name("before");
    let port = handfast::bind(&name).unwrap();
    let mut client = common::start("before", &[&name]);
    client.expect("sent");
    let server = port.serve_per_cpu(handler()).unwrap();
    client.tell("call");
    client.expect("in order");
    client.finish();
    drop(server);
}

pub(crate) fn before(name: &str) {
    let right = handfast::connect(name).unwrap();
    for number in 1..=5u64 {
        let mut bytes = [1; 9];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        right.send(&bytes).unwrap();
    }
    common::say("sent");
    common::told().unwrap();
    for on in cpu::allowed() {
        pinned(on, || settle(&right, on));
    }
    let disorder = right.call_timeout(b"order", PATIENCE).unwrap();
    assert_eq!(&*disorder, [0; 8]);
    common::say("in order");
}

#[test]
fn more_clients_than_cpus_are_all_served() {
    let name = common::name("many");
    let mut server = common::start("server", &[&name, ""]);
    server.expect("ready");
    let clients: Vec<_> = (0..6).map(|_| common::start("client", &[&name])).collect();
    let right = handfast::connect(&name).unwrap();
    std::thread::scope(|scope| {
        // More threads than a link has lanes, too.
        for _ in 0..40 {
            let right = &right;
            scope.spawn(move || {
                for _ in 0..200 {
                    where_handled(right).unwrap();
                }
            });
        }
    });
    for client in &clients {
        client.expect("calls");
    }
    drop(clients);
    server.finish();
}

#[test]
fn clients_that_are_killed_harm_nobody() {
    let name = common::name("client-killed");
    let mut server = common::start("server", &[&name, ""]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    for _ in 0..10 {
        let mut client = common::start("client", &[&name]);
        client.expect("calls");
        client.kill();
        for on in cpu::allowed() {
            pinned(on, || settle(&right, on));
        }
    }
    server.finish();
}

/// A thread on each CPU, calling until it is told this.
fn call_on_all_until<'a>(scope: &'a std::thread::Scope<'a, '_>, right: &'a SendRight, end: Gone) {
    for on in cpu::allowed() {
        scope.spawn(move || {
            cpu::pin(&[on]).unwrap();
            let error = loop {
                if let Err(error) = where_handled(right) {
                    break error;
                }
            };
            assert_eq!(error, SendError::Gone(end));
        });
    }
}

#[test]
fn callers_of_a_server_that_is_killed_are_told_on_every_cpu() {
    for round in 0..5 {
        let name = common::name(&format!("server-killed-{round}"));
        let mut server = common::start("server", &[&name, ""]);
        server.expect("ready");
        let right = handfast::connect(&name).unwrap();
        std::thread::scope(|scope| {
            call_on_all_until(scope, &right, Gone::Process);
            for on in cpu::allowed() {
                pinned(on, || {
                    while where_handled(&right).is_ok_and(|[worker, _]| worker != on) {}
                });
            }
            server.kill();
        });
    }
}

#[test]
fn a_port_that_is_dropped_ends_calls_workers_and_its_name() {
    let _alone = common::alone();
    let name = common::name("dropped");
    for _ in 0..5 {
        let server = serve(&name);
        let right = handfast::connect(&name).unwrap();
        std::thread::scope(|scope| {
            call_on_all_until(scope, &right, Gone::Port);
            for on in cpu::allowed() {
                pinned(on, || settle(&right, on));
            }
            drop(server);
        });
    }
    // All receivers are free again.
    let ports: Vec<_> = (0..60).map(|_| handfast::anonymous().unwrap()).collect();
    drop(ports);
}

#[test]
fn a_handler_that_panics_ends_its_call_and_nothing_else() {
    let _alone = common::alone();
    let name = common::name("panics");
    let _server = serve(&name);
    let right = handfast::connect(&name).unwrap();
    let on = cpu::allowed()[0];
    pinned(on, || {
        settle(&right, on);
        for _ in 0..3 {
            let error = right.call_timeout(b"panic", PATIENCE).unwrap_err();
            assert_eq!(error, SendError::Gone(Gone::Reply));
            assert_eq!(where_handled(&right).unwrap(), [on; 2]);
        }
    });
}

#[test]
fn a_worker_that_is_held_up_holds_up_nobody() {
    let name = common::name("held");
    let mut server = common::start("server", &[&name, ""]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    for on in cpu::allowed() {
        pinned(on, || {
            settle(&right, on);
            let held: Vec<_> = (0..3).map(|_| right.try_call(b"hold").unwrap()).collect();
            assert_eq!(where_handled(&right).unwrap(), [on; 2]);
            drop(held);
        });
    }
    server.kill();
}

/// Its sender's next message would come before it.
#[test]
fn a_handler_of_a_one_way_message_that_sleeps_is_waited_for() {
    let _alone = common::alone();
    let name = common::name("in-order");
    let (numbers, handled) = std::sync::mpsc::channel();
    let port = handfast::bind(&name).unwrap();
    let server = port.serve_per_cpu(move |worker, request| match request.is_call() {
        true => {
            let on = [worker.cpu().unwrap_or(NONE), cpu::current()];
            let _ = worker.reply(request, on.map(u32::to_le_bytes).as_flattened());
        }
        false => {
            let number = request.bytes()[0];
            if number % 2 == 0 {
                // Sleep: the handler is one that sleeps.
                std::thread::sleep(Duration::from_millis(3));
            }
            numbers.send(number).unwrap();
        }
    });
    let right = handfast::connect(&name).unwrap();
    let on = cpu::allowed()[0];
    pinned(on, || {
        settle(&right, on);
        (0..40).for_each(|number| right.send(&[number]).unwrap());
    });
    let order: Vec<u8> = (0..40).map(|_| handled.recv().unwrap()).collect();
    assert_eq!(order, (0..40).collect::<Vec<_>>());
    drop(server);
}
