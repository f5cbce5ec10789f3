//! A process that sends to its own ports through its own rights.

use crate::common::{self, PATIENCE, within_patience};
use handfast::error::{ConnectError, Gone, SendError};
use handfast::{Identity, Notice, OwnRight, ReceiveRight, Right, SendRight};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Answers each call with badge, permissions and its bytes, and keeps quiet of messages; until `stop`.
fn serve(port: &ReceiveRight) {
    loop {
        let request = port.receive().unwrap();
        if request.bytes() == b"stop" {
            return;
        }
        if request.is_call() {
            let text = String::from_utf8_lossy(request.bytes()).into_owned();
            let (badge, permissions) = (request.badge(), request.permissions());
            let _ = request.reply(format!("{badge} {permissions} {text}").as_bytes());
        }
    }
}

/// A port that is served until the end of `then`.
fn served(port: &ReceiveRight, threads: usize, then: impl FnOnce()) {
    struct Stop<'a>(&'a ReceiveRight, usize);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            let stop = self.0.mint(u64::MAX).connect().unwrap();
            (0..self.1).for_each(|_| stop.send(b"stop").unwrap());
        }
    }
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(|| serve(port))));
        let _stop = Stop(port, threads);
        then();
    });
}

fn call(right: &SendRight, text: &str) -> String {
    String::from_utf8(right.call(text.as_bytes()).unwrap().to_vec()).unwrap()
}

fn own(right: Option<Right>) -> OwnRight {
    match right {
        Some(Right::Own(own)) => own,
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_thread_calls_by_an_own_right_and_the_receiver_is_told_its_badge_and_permissions() {
    let port = handfast::anonymous().unwrap();
    let right = port.mint_with(7, 0b11).connect().unwrap();
    assert_eq!(right.peer().pid, std::process::id());
    served(&port, 2, || {
        std::thread::scope(|scope| {
            for thread in 0..20 {
                let right = &right;
                scope.spawn(move || {
                    for number in 0..200 {
                        let text = format!("{thread}:{number}");
                        assert_eq!(call(right, &text), format!("7 3 {text}"));
                    }
                });
            }
        });
        assert_eq!(call(&right.clone(), "copy"), "7 3 copy");
        assert_eq!(call(&right.attenuate(0b10).unwrap(), "less"), "7 2 less");
        let mut reply = [0; 8];
        assert_eq!(right.call_into(b"x", &mut reply), Ok(5));
        let long = "y".repeat(60_000);
        assert_eq!(call(&right, &long), format!("7 3 {long}"));
        let calls: Vec<_> = (0..16).map(|_| right.try_call(b"").unwrap()).collect();
        calls
            .into_iter()
            .for_each(|call| drop(call.wait().unwrap()));
    });
}

#[test]
fn two_rights_are_one_if_port_badge_and_permissions_are() {
    let (port, other) = (
        handfast::anonymous().unwrap(),
        handfast::anonymous().unwrap(),
    );
    let connect = |own: OwnRight| own.connect().unwrap();
    let right = connect(port.mint(1));
    assert_eq!(right.identity(&connect(port.mint(1))), Identity::Same);
    assert_eq!(right.identity(&connect(port.mint(2))), Identity::Different);
    assert_eq!(
        right.identity(&connect(port.mint_with(1, 1))),
        Identity::Different
    );
    assert_eq!(right.identity(&connect(other.mint(1))), Identity::Different);
}

#[test]
fn to_send_it_is_to_send_the_own_right() {
    let name = common::name("own-keeper");
    let mut keeper = common::start("keeper", &[&name]);
    keeper.expect("ready");
    let keeper_port = handfast::connect(&name).unwrap();
    let port = handfast::anonymous().unwrap();
    let other = handfast::anonymous().unwrap();
    let right = port.mint(5).connect().unwrap();
    // To another process: it uses it, and it comes home as what it is.
    let _ = keeper_port
        .with([right.clone().into()])
        .call(b"keep")
        .unwrap();
    let _ = keeper_port.call(b"call").unwrap();
    let request = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!((request.bytes(), request.badge()), (&b"used"[..], 5));
    let mut home = keeper_port.call(b"home").unwrap();
    let home = own(home.take_rights().pop());
    assert!(home.is_to(&port) && home.badge() == 5);
    // One with fewer permissions, too.
    served(&port, 1, || {
        let less = right.attenuate(0b1).unwrap();
        assert_eq!(call(&less, "x"), "5 1 x");
        let mut echo = keeper_port.with([less.into()]).call(b"echo").unwrap();
        let less = own(echo.take_rights().pop());
        assert_eq!((less.badge(), less.permissions()), (5, 1));
    });
    // By the link with itself, to the same port, to another, and back in replies.
    let to_other = other.mint(6).connect().unwrap();
    for (to, at) in [(&right, &port), (&to_other, &other)] {
        for sent in [Right::from(home.clone()), Right::from(right.clone())] {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut request = at.receive().unwrap();
                    let came = own(request.take_rights().pop());
                    assert!(came.is_to(&port) && came.badge() == 5);
                    request.reply_with(b"", [came.into()]).unwrap();
                });
                let mut reply = to.with([sent]).call(b"").unwrap();
                assert!(own(reply.take_rights().pop()).is_to(&port));
            });
        }
    }
    keeper.kill();
}

#[test]
fn the_last_one_that_is_dropped_is_told_of() {
    let port = handfast::anonymous().unwrap();
    port.notify_no_senders();
    port.notify_no_senders_of(3);
    let minted = port.mint(3);
    let right = minted.connect().unwrap();
    let copy = right.clone();
    drop(minted);
    right.send(b"1").unwrap();
    drop(right);
    copy.send(b"2").unwrap();
    for number in [b"1", b"2"] {
        assert_eq!(port.receive_timeout(PATIENCE).unwrap().bytes(), number);
    }
    assert!(port.try_receive().is_err());
    // One on its way counts.
    let to = port.mint(4).connect().unwrap();
    to.with([copy.into()]).send(b"with").unwrap();
    drop(to);
    let mut with = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!(with.bytes(), b"with");
    let came = own(with.take_rights().pop());
    assert_eq!(came.badge(), 3);
    drop((with, came));
    let mut told = [
        port.receive_timeout(PATIENCE),
        port.receive_timeout(PATIENCE),
    ]
    .map(|told| format!("{:?}", told.unwrap().notice()));
    told.sort();
    let expected = [Notice::NoSenders, Notice::NoSendersOf(3)];
    assert_eq!(told, expected.map(|notice| format!("{:?}", Some(notice))));
}

#[test]
fn what_is_dropped_first_does_not_matter() {
    for order in 0..6 {
        let port = handfast::anonymous().unwrap();
        let minted = port.mint(1);
        let right = minted.connect().unwrap();
        let dead = handfast::anonymous().unwrap();
        right.notify_death(&dead, 9);
        right.send(b"never received").unwrap();
        let mut parts = [Some(port), None, None];
        let (mut minted, mut right) = (Some(minted), Some(right));
        for step in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ][order]
        {
            match step {
                0 => {
                    parts[0] = None;
                    if let Some(right) = &right {
                        let failed = || right.call(b"").map(drop);
                        assert!(within_patience(
                            || failed() == Err(SendError::Gone(Gone::Port))
                        ));
                        let told = dead.receive_timeout(PATIENCE).unwrap().notice();
                        assert_eq!(told, Some(Notice::Dead(9)));
                    }
                    if let Some(minted) = &minted {
                        let again = minted.connect().map(drop);
                        assert!(
                            matches!(again, Err(ConnectError::Gone(Gone::Port))),
                            "{again:?}"
                        );
                    }
                }
                1 => minted = None,
                _ => right = None,
            }
        }
    }
}

#[test]
fn a_request_that_was_received_outlives_its_port() {
    for is_answered in [true, false] {
        let port = handfast::anonymous().unwrap();
        let right = port.mint(1).connect().unwrap();
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| right.call(b"held").map(|reply| reply.to_vec()));
            let held = port.receive().unwrap();
            let waiting = right.try_call(b"not received").unwrap();
            drop(port);
            let gone = Err(SendError::Gone(Gone::Port));
            assert_eq!(waiting.wait().map(drop), gone);
            assert_eq!(right.call(b"late").map(drop), gone);
            if is_answered {
                held.reply(b"answered").unwrap();
                assert_eq!(calling.join().unwrap().unwrap(), b"answered");
            } else {
                drop(held);
                let dropped = calling.join().unwrap();
                assert_eq!(dropped, Err(SendError::Gone(Gone::Reply)));
            }
        });
    }
}

#[test]
fn revocation_during_calls_ends_those_of_its_badge_and_no_others() {
    let port = handfast::anonymous().unwrap();
    let minted = port.mint(1);
    let good = port.mint(2).connect().unwrap();
    let right = minted.connect().unwrap();
    let calls = AtomicU64::new(0);
    served(&port, 2, || {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        match right.call(b"x") {
                            Ok(_) => drop(calls.fetch_add(1, Ordering::Relaxed)),
                            Err(error) => return assert_eq!(error, SendError::Gone(Gone::Right)),
                        }
                    }
                });
            }
            assert!(within_patience(|| calls.load(Ordering::Relaxed) > 1000));
            port.revoke(1);
        });
        assert_eq!(
            right.call(b"x").map(drop),
            Err(SendError::Gone(Gone::Right))
        );
        assert_eq!(call(&good, "x"), "2 65535 x");
        let again = minted.connect().map(drop);
        assert!(
            matches!(again, Err(ConnectError::Gone(Gone::Right))),
            "{again:?}"
        );
        // Another one with the same badge, and by way of its holder: this process.
        let right = port.mint(1).connect().unwrap();
        assert_eq!(call(&right, "y"), "1 65535 y");
        port.revoke_from(right.holder(), 1);
        assert!(within_patience(|| right.call(b"x").is_err()));
    });
}

#[test]
fn twenty_ports_called_by_twenty_threads_have_lanes() {
    if common::ran_in_own_process(twenty_ports_called_by_twenty_threads_have_lanes) {
        return;
    }
    let ports: Vec<_> = (0..20).map(|_| handfast::anonymous().unwrap()).collect();
    std::thread::scope(|scope| {
        for port in &ports {
            let right = Arc::new(port.mint(1).connect().unwrap());
            scope.spawn(move || {
                served(port, 1, || {
                    std::thread::scope(|scope| {
                        for _ in 0..20 {
                            scope.spawn(|| (0..20).for_each(|_| drop(call(&right, "x"))));
                        }
                    });
                })
            });
        }
    });
}

/// Calls by the right it is given until that is dead.
pub(crate) fn caller(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut request = port.receive().unwrap();
    let right = common::send_rights(request.take_rights()).remove(0);
    request.reply(b"").unwrap();
    while right.call(b"from a peer").is_ok() {}
}

#[test]
fn own_calls_go_on_when_a_peer_that_calls_the_same_port_is_killed() {
    let port = handfast::anonymous().unwrap();
    let minted = port.mint(1);
    let right = minted.connect().unwrap();
    let done = AtomicBool::new(false);
    served(&port, 2, || {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(call(&right, "x"), "1 65535 x");
                    }
                });
            }
            for round in 0..8 {
                let name = common::name(&format!("own-caller{round}"));
                let mut peer = common::start("caller until it is dead", &[&name]);
                peer.expect("ready");
                let to = handfast::connect(&name).unwrap();
                // Each kind of right.
                let given = match round % 2 {
                    0 => Right::from(minted.clone()),
                    _ => Right::from(right.clone()),
                };
                let _ = to.with([given]).call(b"").unwrap();
                peer.kill();
            }
            done.store(true, Ordering::Relaxed);
        });
    });
    // All that the dead had has ended.
    port.notify_no_senders();
    drop((minted, right));
    while port.receive_timeout(PATIENCE).unwrap().notice() != Some(Notice::NoSenders) {}
}

#[test]
fn calls_by_it_are_passed_on() {
    let (first, last) = (
        handfast::anonymous().unwrap(),
        handfast::anonymous().unwrap(),
    );
    let (to_first, to_last) = (
        first.mint(1).connect().unwrap(),
        last.mint(2).connect().unwrap(),
    );
    served(&last, 1, || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..50 {
                    let request = first.receive().unwrap();
                    let text = request.bytes().to_vec();
                    request.forward(&to_last, &text).unwrap();
                }
            });
            for number in 0..50 {
                assert_eq!(
                    call(&to_first, &number.to_string()),
                    format!("2 65535 {number}")
                );
            }
        });
    });
}

pub(crate) fn comes_and_goes() {
    let port: &'static ReceiveRight = Box::leak(Box::new(handfast::anonymous().unwrap()));
    std::thread::spawn(|| serve(port));
    let visit = || assert_eq!(call(&port.mint(1).connect().unwrap(), "x"), "1 65535 x");
    visit();
    let before = common::holdings_alone();
    (0..500).for_each(|_| visit());
    let now = || common::holdings(std::process::id());
    assert!(
        within_patience(|| now() == before),
        "{before:?}, then {:?}",
        now()
    );
    // While there is one, there is one link.
    let right = port.mint(2).connect().unwrap();
    common::at_rest(std::process::id());
    let one = now();
    let more: Vec<_> = (0..100)
        .map(|badge| port.mint(badge).connect().unwrap())
        .collect();
    assert!(within_patience(|| now() == one), "{one:?}, {:?}", now());
    drop((right, more));
    assert!(
        within_patience(|| now() == before),
        "{before:?}, then {:?}",
        now()
    );
    common::say("back where it was");
}

#[test]
fn coming_and_going_leaves_no_descriptor_and_no_mapping() {
    let mut child = common::start("comes and goes", &[]);
    child.expect("back where it was");
    child.finish();
}

pub(crate) fn forker() {
    let port: &'static ReceiveRight = Box::leak(Box::new(handfast::anonymous().unwrap()));
    std::thread::spawn(|| serve(port));
    let minted = port.mint(1);
    let right = minted.connect().unwrap();
    let _ = call(&right, "x");
    // SAFETY: the child runs ordinary code after a fork of a process with threads; that is what this test is about.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: takes no pointers. A child that hangs is ended by it.
        unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
        let misuse = handfast::error::Misuse::Forked;
        let is_told = matches!(minted.connect(), Err(ConnectError::Misuse(of)) if of == misuse)
            && right.call(b"x").map(drop) == Err(SendError::Misuse(misuse));
        drop((right, minted));
        // Its own are another's.
        let own = handfast::anonymous().unwrap();
        let to = own.mint(1).connect().unwrap();
        to.send(b"here").unwrap();
        let is_own = own.receive().unwrap().bytes() == b"here";
        // SAFETY: ends the process without its parent's exit handlers.
        unsafe { libc::_exit(i32::from(!is_told) + 2 * i32::from(!is_own)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for a write.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    assert_eq!(call(&right, "x"), "1 65535 x");
    common::say("alive");
}

#[test]
fn a_forked_child_has_none_of_it_and_makes_its_own() {
    let mut child = common::start("forker", &[]);
    child.expect("alive");
    child.finish();
}
