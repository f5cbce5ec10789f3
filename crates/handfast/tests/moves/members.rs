//! Ports that share receivers, and move from one to another.

use crate::common::{self, within_patience};
use crate::homes::{self, Homes, Seen};
use handfast::error::{ReplyError, RightError, SendError};
use handfast::{MemberPort, Notice, Request, Right, SendRight};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// The ports of a home, by their keys, and what has come to each.
type Members = BTreeMap<u32, (MemberPort, Seen)>;

/// As [`homes::home`], where one receiver has all ports, and one thread receives. Takes `make`, `take STATE`, `spray`, `drop` (of all
/// ports) and `rest`.
pub(crate) fn home(name: &str) {
    common::say_cuts();
    let control = handfast::bind(name).unwrap();
    MemberPort::accept_at(&control);
    common::say("ready");
    let mut members = Members::new();
    loop {
        let mut request = control.receive().unwrap();
        if let Some(key) = request.member() {
            serve(&mut members, key, request);
            continue;
        }
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let mut rights = request.take_rights();
        match text.split_once(' ').unwrap_or((&text, "")) {
            ("make", _) => {
                let member = control.member().unwrap();
                let right = member.mint(7);
                members.insert(member.key(), (member, Seen::default()));
                request.reply_with(b"", [right.into()]).unwrap();
            }
            ("take", state) => {
                // Nothing, where the old home has died since.
                if let Some(Right::Member(member)) = rights.pop() {
                    members.insert(member.key(), (member, Seen::parse(state)));
                }
            }
            ("spray", _) => {
                homes::spray(rights.pop());
                request.reply(b"").unwrap();
            }
            ("drop", _) => {
                members.clear();
                request.reply(b"").unwrap();
            }
            ("rest", _) => {
                let rests = handfast::wait_moved_timeout(std::time::Duration::from_millis(1));
                request.reply(rests.to_string().as_bytes()).unwrap();
            }
            _ => unreachable!("{text}"),
        }
    }
}

/// As [`homes::serve`], for `SENDER:NUMBER`, `seen`, `tell` and `move NAME`.
fn serve(members: &mut Members, key: u32, request: Request) {
    if request.notice() == Some(Notice::NoSenders) {
        return common::say("no senders");
    }
    let text = String::from_utf8_lossy(request.bytes()).into_owned();
    // It may have been received before the port moved.
    let (member, seen) = members.get_mut(&key).expect("a message for another home");
    match text.split_once(' ').unwrap_or((&text, "")) {
        ("seen", _) => request.reply(seen.to_text().as_bytes()).unwrap(),
        ("tell", _) => {
            member.notify_no_senders();
            request.reply(b"").unwrap();
        }
        ("move", to) => {
            let to = homes::link(to);
            let what = format!("take {}", seen.to_text());
            request.reply(b"").unwrap();
            if let Some((member, _)) = members.remove(&key) {
                // The new home may die meanwhile.
                let _ = to.with([member.into()]).send(what.as_bytes());
            }
        }
        _ => {
            seen.take(&text);
            if request.is_call() {
                let answer = format!("{text} {} {}", request.badge(), std::process::id());
                // The caller may be gone.
                let _ = request.reply(answer.as_bytes());
            }
        }
    }
}

#[test]
fn ports_that_share_receivers_move_and_their_senders_follow_in_order() {
    const SENDERS: u64 = 3;
    let homes = Homes::of_members("members", 3);
    let (moves, stays) = (homes.make(0), homes.make(0));
    let _ = homes.controls[2]
        .with([moves.clone().into()])
        .call(b"spray")
        .unwrap();
    let (done, at_first) = (AtomicBool::new(false), homes.pid(0));
    let last = std::thread::scope(|threads| {
        let senders = (0..SENDERS).map(|sender| {
            let (moves, done) = (&moves, &done);
            threads.spawn(move || {
                let mut number = 0;
                while !done.load(Ordering::Relaxed) {
                    number += 1;
                    assert_eq!(homes::call(moves, sender, number).0, "7");
                }
                number
            })
        });
        let senders: Vec<_> = senders.collect();
        // The other port at the first receiver is served meanwhile, where it is.
        let (stays, done, at_first) = (&stays, &done, &at_first);
        threads.spawn(move || {
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                number += 1;
                assert_eq!(homes::call(stays, 9, number).1, *at_first);
            }
        });
        for round in 1..=12 {
            homes.move_to(&moves, round % 3);
        }
        done.store(true, Ordering::Relaxed);
        senders
            .into_iter()
            .map(|sender| sender.join().unwrap())
            .collect::<Vec<u64>>()
    });
    let seen = homes::seen(&moves);
    assert_eq!(seen.1, 0, "out of order");
    for (sender, last) in (0..).zip(&last) {
        assert_eq!(seen.0[&sender], *last);
    }
    let follows = |right: &SendRight| right.peer().pid.to_string() == homes.pid(0);
    assert!(within_patience(|| follows(&moves)));
    assert!(within_patience(|| (0..3).all(|place| homes.rests(place))));
    homes.expect_no_cut();
}

#[test]
fn one_way_messages_to_a_port_that_shares_a_receiver_all_come_while_it_moves() {
    const MESSAGES: u64 = 20_000;
    let homes = Homes::of_members("members-stream", 3);
    let port = homes.make(0);
    std::thread::scope(|threads| {
        let stream = threads.spawn(|| {
            for number in 1..=MESSAGES {
                port.send(format!("4:{number}").as_bytes()).unwrap();
            }
        });
        let mut place = 0;
        while !stream.is_finished() {
            place = (place + 1) % 3;
            homes.move_to(&port, place);
        }
    });
    // The question goes by another lane, and may be faster.
    let last = || homes::seen(&port).0.get(&4).copied();
    assert!(within_patience(|| last() == Some(MESSAGES)), "{:?}", last());
    assert_eq!(homes::seen(&port).1, 0, "out of order");
    homes.expect_no_cut();
}

#[test]
fn notices_of_a_port_that_shares_a_receiver_go_along_and_its_senders_hear_of_its_end() {
    let homes = Homes::of_members("members-notices", 2);
    let (watched, dropped) = (homes.make(0), homes.make(0));
    let _ = watched.call(b"tell").unwrap();
    homes.move_to(&watched, 1);
    homes.move_to(&dropped, 1);
    drop(watched);
    homes.children[1].expect("no senders");
    let told = handfast::anonymous().unwrap();
    dropped.notify_death(&told, 6);
    let _ = homes.controls[1].call(b"drop").unwrap();
    assert_eq!(told.receive().unwrap().notice(), Some(Notice::Dead(6)));
    assert!(matches!(dropped.call(b"9:1"), Err(SendError::Gone(_))));
    assert!(within_patience(|| homes.rests(0)));
    homes.expect_no_cut();
}

#[test]
fn a_port_that_shares_a_receiver_goes_with_messages_of_its_process_and_with_no_answer() {
    let desk = handfast::anonymous().unwrap();
    let to_desk = desk.mint(1).connect().unwrap();
    let member = desk.member().unwrap();
    let (key, to_member) = (member.key(), member.mint(2).connect().unwrap());
    to_member.send(b"before").unwrap();
    to_desk.with([member.into()]).send(b"take").unwrap();
    assert_eq!(desk.receive().unwrap().member(), Some(key));
    let rights = desk.receive().unwrap().take_rights();
    let member = match <[Right; 1]>::try_from(rights) {
        Ok([Right::Member(member)]) => member,
        other => panic!("{other:?}"),
    };
    assert_eq!(member.key(), key);
    to_member.send(b"after").unwrap();
    assert_eq!(desk.receive().unwrap().member(), Some(key));
    std::thread::scope(|threads| {
        let caller = threads.spawn(|| to_desk.call(b"lend"));
        let request = desk.receive().unwrap();
        let returned = request.reply_with(b"", [member.into()]).unwrap_err();
        assert_eq!(returned.error, ReplyError::Right(RightError::NoReceiver));
        assert!(matches!(returned.rights[..], [Right::Member(_)]));
        assert!(caller.join().unwrap().is_err());
    });
}

/// Nobody receives at the old home, so its senders cannot follow.
#[test]
fn the_thread_that_passes_on_ends_with_its_node() {
    let node = || handfast::Node::builder().start().unwrap();
    let trails = || common::threads_named(std::process::id(), "handfast-trail") > 0;
    let (old, new, sender) = (node(), node(), node());
    let (name, home) = (common::name("member"), common::name("member-home"));
    let desk = old.bind(&name).unwrap();
    let homes = new.bind(&home).unwrap();
    MemberPort::accept_at(&homes);
    let to_desk = sender.connect(&name).unwrap();
    let member = desk.member().unwrap();
    let served = std::thread::spawn(move || {
        let right = member.mint(3);
        let request = desk.receive().unwrap();
        request.reply_with(b"", [right.into()]).unwrap();
        (desk, member)
    });
    let right = to_desk.call(b"a right").unwrap().take_rights();
    let (desk, member) = served.join().unwrap();
    let to_new = old.connect(&home).unwrap();
    to_new.with([member.into()]).send(b"take it").unwrap();
    let rights = homes.receive().unwrap().take_rights();
    assert!(matches!(rights[..], [Right::Member(_)]), "{rights:?}");
    assert!(within_patience(trails));
    old.shutdown();
    assert!(within_patience(|| !trails()));
    new.shutdown();
    sender.shutdown();
    drop((desk, right, rights));
}

#[test]
fn a_port_goes_only_to_a_receiver_that_takes_ports() {
    let node = || handfast::Node::builder().start().unwrap();
    let (old, new) = (node(), node());
    let home = common::name("no-members");
    let desk = old.anonymous().unwrap();
    let homes = new.bind(&home).unwrap();
    let to_new = old.connect(&home).unwrap();
    let member = desk.member().unwrap();
    let right = member.mint(3).connect().unwrap();
    to_new.with([member.into()]).send(b"take it").unwrap();
    let rights = homes.receive().unwrap().take_rights();
    assert!(matches!(rights[..], [Right::Dead]), "{rights:?}");
    // The port ends as one that is dropped.
    assert!(within_patience(|| matches!(
        right.send(b""),
        Err(SendError::Gone(_))
    )));
    // It moves by itself.
    assert!(old.wait_moved_timeout(common::PATIENCE));
    old.shutdown();
    new.shutdown();
}
