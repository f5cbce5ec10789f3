//! Rights to a third process's port: an introducer gives a recipient a right to an exporter's port.

use crate::common;
use crate::trio::How::{self, Door, Linked, Vine};
use crate::trio::{Trio, call, send};
use handfast::Identity;
use std::time::{Duration, Instant};

/// Answers at `own`, and connects to `other` again and again, for nothing.
pub(crate) fn fickle(own: &str, other: &str) {
    let port = handfast::bind(own).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let request = port.receive().unwrap();
                let text = request.bytes().to_vec();
                request.reply(&text).unwrap();
            }
        });
        scope.spawn(|| {
            loop {
                drop(handfast::connect(other).unwrap());
            }
        });
        common::say("ready");
        while common::told().is_some() {}
        std::process::exit(0);
    });
}

const ALL: [How; 3] = [Linked, Door, Vine];
const BOTH: [bool; 2] = [false, true];

#[test]
fn a_right_to_a_third_process_works_with_its_badge_and_comes_home() {
    for how in ALL {
        let trio = Trio::new("third", how);
        trio.keep((1..=4).map(|badge| trio.open(badge)));
        for round in 0..50 {
            for (place, badge) in (0..4).zip(1..) {
                let long = "x".repeat(round * 100);
                let answer = trio.ask(&format!("call {place} {long}"));
                assert_eq!(answer, format!("{badge}: {long} 0"));
            }
        }
        // It comes back as the right it is, and the exporter gets it home.
        let mut answer = trio.to.call(b"give 2").unwrap();
        let back = send(answer.take_rights().pop().unwrap());
        assert_eq!(call(&back, "from here"), "3: from here 0");
        let answer = back.with([trio.open(9)]).call(b"with one").unwrap();
        assert_eq!(&*answer, b"3: with one 1");
    }
}

#[test]
fn what_the_introducer_sent_before_arrives_before() {
    for how in ALL {
        let trio = Trio::new("before", how);
        let own = send(trio.open(1));
        let mut expected = Vec::new();
        for round in 0..100 {
            own.send(format!("a{round}").as_bytes()).unwrap();
            expected.push(format!("1:a{round}"));
            trio.keep([own.clone().into()]);
            trio.ask(&format!("send {round} b{round}"));
            expected.push(format!("1:b{round}"));
            own.send(format!("c{round}").as_bytes()).unwrap();
            // A message sent after the introduction is in no order with what the recipient sends.
            let told = call(&own, "told");
            let told: Vec<_> = told.split(' ').collect();
            let place = |text: String| told.iter().position(|told| *told == text);
            let after = place(format!("1:b{round}"));
            if let Some(after) = after {
                assert!(place(format!("1:a{round}")).unwrap() < after, "{told:?}");
            }
        }
    }
}

#[test]
fn the_exporter_is_told_when_the_last_right_is_gone_and_not_before() {
    for how in ALL {
        for kill in BOTH {
            let what = format!("gone{kill}");
            let mut trio = Trio::new(&what, how);
            trio.keep((1..=3).map(|badge| trio.open(badge)));
            assert_eq!(trio.ask("call 0 x"), "1: x 0");
            // Sleep: a message that must not come would have come by then.
            std::thread::sleep(Duration::from_millis(40));
            assert_eq!(trio.exporter.said(), None);
            let start = Instant::now();
            if kill {
                trio.recipient.kill();
            } else {
                trio.ask("drop");
            }
            trio.exporter.expect("no senders");
            println!("{what} {how:?}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn an_exporter_that_dies_is_an_error_at_the_recipient_and_nothing_more() {
    for how in ALL {
        let mut trio = Trio::new("dies", how);
        trio.keep([trio.open(1)]);
        assert_eq!(trio.ask("call 0 x"), "1: x 0");
        trio.exporter.kill();
        let answer = trio.ask("call 0 y");
        assert!(answer.starts_with("Gone("), "{answer}");
        assert_eq!(trio.ask("keep"), "1");
    }
}

#[test]
fn an_introducer_that_dies_takes_the_vine_with_it_and_nothing_else() {
    for how in ALL {
        let trio = Trio::new("introducer", how);
        let of = |role| common::name(&format!("introducer-{how:?}-{role}"));
        let names = ["exporter", "recipient"].map(of);
        let arguments = [&names[0], &names[1], "1", "2"];
        let mut introducer = common::start("introducer", &arguments);
        introducer.expect("introduced");
        // The second is used for the first time when the introducer is gone.
        assert_eq!(trio.ask("call 0 x"), "1: x 0");
        // A link is there before all that waited for it has claimed its place.
        let exporter = trio.exporter.pid().to_string();
        let is_direct = |place| trio.ask(&format!("peer {place}")) == exporter;
        let are_direct = || is_direct(0) && is_direct(1);
        assert!(how == Vine || common::within_patience(are_direct));
        introducer.kill();
        for badge in 1..=2 {
            let answer = trio.ask(&format!("call {} y", badge - 1));
            if how != Vine {
                assert_eq!(answer, format!("{badge}: y 0"));
            } else {
                assert_eq!(answer, "Gone(Process)");
            }
        }
        // A right that is dropped there ends at the exporter, too.
        trio.ask("drop");
        trio.exporter.expect("no senders");
    }
}

#[test]
fn a_right_that_was_provided_and_never_claimed_ends() {
    for how in ALL {
        let trio = Trio::new("unclaimed", how);
        // Stopped before it takes up what it is sent, and then killed.
        trio.recipient.stop();
        let sent = trio.to.with([trio.open(1)]).send(b"keep");
        sent.unwrap();
        // Sleep: a message that must not come would have come by then.
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(trio.exporter.said(), None);
        let mut trio = trio;
        trio.recipient.kill();
        trio.exporter.expect("no senders");
    }
}

#[test]
fn a_right_by_two_routes_is_one_right() {
    let what = "routes";
    let trio = Trio::new(what, Linked);
    let mine = handfast::bind(&common::name("routes-mine")).unwrap();
    let _link = handfast::connect(&common::name("routes-Linked-exporter")).unwrap();
    let names = [
        common::name("routes-Linked-exporter"),
        common::name("routes-mine"),
    ];
    // From the exporter itself, and from two introducers; and others.
    let direct = send(trio.open(5));
    let other = send(trio.open(6));
    let mut introducers = Vec::new();
    for _ in 0..2 {
        let badges = [&names[0], &names[1], "5", "7"];
        introducers.push(common::start("introducer", &badges));
    }
    let mut came = Vec::new();
    while came.len() < 4 {
        let mut request = mine.receive().unwrap();
        came.extend(request.take_rights().into_iter().map(send));
        request.reply(b"").unwrap();
    }
    let badges: Vec<_> = came.iter().map(|right| call(right, "x")).collect();
    for (right, badge) in came.iter().zip(&badges) {
        // The exporter has received through each of them, and has said by now what they are.
        let is_it = badge == "5: x 0";
        let expected = |is_it| {
            if is_it {
                Identity::Same
            } else {
                Identity::Different
            }
        };
        assert_eq!(right.identity(&direct), expected(is_it));
        assert_eq!(direct.identity(right), expected(is_it));
        assert_eq!(right.identity(&other), Identity::Different);
        assert_eq!(right.identity(&right.clone()), Identity::Same);
        assert_eq!(right.identity(&trio.to), Identity::Different);
        for (one, of) in came.iter().zip(&badges) {
            assert_eq!(right.identity(one), expected(badge == of));
        }
    }
    // Through another process nobody knows.
    let mut answer = trio.to.with([direct.clone().into()]).call(b"keep").unwrap();
    let _ = answer.take_rights();
}

#[test]
fn what_a_recipient_that_died_has_passed_on_is_known_at_once() {
    let (mut all, mut pace) = (Vec::new(), common::Pace::new());
    for round in 0..8 {
        pace.look();
        let what = format!("passed-{round}");
        let mut trio = Trio::new(&what, Linked);
        let further = common::name(&format!("{what}-further"));
        let last = common::start("recipient", &[&further, &trio.names[0]]);
        last.expect("ready");
        let to_last = handfast::connect(&further).unwrap();
        let right = trio.open(1);
        // It hears of all that at once, and that the one in the middle is dead.
        trio.exporter.stop();
        trio.keep([right]);
        trio.ask(&format!("pass 0 {further}"));
        trio.recipient.kill();
        trio.exporter.resume();
        let start = Instant::now();
        let answer = call(&to_last, "call 0 x");
        assert!(
            answer == "1: x 0" || answer.starts_with("Gone("),
            "{answer}"
        );
        let _ = call(&to_last, "drop");
        trio.exporter.expect("no senders");
        let told = start.elapsed();
        println!("{answer}, told after {told:?}");
        all.push(told);
    }
    let (.., longest) = common::spread(&mut all);
    let limit = pace.allows_at_most(Duration::from_millis(500));
    assert!(longest < limit, "{longest:?}, {limit:?}");
}

#[test]
fn a_right_by_a_link_that_its_exporter_is_about_to_let_go_is_good() {
    let name = common::name("fickle-recipient");
    let recipient = common::start("recipient", &[&name]);
    recipient.expect("ready");
    let to = handfast::connect(&name).unwrap();
    for round in 0..15 {
        let own = common::name(&format!("fickle-{round}"));
        let exporter = common::start("fickle", &[&own, &name]);
        exporter.expect("ready");
        let right = handfast::connect(&own).unwrap();
        for _ in 0..3 {
            let _ = to.with([right.clone().into()]).call(b"keep").unwrap();
            assert_eq!(call(&to, "call 0 x"), "x", "round {round}");
            let _ = to.call(b"drop").unwrap();
        }
    }
}

/// Its introducer learns at once of the death, and of messages that the dead recipient left.
#[test]
fn what_a_recipient_sent_through_its_introducer_arrives_although_it_dies() {
    use rustix::process::{Signal, kill_process};
    for _ in 0..10 {
        let mut trio = Trio::new("dies-after", Vine);
        let arguments = [&*trio.names[0], &trio.names[1], "7"];
        let mut introducer = common::start("introducer", &arguments);
        introducer.expect("introduced");
        assert_eq!(trio.ask("peer 0"), introducer.pid().to_string());
        let pid = rustix::process::Pid::from_raw(introducer.pid().cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let count = 60;
        for number in 0..count {
            let _ = trio.ask(&format!("send 0 {number}"));
        }
        trio.recipient.kill();
        kill_process(pid, Signal::CONT).unwrap();
        let told = send(trio.open(1));
        let expected: Vec<_> = (0..count).map(|number| format!("7:{number}")).collect();
        let mut arrived = String::new();
        assert!(
            common::within_patience(|| {
                arrived = call(&told, "told");
                arrived.matches(' ').count() + 1 == count
            }),
            "{arrived}"
        );
        assert_eq!(arrived, expected.join(" "));
        introducer.finish();
    }
}

#[test]
fn an_indirect_right_is_one_with_itself_and_of_unknown_identity_otherwise() {
    let trio = Trio::new("indirect", Vine);
    let introduced = [trio.names[0].as_str(), trio.names[1].as_str(), "5"];
    // By this introducer the same right twice, and another one; then the first right by another introducer.
    let given = send(trio.open(5));
    trio.keep([given.clone().into(), given.into(), trio.open(6)]);
    let other = common::start("introducer", &introduced);
    other.expect("introduced");
    for place in ["0", "1", "2", "3"] {
        let badge = if place == "2" { 6 } else { 5 };
        let answer = trio.ask(&format!("call {place} x"));
        assert_eq!(answer, format!("{badge}: x 0"));
        assert_ne!(
            trio.ask(&format!("peer {place}")),
            trio.exporter.pid().to_string()
        );
    }
    assert_eq!(trio.ask("identity 0 1"), "Same");
    assert_eq!(trio.ask("identity 0 2"), "Unknown");
    assert_eq!(trio.ask("identity 0 3"), "Unknown");
    assert_eq!(trio.ask("identity 2 3"), "Unknown");
}
