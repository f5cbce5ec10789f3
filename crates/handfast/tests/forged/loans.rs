//! Peers that forge loans: arenas that are none, blocks that are not there, loans that come twice; and
//! returns of what was never lent.

use crate::common;
use crate::forger::{Hand, expect_cut, serves, start_honest, units};
use handfast::error::Rule;
use handfast::{LONG_BYTES_MAX, SharedArena};
use handfast_layout::control::ControlMessage;
use handfast_layout::link::{Kind, Side};
use handfast_layout::loan::{ARENAS, Geometry, LOANS, LentBlock, Told, next_number};
use handfast_layout::part::Part;
use handfast_region::Memory;
use handfast_sys::memory::{create_lent, create_owner_written, create_sealed, create_whole};
use handfast_testing::forge::Packet;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;

const BLOCKS: u32 = 2;
const BLOCK_BYTES: u64 = 4096;
const FILE_BYTES: usize = 8192;
/// The number of the first arena.
const FIRST: u32 = next_number(0);

/// The announcement of an arena.
fn told(number: u32, block_bytes: u64) -> Packet {
    let geometry = Geometry::new(BLOCKS, block_bytes).unwrap();
    let told = Told::New { number, geometry };
    Packet::of(ControlMessage::Arena(told))
}

fn ended(number: u32, lent: u32) -> Packet {
    let told = Told::Ended { number, lent };
    Packet::of(ControlMessage::Arena(told))
}

fn arena() -> OwnedFd {
    let (fd, mapping) = create_lent("arena", FILE_BYTES).unwrap();
    std::mem::forget(mapping);
    fd
}

fn tell(hand: &Hand, said: &[u8], fds: &[&OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    handfast_sys::socket::send(&hand.socket, said, &fds).unwrap();
}

const LENT: LentBlock = LentBlock {
    arena: FIRST,
    block: BLOCKS - 1,
    loan: LOANS - 1,
    generation: 1,
    len_bytes: BLOCK_BYTES,
    fill: 0,
};
const HONEST: Part = Part::Loan(LENT);

/// As an honest one, but for a word.
fn changed(what: &str) -> Part {
    let mut lent = LENT;
    match what {
        "another arena" => lent.arena += 1,
        "an arena to come" => lent.arena = next_number(FIRST),
        "an arena before" => lent.arena = 0,
        "no arena" => lent.arena = u32::MAX,
        "no block" => lent.block = BLOCKS,
        "far from any block" => lent.block = u32::MAX,
        "longer than a block" => lent.len_bytes += 1,
        "as long as can be" => lent.len_bytes = u64::MAX,
        "no loan" => lent.loan = LOANS,
        "far from any loan" => lent.loan = u32::MAX,
        "a generation before" => lent.generation = 0,
        "a generation to come" => lent.generation = 2,
        _ => unreachable!("{what}"),
    }
    Part::Loan(lent)
}

const CHANGES: [&str; 12] = [
    "another arena",
    "an arena to come",
    "an arena before",
    "no arena",
    "no block",
    "far from any block",
    "longer than a block",
    "as long as can be",
    "no loan",
    "far from any loan",
    "a generation before",
    "a generation to come",
];

#[test]
fn loans_that_were_made_up_are_refused_by_name_and_leave_nothing() {
    let name = common::name("forged-loans");
    let mut honest = common::start("dropper", &[&name]);
    honest.expect("ready");
    let before = common::holdings(honest.pid());
    let fd = arena();
    for (number, what) in (1..).zip(CHANGES) {
        let mut hand = Hand::new(&name, number);
        tell(&hand, &told(FIRST, BLOCK_BYTES), &[&fd]);
        hand.send(b"", &[changed(what)]);
        expect_cut(&honest, Rule::Loan, what);
        hand.expect_end();
        drop(hand);
        serves(&name);
    }
    for (number, what) in (1..).zip([
        "not told",
        "twice",
        "twice in one",
        "after its end",
        "an end too early",
    ]) {
        let mut hand = Hand::new(&name, number);
        if what != "not told" {
            tell(&hand, &told(FIRST, BLOCK_BYTES), &[&fd]);
        }
        match what {
            "twice" => (0..2).for_each(|_| hand.send(b"", &[HONEST])),
            "twice in one" => hand.send(b"", &[HONEST, HONEST]),
            "after its end" => {
                tell(&hand, &ended(FIRST, 0), &[]);
                hand.settle();
                hand.send(b"", &[HONEST]);
            }
            "an end too early" => {
                hand.send(b"", &[HONEST]);
                hand.settle();
                tell(&hand, &ended(FIRST, 0), &[]);
            }
            _ => hand.send(b"", &[HONEST]),
        }
        let rule = match what {
            "an end too early" => Rule::Arena,
            _ => Rule::Loan,
        };
        expect_cut(&honest, rule, what);
        hand.expect_end();
        drop(hand);
        serves(&name);
    }
    // The units that describe a loan must be whole.
    let mut hand = Hand::new(&name, 1);
    tell(&hand, &told(FIRST, BLOCK_BYTES), &[&fd]);
    let handle = hand.welcome.handle;
    let half = &units(&[HONEST])[..1];
    hand.post(Kind::Message, (handle, 0, 0), (b"", half));
    expect_cut(&honest, Rule::Part, "half");
    drop(hand);
    let is_as_before = || common::holdings(honest.pid()) == before;
    assert!(common::within_patience(is_as_before));
    honest.kill();
}

/// Blocks for messages that are too long for a lane.
const LONG_BYTES: u64 = 131_072;

const fn bytes_of(loan: u32, len_bytes: u64) -> Part {
    Part::Bytes(LentBlock {
        arena: FIRST,
        block: 0,
        loan,
        generation: 1,
        len_bytes,
        fill: 0,
    })
}

#[test]
fn bytes_that_were_made_up_are_refused_by_name_and_leave_nothing() {
    let name = common::name("forged-bytes");
    let mut honest = common::start("dropper", &[&name]);
    honest.expect("ready");
    let before = common::holdings(honest.pid());
    let (fd, mapping) = create_lent("arena", 2 * LONG_BYTES as usize).unwrap();
    std::mem::forget(mapping);
    for (number, what) in (1..).zip([
        "honest",
        "short enough for a lane",
        "past the limit",
        "longer than its block",
        "not told",
        "beside others",
        "twice",
        "behind a part",
    ]) {
        let mut hand = Hand::new(&name, number);
        if what != "not told" {
            tell(&hand, &told(FIRST, LONG_BYTES), &[&fd]);
        }
        let (whole, loan) = (bytes_of(0, LONG_BYTES), HONEST);
        match what {
            "short enough for a lane" => hand.send(b"", &[bytes_of(0, 65_536)]),
            "past the limit" => hand.send(b"", &[bytes_of(0, LONG_BYTES_MAX as u64 + 1)]),
            "longer than its block" => hand.send(b"", &[bytes_of(0, LONG_BYTES + 1)]),
            "beside others" => hand.send(b"x", &[whole]),
            "twice" => hand.send(b"", &[whole, bytes_of(1, LONG_BYTES)]),
            "behind a part" => hand.send(b"", &[loan, whole]),
            _ => hand.send(b"", &[whole]),
        }
        if what == "honest" {
            hand.settle();
            let word = Side::Connector.returned(0);
            assert_eq!(hand.region.load(word, SeqCst), 1);
            continue;
        }
        let rule = match what {
            "longer than its block" | "not told" => Rule::Loan,
            _ => Rule::Part,
        };
        expect_cut(&honest, rule, what);
        hand.expect_end();
        drop(hand);
        serves(&name);
    }
    let is_as_before = || common::holdings(honest.pid()) == before;
    assert!(common::within_patience(is_as_before));
    honest.kill();
}

/// Answers calls with what they say, and drops what comes with them.
pub(crate) fn dropper(name: &str) {
    let told = common::Cuts(|fault: &str| common::say(&format!("cut: {fault}")));
    tracing::subscriber::set_global_default(told).unwrap();
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        let bytes = request.bytes().to_vec();
        if request.is_call() {
            // The caller may have been cut.
            let _ = request.reply(&bytes);
        }
    }
}

#[test]
fn an_honest_loan_is_taken_and_its_word_is_written_when_it_is_dropped() {
    for role in ["honest", "dropper"] {
        let name = common::name(role);
        let mut peer = common::start(role, &[&name]);
        peer.expect("ready");
        let mut hand = Hand::new(&name, 1);
        let fd = arena();
        tell(&hand, &told(FIRST, BLOCK_BYTES), &[&fd]);
        hand.send(b"", &[HONEST]);
        hand.settle();
        let word = Side::Connector.returned(LOANS - 1);
        // The one keeps what it gets.
        let expected = u32::from(role == "dropper");
        assert_eq!(hand.region.load(word, SeqCst), expected);
        // The arena ends once so many loans have come, and its place is free.
        let last = Part::Loan(LentBlock { loan: 0, ..LENT });
        tell(&hand, &ended(FIRST, 2), &[]);
        hand.send(b"", &[last]);
        hand.settle();
        tell(&hand, &told(next_number(FIRST), BLOCK_BYTES), &[&fd]);
        hand.settle();
        assert!(peer.said().is_none());
        peer.kill();
    }
}

/// A file that is no arena, or not of that length.
fn file(what: &str) -> OwnedFd {
    let kept = |(fd, mapping): (OwnedFd, handfast_sys::memory::Mapping)| {
        std::mem::forget(mapping);
        fd
    };
    match what {
        "open" => create_whole("open", FILE_BYTES).unwrap(),
        "size-sealed" => create_sealed("sized", FILE_BYTES).unwrap(),
        "sparse" => kept(create_owner_written("sparse", FILE_BYTES).unwrap()),
        "truncated" => kept(create_lent("short", FILE_BYTES - 4096).unwrap()),
        "longer" => kept(create_lent("long", FILE_BYTES + 4096).unwrap()),
        "constant" => {
            let fd = create_whole("constant", FILE_BYTES).unwrap();
            handfast_sys::memory::seal(&fd).unwrap();
            fd
        }
        "plain" => std::fs::File::open("/proc/self/status").unwrap().into(),
        _ => rustix::pipe::pipe().unwrap().0,
    }
}

const FILES: [&str; 8] = [
    "open",
    "size-sealed",
    "sparse",
    "truncated",
    "longer",
    "constant",
    "plain",
    "pipe",
];

#[test]
fn arenas_that_are_none_cut_their_link_and_are_closed() {
    let (mut honest, name) = start_honest("forged-arenas");
    let before = common::holdings(honest.pid());
    let cut = |what: &str, said: &[(Packet, Vec<&OwnedFd>)]| {
        let hand = Hand::new(&name, 9);
        for (said, fds) in said {
            tell(&hand, said, fds);
        }
        expect_cut(&honest, Rule::Arena, what);
        hand.expect_end();
        drop(hand);
        let settles = || common::holdings(honest.pid()) == before;
        assert!(common::within_patience(settles), "{what}");
    };
    for what in FILES {
        let fd = file(what);
        cut(what, &[(told(FIRST, BLOCK_BYTES), vec![&fd])]);
    }
    let fd = arena();
    let new = || (told(FIRST, BLOCK_BYTES), vec![&fd]);
    let word = |at: usize, word: u32| {
        let (said, fds) = new();
        (said.patched(at, &word.to_le_bytes()), fds)
    };
    let short = |len_bytes: usize| (new().0.cut_to(len_bytes), vec![&fd]);
    cut("without a file", &[(new().0, vec![])]);
    cut("with two files", &[(new().0, vec![&fd, &fd])]);
    cut("half", &[short(16)]);
    cut("a byte", &[short(1)]);
    cut("no place", &[word(4, ARENAS)]);
    cut("no blocks", &[word(8, 0)]);
    cut("many blocks", &[word(8, u32::MAX)]);
    cut("padding", &[word(12, 1)]);
    cut("no bytes", &[word(16, 0)]);
    cut("odd bytes", &[word(16, 4095)]);
    cut("bytes without end", &[word(20, u32::MAX)]);
    cut("twice", &[new(), new()]);
    let next = (told(next_number(FIRST), BLOCK_BYTES), vec![&fd]);
    cut("at a place that is taken", &[new(), next]);
    let end = |lent| (ended(FIRST, lent), vec![]);
    cut("the end of none", &[end(0)]);
    cut("two ends", &[new(), end(1), end(1)]);
    cut("an end after the end", &[new(), end(0), end(0)]);
    let with_file = (ended(FIRST, 0), vec![&fd]);
    cut("an end with a file", &[new(), with_file]);
    let other = (ended(next_number(FIRST), 0), vec![]);
    cut("the end of another", &[new(), other]);
    cut(
        "an end without a number",
        &[(ended(FIRST, 0).cut_to(4), vec![])],
    );
    cut("nothing", &[(new().0.cut_to(1), vec![])]);
    serves(&name);
    honest.kill();
}

/// Answers each call with a block, while there is one; says how many blocks it has left when it is
/// told to look.
pub(crate) fn lender(name: &str) {
    let told = common::Cuts(|fault: &str| common::say(&format!("cut: {fault}")));
    tracing::subscriber::set_global_default(told).unwrap();
    let port = handfast::bind(name).unwrap();
    let arena = SharedArena::create(64, 4).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let request = port.receive().unwrap();
                let block = arena.try_take(8).ok().map(Into::into);
                // The caller may have been cut.
                let _ = request.reply_with(b"here", block);
            }
        });
        common::say("ready");
        while common::told().is_some() {
            let taken: Vec<_> = std::iter::from_fn(|| arena.try_take(1).ok()).collect();
            let left = taken.len();
            drop(taken);
            common::say(&format!("{left} left"));
        }
        std::process::exit(0);
    });
}

#[test]
fn returns_of_what_was_not_lent_cut_the_link_and_nothing_comes_back_twice() {
    let name = common::name("forged-returns");
    let mut lender = common::start("lender", &[&name]);
    lender.expect("ready");
    // The loan, and the generation that is written to its word, before the first call, and after each of two.
    let forged: [(&str, [(u32, u32); 3]); 6] = [
        ("before it was made", [(0, 1), (0, 1), (0, 1)]),
        ("of another generation", [(9, 0), (0, 5), (0, 5)]),
        (
            "of a generation before",
            [(9, 0), (0, u32::MAX), (0, u32::MAX)],
        ),
        (
            "again, of one that was never made",
            [(9, 0), (0, 1), (0, 3)],
        ),
        ("of one that is to come", [(9, 0), (1, 1), (1, 1)]),
        ("taken back", [(9, 0), (0, 1), (0, 0)]),
    ];
    for (number, (what, words)) in (1..).zip(forged) {
        let mut hand = Hand::new(&name, number);
        let handle = hand.welcome.handle;
        for (loan, generation) in words {
            let word = Side::Acceptor.returned(loan);
            hand.region.store(word, generation, SeqCst);
            // Looks at all words, and lends.
            lender.tell("look");
            lender.line_that(|line| line.ends_with(" left"));
            // It may be the look that cuts the link.
            let answer = hand.try_call(handle, b"");
            if answer.is_none_or(|(kind, _)| kind == Kind::Dropped) {
                break;
            }
        }
        expect_cut(&lender, Rule::LoanReturn, what);
        hand.expect_end();
        drop(hand);
        // All blocks, each once.
        comes_back(&mut lender, what);
    }
    lender.kill();
}

/// The lender has all blocks again, soon: one may be given back before its lender knows that it was sent.
fn comes_back(lender: &mut common::Child, what: &str) {
    let is_whole = || {
        lender.tell("look");
        lender.line() == "4 left"
    };
    assert!(common::within_patience(is_whole), "{what}");
}

#[test]
fn a_loan_that_is_given_back_twice_comes_back_once() {
    let name = common::name("twice-back");
    let mut lender = common::start("lender", &[&name]);
    lender.expect("ready");
    let mut hand = Hand::new(&name, 1);
    let handle = hand.welcome.handle;
    assert_eq!(hand.call(handle, b"").0, Kind::Message);
    lender.tell("look");
    lender.expect("3 left");
    for _ in 0..3 {
        hand.region.store(Side::Acceptor.returned(0), 1, SeqCst);
        comes_back(&mut lender, "given back once and again");
    }
    // The word of the last time is none of the next.
    for generation in 2..100 {
        assert_eq!(hand.call(handle, b"").0, Kind::Message);
        lender.tell("look");
        lender.expect("3 left");
        hand.region
            .store(Side::Acceptor.returned(0), generation, SeqCst);
        comes_back(&mut lender, "given back");
    }
    // One that gives nothing back gets no more than there is, and loses it with its link.
    for _ in 0..10 {
        assert_eq!(hand.call(handle, b"").0, Kind::Message);
    }
    lender.tell("look");
    lender.expect("0 left");
    drop(hand);
    comes_back(&mut lender, "at the end of the link");
    lender.kill();
}
