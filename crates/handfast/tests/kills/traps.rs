//! Traps in which systems like this one have been caught, one test each: what goes wrong when processes, rights
//! and messages meet at the wrong moment. Between real processes, most of them with real kills.
//!
//! The eighth, a port that moves while rights to it are given to others, is in the directory `moves`.
//! Of the fourteenth, leases of nodes, one machine has the end and the successor of a process.

mod peers;

use crate::common::{self, Random};
use crate::trio::How::{self, Door, Linked, Vine};
use crate::trio::{Trio, call, send};
use handfast::error::SendError;
use handfast::{Identity, Notice, ReceiveRight, Right, SendRight};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A recipient, and the right to give it something.
fn holder(what: &str) -> (common::Child, SendRight) {
    let name = common::name(what);
    let child = common::start("recipient", &[&name]);
    child.expect("ready");
    (child, handfast::connect(&name).unwrap())
}

fn give(to: &SendRight, right: Right) {
    let _ = to.with([right]).call(b"keep").unwrap();
}

/// The port is told that there is no sender, and of nothing else for a while.
fn told_once(port: &ReceiveRight) {
    let told = port.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!(told.notice(), Some(Notice::NoSenders), "{told:?}");
    nothing_more(port);
}

fn nothing_more(port: &ReceiveRight) {
    // Twice as long as a notice may take.
    let more = port.receive_timeout(Duration::from_millis(20));
    assert!(more.is_err(), "{more:?}");
}

/// Answers calls at `port` with badge and text, until it is told to stop.
fn serve(port: &ReceiveRight, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(request) = port.receive_timeout(Duration::from_millis(5)) else {
            continue;
        };
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let answer = format!("{}: {text}", request.badge());
        request.reply(answer.as_bytes()).unwrap();
    }
}

#[test]
fn trap_01_a_right_that_is_sent_again_while_it_is_given_back_is_the_one_that_was_sent() {
    let _alone = common::alone();
    let mut random = Random::seeded("trap 1");
    let (_holder, to) = holder("trap-1-holder");
    let port = handfast::bind(&common::name("trap-1")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&port, &stop));
        for round in 0..300 {
            // The same, or another in the place of one that is about to be free.
            let badge = random.below(3);
            give(&to, port.mint(badge).into());
            let answer = call(&to, &format!("call 0 {round}"));
            assert_eq!(answer, format!("{badge}: {round}"));
            to.send(b"drop").unwrap();
            // It is given back some two milliseconds later.
            let wait = Instant::now() + Duration::from_micros(random.below(3000));
            while random.below(4) == 0 && Instant::now() < wait {
                std::hint::spin_loop();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn trap_02_a_right_that_is_given_back_by_a_process_that_dies_ends_once() {
    let _alone = common::alone();
    let mut random = Random::seeded("trap 2");
    let (_stays, kept) = holder("trap-2-stays");
    let port = handfast::bind(&common::name("trap-2")).unwrap();
    for round in 0..20 {
        let (mut dies, to) = holder(&format!("trap-2-dies-{round}"));
        for to in [&to, &kept] {
            give(to, port.mint(1).into());
            give(to, port.mint(2).into());
        }
        port.notify_no_senders();
        to.send(b"drop").unwrap();
        // Sleep: a moment chosen at random.
        std::thread::sleep(Duration::from_micros(random.below(4000)));
        dies.kill();
        // Counted twice it would have taken the other process's rights with it.
        nothing_more(&port);
        kept.send(b"drop").unwrap();
        told_once(&port);
    }
}

/// Introduces a right, and when it is told another; the recipient need not take that at once.
pub(crate) fn introducer_by_steps(exporter: &str, recipient: &str) {
    let door = handfast::connect(exporter).unwrap();
    let to = handfast::connect(recipient).unwrap();
    let open = |badge: &str| {
        let mut answer = door.call(format!("open {badge}").as_bytes()).unwrap();
        answer.take_rights().pop().unwrap()
    };
    give(&to, open("1"));
    let second = open("2");
    common::say("introduced");
    common::told();
    to.with([second]).send(b"keep").unwrap();
    common::say("sent");
    while common::told().is_some() {}
}

/// Some are stopped while a right is introduced, so that it is under way, and then one is killed.
fn killed_at_a_step(how: How, stopped: &[&str], victim: &str) {
    let what = format!("trap-3-{}-{victim}", stopped.join("-"));
    let mut trio = Trio::new(&what, how);
    let names = trio.names.clone();
    let mut introducer = common::start("introducer by steps", &[&names[0], &names[1]]);
    introducer.expect("introduced");
    assert_eq!(trio.ask("call 0 x"), "1: x 0");
    assert!(trio.is_linked());
    let exporter = trio.exporter.pid().to_string();
    assert!(common::within_patience(|| trio.ask("peer 0") == exporter));
    assert_eq!(trio.ask("call 0 x"), "1: x 0");
    let of = |trio: &'_ Trio, each: fn(&common::Child)| {
        let of = |who: &str| match who {
            "exporter" => each(&trio.exporter),
            _ => each(&trio.recipient),
        };
        stopped
            .iter()
            .filter(|who| **who != victim)
            .for_each(|who| of(who));
    };
    of(&trio, common::Child::stop);
    introducer.tell("the next");
    introducer.expect("sent");
    match victim {
        "introducer" => introducer.kill(),
        "exporter" => trio.exporter.kill(),
        _ => trio.recipient.kill(),
    }
    of(&trio, common::Child::resume);
    if victim == "recipient" {
        return trio.exporter.expect("no senders");
    }
    assert!(
        common::within_patience(|| trio.ask("keep") == "2"),
        "{what}"
    );
    for badge in 1..=2 {
        let answer = trio.ask(&format!("call {} y", badge - 1));
        match victim {
            "exporter" => assert!(answer.starts_with("Gone("), "{what}: {answer}"),
            _ => assert_eq!(answer, format!("{badge}: y 0"), "{what}"),
        }
    }
    if victim == "introducer" {
        trio.ask("drop");
        trio.exporter.expect("no senders");
    }
}

#[test]
fn trap_03_whoever_is_killed_at_whichever_step_of_an_introduction_ends_what_was_its_own() {
    let _alone = common::alone();
    let stops: [&[&str]; 4] = [
        &[],
        &["recipient"],
        &["exporter"],
        &["exporter", "recipient"],
    ];
    for how in [Linked, Door] {
        for stopped in stops {
            for victim in ["introducer", "recipient", "exporter"] {
                killed_at_a_step(how, stopped, victim);
            }
        }
    }
}

#[test]
fn trap_04_a_right_by_two_introducers_is_one() {
    let _alone = common::alone();
    let trio = Trio::new("trap-4", Linked);
    let mine = common::name("trap-4-mine");
    let port = handfast::bind(&mine).unwrap();
    let _link = handfast::connect(&trio.names[0]).unwrap();
    let arguments = [&trio.names[0], &mine, "7"];
    let _both = [0; 2].map(|_| common::start("introducer", &arguments));
    let came = [0; 2].map(|_| {
        let mut request = port.receive().unwrap();
        let right = send(request.take_rights().pop().unwrap());
        request.reply(b"").unwrap();
        right
    });
    assert!(came.iter().all(|right| call(right, "x") == "7: x 0"));
    assert_eq!(came[0].identity(&came[1]), Identity::Same);
    assert_eq!(came[0].identity(&send(trio.open(7))), Identity::Same);
    assert_eq!(came[0].identity(&send(trio.open(8))), Identity::Different);
}

#[test]
fn trap_05_a_right_that_goes_back_to_its_exporter_or_introducer_is_what_it_was() {
    let _alone = common::alone();
    for how in [Linked, Door, Vine] {
        let trio = Trio::new("trap-5", how);
        let given = send(trio.open(3));
        trio.keep([given.clone().into()]);
        assert_eq!(trio.ask("call 0 x"), "3: x 0");
        // To who introduced it.
        let back = trio.to.call(b"give 0").unwrap().take_rights().pop();
        let back = send(back.unwrap());
        assert_eq!(call(&back, "y"), "3: y 0");
        // Until the exporter has said which it is that may be unknown.
        let is_same = || back.identity(&given) == Identity::Same;
        assert!(common::within_patience(is_same), "{how:?}");
        // To the exporter: a recipient hands over what it has in its own call.
        let name = common::name(&format!("trap-5-own-{how:?}"));
        let own = handfast::bind(&name).unwrap();
        trio.keep([own.mint(9).into()]);
        let mut answer = trio.to.call(b"give 1").unwrap();
        match &answer.take_rights()[..] {
            [Right::Own(right)] => assert!(right.is_to(&own) && right.badge() == 9),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn trap_06_two_processes_that_connect_to_each_other_at_once_have_one_link() {
    let _alone = common::alone();
    let mut random = Random::seeded("trap 6");
    for round in 0..25 {
        let names = ["a", "b"].map(|which| common::name(&format!("trap-6-{round}-{which}")));
        let mut pair = [0, 1].map(|at| common::start("crosser", &[&names[at], &names[1 - at]]));
        pair.iter().for_each(|child| child.expect("bound"));
        let start_ns = handfast_sys::clock::now_ns() + 1_000_000;
        for child in &mut pair {
            child.tell(&(start_ns + random.below(100_000)).to_string());
        }
        pair.iter().for_each(|child| child.expect("connected"));
        pair.iter_mut().for_each(|child| child.tell("count"));
        pair.iter().for_each(|child| child.expect("1 links"));
    }
}

#[test]
fn trap_07_a_right_that_is_passed_on_before_it_is_direct_becomes_so_at_both() {
    let _alone = common::alone();
    for how in [Linked, Door] {
        let trio = Trio::new("trap-7", how);
        let further = common::name(&format!("trap-7-further-{how:?}"));
        let last = common::start("recipient", &[&further]);
        last.expect("ready");
        let to_last = handfast::connect(&further).unwrap();
        for badge in 1..=20 {
            let place = badge - 1;
            // One after the other, with no answer of the exporter in between.
            trio.to.with([trio.open(badge)]).send(b"keep").unwrap();
            trio.ask(&format!("pass {place} {further}"));
            let answer = call(&to_last, &format!("call {place} x"));
            assert_eq!(answer, format!("{badge}: x 0"), "{how:?}");
            let answer = trio.ask(&format!("call {place} y"));
            assert_eq!(answer, format!("{badge}: y 0"), "{how:?}");
        }
        let between = trio.recipient.pid().to_string();
        let is_past = |place| call(&to_last, &format!("peer {place}")) != between;
        assert!(common::within_patience(|| (0..20).all(is_past)), "{how:?}");
        // Nobody is on the way any more.
        let mut trio = trio;
        trio.recipient.kill();
        for badge in 1..=20 {
            let answer = call(&to_last, &format!("call {} z", badge - 1));
            assert_eq!(answer, format!("{badge}: z 0"), "{how:?}");
        }
        let _ = call(&to_last, "drop");
        trio.exporter.expect("no senders");
    }
}

#[test]
fn trap_09_a_tail_call_to_a_server_that_dies_has_one_outcome() {
    let _alone = common::alone();
    let mut random = Random::seeded("trap 9");
    for round in 0..12 {
        let names =
            ["last", "middle"].map(|which| common::name(&format!("trap-9-{round}-{which}")));
        let mut last = common::start("echo", &[&names[0]]);
        last.expect("ready");
        let middle = common::start("middle", &[&names[1], &names[0]]);
        middle.expect("ready");
        let _link = (round % 2 == 0).then(|| handfast::connect(&names[0]).unwrap());
        let right = handfast::connect(&names[1]).unwrap();
        let (calls, stop) = ([0u64; 3], AtomicBool::new(false));
        let outcomes = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..3)
                .map(|key| {
                    let (right, stop) = (&right, &stop);
                    scope.spawn(move || {
                        let mut outcomes = calls;
                        while !stop.load(Ordering::Relaxed) || outcomes[1] == 0 {
                            let sent = format!("{key} {}", outcomes[0]);
                            match right.call_timeout(sent.as_bytes(), common::PATIENCE) {
                                Ok(answer) if *answer == *sent.as_bytes() => outcomes[0] += 1,
                                // The middle one could not pass it on any more.
                                Ok(answer) if answer.starts_with(b"Gone(") => outcomes[1] += 1,
                                Err(SendError::Gone(_)) => outcomes[2] += 1,
                                other => panic!("{other:?}"),
                            }
                        }
                        outcomes
                    })
                })
                .collect();
            // Sleep: a moment chosen at random.
            std::thread::sleep(Duration::from_micros(5000 + random.below(10_000)));
            last.kill();
            stop.store(true, Ordering::Relaxed);
            let callers = callers.into_iter().map(|caller| caller.join().unwrap());
            callers.collect::<Vec<_>>()
        });
        println!("answered, not passed on, lost with the last one: {outcomes:?}");
    }
}

/// Calls that are under way each way, and what fills the queue behind them.
const UNDER_WAY: usize = 8;

/// Makes calls, and fills the queue; then answers as many, and takes the answers.
fn saturate(port: &ReceiveRight, right: &SendRight, mut together: impl FnMut()) {
    let calls: Vec<_> = (0..UNDER_WAY)
        .map(|number| right.try_call(&[number as u8]).unwrap())
        .collect();
    let mut filled = 0;
    while right.try_send(b"full").is_ok() {
        filled += 1;
    }
    assert!(filled > 0);
    together();
    // The other's queue is full, and stays so: nothing is received behind these.
    for number in 0..UNDER_WAY {
        let request = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(request.bytes(), [number as u8]);
        request.reply(&[number as u8, 1]).unwrap();
    }
    for (number, call) in calls.into_iter().enumerate() {
        let answer = call.wait_timeout(common::PATIENCE).unwrap();
        assert_eq!(*answer, [number as u8, 1]);
    }
    together();
    for _ in 0..filled {
        let request = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(request.bytes(), b"full");
    }
}

pub(crate) fn saturated(name: &str, other: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("bound");
    common::told();
    let right = handfast::connect(other).unwrap();
    saturate(&port, &right, || {
        common::say("so far");
        common::told();
    });
    common::say("done");
}

#[test]
fn trap_10_replies_flow_when_both_directions_are_full() {
    let _alone = common::alone();
    let names = ["trap-10-own", "trap-10-other"].map(common::name);
    let port = handfast::bind(&names[0]).unwrap();
    let mut other = common::start("saturated", &[&names[1], &names[0]]);
    other.expect("bound");
    let right = handfast::connect(&names[1]).unwrap();
    other.tell("connect");
    saturate(&port, &right, || {
        other.expect("so far");
        other.tell("go on");
    });
    other.expect("done");
}

/// Receives numbers until the last one, and says whether they came in order.
pub(crate) fn in_order(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    for number in 0..MOVES {
        let request = port.receive().unwrap();
        let bytes = request.bytes().try_into().unwrap();
        assert_eq!(u32::from_le_bytes(bytes), number);
    }
    common::say("in order");
}

const MOVES: u32 = 4000;

#[test]
fn trap_11_messages_of_a_thread_that_moves_between_processors_stay_in_order() {
    let _alone = common::alone();
    let mut random = Random::seeded("trap 11");
    let name = common::name("trap-11");
    let receiver = common::start("in order", &[&name]);
    receiver.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let cpus = handfast_sys::cpu::allowed();
    for number in 0..MOVES {
        let cpu = cpus[random.below(cpus.len() as u64) as usize];
        handfast_sys::cpu::pin(&[cpu]).unwrap();
        right.send(&number.to_le_bytes()).unwrap();
    }
    receiver.expect("in order");
    handfast_sys::cpu::pin(&cpus).unwrap();
}
