//! Rights that are revoked, between real processes.

use crate::common;
use crate::common::{Child, PATIENCE, Random};
use handfast::error::{RightError, SendError};
use handfast::{Notice, ReceiveRight, Right, SendRight};
use std::cell::RefCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

pub(crate) const REVOKED: &str = "Err(Gone(Right))";

/// Keeps the rights that come, and does with them what it is told: with its input, where it says what has come of
/// it, or by message.
pub(crate) fn holder(name: &str) {
    let port = handfast::bind(name).unwrap();
    let kept = std::sync::Mutex::new(Vec::<SendRight>::new());
    let kept = &kept;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let mut request = port.receive().unwrap();
                if let Some(notice) = request.notice() {
                    common::say(&format!("{notice:?}"));
                    continue;
                }
                for right in request.take_rights() {
                    let Right::Send(right) = right else {
                        panic!("{right:?}");
                    };
                    kept.lock().unwrap().push(right);
                }
                if request.bytes() == [u8::MAX] {
                    kept.lock().unwrap().clear();
                }
                let places = request.bytes().iter().filter(|place| **place < u8::MAX);
                let home = places.map(|place| {
                    let right = kept.lock().unwrap()[usize::from(*place)].clone();
                    Right::from(right)
                });
                if request.is_call() {
                    // A right that is known to be dead stays here.
                    let home: Vec<_> = home.collect();
                    let _ = request.reply_with(b"", home);
                }
            }
        });
        common::say("ready");
        while let Some(told) = common::told() {
            let words: Vec<_> = told.split(' ').collect();
            let right = |at: usize| {
                let place: usize = words[at].parse().unwrap();
                kept.lock().unwrap()[place].clone()
            };
            match words[0] {
                "call" => {
                    let right = right(1);
                    let call = right.try_call(b"call");
                    if words.len() > 2 {
                        common::say("posted");
                    }
                    let answer = call.and_then(|call| call.wait_timeout(PATIENCE));
                    let answer = answer.map(|answer| String::from_utf8_lossy(&answer).into_owned());
                    common::say(&format!("{answer:?}"));
                }
                "send" => {
                    let text = words.get(2).unwrap_or(&"sent");
                    common::say(&format!("{:?}", right(1).send(text.as_bytes())));
                }
                "watch" => {
                    let number = words.get(2).unwrap_or(&words[1]);
                    right(1).notify_death(&port, number.parse().unwrap());
                    common::say("watched");
                }
                "pass" => {
                    let sent = right(2).with([right(1).into()]).call_timeout(b"", PATIENCE);
                    common::say(&format!(
                        "{:?}",
                        sent.map(|_| ()).map_err(|failed| failed.error)
                    ));
                }
                "drop" => {
                    drop(kept.lock().unwrap().remove(words[1].parse().unwrap()));
                    common::say("dropped");
                }
                _ => unreachable!("{told}"),
            }
        }
        std::process::exit(0);
    });
}

pub(crate) struct Holder {
    pub(crate) child: RefCell<Child>,
    pub(crate) name: String,
    pub(crate) root: SendRight,
}

pub(crate) fn start(what: &str) -> Holder {
    let name = common::name(what);
    let child = common::start("holder of revoked rights", &[&name]);
    child.expect("ready");
    let root = handfast::connect(&name).unwrap();
    let child = RefCell::new(child);
    Holder { child, name, root }
}

impl Holder {
    pub(crate) fn give(&self, rights: impl IntoIterator<Item = Right>) {
        self.root.with(rights).call_timeout(b"", PATIENCE).unwrap();
    }

    pub(crate) fn does(&self, what: &str, says: &str) {
        self.tell(what);
        self.expect(says);
    }

    pub(crate) fn tell(&self, what: &str) {
        self.child.borrow_mut().tell(what);
    }

    pub(crate) fn expect(&self, says: &str) {
        self.child.borrow().expect(says);
    }
}

pub(crate) fn no_senders(port: &ReceiveRight) {
    port.notify_no_senders();
    let told = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!(told.notice(), Some(Notice::NoSenders));
}

/// Answers one call, with its badge.
pub(crate) fn answer(port: &ReceiveRight) {
    let request = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!(request.bytes(), b"call");
    let badge = request.badge().to_string();
    request.reply(badge.as_bytes()).unwrap();
}

pub(crate) fn calls(holder: &Holder, place: usize, port: &ReceiveRight, badge: u64) {
    holder.tell(&format!("call {place}"));
    answer(port);
    holder.expect(&format!("Ok({:?})", badge.to_string()));
}

/// A call by a right that was revoked. Its holder may not have heard of that yet: then it comes here.
pub(crate) fn refused(holder: &Holder, place: usize, port: &ReceiveRight) {
    holder.tell(&format!("call {place}"));
    let said = || {
        let seen = port.receive_timeout(Duration::from_millis(1));
        assert!(seen.is_err(), "{seen:?}");
        holder.child.borrow().said()
    };
    let mut said = std::iter::repeat_with(said).take(20_000).flatten();
    assert_eq!(said.next().as_deref(), Some(REVOKED));
}

#[test]
fn a_revoked_right_is_dead_for_all_who_hold_it_and_one_minted_again_is_good() {
    let holders = [start("revoked-a"), start("revoked-b")];
    let port = handfast::bind(&common::name("revoked")).unwrap();
    let own = port.mint(7);
    for holder in &holders {
        holder.give([own.clone().into(), port.mint(8).into()]);
        holder.does("watch 0", "watched");
        holder.does("watch 1", "watched");
        calls(holder, 0, &port, 7);
    }
    let start = Instant::now();
    port.revoke(7);
    for holder in &holders {
        holder.expect("Dead(0)");
    }
    let told = start.elapsed();
    println!("told {told:?} after that");
    for holder in &holders {
        refused(holder, 0, &port);
        holder.does("send 0", REVOKED);
        // In vain, also to be told again.
        holder.does("pass 0 1", "Err(Right(Dead))");
        calls(holder, 1, &port, 8);
        // Asked later, told at once.
        holder.tell("watch 0");
        let both = [holder.child.borrow().line(), holder.child.borrow().line()];
        assert!(both.contains(&"Dead(0)".to_owned()), "{both:?}");
    }
    // Its own one, too, and a copy of it.
    for dead in [own.clone(), own] {
        let refused = holders[0].root.with([dead.into()]).send(b"").unwrap_err();
        assert_eq!(refused.error, SendError::Right(RightError::Dead));
    }
    for holder in &holders {
        holder.give([port.mint(7).into()]);
        calls(holder, 2, &port, 7);
        refused(holder, 0, &port);
    }
    port.revoke(7);
    port.revoke(7);
    for holder in &holders {
        refused(holder, 2, &port);
        calls(holder, 1, &port, 8);
    }
}

#[test]
fn calls_that_were_received_are_answered_and_those_that_wait_refused() {
    let (received, waiting) = (start("received"), start("waiting"));
    let port = handfast::bind(&common::name("queued")).unwrap();
    received.give([port.mint(7).into()]);
    waiting.give([port.mint(7).into(), port.mint(8).into()]);
    received.tell("call 0");
    let request = port.receive_timeout(PATIENCE).unwrap();
    waiting.does("send 0", "Ok(())");
    waiting.does("call 0 posted", "posted");
    port.revoke(7);
    request.reply(b"late").unwrap();
    received.expect("Ok(\"late\")");
    // Nothing but the refusals is to be found.
    let seen = port.receive_timeout(Duration::from_millis(100));
    assert!(seen.is_err(), "{seen:?}");
    waiting.expect(REVOKED);
    calls(&waiting, 1, &port, 8);
}

#[test]
fn the_count_of_senders_goes_down_once_for_each_right() {
    let holder = start("count");
    let port = handfast::anonymous().unwrap();
    holder.give([port.mint(7).into(), port.mint(8).into()]);
    let own = port.mint(7);
    port.revoke(7);
    port.revoke(8);
    // The holder has both still.
    no_senders(&port);
    drop(own);
    holder.give([port.mint(7).into()]);
    port.notify_no_senders();
    holder.does("drop 0", "dropped");
    holder.does("drop 0", "dropped");
    // Their ends, which come some milliseconds later, take nothing from the right that is there.
    let told = port.receive_timeout(Duration::from_millis(50));
    assert!(told.is_err(), "{told:?}");
    holder.does("drop 0", "dropped");
    let told = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!(told.notice(), Some(Notice::NoSenders));
}

#[test]
fn a_right_is_revoked_from_one_holder_and_stays_with_the_others() {
    let (one, other) = (start("one"), start("other"));
    let port = handfast::bind(&common::name("one-of")).unwrap();
    for holder in [&one, &other] {
        holder.give([port.mint(7).into()]);
        holder.does("watch 0", "watched");
    }
    one.tell("call 0");
    let request = port.receive_timeout(PATIENCE).unwrap();
    let holder = request.holder();
    assert_eq!(holder, one.root.holder());
    assert_ne!(holder, other.root.holder());
    request.reply(b"").unwrap();
    one.expect("Ok(\"\")");
    port.revoke_from(holder, 7);
    one.expect("Dead(0)");
    refused(&one, 0, &port);
    calls(&other, 0, &port, 7);
    // By one-way messages it is known as well.
    one.give([port.mint(7).into()]);
    one.does("send 1", "Ok(())");
    let request = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!(request.holder(), holder);
    drop(request);
    port.revoke_from(holder, 8);
    calls(&one, 1, &port, 7);
    let Holder { child, root, .. } = one;
    child.borrow_mut().kill();
    assert!(common::within_patience(|| root.call(b"").is_err()));
    port.revoke_from(holder, 7);
    calls(&other, 0, &port, 7);
}

#[test]
fn whatever_is_revoked_from_whomever_nobody_else_loses_anything() {
    let mut random = Random::seeded("revocation");
    let end = Instant::now() + common::campaign(2);
    let port = handfast::anonymous().unwrap();
    // The rights of each holder: badge, the number it is told of under, whether it is good.
    let mut holders: Vec<_> = (0..3)
        .map(|n| (start(&format!("any-{n}")), Vec::<(u64, u64, bool)>::new()))
        .collect();
    let (mut number, mut steps, mut used, mut refused, mut kills) = (0, 0, 0, 0, 0);
    let mut longest = Duration::ZERO;
    let mut dropped = HashSet::new();
    while Instant::now() < end || used == 0 || refused == 0 {
        steps += 1;
        let at = random.below(3) as usize;
        let (badge, place) = (random.below(3), random.below(4) as usize);
        let (holder, kept) = &mut holders[at];
        match random.below(12) {
            0..=3 if kept.len() < 20 => {
                number += 1;
                holder.give([port.mint(badge).into()]);
                holder.tell(&format!("watch {} {number}", kept.len()));
                assert_eq!(line(holder, &mut dropped), "watched");
                kept.push((badge, number, true));
            }
            4..=7 if place < kept.len() => {
                number += 1;
                holder.tell(&format!("send {place} {number}"));
                let said = line(holder, &mut dropped);
                if kept[place].2 {
                    assert_eq!(said, "Ok(())");
                    let request = port.receive_timeout(PATIENCE).unwrap();
                    let is_it = (request.badge(), number.to_string());
                    assert_eq!((kept[place].0, &*is_it.1), (is_it.0, text(&request)));
                    used += 1;
                } else {
                    refused += 1;
                    let seen = port.try_receive();
                    assert!(seen.is_err(), "{seen:?} {said}");
                }
            }
            8 if place < kept.len() => {
                holder.tell(&format!("drop {place}"));
                assert_eq!(line(holder, &mut dropped), "dropped");
                dropped.insert(format!("Dead({})", kept.remove(place).1));
            }
            9 if random.below(4) == 0 => {
                kills += 1;
                holder.child.borrow_mut().kill();
                (*holder, *kept) = (start(&format!("any-{kills}-again")), Vec::new());
            }
            10 | 11 => {
                let from = (random.below(2) == 0).then(|| holder.root.holder());
                let revoked = Instant::now();
                match from {
                    Some(from) => port.revoke_from(from, badge),
                    None => port.revoke(badge),
                }
                for (holder, kept) in &mut holders {
                    if from.is_some_and(|from| from != holder.root.holder()) {
                        continue;
                    }
                    let gone = kept.iter_mut().filter(|right| right.2 && right.0 == badge);
                    let mut gone: Vec<_> = gone
                        .map(|right| {
                            right.2 = false;
                            format!("Dead({})", right.1)
                        })
                        .collect();
                    let mut told: Vec<_> =
                        gone.iter().map(|_| line(holder, &mut dropped)).collect();
                    longest = longest.max(revoked.elapsed());
                    gone.sort_unstable();
                    told.sort_unstable();
                    assert_eq!(gone, told);
                }
            }
            _ => {}
        }
    }
    println!(
        "{steps} steps, {used} used, {refused} refused, {kills} kills; told after {longest:?} at the longest"
    );
    for badge in 0..3 {
        port.revoke(badge);
    }
    no_senders(&port);
}

/// The next line of a holder. A holder that has asked after a right that it has dropped may be told as long as it has
/// another like it, once.
fn line(holder: &Holder, dropped: &mut HashSet<String>) -> String {
    loop {
        let line = holder.child.borrow().line();
        if !dropped.remove(&line) {
            return line;
        }
    }
}

fn text(request: &handfast::Request) -> &str {
    std::str::from_utf8(request.bytes()).unwrap()
}
