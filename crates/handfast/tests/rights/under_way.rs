//! Rights that are under way when calls are given up, sends are refused, ports are dropped and
//! processes die.

use crate::common;
use handfast::error::SendError;
use handfast::{Notice, ReceiveRight, Right};
use handfast_layout::LINE;
use handfast_layout::link::{Side, lane, slot};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Sends home what comes, late if that is asked for. Has a second port that it never looks at.
pub(crate) fn server(name: &str) {
    let port = handfast::bind(name).unwrap();
    let mut other = handfast::bind(&format!("{name}-other")).ok();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let rights = request.take_rights();
        if request.bytes() == b"late" {
            common::within_patience(|| request.is_cancelled());
        }
        if request.bytes() == b"unbind" {
            drop(other.take());
        }
        request.reply_with(b"", rights).unwrap();
    }
}

fn no_senders(port: &ReceiveRight) {
    port.notify_no_senders();
    let told = port.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!(told.notice(), Some(Notice::NoSenders));
}

#[test]
fn a_right_that_comes_home_to_a_call_that_was_given_up_has_gone_and_nobody_is_cut_off() {
    let name = common::name("late");
    let mut server = common::start("server of rights under way", &[&name]);
    server.expect("ready");
    let root = handfast::connect(&name).unwrap();
    let port = handfast::bind(&common::name("late-own")).unwrap();
    for round in 0..5 {
        let late = root
            .with([port.mint(7).into()])
            .call_timeout(b"late", 20 * MS);
        assert_eq!(late.unwrap_err().error, SendError::TimedOut);
        if round % 2 == 0 {
            // Nobody calls again meanwhile.
            no_senders(&port);
        }
        for _ in 0..20 {
            root.call(b"x").unwrap();
        }
    }
    server.kill();
}

#[test]
fn a_send_that_finds_no_room_takes_nothing_from_a_reply_under_way() {
    let name = common::name("full");
    let mut server = common::start("server of rights under way", &[&name]);
    server.expect("ready");
    let root = handfast::connect(&name).unwrap();
    let other = handfast::connect(&format!("{name}-other")).unwrap();
    let port = handfast::bind(&common::name("full-own")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // With what has no rights, which would count.
            while other.try_send(b"fill").is_ok() {}
            let mut rights: Vec<Right> = vec![port.mint(7).into()];
            while !stop.load(SeqCst) {
                rights = match other.with(rights).try_send(b"full") {
                    Ok(()) => vec![port.mint(7).into()],
                    Err(back) if back.error == SendError::Full => back.rights,
                    Err(back) => panic!("{back}"),
                };
            }
        });
        for _ in 0..40 {
            let call = root.with([port.mint(7).into()]).try_call(b"echo").unwrap();
            // Sleep: long enough for the server to give the right back.
            std::thread::sleep(6 * MS);
            let rights = call.wait().unwrap().take_rights();
            assert!(matches!(rights[..], [Right::Own(_)]), "{rights:?}");
        }
        stop.store(true, SeqCst);
    });
    server.kill();
}

#[test]
fn rights_in_the_queue_of_a_port_that_is_dropped_are_gone() {
    let name = common::name("unbound");
    let mut server = common::start("server of rights under way", &[&name]);
    server.expect("ready");
    let root = handfast::connect(&name).unwrap();
    let other = handfast::connect(&format!("{name}-other")).unwrap();
    let port = handfast::bind(&common::name("unbound-own")).unwrap();
    other.with([port.mint(7).into()]).send(b"").unwrap();
    root.call(b"unbind").unwrap();
    no_senders(&port);
    server.kill();
}

/// Uses its only right just before it is killed.
pub(crate) fn mortal(name: &str) {
    let root = handfast::connect(name).unwrap();
    let rights = root.call(b"open").unwrap().take_rights();
    let [Right::Send(right)] = &rights[..] else {
        panic!("{rights:?}");
    };
    right.send(b"last words").unwrap();
    common::say("sent");
    common::told();
}

#[test]
fn what_the_dead_have_sent_comes_before_the_notice_that_they_are_gone() {
    for round in 0..10 {
        let name = common::name(&format!("mortal-{round}"));
        let root = handfast::bind(&name).unwrap();
        let port = handfast::bind(&common::name("mortal-object")).unwrap();
        let mut child = common::start("mortal", &[&name]);
        let request = root.receive_timeout(common::PATIENCE).unwrap();
        request.reply_with(b"", [port.mint(7).into()]).unwrap();
        child.expect("sent");
        port.notify_no_senders();
        child.kill();
        let first = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!((first.badge(), first.bytes()), (7, &b"last words"[..]));
        let told = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(told.notice(), Some(Notice::NoSenders));
    }
}

/// Uses a right, gives it back, and posts by hand: through another right, and through that one.
pub(crate) fn stale(name: &str) {
    let root = handfast::connect(name).unwrap();
    let mut rights = root.call(b"open").unwrap().take_rights();
    let Some(Right::Send(right)) = rights.pop() else {
        panic!("{rights:?}");
    };
    right.send(b"honest").unwrap();
    common::say("sent");
    common::told().unwrap();
    drop(right);
    common::told().unwrap();
    let region = common::shared_words("handfast link")[0];
    for (place, handle) in [(1, 1 << 31), (2, 1 << 31 | 1)] {
        let at = Side::Connector.lane(1) + lane::CONTROL_BYTES + place * LINE;
        region.word(at + slot::META).store(0, SeqCst);
        region.word(at + slot::PORT).store(handle, SeqCst);
        region
            .word(at + slot::SEQUENCE)
            .store(place as u32 + 1, SeqCst);
        // The second port of its server.
        region.word(Side::Connector.ready(1)).fetch_or(2, SeqCst);
        common::say("posted");
        common::told();
    }
}

#[test]
fn a_right_that_was_given_back_opens_nothing_whatever_came_in_between() {
    let _alone = common::alone();
    let mut server = common::start("stale server", &[&common::name("stale")]);
    server.expect("done");
    server.finish();
}

/// A process with two ports, so that their receivers are known: nought and one.
pub(crate) fn stale_server(name: &str) {
    let root = handfast::bind(name).unwrap();
    let object = handfast::bind(&format!("{name}-object")).unwrap();
    let mut child = common::start("stale", &[name]);
    let request = root.receive_timeout(common::PATIENCE).unwrap();
    request.reply_with(b"", [object.mint(7).into()]).unwrap();
    child.expect("sent");
    let honest = object.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!((honest.badge(), honest.bytes()), (7, &b"honest"[..]));
    object.notify_no_senders();
    child.tell("drop it");
    let told = object.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!(told.notice(), Some(Notice::NoSenders));
    for _ in 0..2 {
        child.tell("post");
        child.expect("posted");
        let nothing = object.receive_timeout(30 * MS);
        assert!(nothing.is_err(), "{nothing:?}");
    }
    child.kill();
    common::say("done");
    common::told();
}
