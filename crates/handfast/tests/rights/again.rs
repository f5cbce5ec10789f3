//! The same right of a third process's to the same recipient again and again.

use crate::common::{self, Random};
use handfast::{Counters, Notice, Right, SendRight};
use std::time::Duration;

/// Gives rights with the badges it is asked for to its other port. That answers calls with their badge, or what it was
/// `told` in one-way messages, over each of which it takes long; and says when there is no right to it any more.
pub(crate) fn exporter(name: &str) {
    let door = handfast::bind(name).unwrap();
    let objects = handfast::anonymous().unwrap();
    common::say("ready");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut told = Vec::new();
            loop {
                let request = objects.receive().unwrap();
                if request.notice() == Some(Notice::NoSenders) {
                    common::say("no senders");
                    continue;
                }
                if !request.is_call() {
                    // Sleep: stands for work.
                    std::thread::sleep(Duration::from_millis(1));
                    told.extend_from_slice(request.bytes());
                    continue;
                }
                let answer = match request.bytes() {
                    b"told" => core::mem::take(&mut told),
                    _ => request.badge().to_string().into_bytes(),
                };
                request.reply(&answer).unwrap();
            }
        });
        loop {
            let request = door.receive().unwrap();
            let badge = String::from_utf8_lossy(request.bytes()).parse();
            let right = objects.mint(badge.unwrap());
            objects.notify_no_senders();
            request.reply_with(b"", [right.into()]).unwrap();
        }
    });
}

/// Keeps the rights that come; answers each call with what the last one says, or that it has `dropped` all, or its own
/// link with the exporter.
pub(crate) fn recipient(name: &str, exporter: &str) {
    let port = handfast::bind(name).unwrap();
    let mut link = Some(handfast::connect(exporter).unwrap());
    common::say("ready");
    let mut kept: Vec<Right> = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        kept.extend(request.take_rights());
        let answer = match request.bytes() {
            b"drop" => {
                kept.clear();
                "dropped".to_owned()
            }
            b"tell" => {
                if let Some(Right::Send(right)) = kept.last() {
                    right.send(b"b").unwrap();
                }
                String::new()
            }
            b"drop link" => {
                drop(link.take());
                "dropped".to_owned()
            }
            _ => match kept.last() {
                Some(Right::Send(right)) => match right.call(b"") {
                    Ok(answer) => String::from_utf8_lossy(&answer).into_owned(),
                    Err(error) => format!("{error:?}"),
                },
                other => format!("{other:?}"),
            },
        };
        // The caller may be gone by now.
        let _ = request.reply(answer.as_bytes());
    }
}

/// Gives the recipient the same right many times, and stays.
pub(crate) fn introducer(exporter: &str, recipient: &str) {
    let door = handfast::connect(exporter).unwrap();
    let to = handfast::connect(recipient).unwrap();
    let own = open(&door, 5);
    for _ in 0..200 {
        assert_eq!(gives(&to, &own), "5");
    }
    common::say("introduced");
    while common::told().is_some() {}
}

fn open(door: &SendRight, badge: u64) -> SendRight {
    let mut answer = door.call(badge.to_string().as_bytes()).unwrap();
    match answer.take_rights().pop() {
        Some(Right::Send(right)) => right,
        other => panic!("{other:?}"),
    }
}

/// Gives a right, and returns what a call through it says there.
fn gives(to: &SendRight, right: &SendRight) -> String {
    let answer = to.with([right.clone().into()]).call(b"").unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// An exporter, a recipient, and this process between them.
struct Trio {
    exporter: common::Child,
    recipient: common::Child,
    names: [String; 2],
    door: SendRight,
    to: SendRight,
}

impl Trio {
    fn new(what: &str) -> Self {
        let names = ["exporter", "recipient"].map(|role| common::name(&format!("{what}-{role}")));
        let exporter = common::start("exporter of the same right", &[&names[0]]);
        exporter.expect("ready");
        let recipient = common::start("recipient of the same right", &[&names[1], &names[0]]);
        recipient.expect("ready");
        let [door, to] = [&names[0], &names[1]].map(|name| handfast::connect(name).unwrap());
        Self {
            exporter,
            recipient,
            names,
            door,
            to,
        }
    }

    /// Messages that the exporter has taken from this process.
    fn heard(&self) -> u64 {
        let counters = self.door.counters().unwrap();
        let own = u64::from(std::process::id());
        let is_own = |row: &&Vec<u64>| Counters::value(row, "peer_pid") == own;
        let own = counters.links.iter().filter(is_own);
        own.map(|row| Counters::value(row, "calls")).sum()
    }

    /// Gives a right until the exporter hears no more of it.
    fn warm(&self, right: &SendRight) {
        let badge = gives(&self.to, right);
        assert!(common::within_patience(|| {
            let before = self.heard();
            for _ in 0..10 {
                assert_eq!(gives(&self.to, right), badge);
            }
            self.heard() - before < 5
        }));
    }
}

#[test]
fn a_right_that_the_recipient_has_costs_the_exporter_nothing() {
    let trio = Trio::new("nothing");
    let rights = [1, 2, 3].map(|badge| open(&trio.door, badge));
    rights.iter().for_each(|right| trio.warm(right));
    let before = trio.heard();
    for _ in 0..1000 {
        for (right, badge) in rights.iter().zip(["1", "2", "3"]) {
            assert_eq!(gives(&trio.to, right), badge);
        }
    }
    let heard = trio.heard() - before;
    assert!(heard < 20, "{heard} messages of 3000 introductions");
}

#[test]
fn what_was_sent_before_a_right_came_again_arrives_before_what_it_is_used_for() {
    let trio = Trio::new("order");
    let own = open(&trio.door, 1);
    for _ in 0..3 {
        trio.warm(&own);
        for _ in 0..20 {
            own.send(b"a").unwrap();
        }
        let _ = trio.to.with([own.clone().into()]).call(b"tell").unwrap();
        let mut told = Vec::new();
        assert!(common::within_patience(|| {
            told.extend_from_slice(&own.call(b"told").unwrap());
            told.len() == 21
        }));
        assert_eq!(told.iter().position(|one| *one == b'b'), Some(20));
    }
}

#[test]
fn rights_that_come_again_count_while_they_are_under_way_and_no_longer() {
    let trio = Trio::new("count");
    let mut random = Random::seeded("again");
    for round in 0..60 {
        let badge = round % 3;
        let own = open(&trio.door, badge);
        // Often what was dropped just now is about to be let go of, at any step of that.
        for _ in 0..random.below(12) {
            assert_eq!(gives(&trio.to, &own), badge.to_string());
            if random.below(3) == 0 {
                assert_eq!(&*trio.to.call(b"drop").unwrap(), b"dropped");
                // Sleep: a moment chosen at random.
                std::thread::sleep(Duration::from_micros(random.below(12_000)));
            }
        }
        // The last one: from here on the recipient has it, or nobody.
        let sent = trio.to.with([own.into()]).send(b"");
        sent.unwrap();
        if round % 10 == 0 {
            // Sleep: the recipient has the right by then, in a tenth of the rounds.
            std::thread::sleep(Duration::from_millis(30));
        }
        assert_eq!(&*trio.to.call(b"").unwrap(), badge.to_string().as_bytes());
        assert_eq!(trio.exporter.said(), None, "round {round}");
        assert_eq!(&*trio.to.call(b"drop").unwrap(), b"dropped");
        trio.exporter.expect("no senders");
    }
}

#[test]
fn whoever_dies_leaves_no_right_behind() {
    for who in ["introducer", "recipient", "exporter"] {
        let mut trio = Trio::new(who);
        let held = common::holdings(trio.recipient.pid()).1;
        let mut introducer = common::start(
            "introducer of the same right",
            &[&trio.names[0], &trio.names[1]],
        );
        introducer.expect("introduced");
        match who {
            "introducer" => {
                introducer.kill();
                // Rights that have come stay.
                assert_eq!(&*trio.to.call(b"").unwrap(), b"5");
                assert_eq!(trio.exporter.said(), None);
                assert_eq!(&*trio.to.call(b"drop").unwrap(), b"dropped");
                trio.exporter.expect("no senders");
            }
            "recipient" => {
                trio.recipient.kill();
                assert_eq!(trio.exporter.said(), None);
                introducer.kill();
                trio.exporter.expect("no senders");
            }
            _ => {
                trio.exporter.kill();
                let answer = trio.to.call(b"").unwrap();
                assert!(answer.starts_with(b"Gone"), "{answer:?}");
                assert_eq!(&*trio.to.call(b"drop").unwrap(), b"dropped");
                assert_eq!(&*trio.to.call(b"drop link").unwrap(), b"dropped");
                // Its link goes, as that with the introducer has come.
                let pid = trio.recipient.pid();
                assert!(common::within_patience(|| common::holdings(pid).1 == held));
            }
        }
    }
}
