//! Rights that follow a port that moves: without a link, unused, and under way.

use crate::common;
use crate::common::within_patience;
use crate::homes::{Homes, call, seen};
use handfast::Right;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn without_a_direct_link_messages_go_through_the_old_home() {
    let mut homes = Homes::with(("home", "apart"), 2, |command| {
        command.env("HANDFAST_INTRODUCTIONS", "vine");
    });
    let port = homes.make(0);
    homes.leave_last();
    homes.move_to(&port, 1);
    for number in 1..=20 {
        assert_eq!(call(&port, 1, number).1, homes.pid(1));
    }
    assert_eq!(seen(&port).1, 0);
    assert_eq!(port.peer().pid, homes.children[0].pid());
    assert!(!homes.rests(0));
}

#[test]
fn trap_08_a_port_moves_while_rights_to_it_are_given_to_others() {
    let homes = Homes::new("given", 3);
    let port = homes.make(0);
    let names = [0, 1].map(|place| common::name(&format!("given-friend{place}")));
    let friends = names
        .each_ref()
        .map(|name| common::start("friend", &[name]));
    friends.iter().for_each(|friend| friend.expect("ready"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (name, sender) in names.iter().zip(1..) {
            let (port, done) = (&port, &done);
            scope.spawn(move || {
                let friend = handfast::connect(name).unwrap();
                let mut number = 0;
                while !done.load(Ordering::Relaxed) {
                    number += 1;
                    let text = format!("{sender}:{number}");
                    let right = port.clone().into();
                    let answer = friend.with([right]).call(text.as_bytes()).unwrap();
                    let answer = String::from_utf8_lossy(&answer).into_owned();
                    assert!(answer.starts_with(&format!("{text} 7 ")), "{answer}");
                }
            });
        }
        for turn in 1..=15 {
            homes.move_to(&port, turn % 3);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(seen(&port).1, 0);
}

#[test]
fn a_sender_without_a_link_to_the_new_home_is_let_in_there() {
    let mut homes = Homes::new("stranger", 2);
    let port = homes.make(0);
    homes.leave_last();
    homes.move_to(&port, 1);
    assert!(within_patience(|| homes.rests(0)));
    homes.children[0].kill();
    assert_eq!(call(&port, 1, 1), ("7".into(), homes.pid(1)));
}

#[test]
fn a_right_that_nobody_uses_follows_its_port_along_a_chain() {
    let mut homes = Homes::new("idle", 4);
    let port = homes.make(0);
    // Another process keeps one, and does nothing with it.
    let _ = homes.controls[3]
        .with([port.clone().into()])
        .call(b"keep")
        .unwrap();
    homes.move_to(&port, 1);
    homes.move_to(&port, 2);
    for place in [0, 1] {
        assert!(within_patience(|| homes.rests(place)), "home {place}");
    }
    homes.children[0].kill();
    homes.children[1].kill();
    assert_eq!(call(&port, 1, 1).1, homes.pid(2));
}

#[test]
fn a_right_that_has_followed_its_port_to_where_it_is_sent_is_good_however_late_that_looks() {
    let homes = Homes::new("home-late", 2);
    let port = homes.make(0);
    homes.move_to(&port, 1);
    let there = homes.children[1].pid();
    assert!(within_patience(|| port.peer().pid == there));
    assert_eq!(call(&port, 1, 1).1, homes.pid(1));
    homes.controls[1].send(b"busy 100").unwrap();
    let kept = homes.controls[1].with([port.into()]).try_call(b"keep");
    // Nobody else has one: it was given back to its port's process before that had found it in the message.
    assert_eq!(&*kept.unwrap().wait().unwrap(), b"");
}

/// The next right that comes to a port of this process.
pub(crate) fn take(own: &handfast::ReceiveRight) -> handfast::SendRight {
    match own.receive().unwrap().take_rights().pop() {
        Some(Right::Send(right)) => right,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_right_that_is_under_way_while_its_receiver_hears_of_the_move_follows() {
    let homes = Homes::new("early", 2);
    let [late, soon] =
        ["early-late", "early-soon"].map(|name| handfast::bind(&common::name(name)).unwrap());
    let give = |port: &handfast::SendRight, to: &handfast::ReceiveRight| {
        let text = format!("give {}", to.name());
        let _ = port.call(text.as_bytes()).unwrap();
    };
    let port = homes.make(0);
    give(&port, &late);
    // Its holders are told after those of the other.
    let last = homes.make(0);
    homes.move_to(&port, 1);
    homes.move_to(&last, 1);
    let moved = |right: &handfast::SendRight| {
        let pid = homes.children[1].pid();
        within_patience(|| right.peer().pid == pid)
    };
    assert!(moved(&port) && moved(&last));
    let right = take(&late);
    assert!(moved(&right), "it goes through the old home");
    assert_eq!(call(&right, 1, 1), ("5".into(), homes.pid(1)));
    assert!(within_patience(|| homes.rests(0)));
    // Of two under way one comes after the other has become direct and was given back.
    let port = homes.make(0);
    give(&port, &late);
    give(&port, &soon);
    homes.move_to(&port, 1);
    let first = take(&soon);
    assert!(moved(&first));
    assert_eq!(call(&first, 1, 1).1, homes.pid(1));
    drop(first);
    // Sleep: the right has been given back by then, or soon is; the test holds either way.
    std::thread::sleep(Duration::from_millis(100));
    let right = take(&late);
    assert!(moved(&right), "it goes through the old home");
    assert_eq!(call(&right, 1, 2), ("5".into(), homes.pid(1)));
    assert!(within_patience(|| homes.rests(0)));
}
