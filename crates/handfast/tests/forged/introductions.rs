//! Peers that forge introductions: provisions and claims of what they do not have, in others' names,
//! in floods; and parts that tell of rights nobody provided.

use crate::common;
use crate::forger::introductions::{OWN, claim, claims, introduces, provide, third};
use crate::forger::{
    Forgery, Hand, OWN_SLOT, expect_cut, refused_by_name, serves, start_honest, units,
};
use handfast::error::Rule;
use handfast_layout::control::{ControlMessage as M, Released};
use handfast_layout::hello::{Process, process};
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::Kind;
use handfast_layout::part::Part;
use handfast_testing::forge::{self, Packet};
use std::time::{Duration, Instant};

fn raw(hand: &mut Hand, port: u32, bytes: &[u8]) {
    hand.post(Kind::CONTROL, (port, 0, 0), (bytes, &[]));
}

const FORGERIES: [Forgery; 25] = [
    (
        "provide-by-no-handle",
        |hand| raw(hand, hand.welcome.handle + 1, &provide(1, hand).encode()),
        Rule::Introduction,
    ),
    (
        "provide-by-nothing",
        |hand| raw(hand, 0, &provide(1, hand).encode()),
        Rule::Introduction,
    ),
    (
        "provide-by-a-word-never-claimed",
        |hand| raw(hand, 5, &provide(1, hand).encode()),
        Rule::Introduction,
    ),
    (
        "provide-by-an-old-generation",
        |hand| {
            let old = hand.welcome.handle | 1 << 20;
            raw(hand, old, &provide(1, hand).encode());
        },
        Rule::Introduction,
    ),
    (
        "unknown",
        |hand| {
            let said = forge::patched(&provide(1, hand).encode(), 0, &[3]);
            raw(hand, hand.welcome.handle, &said);
        },
        Rule::Introduction,
    ),
    (
        "short",
        |hand| {
            let said = forge::cut(&provide(1, hand).encode(), 5);
            raw(hand, hand.welcome.handle, &said);
        },
        Rule::Introduction,
    ),
    (
        "long",
        |hand| {
            let said = forge::extended(&provide(1, hand).encode(), b"x");
            raw(hand, hand.welcome.handle, &said);
        },
        Rule::Introduction,
    ),
    (
        "empty",
        |hand| raw(hand, hand.welcome.handle, b""),
        Rule::Introduction,
    ),
    (
        "claim-by-a-handle",
        |hand| hand.tell(claim(1 << 31 | 1, 1, hand)),
        Rule::Introduction,
    ),
    (
        "claim-by-zero",
        |hand| hand.tell(claim(0, 1, hand)),
        Rule::Introduction,
    ),
    (
        "a-word-twice",
        |hand| {
            hand.tell(claim(7, 1, hand));
            hand.tell(claim(7, 2, hand));
        },
        Rule::Introduction,
    ),
    (
        "call-by-a-word-never-claimed",
        |hand| hand.post(Kind::Call, (5, 0, 1), (b"", &[])),
        Rule::RightHandle,
    ),
    (
        "home-by-a-word-never-claimed",
        |hand| hand.send(b"", &[Part::OfReceiver { handle: 5 }]),
        Rule::RightHandle,
    ),
    (
        "home-in-a-message",
        |hand| hand.send(b"", &[home(hand, 1)]),
        Rule::Part,
    ),
    (
        "again-of-nothing",
        |hand| hand.send(b"", &[Part::Again { number: 7 }]),
        Rule::Introduction,
    ),
    (
        "kept-short",
        |hand| assert!(hand.say(kept().cut(4))),
        Rule::Introduction,
    ),
    (
        "kept-long",
        |hand| assert!(hand.say(kept().extended(&[0; 4]))),
        Rule::Introduction,
    ),
    (
        "leave-short",
        |hand| assert!(hand.say(leave().cut(4))),
        Rule::Introduction,
    ),
    (
        "left-long",
        |hand| assert!(hand.say(left().extended(&[0; 4]))),
        Rule::Introduction,
    ),
    (
        "release-of-no-claim",
        |hand| assert!(release(hand, &[(5, 1)])),
        Rule::RightHandle,
    ),
    (
        "release-of-a-claim-twice",
        |hand| {
            hand.tell(claim(7, 1, hand));
            hand.settle();
            assert!(release(hand, &[(7, 1), (7, 1)]));
        },
        Rule::RightHandle,
    ),
    (
        "release-of-a-claim-too-often",
        |hand| {
            hand.tell(provide(1, hand));
            hand.tell(claim(7, 1, hand));
            hand.settle();
            // The word stands for the first right, which was given twice.
            assert!(release(hand, &[(7, 3)]));
        },
        Rule::RightCount,
    ),
    (
        "void-short",
        |hand| assert!(hand.say(void(1).cut(1))),
        Rule::Introduction,
    ),
    (
        "void-long",
        |hand| assert!(hand.say(void(1).extended(&[0; 4]))),
        Rule::Introduction,
    ),
    (
        "declined-short",
        |hand| assert!(hand.say(declined(1, [0; 20]).cut(4))),
        Rule::Introduction,
    ),
];

#[test]
fn forged_introductions_are_refused_by_name_and_harm_nobody_else() {
    refused_by_name("forged-intro", &FORGERIES, |name, number| {
        introduces(name, (1, 2), number.into())
    });
}

fn kept() -> Packet {
    Packet::of(M::Kept { number: 1 })
}

fn leave() -> Packet {
    Packet::of(M::Leave { number: 1, came: 0 })
}

fn left() -> Packet {
    Packet::of(M::Left { number: 1 })
}

fn void(number: u64) -> Packet {
    Packet::of(M::ProvisionVoid { number })
}

fn declined(number: u64, exporter: Process) -> Packet {
    Packet::of(M::Declined { number, exporter })
}

/// Gives rights back: their names, and how often each was received. `false`: the link is over.
fn release(hand: &Hand, rights: &[(u32, u32)]) -> bool {
    let right = |(name, count): &(u32, u32)| Released {
        name: *name,
        count: *count,
    };
    let rights: Vec<_> = rights.iter().map(right).collect();
    let rights = rights[..].into();
    hand.say(M::Release { rights })
}

/// The right that `introducer` has provided under a number goes home.
fn home(introducer: &Hand, number: u64) -> Part {
    let (introducer, pid) = introducer.process.split_first_chunk().unwrap();
    Part::Home {
        port: 0,
        introducer: *introducer,
        pid: u32::from_le_bytes(pid.try_into().unwrap()),
        number,
    }
}

#[test]
fn what_was_provided_to_another_does_not_come_home_from_who_answers_with_it() {
    let (mut server, name) = start_honest("stolen-home");
    let mut introducer = Hand::new(&name, 1);
    let mut recipient = Hand::new(&name, 2);
    let mut forger = Hand::new(&name, 3);
    introducer.tell(provide(1, &recipient));
    introducer.settle();
    forger.send(b"", &[OWN]);
    forger.settle();
    let mut own = home(&introducer, 1);
    if let Part::Home { port, .. } = &mut own {
        *port = forger.welcome.port;
    }
    for part in [home(&introducer, 1), own, home(&forger, 9)] {
        server.tell("call");
        let (index, generation, _) = forger.next();
        forger.answer((index, generation), Kind::Message, (b"mine", &[part, part]));
        server.expect("Ok(\"mine\")");
    }
    claims(&mut recipient, 1, 1, &introducer);
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn what_was_provided_to_another_is_neither_claimed_nor_ended() {
    let (mut server, name) = start_honest("others-provision");
    let mut introducer = Hand::new(&name, 1);
    let mut recipient = Hand::new(&name, 2);
    let mut forger = Hand::new(&name, 3);
    introducer.tell(provide(1, &recipient));
    introducer.settle();
    // Harmless by design: the provision names its recipient.
    forger.tell(claim(1, 1, &introducer));
    let dead = (Kind::DeadPort, Vec::new());
    assert_eq!(forger.call(1, b"stolen"), dead);
    assert_eq!(forger.outcome(OWN_SLOT, 1).unwrap().0, Kind::Dropped);
    // As is this: a number is its introducer's own.
    assert!(forger.say(void(1)));
    forger.settle();
    // It may give up what it has claimed, before and after it comes, but not what others claim.
    assert!(release(&forger, &[(1, 1)]));
    for number in 2..100 {
        forger.tell(claim(number, number.into(), &introducer));
    }
    forger.settle();
    for number in 2..100 {
        assert!(release(&forger, &[(number, 1)]));
    }
    forger.settle();
    claims(&mut recipient, 1, 1, &introducer);
    for number in 2..100 {
        introducer.tell(provide(number.into(), &recipient));
        recipient.tell(claim(number, number.into(), &introducer));
        let answer = recipient.call(number, b"mine");
        assert_eq!(answer, (Kind::Message, b"mine".to_vec()), "{number}");
    }
    // A second claim of the same waits for a while, and then there is nothing.
    let start = Instant::now();
    recipient.tell(claim(1000, 1, &introducer));
    assert_eq!(recipient.call(1000, b"again"), dead);
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(server.said(), None);
    server.finish();
}

/// Has an introducer give the recipient its right to the exporter's port. Returns how that is told.
fn introduced(introducer: &mut common::Child, recipient: &mut Hand) -> Part {
    recipient.send(b"", &[OWN]);
    recipient.settle();
    introducer.tell("pass on");
    introducer.expect("passed on");
    let units = recipient.next_units(3);
    Part::parse(&units).unwrap().0
}

#[test]
fn only_who_was_provided_with_a_right_declines_it() {
    let (mut server, exporter) = start_honest("declined-exporter");
    let name = common::name("declined-introducer");
    let mut introducer = common::start("honest", &[&name, &exporter]);
    introducer.expect("ready");
    let mut forger = Hand::new(&name, 3);
    let mut recipient = Hand::new(&name, 2);
    let mut there = Hand::new(&exporter, 2);
    for (word, is_its) in [(1, false), (2, true)] {
        let part = introduced(&mut introducer, &mut recipient);
        let Part::Third {
            number,
            exporter: of,
            pid,
            ..
        } = part
        else {
            panic!("{part:?}");
        };
        let of = process(of, pid);
        assert_eq!(of, there.peer);
        let who = if is_its { &mut recipient } else { &mut forger };
        assert!(who.say(declined(number, of)));
        who.settle();
        there.settle();
        there.tell(LaneControl::Claim {
            word,
            number,
            introducer: who.peer,
        });
        let expected = if is_its {
            Kind::DeadPort
        } else {
            Kind::Message
        };
        assert_eq!(there.call(word, b"").0, expected);
    }
    assert_eq!((server.said(), introducer.said()), (None, None));
    server.finish();
    introducer.finish();
}

#[test]
fn floods_of_provisions_and_voids_leave_room_for_others_and_end() {
    let _alone = common::alone();
    let (mut server, name) = start_honest("flood-provisions");
    let nobody = [99; 20];
    let before = common::own_kib(server.pid());
    let mut floods = Vec::new();
    for number in 10..13 {
        let mut forger = Hand::new(&name, number);
        for number in 0..66_000 {
            let recipient = nobody;
            forger.tell(LaneControl::Provide { number, recipient });
            assert!(forger.say(void(number | 1 << 31)));
        }
        forger.settle();
        floods.push(forger);
        introduces(&name, (1, 2), number.into());
        serves(&name);
    }
    let grown = common::own_kib(server.pid()).saturating_sub(before);
    println!("three floods of provisions: {grown} KiB");
    assert!(grown < 40_000, "{grown} KiB");
    drop(floods);
    introduces(&name, (3, 4), 1);
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn forged_parts_of_introductions_are_refused_by_name_and_harm_nobody_else() {
    let (mut server, name) = start_honest("forged-third");
    type Change = fn(&mut Vec<[u8; 16]>);
    let changes: [(&str, Change, Rule); 7] = [
        ("no-handle", |units| units[0][7] = 0, Rule::RightHandle),
        ("vine-receiver", |units| units[0][8] = 64, Rule::Part),
        ("receiver", |units| units[0][12] = 64, Rule::Part),
        ("two-units", |units| units.truncate(2), Rule::Part),
        ("one-unit", |units| units.truncate(1), Rule::Part),
        ("padding", |units| units[2][12] = 3, Rule::Part),
        (
            "another-port",
            |units| {
                let mut again = units.clone();
                again[0][9] = 2;
                units.extend(again);
            },
            Rule::RightHandle,
        ),
    ];
    for (number, (what, change, rule)) in (100u8..).zip(changes) {
        let mut hand = Hand::new(&name, number);
        let mut units = units(&[third([9; 20])]);
        change(&mut units);
        let handle = hand.welcome.handle;
        hand.post(Kind::Message, (handle, 0, 0), (b"", &units));
        expect_cut(&server, rule, what);
        hand.expect_end();
        serves(&name);
    }
    // Harmless by design: of an exporter that is the process itself, one that is the sender, and one that
    // nobody knows, whose door the sender does not show. The right goes through who has sent it.
    let mut hand = Hand::new(&name, 1);
    let unknown = [0; 20];
    for exporter in [hand.peer, hand.process, unknown] {
        hand.send(b"", &[third(exporter)]);
        if exporter == unknown {
            assert_eq!(hand.hear(), M::DoorWhere { exporter });
            assert!(hand.say(M::DoorOf { exporter }));
        }
        if exporter != hand.peer {
            hand.expect_declined(exporter);
        }
        hand.settle();
        server.tell("call");
        let (index, generation, _) = hand.next();
        hand.answer((index, generation), Kind::Message, (b"mine", &[]));
        server.expect("Ok(\"mine\")");
    }
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn an_answer_nobody_waits_for_stops_nobody_whatever_it_tells_of() {
    let (mut server, name) = start_honest("late-third");
    let mut hand = Hand::new(&name, 1);
    hand.send(b"", &[OWN]);
    hand.settle();
    server.tell("hurry");
    let mut last = None;
    let end = Instant::now() + common::PATIENCE;
    loop {
        if let Some(line) = server.said() {
            assert_eq!(line, "hurried");
            break;
        }
        assert!(Instant::now() < end, "a thread or the control thread hangs");
        if let Some((index, generation, _)) = hand.try_next() {
            // The one before has been given up.
            if let Some(call) = last.replace((index, generation)) {
                let parts = [third(hand.process)];
                hand.answer(call, Kind::Message, (b"", &parts));
            }
        }
    }
    assert_eq!(server.said(), None);
    serves(&name);
    server.finish();
}
