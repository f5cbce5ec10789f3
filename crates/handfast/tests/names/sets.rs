//! Wait sets: ports and descriptors in one wait, asleep and busy, and deaths meanwhile.

use crate::common;
use handfast::error::{Misuse, ReceiveError, SetError};
use handfast::{Event, Interest, Options, Strategy, Token, WaitSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Serves two ports, and echoes lines of its standard input until its end.
pub(crate) fn set_server(name: &str, strategy: Strategy) {
    if strategy.notifies() {
        handfast::notify::notify(|| {}).unwrap();
    }
    let mut set = WaitSet::with(Options::new().strategy(strategy)).unwrap();
    let first = set.add(handfast::bind(name).unwrap());
    let second = set.add(handfast::bind(&format!("{name}-2")).unwrap());
    let input = set
        .add_descriptor(std::io::stdin(), Interest::Read)
        .unwrap();
    common::say("ready");
    let mut event = set.receive().unwrap();
    loop {
        event = match event {
            Event::Message(token, request) => {
                let mut bytes = request.bytes().to_vec();
                bytes.push(if token == first { b'1' } else { b'2' });
                assert!(token == first || token == second);
                set.reply_and_receive(request, &bytes).unwrap()
            }
            Event::Descriptor(token, readiness) => {
                assert_eq!(token, input);
                assert!(readiness.readable || readiness.hung_up);
                match common::told() {
                    Some(line) => common::say(&line),
                    None => return,
                }
                set.receive().unwrap()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Calls without pause until it is killed.
pub(crate) fn caller(name: &str) {
    let right = handfast::connect(name).unwrap();
    common::say("calling");
    loop {
        let reply = right.call(b"x").unwrap();
        assert_eq!(&*reply, b"x1");
    }
}

const STRATEGIES: [&str; 6] = ["block", "spin", "spin-block", "adaptive", "notify", "bsw"];

#[test]
fn ports_and_descriptors_are_served_by_one_wait_whether_asleep_or_busy() {
    let _alone = common::alone();
    for strategy in STRATEGIES {
        let name = common::name(&format!("set-{strategy}"));
        let mut server = common::start("set server", &[&name, strategy]);
        server.expect("ready");
        let first = handfast::connect(&name).unwrap();
        let second = handfast::connect(&format!("{name}-2")).unwrap();
        for round in 0..200u32 {
            let bytes = round.to_le_bytes();
            let reply = first.call_timeout(&bytes, common::PATIENCE).unwrap();
            assert_eq!(*reply, *[&bytes[..], b"1"].concat(), "{strategy}");
            let reply = second.call_timeout(&bytes, common::PATIENCE).unwrap();
            assert_eq!(*reply, *[&bytes[..], b"2"].concat(), "{strategy}");
            if round % 20 == 0 {
                // Sleep: longer than any spinning but `spin`, so that the server sleeps.
                std::thread::sleep(Duration::from_millis(2));
                server.tell(&format!("line {round}"));
                server.expect(&format!("line {round}"));
            }
        }
        server.finish();
    }
}

#[test]
fn a_busy_port_delays_neither_another_port_nor_a_descriptor() {
    let _alone = common::alone();
    let name = common::name("set-busy");
    let mut server = common::start("set server", &[&name, "adaptive"]);
    server.expect("ready");
    let busy = common::start("caller", &[&name]);
    busy.expect("calling");
    let second = handfast::connect(&format!("{name}-2")).unwrap();
    for round in 0..300u32 {
        let reply = second.call_timeout(b"y", common::PATIENCE).unwrap();
        assert_eq!(&*reply, b"y2");
        if round % 10 == 0 {
            server.tell(&format!("line {round}"));
            server.expect(&format!("line {round}"));
        }
    }
    drop(busy);
    server.finish();
}

#[test]
fn callers_that_are_killed_leave_a_set_that_serves_the_others() {
    let _alone = common::alone();
    let mut random = common::Random::seeded("kills");
    for strategy in ["block", "adaptive"] {
        let name = common::name(&format!("set-kills-{strategy}"));
        let mut server = common::start("set server", &[&name, strategy]);
        server.expect("ready");
        let right = handfast::connect(&format!("{name}-2")).unwrap();
        for _ in 0..20 {
            let mut victim = common::start("caller", &[&name]);
            victim.expect("calling");
            // A random instant is what is wanted here.
            // Sleep: a moment chosen at random.
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            victim.kill();
            let reply = right.call_timeout(b"z", common::PATIENCE).unwrap();
            assert_eq!(&*reply, b"z2");
        }
        server.finish();
    }
}

/// A set of `ports` ports in this process, and their names.
fn set_of(ports: usize, what: &str, options: Options) -> (WaitSet, Vec<(Token, String)>) {
    let mut set = WaitSet::with(options).unwrap();
    let members = (0..ports)
        .map(|number| {
            let name = common::name(&format!("{what}-{number}"));
            (set.add(handfast::bind(&name).unwrap()), name)
        })
        .collect();
    (set, members)
}

#[test]
fn many_ports_are_slept_on_at_once() {
    let _alone = common::alone();
    let options = Options::new().strategy(Strategy::Block);
    let (mut set, members) = set_of(20, "many", options);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..5 {
                for (_, name) in &members {
                    let right = handfast::connect(name).unwrap();
                    let reply = right
                        .call_timeout(name.as_bytes(), common::PATIENCE)
                        .unwrap();
                    assert_eq!(*reply, *name.as_bytes(), "round {round}");
                }
            }
        });
        for _ in 0..5 {
            for (token, name) in &members {
                let event = set.receive_timeout(common::PATIENCE).unwrap();
                assert_eq!(event.token(), *token);
                let Event::Message(_, request) = event else {
                    panic!("no message")
                };
                assert_eq!(request.bytes(), name.as_bytes());
                let bytes = request.bytes().to_vec();
                request.reply(&bytes).unwrap();
            }
        }
    });
}

#[test]
fn the_deadline_ends_a_wait_of_either_kind() {
    let _alone = common::alone();
    let short = Duration::from_millis(5);
    let (mut set, _) = set_of(2, "deadline", Options::new());
    assert_eq!(
        set.receive_timeout(short).unwrap_err(),
        ReceiveError::TimedOut
    );
    assert_eq!(set.try_receive().unwrap_err(), ReceiveError::Empty);
    let (own, mut other) = UnixStream::pair().unwrap();
    let token = set.add_descriptor(&own, Interest::Read).unwrap();
    assert_eq!(
        set.receive_timeout(short).unwrap_err(),
        ReceiveError::TimedOut
    );
    assert_eq!(set.try_receive().unwrap_err(), ReceiveError::Empty);
    other.write_all(b"!").unwrap();
    assert_eq!(
        set.receive_timeout(common::PATIENCE).unwrap().token(),
        token
    );
    // Still unread: reported again.
    assert_eq!(set.try_receive().unwrap().token(), token);
    (&own).read_exact(&mut [0]).unwrap();
    assert_eq!(set.try_receive().unwrap_err(), ReceiveError::Empty);
    // The set's own duplicate is gone with the member: the other end sees the end.
    set.remove(token);
    drop(own);
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
    assert_eq!(
        set.receive_timeout(short).unwrap_err(),
        ReceiveError::TimedOut
    );
}

#[test]
fn room_to_write_and_the_end_of_the_other_side_are_reported() {
    let mut set = WaitSet::new().unwrap();
    let (own, other) = UnixStream::pair().unwrap();
    let token = set.add_descriptor(&own, Interest::Write).unwrap();
    let Event::Descriptor(of, readiness) = set.receive_timeout(common::PATIENCE).unwrap() else {
        panic!("no descriptor")
    };
    assert_eq!(of, token);
    assert!(readiness.writable && !readiness.readable && !readiness.hung_up);
    drop(other);
    // A child that another test is starting may hold the other end for a moment.
    assert!(common::within_patience(|| {
        matches!(
            set.receive_timeout(common::PATIENCE).unwrap(),
            Event::Descriptor(_, readiness) if readiness.hung_up
        )
    }));
    assert_eq!(
        set.add_descriptor(std::fs::File::open("/etc/passwd").unwrap(), Interest::Read),
        Err(SetError::Unpollable)
    );
}

/// Every second wait was too short for the looks between two at the descriptors.
#[test]
fn a_wait_without_time_finds_a_descriptor_that_is_ready() {
    for strategy in STRATEGIES {
        let mut set = WaitSet::with(Options::new().strategy(strategy.parse().unwrap())).unwrap();
        let (_own, other) = UnixStream::pair().unwrap();
        set.add(handfast::anonymous().unwrap());
        set.add_descriptor(&other, Interest::Write).unwrap();
        for _ in 0..100 {
            let event = set.receive_timeout(Duration::ZERO);
            assert!(
                matches!(event, Ok(Event::Descriptor(..))),
                "{strategy}: {event:?}"
            );
        }
    }
}

#[test]
fn a_removed_port_keeps_what_was_queued_for_it() {
    let (mut set, members) = set_of(2, "removed", Options::new());
    let right = handfast::connect(&members[0].1).unwrap();
    right.send(b"queued").unwrap();
    let port = set.remove(members[0].0).unwrap();
    assert_eq!(
        port.receive_timeout(common::PATIENCE).unwrap().bytes(),
        b"queued"
    );
    assert!(set.remove(members[0].0).is_none(), "removed twice");
    assert_eq!(set.try_receive().unwrap_err(), ReceiveError::Empty);
    // Its place is used again.
    let token = set.add(port);
    right.send(b"back").unwrap();
    assert_eq!(
        set.receive_timeout(common::PATIENCE).unwrap().token(),
        token
    );
}

#[test]
fn a_reply_that_a_set_sends_ends_the_call_of_a_sleeping_caller() {
    let _alone = common::alone();
    let options = Options::new().strategy(Strategy::Block);
    let (mut set, members) = set_of(2, "asleep", options);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (_, name) in &members {
            let done = &done;
            scope.spawn(move || {
                let right = handfast::connect(name).unwrap();
                right.set_options(options);
                for number in 0..300u32 {
                    let bytes = number.to_le_bytes();
                    let reply = right.call_timeout(&bytes, common::PATIENCE).unwrap();
                    assert_eq!(*reply, bytes);
                }
                done.store(true, Ordering::Release);
            });
        }
        let mut event = set.receive().unwrap();
        for _ in 0..599 {
            let Event::Message(_, request) = event else {
                panic!("no message")
            };
            let bytes = request.bytes().to_vec();
            event = set.reply_and_receive(request, &bytes).unwrap();
        }
        let Event::Message(_, request) = event else {
            panic!("no message")
        };
        let bytes = request.bytes().to_vec();
        request.reply(&bytes).unwrap();
    });
    assert!(done.load(Ordering::Acquire));
}

pub(crate) fn forker(name: &str) {
    let mut set = WaitSet::new().unwrap();
    let port = handfast::bind(name).unwrap();
    let token = set.add(port);
    // SAFETY: the child only makes calls that a fork with one more thread allows, then ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = set.receive().unwrap_err() == ReceiveError::Misuse(Misuse::Forked);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 1;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    let right = handfast::connect(name).unwrap();
    right.send(b"on").unwrap();
    assert_eq!(set.receive().unwrap().token(), token);
    common::say("done");
}

#[test]
fn a_set_made_before_a_fork_is_refused_in_the_child_and_works_in_the_parent() {
    let mut child = common::start("forker", &[&common::name("set-fork")]);
    child.expect("done");
    child.finish();
}

#[test]
fn tries_serve_a_port_and_all_descriptors_that_stay_ready() {
    let (mut set, members) = set_of(1, "tries", Options::new());
    let (port, name) = &members[0];
    let right = handfast::connect(name).unwrap();
    // They can be written to for ever.
    let pairs = [(); 3].map(|()| UnixStream::pair().unwrap());
    let ready = pairs.each_ref();
    let ready = ready.map(|(own, _)| set.add_descriptor(own, Interest::Write).unwrap());
    for _ in 0..10 {
        right.send(b"x").unwrap();
        let mut served: Vec<_> = (0..6).map(|_| set.try_receive().unwrap().token()).collect();
        served.sort_unstable();
        served.dedup();
        let mut all = vec![*port];
        all.extend(ready);
        all.sort_unstable();
        assert_eq!(served, all);
    }
}

#[test]
fn a_descriptor_waits_for_few_slow_requests() {
    let (mut set, members) = set_of(1, "slow", Options::new());
    let right = handfast::connect(&members[0].1).unwrap();
    let (own, mut other) = UnixStream::pair().unwrap();
    let descriptor = set.add_descriptor(&own, Interest::Read).unwrap();
    let mut queued = 0;
    while right.try_send(b"x").is_ok() {
        queued += 1;
    }
    assert!(queued > 20);
    drop(set.receive().unwrap());
    other.write_all(b"stop").unwrap();
    let mut served = 0;
    while set.receive().unwrap().token() != descriptor {
        served += 1;
        assert!(served < 4, "{served} of {queued} messages before it");
        // Sleep: stands for work.
        std::thread::sleep(Duration::from_millis(2));
    }
}
