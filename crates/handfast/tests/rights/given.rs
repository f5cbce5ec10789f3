//! Rights that travel in messages between real processes.

use crate::common;
use handfast::error::{ReceiveError, RightError, SendError};
use handfast::{Event, Node, Notice, Right, SendRight};
use std::time::{Duration, Instant};

/// A server that gives out one right per object on request, and answers each object's own calls.
///
/// `open N`: a right with badge N. `own`: how many rights came with the call, and their badges.
pub(crate) fn directory(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let text = String::from_utf8(request.bytes().to_vec()).unwrap();
        match text.split_once(' ') {
            Some(("open", badge)) => {
                let badges = badge.split(' ').map(|badge| badge.parse().unwrap());
                let rights: Vec<Right> = badges.map(|badge| port.mint(badge).into()).collect();
                request.reply_with(b"here", rights).unwrap();
            }
            _ if text == "own" => {
                let rights = request.take_rights();
                let own = rights.iter().map(|right| match right {
                    Right::Own(own) if own.is_to(&port) => own.badge().to_string(),
                    other => format!("{other:?}"),
                });
                let own = own.collect::<Vec<_>>().join(" ");
                request.reply(own.as_bytes()).unwrap();
            }
            _ if text.len() > 60_000 => request.reply(b"").unwrap(),
            _ => {
                let badge = request.badge();
                request
                    .reply(format!("{badge}: {text}").as_bytes())
                    .unwrap();
            }
        }
    }
}

fn call(right: &SendRight, bytes: &[u8]) -> String {
    String::from_utf8(right.call(bytes).unwrap().to_vec()).unwrap()
}

#[test]
fn rights_come_in_replies_are_called_and_go_home() {
    let name = common::name("directory");
    let mut server = common::start("directory", &[&name]);
    server.expect("ready");
    let root = handfast::connect(&name).unwrap();
    assert_eq!(call(&root, b"who"), "0: who");

    let mut reply = root.call(b"open 7 8 9 10").unwrap();
    assert_eq!(&*reply, b"here");
    let objects = common::send_rights(reply.take_rights());
    assert_eq!(objects.len(), 4);
    for (object, badge) in objects.iter().zip(7..) {
        assert_eq!(call(object, b"hello"), format!("{badge}: hello"));
        // Long messages and long replies carry badges as well.
        let long = vec![b'x'; 5000];
        assert_eq!(
            call(object, &long).len(),
            long.len() + format!("{badge}: ").len()
        );
    }
    // A copy goes home; the original stays.
    let copies = objects.iter().map(|right| right.clone().into());
    let own = root.with(copies).call(b"own").unwrap();
    assert_eq!(&*own, b"7 8 9 10");
    assert_eq!(call(&objects[3], b"still"), "10: still");
    // Moved, through one of them.
    let mut objects = objects.into_iter();
    let first = objects.next().unwrap();
    let own = first.with(objects.map(Right::from)).call(b"own").unwrap();
    assert_eq!(&*own, b"8 9 10");
    assert_eq!(call(&first, b"last"), "7: last");
    server.kill();
}

#[test]
fn the_same_right_again_and_again_stays_good_however_often_it_is_dropped() {
    let name = common::name("again");
    let mut server = common::start("directory", &[&name]);
    server.expect("ready");
    let root = handfast::connect(&name).unwrap();
    let end = Instant::now() + Duration::from_millis(300);
    let mut rounds = 0u32;
    while Instant::now() < end {
        let badge = rounds % 3;
        let mut reply = root.call(format!("open {badge}").as_bytes()).unwrap();
        let rights = common::send_rights(reply.take_rights());
        assert_eq!(call(&rights[0], b"x"), format!("{badge}: x"));
        // Some go home, some are just dropped, with pauses in which they are given back.
        if rounds.is_multiple_of(5) {
            let own = root.with(rights.into_iter().map(Right::from)).call(b"own");
            assert_eq!(&*own.unwrap(), badge.to_string().as_bytes());
        }
        if rounds.is_multiple_of(64) {
            // Sleep: stands for work.
            std::thread::sleep(Duration::from_millis(3));
        }
        rounds += 1;
    }
    println!("{rounds} rounds");
    server.kill();
}

#[test]
fn rights_that_are_not_sent_come_back() {
    let (name, other) = (common::name("back"), common::name("third"));
    let mut server = common::start("directory", &[&name]);
    server.expect("ready");
    let mut third = common::start("directory", &[&other]);
    third.expect("ready");
    let root = handfast::connect(&name).unwrap();
    let stranger = handfast::connect(&other).unwrap();
    let own = handfast::bind(&common::name("mine")).unwrap();

    let rights = (0..5).map(|badge| own.mint(badge).into());
    let refused = root.with(rights).call(b"own").unwrap_err();
    assert_eq!(
        refused.error,
        SendError::Right(RightError::TooMany { count: 5 })
    );
    assert_eq!(refused.rights.len(), 5);

    third.kill();
    assert!(common::within_patience(|| stranger.call(b"who").is_err()));
    let rights = [own.mint(1).into(), stranger.into()];
    let refused = root.with(rights).call(b"own").unwrap_err();
    assert_eq!(refused.error, SendError::Right(RightError::Dead));
    assert_eq!(refused.rights.len(), 2);

    let long = vec![0; handfast::LONG_BYTES_MAX + 1];
    let refused = root.with([own.mint(1).into()]).send(&long).unwrap_err();
    assert!(matches!(refused.error, SendError::TooLong { .. }));
    assert_eq!(refused.rights.len(), 1);
    // Nothing of that has harmed the link.
    let whole = vec![0; handfast::MESSAGE_BYTES_MAX];
    let reply = root.with(refused.rights).call(&whole).unwrap();
    assert_eq!(reply.len(), 0);
    server.kill();
}

#[test]
fn several_rights_of_this_process_arrive_in_order_and_none_is_left_of_those_that_come_back() {
    let node = || {
        let builder = Node::builder().directory(common::directory().clone());
        builder.start().unwrap()
    };
    let (here, there) = (node(), node());
    let name = common::name("several");
    let at = there.bind(&name).unwrap();
    let to = here.connect(&name).unwrap();
    let ports: Vec<_> = (0..4).map(|_| here.anonymous().unwrap()).collect();
    let revoked = ports[1].mint(9);
    ports[1].revoke(9);
    for round in 0..200 {
        let count = 1 + round % 4;
        let own = || (0..count).map(|i| ports[i].mint(i as u64));
        to.with(own().map(Right::from)).send(b"all").unwrap();
        let came = common::send_rights(at.receive().unwrap().take_rights());
        assert_eq!(came.len(), count);
        for (i, right) in came.iter().enumerate() {
            right.send(b"through").unwrap();
            let request = ports[i].receive().unwrap();
            assert_eq!(
                (request.bytes(), request.badge()),
                (&b"through"[..], i as u64)
            );
        }
        let rights = own().chain([revoked.clone()]).map(Right::from);
        let returned = to.with(rights).send(b"none").unwrap_err();
        let dead = match count {
            4 => RightError::TooMany { count: 5 },
            _ => RightError::Dead,
        };
        assert_eq!(returned.error, SendError::Right(dead));
        assert_eq!(returned.rights.len(), count + 1);
    }
    for port in &ports {
        port.notify_no_senders();
        let notice = port.receive_timeout(common::PATIENCE).unwrap().notice();
        assert_eq!(notice, Some(Notice::NoSenders));
    }
    here.shutdown();
    there.shutdown();
}

/// Waits until the port tells something, which must be this, within 10 ms of `since` where that is
/// asked.
fn told(port: &handfast::ReceiveRight, notice: Notice) -> Instant {
    let request = port.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!(request.notice(), Some(notice), "{request:?}");
    assert!(!request.is_call() && request.bytes().is_empty());
    Instant::now()
}

fn nothing_more(port: &handfast::ReceiveRight) {
    let more = port.receive_timeout(Duration::from_millis(30));
    assert!(matches!(more, Err(ReceiveError::TimedOut)), "{more:?}");
}

#[test]
fn a_receiver_is_told_once_when_the_last_right_is_gone() {
    let name = common::name("keeper");
    let mut server = common::start("keeper", &[&name]);
    server.expect("ready");
    let root = handfast::connect(&name).unwrap();
    let port = handfast::bind(&common::name("watched")).unwrap();
    port.notify_no_senders();
    nothing_more(&port);
    let mut delays = Vec::new();
    for round in 0..10u64 {
        // Dropped at the peer, after it was used and before.
        let right = port.mint(round);
        port.notify_no_senders();
        root.with([right.into()]).call(b"keep").unwrap();
        nothing_more(&port);
        let order: &[u8] = if round % 2 == 0 { b"use" } else { b"drop" };
        let start = Instant::now();
        root.call(order).unwrap();
        if round % 2 == 0 {
            let used = port.receive_timeout(common::PATIENCE).unwrap();
            assert_eq!((used.badge(), used.bytes()), (round, &b"used"[..]));
        }
        delays.push(told(&port, Notice::NoSenders) - start);
        nothing_more(&port);
        port.notify_no_senders();
        // There is none now, and has been one.
        told(&port, Notice::NoSenders);
        port.notify_no_senders();
        told(&port, Notice::NoSenders);
        // A right that is only under way counts; one that comes back home, too.
        let right = port.mint(round);
        port.notify_no_senders();
        let mut reply = root.with([right.into()]).call(b"echo").unwrap();
        nothing_more(&port);
        assert_eq!(reply.take_rights().len(), 1);
        told(&port, Notice::NoSenders);
    }
    delays.sort();
    println!("told after {:?} to {:?}", delays[0], delays[9]);
    server.kill();
}

#[test]
fn the_rights_of_the_dead_are_gone_at_once_and_their_ports_too() {
    let port = handfast::bind(&common::name("survivor")).unwrap();
    let mut delays = Vec::new();
    for round in 0..20u64 {
        let name = common::name("mortal");
        let mut server = common::start("keeper", &[&name]);
        server.expect("ready");
        let root = handfast::connect(&name).unwrap();
        root.with([port.mint(round).into()]).call(b"keep").unwrap();
        root.notify_death(&port, round);
        port.notify_no_senders();
        nothing_more(&port);
        let start = Instant::now();
        server.kill();
        let mut notices = [
            port.receive_timeout(common::PATIENCE),
            port.receive_timeout(common::PATIENCE),
        ]
        .map(|request| request.unwrap().notice());
        delays.push(start.elapsed());
        notices.sort_by_key(|notice| matches!(notice, Some(Notice::Dead(_))));
        assert_eq!(
            notices,
            [Some(Notice::NoSenders), Some(Notice::Dead(round))]
        );
        nothing_more(&port);
        // It is dead already.
        root.notify_death(&port, 99);
        told(&port, Notice::Dead(99));
    }
    delays.sort();
    println!(
        "told after {:?} to {:?}, the kill included",
        delays[0], delays[19]
    );
}

#[test]
fn a_port_that_is_dropped_is_told_of_to_those_who_asked() {
    let port = handfast::bind(&common::name("listener")).unwrap();
    let other = handfast::bind(&common::name("other")).unwrap();
    let right = handfast::connect(other.name()).unwrap();
    right.notify_death(&port, 5);
    nothing_more(&port);
    drop(other);
    told(&port, Notice::Dead(5));
    nothing_more(&port);
    // In a wait set, with a message.
    let again = handfast::bind(&common::name("other-again")).unwrap();
    let right = handfast::connect(again.name()).unwrap();
    let mut set = handfast::WaitSet::new().unwrap();
    right.notify_death(&port, 6);
    let token = set.add(port);
    drop(again);
    match set.receive_timeout(common::PATIENCE).unwrap() {
        Event::Message(of, request) => {
            assert_eq!((of, request.notice()), (token, Some(Notice::Dead(6))));
        }
        other => panic!("{other:?}"),
    }
}

/// A process that holds rights, and how many it has.
struct Holder {
    process: common::Child,
    order: SendRight,
    rights: usize,
}

impl Holder {
    fn start(number: u64) -> Self {
        let name = common::name(&format!("holder-{number}"));
        let process = common::start("keeper", &[&name]);
        process.expect("ready");
        let order = handfast::connect(&name).unwrap();
        Self {
            process,
            order,
            rights: 0,
        }
    }

    fn do_it(&self, order: &[u8]) -> handfast::Message {
        self.order.call_timeout(order, common::PATIENCE).unwrap()
    }
}

#[test]
fn whatever_becomes_of_rights_the_last_one_is_told_of_once_and_no_other() {
    let mut random = common::Random::seeded("rights");
    let port = handfast::bind(&common::name("campaign")).unwrap();
    let mut started = 0;
    let mut start = || {
        started += 1;
        Holder::start(started)
    };
    let mut holders = [start(), start(), start()];
    let mut asked = false;
    let (mut steps, mut notices, mut longest) = (0u32, 0u32, Duration::ZERO);
    let end = Instant::now() + common::campaign(4);
    while Instant::now() < end || notices == 0 {
        steps += 1;
        let holder = &mut holders[random.below(3) as usize];
        match random.below(12) {
            0..4 => {
                let rights = (0..=random.below(3)).map(|_| port.mint(random.below(3)).into());
                let rights: Vec<Right> = rights.collect();
                holder.rights += rights.len();
                let kept = holder
                    .order
                    .with(rights)
                    .call_timeout(b"keep", common::PATIENCE);
                kept.unwrap();
            }
            4 => {
                holder.do_it(b"drop");
                holder.rights = 0;
            }
            5 => {
                holder.do_it(b"use");
                holder.rights = 0;
            }
            6 => drop(holder.do_it(b"call")),
            7 => drop(holder.do_it(b"copy")),
            8 | 9 if holder.rights > 0 => {
                let mut home = holder.do_it(b"home");
                holder.rights -= 1;
                let [Right::Own(own)] = &home.take_rights()[..] else {
                    panic!("not mine");
                };
                assert!(own.is_to(&port) && own.badge() < 3);
            }
            10 if random.below(4) == 0 => {
                holder.process.kill();
                *holder = start();
            }
            // Sleep: a moment chosen at random.
            11 => std::thread::sleep(Duration::from_millis(random.below(4))),
            _ => {}
        }
        let done = Instant::now();
        let left: usize = holders.iter().map(|holder| holder.rights).sum();
        if left > 0 && random.below(3) == 0 {
            port.notify_no_senders();
            asked = true;
        }
        loop {
            let wait = if asked && left == 0 {
                common::PATIENCE
            } else {
                Duration::ZERO
            };
            let Ok(request) = port.receive_timeout(wait) else {
                assert!(!asked || left > 0, "not told");
                break;
            };
            match request.notice() {
                None => assert_eq!(request.bytes(), b"used"),
                Some(notice) => {
                    assert_eq!((notice, asked, left), (Notice::NoSenders, true, 0));
                    asked = false;
                    notices += 1;
                    longest = longest.max(done.elapsed());
                }
            }
        }
    }
    println!("{steps} steps, told {notices} times, after {longest:?} at the longest");
    for holder in &mut holders {
        holder.process.kill();
    }
}
