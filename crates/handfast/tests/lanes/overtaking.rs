//! Messages that an introducer has sent through the old home of a port, and the same right given again to a process that
//! has followed that port already.

use crate::common;
use crate::common::within_patience;
use handfast::{Counters, ReceiveRight, Right, SendRight};
use std::sync::mpsc;
use std::time::Duration;

/// Gives a right to its other port, and that port to the new home.
pub(crate) fn old_home(name: &str, next: &str) {
    let door = handfast::bind(name).unwrap();
    let to = handfast::connect(next).unwrap();
    let port = handfast::anonymous().unwrap();
    let mut right = Some(port.mint(1));
    let (move_it, is_to_move) = mpsc::channel();
    std::thread::spawn(move || {
        serve(&port, || is_to_move.try_recv().is_ok());
        to.with([port.into()]).send(b"").unwrap();
    });
    common::say("ready");
    loop {
        let request = door.receive().unwrap();
        match request.bytes() {
            b"give" => request
                .reply_with(b"", [right.take().unwrap().into()])
                .unwrap(),
            _ => {
                move_it.send(()).unwrap();
                request.reply(b"").unwrap();
            }
        }
    }
}

/// Stops as soon as the port is there: it has taken it up, and nothing of what comes for it.
pub(crate) fn new_home(name: &str) {
    let door = handfast::bind(name).unwrap();
    common::say("ready");
    let mut request = loop {
        let request = door.receive().unwrap();
        if !request.is_call() {
            break request;
        }
        request.reply(b"").unwrap();
    };
    let Some(Right::Receive(port)) = request.take_rights().pop() else {
        panic!("no port has come");
    };
    let itself = rustix::process::getpid();
    rustix::process::kill_process(itself, rustix::process::Signal::STOP).unwrap();
    serve(&port, || false);
}

/// Answers calls with what came before them in one-way messages.
fn serve(port: &ReceiveRight, is_over: impl Fn() -> bool) {
    let mut told = Vec::new();
    while !is_over() {
        let Ok(request) = port.receive_timeout(Duration::from_millis(1)) else {
            continue;
        };
        match request.is_call() {
            true => request.reply(&told).unwrap(),
            false => told.extend_from_slice(request.bytes()),
        }
    }
}

/// Keeps the last right that came. Calls through it, sends `b` through it, or says to which process it leads.
pub(crate) fn recipient(name: &str, next: &str) {
    let port = handfast::bind(name).unwrap();
    // The link by which it follows although the new home stands still.
    let link = handfast::connect(next).unwrap();
    link.call(b"").unwrap();
    common::say("ready");
    let mut kept = None;
    loop {
        let mut request = port.receive().unwrap();
        if let Some(Right::Send(right)) = request.take_rights().pop() {
            kept = Some(right);
        }
        let right: &SendRight = kept.as_ref().unwrap();
        let answer = match request.bytes() {
            b"call" => right.call(b"").map(|_| 0).unwrap(),
            b"send" => right.send(b"b").map(|()| 0).unwrap(),
            _ => right.peer().pid,
        };
        request.reply(answer.to_string().as_bytes()).unwrap();
    }
}

#[test]
fn what_was_sent_through_an_old_home_arrives_before_what_a_right_that_came_again_is_used_for() {
    let names = ["old", "new", "recipient"].map(|of| common::name(&format!("overtaking-{of}")));
    let next = common::start("new home", &[&names[1]]);
    next.expect("ready");
    let old = common::start("old home", &[&names[0], &names[1]]);
    old.expect("ready");
    let recipient = common::start("recipient", &[&names[2], &names[1]]);
    recipient.expect("ready");
    let [door, to] = [&names[0], &names[2]].map(|name| handfast::connect(name).unwrap());
    let mut answer = door.call(b"give").unwrap();
    let Some(Right::Send(own)) = answer.take_rights().pop() else {
        panic!("no right came");
    };
    // Messages that the old home has taken from this process.
    let heard = || {
        let counters = door.counters().unwrap();
        let this = u64::from(std::process::id());
        let of_this = |row: &&Vec<u64>| Counters::value(row, "peer_pid") == this;
        let rows = counters.links.iter().filter(of_this);
        rows.map(|row| Counters::value(row, "calls")).sum::<u64>()
    };
    let give = |what: &[u8]| to.with([own.clone().into()]).call(what).unwrap();
    // Until the recipient keeps it, and the old home hears no more of it.
    assert!(within_patience(|| {
        let before = heard();
        (0..10).for_each(|_| drop(give(b"call")));
        heard() - before < 5
    }));
    door.call(b"move").unwrap();
    let pid = next.pid().to_string();
    assert!(within_patience(
        || *to.call(b"whose").unwrap() == *pid.as_bytes()
    ));
    // This process has no link with the new home, and gets none while that stands still.
    assert_eq!(own.peer().pid, old.pid());
    let before = heard();
    (0..20).for_each(|_| own.send(b"a").unwrap());
    assert!(within_patience(|| heard() - before >= 20));
    give(b"send");
    next.resume();
    let mut told = Vec::new();
    assert!(within_patience(|| {
        told = own.call(b"").unwrap().to_vec();
        told.len() == 21
    }));
    assert_eq!(told.iter().position(|one| *one == b'b'), Some(20));
}
