//! Servers and clients that send what no honest one does.

use crate::common::{self, Random};
use crate::server::{AllClient, AllServer, Color, Point, Tree};
use crate::typed::start;
use handfast::error::{Gone, SendError};
use handfast::service::{CallError, Malformed};
use handfast::{OwnRight, ReceiveRight, Right};
use std::collections::HashMap;
use std::sync::Mutex;

/// Answers each call with what it was told, and a right when it begins with `r`.
pub(crate) fn liar(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let reply = Mutex::new(Vec::new());
    loop {
        let request = port.receive().unwrap();
        if !request.is_call() {
            *reply.lock().unwrap() = request.bytes().to_vec();
            continue;
        }
        let reply = reply.lock().unwrap();
        match reply.split_first() {
            Some((b'r', reply)) => request.reply_with(reply, [port.mint(1).into()]).unwrap(),
            Some((_, reply)) => request.reply(reply).unwrap(),
            None => drop(request),
        }
    }
}

#[test]
fn a_reply_that_is_none_is_a_typed_error_and_never_a_panic() {
    let name = common::name("liar");
    let mut server = common::start("liar", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let all = AllClient::new(right.clone());
    let lie = |bytes: &[u8]| right.send(bytes).unwrap();
    let why = |error: CallError| match error {
        CallError::Reply { why, .. } => why,
        other => panic!("{other:?}"),
    };
    lie(b"-");
    assert_eq!(why(all.nothing().unwrap_err()), Malformed::Value);
    lie(b"-\0\0");
    assert_eq!(why(all.nothing().unwrap_err()), Malformed::Left);
    // No point: its color is none.
    let mut point = vec![b'-'; 26];
    point[25] = 0;
    lie(&point);
    let (color, zero) = (Color::Blue, [0; 6]);
    let there = Point {
        x: 1.0,
        y: 2.0,
        color,
        is_big: true,
        zero,
    };
    assert_eq!(
        why(all.mirror(&there, there).unwrap_err()),
        Malformed::Value
    );
    lie(b"-\x05ab\0");
    assert_eq!(
        why(all.text("", String::new()).unwrap_err()),
        Malformed::Value
    );
    lie(b"-\x02\xff\xff\0");
    assert_eq!(
        why(all.text("", String::new()).unwrap_err()),
        Malformed::Value
    );
    lie(b"-\0");
    assert_eq!(why(all.mint(1).unwrap_err()), Malformed::Rights);
    lie(b"r\x01\x05\0");
    assert_eq!(why(all.either(true).unwrap_err()), Malformed::Rights);
    lie(b"r\0\x01\x02\0");
    assert_eq!(why(all.either(true).unwrap_err()), Malformed::Rights);
    // A status that is none, refusals that are none.
    for reply in [&b"-\x09"[..], b"-\x04", b"-\x09\x04", b"-1234567\x01"] {
        lie(reply);
        assert_eq!(why(all.nothing().unwrap_err()), Malformed::Value);
    }
    let mut random = Random::seeded("lies");
    let (mut errors, mut values) = (0, 0);
    for round in 0..4000u32 {
        let mut reply = vec![0; random.below(60) as usize];
        reply.fill_with(|| random.next() as u8);
        reply.insert(0, if random.below(4) == 0 { b'r' } else { b'-' });
        if random.below(4) > 0 {
            reply.push(0);
        }
        lie(&reply);
        let is_error = match round % 8 {
            0 => all.numbers(1, 2, 3.0, true, [1; 3]).is_err(),
            1 => all.mirror(&there, there).is_err(),
            2 => all.list(&[], &[]).is_err(),
            3 => all.tree(&Tree::Node(vec![]), None).is_err(),
            4 => all.notes().is_err(),
            5 => all.either(true).is_err(),
            6 => all.use_it(lasting_right(), "x").is_err(),
            _ => all.bytes(&[], vec![]).is_err(),
        };
        *(if is_error { &mut errors } else { &mut values }) += 1;
    }
    println!("{errors} errors, {values} values");
    assert!(errors > 1000);
    server.kill();
}

/// A right to a port that stays.
fn lasting_right() -> OwnRight {
    static PORT: Mutex<Option<ReceiveRight>> = Mutex::new(None);
    let mut port = PORT.lock().unwrap();
    let port = port.get_or_insert_with(|| handfast::bind(&common::name("mint")).unwrap());
    port.mint(1)
}

/// Valid requests of many methods, as their client makes them.
fn requests() -> Vec<Vec<u8>> {
    let port = handfast::bind(&common::name("recorder")).unwrap();
    let all = AllClient::new(handfast::connect(port.name()).unwrap());
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            let requests = (0..8).map(|_| port.receive_timeout(common::PATIENCE).unwrap());
            requests.map(|request| request.bytes().to_vec()).collect()
        });
        let (color, zero) = (Color::Red, [0; 6]);
        let point = Point {
            x: 1.0,
            y: 2.0,
            color,
            is_big: false,
            zero,
        };
        let leaf = Tree::Leaf("leaf".to_owned());
        let tree = Tree::Node(vec![leaf.clone(), Tree::Node(vec![leaf])]);
        let _ = all.nothing();
        let _ = all.numbers(1, 2, 3.0, true, [4; 3]);
        let _ = all.mirror(&point, point);
        let _ = all.text("text", "owned".to_owned());
        let _ = all.bytes(&[1; 300], vec![2; 3]);
        let _ = all.list(&[1, 2, u64::MAX], &["a".to_owned(), "b".to_owned()]);
        let _ = all.tree(&tree, Some(tree.clone()));
        let _ = all.note("note", 7);
        recorder.join().unwrap()
    })
}

/// One to be answered: not that of a method which takes for ever.
fn is_answered(request: &[u8]) -> bool {
    let waits = AllServer::SERVICE
        .methods()
        .iter()
        .position(|method| method.name() == "waits");
    let waits = (waits.unwrap() as u16).to_le_bytes();
    request.get(..2) != Some(&waits[..])
}

fn changed(request: &[u8], random: &mut Random) -> Vec<u8> {
    let mut request = request.to_vec();
    for _ in 0..=random.below(3) {
        let len = request.len() as u64;
        // Mostly behind the word, which decides alone otherwise.
        let at = (8 * u64::from(random.below(8) > 0) + random.below(len)).min(len - 1) as usize;
        match random.below(6) {
            0 => request[at] = random.next() as u8,
            1 => request[at] ^= 1 << random.below(8),
            2 => request[at] = 0xff,
            3 => request.truncate(at.max(1)),
            4 => request.insert(at, random.next() as u8),
            _ => request[0] = random.below(24) as u8,
        }
    }
    request
}

#[test]
fn whatever_a_client_sends_it_gets_an_answer_and_the_server_goes_on() {
    let (mut server, all) = start("hostile");
    let mine = handfast::bind(&common::name("hostile-mine")).unwrap();
    let right = all.right().clone();
    let requests = requests();
    let mut random = Random::seeded("requests");
    let mut answers = HashMap::<&str, u32>::new();
    let end = std::time::Instant::now() + common::campaign(2);
    let patience = end + common::PATIENCE;
    let now = std::time::Instant::now;
    while now() < end || (answers.len() < 6 && now() < patience) {
        let chosen = &requests[random.below(requests.len() as u64) as usize];
        let request = match random.below(5) {
            0 => (0..random.below(50)).map(|_| random.next() as u8).collect(),
            _ => changed(chosen, &mut random),
        };
        if !is_answered(&request) {
            continue;
        }
        let rights = if random.below(4) == 0 {
            random.below(5)
        } else {
            0
        };
        let rights: Vec<Right> = (0..rights)
            .map(|badge| match random.below(2) {
                0 => mine.mint(badge).into(),
                _ => right.clone().into(),
            })
            .collect();
        let sending = right.with(rights);
        if random.below(8) == 0 {
            sending.send(&request).unwrap();
            continue;
        }
        let answer = match sending.call_timeout(&request, common::PATIENCE) {
            Ok(reply) => match *reply.last().expect("a status") {
                0 => "done",
                1 => "another service",
                2 => "no such method",
                3 => "one-way or not",
                4 => "arguments",
                5 => "result",
                other => panic!("status {other}"),
            },
            // A method that panics, as `fails` does and others when they are sent a port of this
            // process that is gone.
            Err(returned) if returned.error == SendError::Gone(Gone::Reply) => "panicked",
            Err(returned) => panic!("{returned} ({request:x?})"),
        };
        *answers.entry(answer).or_default() += 1;
    }
    println!("{answers:?}");
    assert!(answers.len() >= 6, "{answers:?}");
    all.nothing().unwrap();
    server.kill();
}

#[test]
fn each_way_to_be_wrong_has_its_refusal() {
    let (mut server, all) = start("refusals");
    let call = |bytes: &[u8]| {
        let reply = all.right().call_timeout(bytes, common::PATIENCE).unwrap();
        reply.to_vec()
    };
    let serves = AllServer::SERVICE.fingerprint();
    let word = |number: u16| (serves << 16 | u64::from(number)).to_le_bytes();
    let other = [&serves.to_le_bytes()[..], &[1]].concat();
    for strange in [&b""[..], b"hello", b"hello you", &[0; 8]] {
        assert_eq!(call(strange), other);
    }
    assert_eq!(call(&word(0)), [0]);
    assert_eq!(call(&word(999)), [2]);
    assert_eq!(call(&word(u16::MAX)), [2]);
    assert_eq!(call(&word(1)), [1, 4], "arguments that end early");
    assert_eq!(
        call(&[&word(0)[..], b"x"].concat()),
        [2, 4],
        "bytes left over"
    );
    // `mirror`: a point whose color is none.
    let mut points = [&word(2)[..], &[0; 48]].concat();
    assert_eq!(call(&points), [1, 4]);
    (points[24], points[48]) = (1, 7);
    assert_eq!(call(&points).len(), 25);
    // `text`: a string that says it is longer than the message, one that is no text.
    for text in [
        &b"\x7ftext"[..],
        b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x01\xff\0",
    ] {
        assert_eq!(call(&[&word(3)[..], text].concat()), [1, 4]);
    }
    // `tree`, nested as deep as a message is long.
    let deep = [&word(6)[..], &[1; 60_000]].concat();
    assert_eq!(call(&deep), [1, 4]);
    // A call of the one-way `note`, and `notes` sent one-way: nothing runs.
    assert_eq!(AllServer::SERVICE.methods()[11].name(), "note");
    assert_eq!(call(&[&word(11)[..], &[0; 5]].concat()), [3]);
    all.right().send(&word(12)).unwrap();
    all.note("x", 1).unwrap();
    assert_eq!(all.notes().unwrap().len(), 1);
    server.kill();
}
