//! Peers that forge the messages about return paths, and that ask for paths without end.

use super::passing::Chain;
use crate::common;
use crate::forger::{Hand, INDEX, OWN_SLOT, expect_cut};
use handfast::error::Rule;
use handfast_layout::control::{ControlKind, ControlMessage as M};
use handfast_layout::hello::Process;
use handfast_layout::link::{Kind, OWN_SET, passed_word};
use handfast_layout::part::Part;
use handfast_testing::forge::Packet;
use std::time::Instant;

/// How a forwarder asks for a path to a caller, as the replier is told of it.
const fn ask(number: u32, caller: Process) -> M<'static> {
    M::PathAsk {
        number,
        caller,
        index: 0,
        set: 0,
    }
}

/// How a caller is asked for a path.
pub(crate) const fn want(token: u32, forwarder: Process, index: u32, set: u32) -> M<'static> {
    M::PathWant {
        token,
        forwarder,
        index,
        set,
    }
}

const fn grant(token: u32, path: u32, set: u32) -> M<'static> {
    M::PathGranted { token, path, set }
}

const fn ready(number: u32, path: u32) -> M<'static> {
    M::PathReady { number, path }
}

/// A process that there is not: each word of it is one.
const fn ones() -> Process {
    let mut ones = [0; 20];
    let mut at = 0;
    while at < ones.len() {
        ones[at] = 1;
        at += 4;
    }
    ones
}

/// A message without its last bytes, and one with more.
fn short(message: M<'_>, len_bytes: usize) -> Packet {
    Packet::of(message).cut(len_bytes)
}

fn long(message: M<'_>) -> Packet {
    Packet::of(message).extended(&[1, 0, 0, 0])
}

/// A name, the messages that are said, and the rule for which the link is cut.
type Forgery = (&'static str, fn(&mut Hand), Rule);

fn say(hand: &Hand, message: impl Into<Packet>) {
    assert!(hand.say(message));
}

const FORGERIES: [Forgery; 19] = [
    (
        "ask-short",
        |hand| say(hand, short(ask(1, ones()), 4)),
        Rule::Path,
    ),
    (
        "ask-long",
        |hand| say(hand, long(ask(1, ones()))),
        Rule::Path,
    ),
    (
        "ask-nothing",
        |hand| say(hand, Packet::of(ask(1, ones())).cut_to(2)),
        Rule::Path,
    ),
    (
        "ask-for-the-sender",
        |hand| say(hand, ask(0, [0; 20])),
        Rule::Path,
    ),
    (
        "ask-for-too-much",
        |hand| {
            say(
                hand,
                M::PathAsk {
                    number: 0x100_0000,
                    caller: ones(),
                    index: 1,
                    set: 1,
                },
            )
        },
        Rule::Path,
    ),
    (
        "ask-twice",
        |hand| {
            say(hand, ask(4, hand.process));
            say(hand, ask(4, hand.process));
        },
        Rule::Path,
    ),
    (
        "want-short",
        |hand| say(hand, short(want(1, ones(), 1, 1), 4)),
        Rule::Path,
    ),
    (
        "want-long",
        |hand| say(hand, long(want(1, ones(), 1, 1))),
        Rule::Path,
    ),
    (
        "granted-short",
        |hand| say(hand, short(grant(1, 1, 1), 4)),
        Rule::Path,
    ),
    (
        "granted-long",
        |hand| say(hand, long(grant(1, 1, 1))),
        Rule::Path,
    ),
    (
        "granted-unasked",
        |hand| say(hand, grant(1, 1, 2)),
        Rule::Path,
    ),
    ("granted-reply-slots", |hand| grant_set(hand, 0), Rule::Path),
    (
        "granted-own-slots",
        |hand| grant_set(hand, OWN_SET),
        Rule::Path,
    ),
    ("granted-no-slots", |hand| grant_set(hand, 5), Rule::Path),
    (
        "denied-long",
        |hand| say(hand, long(M::PathDenied { token: 1 })),
        Rule::Path,
    ),
    (
        "ready-short",
        |hand| say(hand, short(ready(1, 1), 4)),
        Rule::Path,
    ),
    (
        "refused-nothing",
        |hand| say(hand, short(M::PathRefused { number: 1 }, 4)),
        Rule::Path,
    ),
    (
        "over-long",
        |hand| say(hand, long(M::PathOver { path: 1 })),
        Rule::Path,
    ),
    (
        "drop-nothing",
        |hand| say(hand, short(M::PathDrop { number: 1 }, 4)),
        Rule::Path,
    ),
];

/// The next message is a question for a path: its token, and by whom it is used.
fn hears_want(hand: &Hand) -> (u32, Process) {
    match hand.hear().message() {
        M::PathWant {
            token, forwarder, ..
        } => (token, forwarder),
        said => panic!("{said:?}"),
    }
}

/// Asks for a path to itself, and grants it with a set that is none for that.
fn grant_set(hand: &Hand, set: u32) {
    say(hand, ask(1, hand.process));
    let (token, _) = hears_want(hand);
    say(hand, grant(token, 1, set));
}

#[test]
fn forged_messages_about_paths_are_refused_by_name_and_harm_nobody_else() {
    let mut chain = Chain::new("forged-paths");
    for (number, (what, forge, rule)) in (100u8..).zip(FORGERIES) {
        let mut hand = Hand::new(&chain.name, number);
        forge(&mut hand);
        expect_cut(&chain.last, rule, what);
        hand.expect_end();
        chain.serves();
    }
    chain.finish();
}

#[test]
fn messages_about_paths_that_nobody_knows_change_nothing() {
    let mut chain = Chain::new("unknown-paths");
    let mut hand = Hand::new(&chain.name, 1);
    // Harmless by design: each names something of the sender's own, or nothing.
    for number in [0, 1, 0x1000, u32::MAX] {
        say(&hand, M::PathDenied { token: number });
        say(&hand, M::PathRefused { number });
        say(&hand, M::PathOver { path: number });
        say(&hand, M::PathDrop { number });
        say(&hand, ready(number, number));
        assert_eq!(hand.hear(), M::PathDrop { number });
        // Of no link, of another index there, of no set, of one without a path to it.
        let mut stranger = hand.process;
        stranger[0] ^= 1;
        for (forwarder, index, set) in [
            (stranger, INDEX, 0),
            (hand.process, INDEX + 1, 0),
            (hand.process, INDEX, 5),
            (hand.process, INDEX, 3),
        ] {
            say(&hand, want(number, forwarder, index, set));
            assert_eq!(hand.hear(), M::PathDenied { token: number });
        }
    }
    // As a caller that the replier has no link with, and that the forwarder shows no door of.
    let exporter = [9; 20];
    say(&hand, ask(1, exporter));
    assert_eq!(hand.hear(), M::DoorWhere { exporter });
    say(&hand, M::DoorOf { exporter: [8; 20] });
    say(&hand, M::DoorOf { exporter });
    assert_eq!(hand.hear(), M::PathRefused { number: 1 });
    // A reply right of a party nobody knows is nobody's: the message is dropped.
    let handle = hand.welcome.handle;
    hand.post(Kind::PASSED, (handle, passed_word(7, 0), 1), (b"", &[]));
    // One of the sender's own is answered there, as often as it likes.
    for generation in [1, 2, 2, 1] {
        let word = passed_word(0, 0);
        hand.post(Kind::PASSED, (handle, word, generation), (b"own", &[]));
        assert_eq!(hand.outcome(OWN_SLOT, generation).unwrap().1, b"own");
    }
    hand.settle();
    chain.finish();
}

/// A path between two peers made by hand: the forwarder's number for it.
pub(crate) fn path(forwarder: &Hand, caller: &Hand, number: u32) {
    say(forwarder, ask(number, caller.process));
    let (token, of) = hears_want(caller);
    assert_eq!(of, forwarder.process);
    say(caller, grant(token, 77, 2));
    assert_eq!(forwarder.hear(), ready(number, 77));
}

#[test]
fn a_token_is_used_once_and_by_whom_it_was_given() {
    let mut chain = Chain::new("tokens");
    let forwarder = Hand::new(&chain.name, 1);
    let caller = Hand::new(&chain.name, 2);
    let forger = Hand::new(&chain.name, 3);
    say(&forwarder, ask(1, caller.process));
    let (token, _) = hears_want(&caller);
    // Harmless by design: a token is denied by whom it was given alone.
    say(&forger, M::PathDenied { token });
    say(&forger, grant(token, 1, 2));
    expect_cut(&chain.last, Rule::Path, "another's token");
    say(&caller, grant(token, 1, 2));
    assert_eq!(forwarder.hear(), ready(1, 1));
    say(&caller, grant(token, 1, 2));
    expect_cut(&chain.last, Rule::Path, "twice");
    // The process that passed calls on to that caller is told that there is no way any more.
    assert_eq!(forwarder.hear(), M::PathRefused { number: 1 });
    chain.finish();
}

#[test]
fn the_paths_of_a_forwarder_that_is_cut_end_though_a_right_of_it_is_kept() {
    let mut chain = Chain::new("cut-paths");
    let caller = Hand::new(&chain.name, 1);
    let mut forwarder = Hand::new(&chain.name, 2);
    let (handle, port) = (1 << 31, 7);
    forwarder.send(b"", &[Part::OfSender { handle, port }]);
    forwarder.settle();
    path(&forwarder, &caller, 1);
    say(&forwarder, Packet::of(ask(1, caller.process)).cut_to(2));
    expect_cut(&chain.last, Rule::Path, "a forwarder");
    assert_eq!(caller.hear(), M::PathOver { path: 77 });
    chain.finish();
}

#[test]
fn who_asks_and_does_not_read_is_cut() {
    let _alone = common::alone();
    let mut chain = Chain::new("unread");
    let before = common::own_kib(chain.last.pid());
    for (number, flood) in [(1, want(7, [7; 20], 7, 7)), (2, ready(1, 1))] {
        let hand = Hand::new(&chain.name, number);
        let start = Instant::now();
        let mut said = 0;
        while hand.say(flood) {
            said += 1;
            assert!(start.elapsed() < common::PATIENCE, "{said} and no end");
        }
        println!("cut after {said}");
        expect_cut(&chain.last, Rule::Path, "unread");
        chain.serves();
    }
    let grown = common::own_kib(chain.last.pid()).saturating_sub(before);
    assert!(grown < 8_000, "{grown} KiB");
    chain.finish();
}

/// Found by `handfast abuse`: their links stayed, and nobody else's question was taken any more.
#[test]
fn who_asks_for_paths_to_strangers_and_goes_leaves_nothing() {
    let _alone = common::alone();
    let mut chain = Chain::new("strangers");
    chain.serves();
    let before = common::at_rest(chain.last.pid());
    for peer in 1..=10 {
        let hand = Hand::new(&chain.name, peer);
        let mut answers = [0; 2];
        for number in 1..=20 {
            say(&hand, ask(number, [number as u8; 20]));
        }
        while answers != [20, 4] {
            // Each is asked for the stranger's door, and the first ones give way to the last.
            match hand.hear().kind() {
                ControlKind::DoorWhere => answers[0] += 1,
                ControlKind::PathRefused => answers[1] += 1,
                _ => {}
            }
        }
    }
    let pid = chain.last.pid();
    assert!(
        common::settles_at(pid, before),
        "{before} descriptors: {:?}",
        common::holdings(pid)
    );
    chain.finish();
}

/// Messages of a kind that the process has said, and nothing else.
fn count_of(kind: ControlKind, hand: &Hand) -> usize {
    let said = hand.said_meanwhile();
    assert!(said.iter().all(|said| said.kind() == kind), "{said:?}");
    said.len()
}

#[test]
fn who_does_not_read_what_others_make_it_asked_costs_no_more_than_a_limit() {
    let _alone = common::alone();
    let mut chain = Chain::new("unread-wants");
    let deaf = Hand::new(&chain.name, 1);
    let before = common::own_kib(chain.last.pid());
    let mut refused = 0;
    for number in 2..4 {
        let hand = Hand::new(&chain.name, number);
        for number in 1..=0xffff {
            say(&hand, ask(number, deaf.process));
            say(&hand, M::PathDrop { number });
            if number % 100 == 0 || number == 0xffff {
                // It reads what it is answered.
                refused += count_of(ControlKind::PathRefused, &hand);
            }
        }
        chain.serves();
    }
    let grown = common::own_kib(chain.last.pid()).saturating_sub(before);
    println!("{refused} refused, {grown} KiB");
    assert!(refused > 120_000, "{refused}");
    assert!(grown < 8_000, "{grown} KiB");
    drop(deaf);
    chain.finish();
}

#[test]
fn what_a_caller_reads_and_never_answers_is_not_asked_for_without_end() {
    let mut chain = Chain::new("unanswered-wants");
    let caller = Hand::new(&chain.name, 1);
    let forwarder = Hand::new(&chain.name, 2);
    let (mut wanted, mut refused) = (0, 0);
    for number in 1..=1000 {
        say(&forwarder, ask(number, caller.process));
        say(&forwarder, M::PathDrop { number });
        refused += count_of(ControlKind::PathRefused, &forwarder);
        wanted += count_of(ControlKind::PathWant, &caller);
    }
    assert_eq!((wanted, wanted + refused), (128, 1000));
    // Another forwarder has not asked for anything yet.
    path(&Hand::new(&chain.name, 3), &caller, 1);
    chain.finish();
}
