//! Ports that share a receiver: objects of a server, each with rights, notices and an end of its own.

use crate::common;
use handfast::error::{ConnectError, Gone, RightError, SendError};
use handfast::{Batch, MemberPort, Notice, OwnRight, ReceiveRight, Right, SendRight};
use std::collections::{HashMap, HashSet};
use std::sync::mpsc;

/// As many as a client has.
const OBJECTS: usize = 2000;

/// Pairs of ports whose last rights end at nearly one time, and the steps between the two ends in which that varies.
const PAIRS: u32 = 20_000;
const STEPS: u32 = 400;
/// Messages to one port in a row.
const IN_A_ROW: usize = 10;

/// Makes an object for each call to its own port, and lets go of it when nobody has a right to it. Objects answer with their keys.
pub(crate) fn server(name: &str) {
    common::say_cuts();
    let port = handfast::bind(name).unwrap();
    let mut objects: HashMap<u32, MemberPort> = HashMap::new();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        match (request.notice(), request.member()) {
            (Some(Notice::NoSenders), Some(key)) => {
                objects.remove(&key).expect("one of the objects");
            }
            (None, Some(key)) => request.reply(&key.to_le_bytes()).unwrap(),
            (None, None) if request.bytes() == b"end" => {
                let key = *objects.keys().next().unwrap();
                objects.remove(&key);
                request.reply(&key.to_le_bytes()).unwrap();
            }
            (None, None) if request.bytes() == b"count" => {
                request.reply(&objects.len().to_le_bytes()).unwrap();
            }
            (None, None) => {
                let object = port.member().unwrap();
                object.notify_no_senders();
                let (key, right) = (object.key(), object.mint(0));
                objects.insert(key, object);
                let answer = key.to_le_bytes();
                request.reply_with(&answer, [right.into()]).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Has objects until it is killed.
pub(crate) fn holder(name: &str) {
    let server = handfast::connect(name).unwrap();
    let objects: Vec<_> = (0..OBJECTS).map(|_| object_of(&server)).collect();
    common::say("has them");
    common::told();
    drop(objects);
}

/// Sends to two objects and to their server's own port, with the key of each, before anything of that is received.
pub(crate) fn sender(name: &str) {
    let server = handfast::connect(name).unwrap();
    let (one, other) = (object_of(&server), object_of(&server));
    for (key, right) in [&one, &other, &(0, server.clone()), &one] {
        (0..IN_A_ROW).for_each(|_| right.send(&key.to_le_bytes()).unwrap());
    }
    common::say("sent");
    server.call(b"end").unwrap();
}

/// Keeps rights that come to it, and asks to be told of their end. Does with them what it is told; a name is that of a process to
/// which it gives copies.
pub(crate) fn user(name: &str) {
    let port = handfast::bind(name).unwrap();
    let (mut kept, mut told) = (Vec::<SendRight>::new(), 0);
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        if let Some(Notice::Dead(number)) = request.notice() {
            assert_eq!(number, told);
            told += 1;
            continue;
        }
        for right in common::send_rights(request.take_rights()) {
            right.notify_death(&port, kept.len() as u64);
            kept.push(right);
        }
        let is_gone =
            |right: &SendRight| right.try_send(b"late") == Err(SendError::Gone(Gone::Right));
        let answer = match str::from_utf8(request.bytes()).unwrap() {
            "keep" => true,
            "use" => kept.iter().all(|right| right.send(b"used").is_ok()),
            "gone?" => kept.iter().all(is_gone) && told == kept.len() as u64,
            name => {
                let rights = kept.iter().cloned().map(Right::from);
                let to = handfast::connect(name).unwrap();
                to.with(rights).call(b"keep").is_ok()
            }
        };
        request.reply(&[answer.into()]).unwrap();
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

fn object_of(server: &SendRight) -> (u32, SendRight) {
    let mut answer = server.call(b"make").unwrap();
    let key = number(&answer);
    match answer.take_rights().pop() {
        Some(Right::Send(right)) => (key, right),
        other => panic!("{other:?}"),
    }
}

fn count(server: &SendRight) -> u32 {
    number(&server.call(b"count").unwrap())
}

#[test]
fn a_server_has_thousands_of_objects_each_with_rights_of_its_own() {
    let name = common::name("objects");
    let process = common::start("server of objects", &[&name]);
    process.expect("ready");
    let server = handfast::connect(&name).unwrap();
    let objects: Vec<_> = (0..OBJECTS).map(|_| object_of(&server)).collect();
    for (key, right) in &objects {
        assert_eq!(number(&right.call(b"who").unwrap()), *key);
    }
    assert_eq!(count(&server) as usize, OBJECTS);

    // One ends; its holder hears of that, and the others go on.
    let ended = number(&server.call(b"end").unwrap());
    let is_gone = |right: &SendRight| right.call(b"who").is_err();
    for (key, right) in &objects {
        match *key == ended {
            true => assert!(common::within_patience(|| is_gone(right))),
            false => assert_eq!(number(&right.call(b"who").unwrap()), *key),
        }
    }
    drop(objects);
    assert!(common::within_patience(|| count(&server) == 0));
}

#[test]
fn objects_of_a_client_that_is_killed_hear_that_nobody_has_them() {
    let name = common::name("killed-objects");
    let process = common::start("server of objects", &[&name]);
    process.expect("ready");
    let server = handfast::connect(&name).unwrap();
    let own = object_of(&server);
    let mut holder = common::start("holder of objects", &[&name]);
    holder.expect("has them");
    assert_eq!(count(&server) as usize, OBJECTS + 1);
    holder.kill();
    assert!(common::within_patience(|| count(&server) == 1));
    assert_eq!(number(&own.1.call(b"who").unwrap()), own.0);
}

#[test]
fn notices_of_two_ports_that_are_due_at_nearly_one_time_both_come() {
    let server = handfast::anonymous().unwrap();
    let asked = |badge| {
        let member = server.member().unwrap();
        member.notify_no_senders();
        let right = member.mint(badge);
        (member, right)
    };
    std::thread::scope(|threads| {
        let (give, given) = mpsc::sync_channel::<(OwnRight, OwnRight, u32)>(1);
        threads.spawn(move || {
            for (first, second, steps) in given {
                drop(first);
                (0..steps).for_each(|_| std::hint::spin_loop());
                drop(second);
            }
        });
        for pair in 0..PAIRS {
            let ((one, to_one), (other, to_other)) = (asked(1), asked(2));
            let mut awaited = HashSet::from([one.key(), other.key()]);
            give.send((to_one, to_other, pair % STEPS)).unwrap();
            while !awaited.is_empty() {
                let notice = server.receive_timeout(common::PATIENCE);
                let notice = notice.unwrap_or_else(|error| panic!("pair {pair}: {error}"));
                assert_eq!(notice.notice(), Some(Notice::NoSenders));
                assert!(awaited.remove(&notice.member().unwrap()), "told twice");
            }
        }
    });
}

#[test]
fn a_batch_says_which_port_its_messages_came_to() {
    let name = common::name("batches-of-objects");
    let port = handfast::bind(&name).unwrap();
    let sender = common::start("sender to objects", &[&name]);
    let mut objects = Vec::new();
    for _ in 0..2 {
        let request = port.receive_timeout(common::PATIENCE).unwrap();
        let object = port.member().unwrap();
        let (key, right) = (object.key().to_le_bytes(), object.mint(0));
        request.reply_with(&key, [right.into()]).unwrap();
        objects.push(object);
    }
    sender.expect("sent");
    let (mut batch, mut came, mut batches) = (Batch::new(), Vec::new(), HashSet::new());
    loop {
        let request = port.receive_many_timeout(&mut batch, common::PATIENCE);
        for message in batch.messages() {
            assert_eq!(number(message), batch.member().unwrap_or_default());
            came.push(number(message));
        }
        if batch.messages().len() > 1 {
            batches.insert(batch.member());
        }
        match request.unwrap() {
            None => {}
            Some(request) if request.is_call() => break request.reply(b"").unwrap(),
            Some(request) => {
                assert_eq!(
                    number(request.bytes()),
                    request.member().unwrap_or_default()
                );
                came.push(number(request.bytes()));
            }
        }
    }
    let keys = [objects[0].key(), objects[1].key()];
    let sent = [keys[0], keys[1], 0, keys[0]];
    let sent: Vec<_> = sent.iter().flat_map(|key| [*key; IN_A_ROW]).collect();
    assert_eq!(came, sent);
    // Of more than one message: a batch of one would prove nothing.
    assert_eq!(batches, HashSet::from([Some(keys[0]), Some(keys[1]), None]));
}

/// Has two processes use a right to `member`: one that got it here, and one that got it from that.
fn used_by_two(server: &ReceiveRight, member: &MemberPort, names: &[String; 2]) -> [SendRight; 2] {
    let users = [0, 1].map(|user| handfast::connect(&names[user]).unwrap());
    let right = member.mint(1);
    users[0].with([right.into()]).call(b"keep").unwrap();
    assert_eq!(&*users[0].call(names[1].as_bytes()).unwrap(), [1]);
    for user in &users {
        assert_eq!(&*user.call(b"use").unwrap(), [1]);
        let used = server.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(
            (used.bytes(), used.member()),
            (&b"used"[..], Some(member.key()))
        );
    }
    users
}

#[test]
fn rights_to_the_ports_of_a_receiver_that_is_dropped_lead_nowhere() {
    let names = ["user-of-ended", "other-user-of-ended"].map(common::name);
    let processes = [0, 1].map(|user| common::start("user of objects", &[&names[user]]));
    processes.iter().for_each(|process| process.expect("ready"));
    let server = handfast::anonymous().unwrap();
    let member = server.member().unwrap();
    let before = member.mint(2);
    let users = used_by_two(&server, &member, &names);

    drop(server);
    // The next port has that receiver, and a member of its own.
    let next = handfast::anonymous().unwrap();
    let its_member = next.member().unwrap();
    assert_ne!(its_member.key(), member.key());
    for user in &users {
        let is_gone = || *user.call(b"gone?").unwrap() == [1];
        assert!(common::within_patience(is_gone));
    }
    for right in [before, member.mint(1), member.mint(3)] {
        let gone = right.connect().map(|_| ());
        assert!(matches!(gone, Err(ConnectError::Gone(_))), "{gone:?}");
        let returned = users[0].with([right.into()]).send(b"keep").unwrap_err();
        let error = returned.error;
        assert!(
            matches!(error, SendError::Right(RightError::Dead)),
            "{error:?}"
        );
    }
    member.notify_no_senders();
    member.notify_no_senders_of(4);
    let right = its_member.mint(1).connect().unwrap();
    right.send(b"first").unwrap();
    let first = next.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!(
        (first.bytes(), first.member()),
        (&b"first"[..], Some(its_member.key()))
    );
    assert!(next.try_receive().is_err());
    drop(member);
    right.send(b"second").unwrap();
    let second = next.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!(second.bytes(), b"second");
}
