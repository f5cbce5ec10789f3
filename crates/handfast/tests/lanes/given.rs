//! More ports of one process than a link has lanes.

use crate::common;
use crate::common::{PATIENCE, Random, within_patience};
use handfast::error::SendError;
use handfast::{ReceiveRight, Right, SendRight};
use std::collections::HashMap;
use std::time::{Duration, Instant};

static IDLE: std::sync::Mutex<Vec<ReceiveRight>> = std::sync::Mutex::new(Vec::new());

/// More than there are lanes.
const PORTS: usize = 40;

/// Gives a right to each of many ports, by its number.
fn many_ports(name: &str, mut begin: impl FnMut(ReceiveRight)) {
    let control = handfast::bind(name).unwrap();
    let mut rights = Vec::new();
    for _ in 0..PORTS {
        let port = handfast::anonymous().unwrap();
        rights.push(port.mint(0));
        begin(port);
    }
    common::say("ready");
    loop {
        let request = control.receive().unwrap();
        let number: usize = String::from_utf8_lossy(request.bytes()).parse().unwrap();
        let right = rights[number].clone();
        request.reply_with(b"", [right.into()]).unwrap();
    }
}

/// Gives what it gets from another, by its number.
pub(crate) fn giver(name: &str, of: &str) {
    let control = handfast::bind(name).unwrap();
    let of = handfast::connect(of).unwrap();
    common::say("ready");
    loop {
        let request = control.receive().unwrap();
        let rights = of.call(request.bytes()).unwrap().take_rights();
        request.reply_with(b"", rights).unwrap();
    }
}

pub(crate) fn busy(name: &str) {
    many_ports(name, |port| {
        std::thread::spawn(move || serve(&port));
    });
}

pub(crate) fn slow(name: &str) {
    many_ports(name, |port| {
        std::thread::spawn(move || serve_slowly(&port));
    });
}

pub(crate) fn idle(name: &str) {
    std::thread::spawn(take_when_told);
    many_ports(name, |port| IDLE.lock().unwrap().push(port));
}

/// Takes one message at the port with the number it is told, and answers it, if it is a call.
fn take_when_told() {
    while let Some(number) = common::told() {
        let ports = IDLE.lock().unwrap();
        let port = &ports[number.parse::<usize>().unwrap()];
        let request = port.receive_timeout(PATIENCE).unwrap();
        if request.is_call() {
            request.reply(b"late").unwrap();
        }
        // The message that was taken is reported when it looks for more.
        assert!(port.try_receive().is_err());
        common::say("taken");
    }
}

/// Takes numbers of senders, which must come in turn; answers how many have come that have not.
fn serve(port: &ReceiveRight) {
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut wrong = 0_u64;
    loop {
        let request = port.receive().unwrap();
        let [sender, number] = [0, 8].map(|at| {
            let word = request.bytes()[at..at + 8].try_into().unwrap();
            u64::from_le_bytes(word)
        });
        let before = last.insert(sender, number).unwrap_or(0);
        wrong += u64::from(number != before + 1);
        if request.is_call() {
            request.reply(&wrong.to_le_bytes()).unwrap();
        }
    }
}

/// Takes some milliseconds for each call, and some for each message.
fn serve_slowly(port: &ReceiveRight) {
    loop {
        let request = port.receive().unwrap();
        // Sleep: stands for work.
        std::thread::sleep(Duration::from_millis(3));
        if request.is_call() {
            request.reply(b"").unwrap();
        }
    }
}

fn message(sender: u64, number: u64) -> Vec<u8> {
    [sender.to_le_bytes(), number.to_le_bytes()].concat()
}

/// The child, and a right to each of its ports.
fn start(role: &'static str, what: &str) -> (common::Child, Vec<SendRight>) {
    let name = common::name(&format!("lanes-{what}"));
    let child = common::start(role, &[&name]);
    child.expect("ready");
    let control = handfast::connect(&name).unwrap();
    let rights = (0..PORTS).map(|number| {
        let mut answer = control.call(number.to_string().as_bytes()).unwrap();
        match answer.take_rights().pop() {
            Some(Right::Send(right)) => right,
            other => panic!("{other:?}"),
        }
    });
    let rights = rights.collect();
    (child, rights)
}

#[test]
fn one_process_calls_more_ports_of_another_than_a_link_has_lanes() {
    let (_child, rights) = start("busy", "more");
    for number in 1..=5 {
        for right in &rights {
            let wrong = right.call_timeout(&message(0, number), PATIENCE).unwrap();
            assert_eq!(*wrong, 0_u64.to_le_bytes());
        }
    }
}

#[test]
fn messages_to_more_ports_than_there_are_lanes_keep_their_order() {
    const SENDERS: u64 = 4;
    let (_child, rights) = start("busy", "order");
    let seed = Random::seeded("lanes").next();
    std::thread::scope(|scope| {
        for sender in 1..=SENDERS {
            let rights = &rights;
            scope.spawn(move || {
                let mut random = Random::of(seed.wrapping_add(sender));
                let mut numbers = [0; PORTS];
                for _ in 0..1500 {
                    // Some ports more often than others.
                    let among = [3, 12, PORTS as u64][random.below(3) as usize];
                    let port = random.below(among) as usize;
                    for _ in 0..=random.below(4) {
                        numbers[port] += 1;
                        let bytes = message(sender, numbers[port]);
                        rights[port].send_timeout(&bytes, PATIENCE).unwrap();
                    }
                    if random.below(2) == 0 {
                        numbers[port] += 1;
                        let bytes = message(sender, numbers[port]);
                        let wrong = rights[port].call_timeout(&bytes, PATIENCE).unwrap();
                        assert_eq!(*wrong, 0_u64.to_le_bytes(), "seed {seed}");
                    }
                }
            });
        }
    });
    for right in &rights {
        let wrong = right.call_timeout(&message(99, 1), PATIENCE).unwrap();
        assert_eq!(*wrong, 0_u64.to_le_bytes(), "seed {seed}");
    }
}

#[test]
fn ports_that_nobody_receives_from_give_back_their_lanes() {
    let (mut child, rights) = start("idle", "idle");
    for (number, right) in rights.iter().enumerate() {
        let call = within(|| right.try_call(b"").ok());
        child.tell(&number.to_string());
        assert_eq!(&*call.wait_timeout(PATIENCE).unwrap(), b"late");
    }
}

#[test]
fn a_right_that_came_when_there_was_no_lane_goes_direct_when_it_is_used_and_there_is_one() {
    let (mut child, rights) = start("idle", "late");
    let [of, name] = ["lanes-late", "lanes-giver"].map(common::name);
    let giver = common::start("giver", &[&name, &of]);
    giver.expect("ready");
    let last = PORTS - 1;
    let control = handfast::connect(&name).unwrap();
    // A message that nobody takes keeps its lane.
    let is_sent = |right: &&SendRight| within(|| not_full(right.try_send(b""))).is_ok();
    let sent = rights[..last].iter().take_while(is_sent).count();
    assert!((10..20).contains(&sent), "{sent}");
    let mut answer = control.call(last.to_string().as_bytes()).unwrap();
    let Some(Right::Send(right)) = answer.take_rights().pop() else {
        panic!("no right came");
    };
    let calls = |child: &mut common::Child| {
        let call = within(|| right.try_call(b"").ok());
        child.tell(&last.to_string());
        assert_eq!(&*call.wait_timeout(PATIENCE).unwrap(), b"late");
        child.expect("taken");
    };
    for _ in 0..3 {
        calls(&mut child);
        assert_eq!(right.peer().pid, giver.pid());
    }
    // One is taken at another port.
    child.tell("3");
    child.expect("taken");
    assert!(within_patience(|| {
        calls(&mut child);
        right.peer().pid == child.pid()
    }));
}

#[test]
fn threads_that_call_more_slow_ports_than_there_are_lanes_have_turns() {
    let (_child, rights) = start("slow", "slow");
    // At best of some attempts: others have the processors now and then.
    let have_turns = (0..4).any(|_| {
        let counts = at_once(&rights, |right| {
            let _ = right.call(b"").unwrap();
            1
        });
        println!("{counts:?}");
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        least * 3 > *most
    });
    assert!(have_turns);
}

#[test]
fn who_calls_has_turns_beside_those_whose_messages_are_taken_slowly() {
    let (_child, rights) = start("slow", "streams");
    let counts = at_once(&rights[..20], |right| {
        right.send(b"").unwrap();
        1
    });
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

/// How often a thread for each right has done something in a while.
fn at_once(rights: &[SendRight], does: impl Fn(&SendRight) -> u64 + Sync) -> Vec<u64> {
    let (begun, lasts) = (Instant::now(), common::campaign(3));
    std::thread::scope(|scope| {
        let threads = rights.iter().map(|right| {
            let does = &does;
            scope.spawn(move || {
                let mut count = 0;
                while begun.elapsed() < lasts {
                    count += does(right);
                }
                count
            })
        });
        let threads: Vec<_> = threads.collect();
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.collect()
    })
}

/// The value that `look` finds within patience.
fn within<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    assert!(within_patience(|| {
        found = look();
        found.is_some()
    }));
    found.unwrap()
}

#[test]
fn who_finds_all_lanes_in_use_is_told_so_and_goes_on_when_one_is_free() {
    let (mut child, rights) = start("idle", "full");
    // A message that nobody takes keeps its lane.
    let sent = rights
        .iter()
        .take_while(|right| within(|| not_full(right.try_send(b""))).is_ok());
    let sent = sent.count();
    assert!((10..20).contains(&sent), "{sent}");
    let error = rights[sent].send(b"").unwrap_err();
    assert!(matches!(error, SendError::Exhausted(_)), "{error:?}");
    let error = rights[sent].try_send(b"").unwrap_err();
    assert!(matches!(error, SendError::Exhausted(_)), "{error:?}");
    child.tell("3");
    assert!(within_patience(|| rights[sent].try_send(b"").is_ok()));
}

/// The outcome, unless a lane is on its way.
fn not_full(sent: Result<(), SendError>) -> Option<Result<(), SendError>> {
    (sent != Err(SendError::Full)).then_some(sent)
}
