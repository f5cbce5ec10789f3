//! Ports that share a receiver: objects of a server, each with rights, notices and an end of its own.

use crate::common;
use handfast::{MemberPort, Notice, Right, SendRight};
use std::collections::HashMap;

/// As many as a client has.
const OBJECTS: usize = 2000;

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
