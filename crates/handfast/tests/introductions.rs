//! Rights to a third process's port: an introducer gives a recipient a right to an exporter's port.

mod common;

use handfast::{Counters, Identity, Notice, Right, SendRight};
use std::time::{Duration, Instant};

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "exporter" => exporter(arguments[0]),
        "introducer" => introducer(arguments[0], arguments[1], &arguments[2..]),
        "recipient" => recipient(arguments[0], arguments.get(1).copied()),
        _ => unreachable!(),
    });
}

/// Gives out a right with a badge for each call `open BADGE`. Its other port answers calls with badge,
/// text and how many rights came with it, keeps one-way messages until it is asked what it was `told`,
/// and says it when the last right to it is gone.
fn exporter(name: &str) {
    let door = handfast::bind(name).unwrap();
    let objects = handfast::anonymous().unwrap();
    common::say("ready");
    std::thread::scope(|scope| {
        scope.spawn(|| serve_objects(&objects));
        loop {
            let request = door.receive().unwrap();
            let text = String::from_utf8_lossy(request.bytes()).into_owned();
            let badge = text.strip_prefix("open ").unwrap();
            objects.notify_no_senders();
            let right = objects.mint(badge.parse().unwrap());
            request.reply_with(b"", [right.into()]).unwrap();
        }
    });
}

fn serve_objects(objects: &handfast::ReceiveRight) {
    let mut told = Vec::new();
    loop {
        let mut request = objects.receive().unwrap();
        if request.notice() == Some(Notice::NoSenders) {
            common::say("no senders");
            continue;
        }
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let badge = request.badge();
        let rights = request.take_rights();
        match text.as_str() {
            "told" => request.reply(told.join(" ").as_bytes()).unwrap(),
            _ if !request.is_call() => told.push(format!("{badge}:{text}")),
            _ => {
                let answer = format!("{badge}: {text} {}", rights.len());
                request.reply(answer.as_bytes()).unwrap();
            }
        }
    }
}

/// Keeps the rights it is sent: `call N TEXT` and `send N TEXT` through the N-th, `give N` back, `drop`
/// all. With a link to `exporter`, if that is named.
fn recipient(name: &str, exporter: Option<&str>) {
    let port = handfast::bind(name).unwrap();
    let _link = exporter.map(|name| handfast::connect(name).unwrap());
    common::say("ready");
    let mut kept: Vec<Right> = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        kept.extend(request.take_rights());
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let words: Vec<_> = text.splitn(3, ' ').collect();
        let right = |place: &str| match &kept[place.parse::<usize>().unwrap()] {
            Right::Send(right) => right.clone(),
            other => panic!("{other:?}"),
        };
        let answer = match words[..] {
            ["keep"] => kept.len().to_string(),
            ["drop"] => {
                kept.clear();
                String::new()
            }
            ["call", place, text] => match right(place).call(text.as_bytes()) {
                Ok(answer) => String::from_utf8_lossy(&answer).into_owned(),
                Err(error) => format!("{error:?}"),
            },
            ["send", place, text] => {
                right(place).send(text.as_bytes()).unwrap();
                String::new()
            }
            ["give", place] => {
                let right = right(place);
                request.reply_with(b"", [right.into()]).unwrap();
                continue;
            }
            _ => unreachable!("{text}"),
        };
        request.reply(answer.as_bytes()).unwrap();
    }
}

/// A trio: this process introduces.
struct Trio {
    exporter: common::Child,
    recipient: common::Child,
    door: SendRight,
    to: SendRight,
}

impl Trio {
    /// Whose recipient has a link with the exporter, or is let in by its door, or not.
    fn new(what: &str, how: How) -> Self {
        let what = format!("{what}-{how:?}");
        let names = [format!("{what}-exporter"), format!("{what}-recipient")];
        let [exporter, recipient] = names.map(|name| common::name(&name));
        let first = common::start_with("exporter", &[&exporter], |command| {
            if how == Vine {
                command.env("HANDFAST_INTRODUCTIONS", "vine");
            }
        });
        first.expect("ready");
        let second = match how == Linked {
            true => common::start("recipient", &[&recipient, &exporter]),
            false => common::start("recipient", &[&recipient]),
        };
        second.expect("ready");
        Self {
            exporter: first,
            recipient: second,
            door: handfast::connect(&exporter).unwrap(),
            to: handfast::connect(&recipient).unwrap(),
        }
    }

    fn open(&self, badge: u64) -> Right {
        let mut answer = self.door.call(format!("open {badge}").as_bytes()).unwrap();
        answer.take_rights().pop().unwrap()
    }

    fn keep(&self, rights: impl IntoIterator<Item = Right>) {
        let _ = self.to.with(rights).call(b"keep").unwrap();
    }

    /// Waits until the recipient has a link with the exporter.
    fn is_linked(&self) -> bool {
        let pid = u64::from(self.exporter.pid());
        common::within_patience(|| {
            let counters = self.to.counters().unwrap();
            let mut links = counters.links.iter();
            links.any(|row| Counters::value(row, "peer_pid") == pid)
        })
    }

    fn ask(&self, text: &str) -> String {
        call(&self.to, text)
    }
}

fn call(right: &SendRight, text: &str) -> String {
    String::from_utf8(right.call(text.as_bytes()).unwrap().to_vec()).unwrap()
}

fn send(right: Right) -> SendRight {
    match right {
        Right::Send(right) => right,
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Linked,
    Door,
    Vine,
}
use How::{Door, Linked, Vine};

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
            // What was sent after the introduction is in no order with what the recipient sends.
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

/// Passes rights with these badges on from the exporter to the recipient, and stays.
fn introducer(exporter: &str, recipient: &str, badges: &[&str]) {
    let door = handfast::connect(exporter).unwrap();
    let to = handfast::connect(recipient).unwrap();
    for badge in badges {
        let rights = door
            .call(format!("open {badge}").as_bytes())
            .unwrap()
            .take_rights();
        let _ = to.with(rights).call(b"keep").unwrap();
    }
    common::say("introduced");
    while common::told().is_some() {}
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
        assert!(how == Vine || trio.is_linked());
        introducer.kill();
        for badge in 1..=2 {
            let answer = trio.ask(&format!("call {} y", badge - 1));
            if how != Vine {
                assert_eq!(answer, format!("{badge}: y 0"));
            } else {
                assert_eq!(answer, "Gone(Process)");
            }
        }
        // What is dropped there ends at the exporter, too.
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
