//! Rights that are revoked, between real processes.

use crate::common;
use crate::common::{Child, PATIENCE, Random};
use handfast::error::{Gone, RightError, SendError};
use handfast::{Notice, ReceiveRight, Right, SendRight};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const REVOKED: &str = "Err(Gone(Right))";

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

struct Holder {
    child: RefCell<Child>,
    name: String,
    root: SendRight,
}

fn start(what: &str) -> Holder {
    let name = common::name(what);
    let child = common::start("holder of revoked rights", &[&name]);
    child.expect("ready");
    let root = handfast::connect(&name).unwrap();
    let child = RefCell::new(child);
    Holder { child, name, root }
}

impl Holder {
    fn give(&self, rights: impl IntoIterator<Item = Right>) {
        self.root.with(rights).call_timeout(b"", PATIENCE).unwrap();
    }

    fn does(&self, what: &str, says: &str) {
        self.tell(what);
        self.expect(says);
    }

    fn tell(&self, what: &str) {
        self.child.borrow_mut().tell(what);
    }

    fn expect(&self, says: &str) {
        self.child.borrow().expect(says);
    }
}

fn no_senders(port: &ReceiveRight) {
    port.notify_no_senders();
    let told = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!(told.notice(), Some(Notice::NoSenders));
}

/// Answers one call, with its badge.
fn answer(port: &ReceiveRight) {
    let request = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!(request.bytes(), b"call");
    let badge = request.badge().to_string();
    request.reply(badge.as_bytes()).unwrap();
}

fn calls(holder: &Holder, place: usize, port: &ReceiveRight, badge: u64) {
    holder.tell(&format!("call {place}"));
    answer(port);
    holder.expect(&format!("Ok({:?})", badge.to_string()));
}

/// A call by a right that was revoked. Its holder may not have heard of that yet: then it comes here.
fn refused(holder: &Holder, place: usize, port: &ReceiveRight) {
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
fn rights_on_their_way_are_revoked_out_and_home() {
    let holder = start("on-its-way");
    let port = handfast::bind(&common::name("on-the-way")).unwrap();
    // Out: it is there before the holder looks, or after, as it comes.
    for round in 0..200 {
        let call = holder.root.with([port.mint(round).into()]).try_call(b"");
        let call = call.unwrap();
        port.revoke(round);
        call.wait().unwrap();
        refused(&holder, 0, &port);
        holder.does("drop 0", "dropped");
    }
    // Home.
    for round in 0..200 {
        holder.give([port.mint(7).into()]);
        let call = holder.root.try_call(&[0]).unwrap();
        if round % 2 == 0 {
            // Sleep: the server has the call by then, in half of the rounds.
            std::thread::sleep(Duration::from_micros(100));
        }
        port.revoke(7);
        match call.wait() {
            Ok(mut reply) => {
                let rights = reply.take_rights();
                assert!(matches!(rights[..], [Right::Dead]), "{rights:?}");
            }
            Err(error) => assert_eq!(error, SendError::Gone(Gone::Reply)),
        }
        holder.does("drop 0", "dropped");
    }
    no_senders_but_by_name(&port);
}

/// Nobody has a right to it, and so it says when one that there was for a moment is gone.
fn no_senders_but_by_name(port: &ReceiveRight) {
    drop(port.mint(1));
    no_senders(port);
}

#[test]
fn rights_that_came_by_introduction_are_revoked_and_their_holders_told() {
    let (introducer, recipient) = (start("introducer"), start("recipient"));
    let port = handfast::bind(&common::name("introduced")).unwrap();
    introducer.give([handfast::connect(&recipient.name).unwrap().into()]);
    for _ in 0..3 {
        introducer.give([port.mint(7).into()]);
        introducer.does("pass 1 0", "Ok(())");
        calls(&recipient, 0, &port, 7);
        recipient.does("watch 0", "watched");
        port.revoke(7);
        recipient.expect("Dead(0)");
        refused(&recipient, 0, &port);
        refused(&introducer, 1, &port);
        recipient.does("drop 0", "dropped");
        introducer.does("drop 1", "dropped");
    }
    no_senders_but_by_name(&port);
}

#[test]
fn a_right_that_is_revoked_before_it_is_claimed_is_told_of_when_it_is() {
    let (introducer, recipient) = (start("provider"), start("claimer"));
    let port = handfast::bind(&common::name("provided")).unwrap();
    // The two have links with this process and with each other.
    recipient.give([port.mint(8).into()]);
    introducer.give([handfast::connect(&recipient.name).unwrap().into()]);
    let mut told = 0;
    for round in 0..50 {
        introducer.give([port.mint(7).into()]);
        introducer.does("pass 1 0", "Ok(())");
        recipient.does("watch 1", "watched");
        // The right that was provided lies in a lane of the introducer's, and the claim in one of the recipient's.
        if round % 2 == 0 {
            assert!(port.try_receive().is_err());
        }
        port.revoke(7);
        assert!(port.try_receive().is_err());
        recipient.expect("Dead(1)");
        told += 1;
        refused(&recipient, 1, &port);
        recipient.does("drop 1", "dropped");
        introducer.does("drop 1", "dropped");
    }
    assert_eq!(told, 50);
    recipient.does("drop 0", "dropped");
    no_senders_but_by_name(&port);
}

#[test]
fn what_the_dead_have_sent_by_a_revoked_right_is_refused() {
    let holder = start("dead");
    let port = handfast::bind(&common::name("of-the-dead")).unwrap();
    holder.give([port.mint(7).into(), port.mint(8).into()]);
    // So that its lane is known.
    calls(&holder, 0, &port, 7);
    holder.does("send 0", "Ok(())");
    holder.does("send 1", "Ok(())");
    let Holder { child, root, .. } = holder;
    child.borrow_mut().kill();
    assert!(common::within_patience(|| root.call(b"").is_err()));
    port.revoke(7);
    let left = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!((left.badge(), left.bytes()), (8, &b"sent"[..]));
    assert!(port.try_receive().is_err());
    let gone = root.call(b"").unwrap_err();
    assert_eq!(gone, SendError::Gone(Gone::Process));
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

#[test]
fn rights_that_are_sent_and_come_home_meanwhile_are_revoked_all_the_same() {
    let holder = start("meanwhile");
    let port = handfast::anonymous().unwrap();
    let mut home = 0;
    for round in 0..200 {
        let own = port.mint(7);
        holder.give([own.clone().into()]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Out, and a copy of what is there home, as fast as it goes.
            let sender = scope.spawn(|| {
                let mut came = Vec::new();
                while !stop.load(SeqCst) {
                    let sent = holder
                        .root
                        .with([own.clone().into()])
                        .call_timeout(&[0], PATIENCE);
                    match sent.map(|mut reply| reply.take_rights().pop()) {
                        Ok(Some(Right::Own(own))) => came.push(own),
                        Ok(Some(Right::Dead)) => {}
                        Ok(other) => panic!("{other:?}"),
                        Err(failed) if failed.error == SendError::Gone(Gone::Reply) => {}
                        Err(failed) => {
                            assert_eq!(failed.error, SendError::Right(RightError::Dead));
                            break;
                        }
                    }
                }
                came
            });
            for _ in 0..round * 50 {
                std::hint::spin_loop();
            }
            port.revoke(7);
            stop.store(true, SeqCst);
            for dead in sender.join().unwrap() {
                home += 1;
                let sent = holder.root.with([dead.into()]).send(b"").unwrap_err();
                assert_eq!(sent.error, SendError::Right(RightError::Dead));
            }
        });
        drop(own);
        no_senders(&port);
        holder.root.call_timeout(b"\xff", PATIENCE).unwrap();
    }
    println!("{home} came home");
}
