//! Peers that forge what belongs to calls passed on: reply rights, outcomes that are said to come
//! elsewhere, and answers nobody asked for.

use super::paths::{path, want};
use crate::forger::{Hand, INDEX, expect_cut, serves, start_honest};
use crate::{common, forger};
use handfast::error::Rule;
use handfast_channel::reply::Slot;
use handfast_layout::control::ControlMessage as M;
use handfast_layout::link::{ANSWERS, Kind, Meta, REPLIES, Side, passed_word, reply, slot_of};
use handfast_layout::part::Part;
use handfast_region::Memory;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// An honest process, and another that passes calls on to it; this process has links with both.
pub(crate) struct Chain {
    pub(crate) last: common::Child,
    pub(crate) name: String,
    first: handfast::SendRight,
    _direct: handfast::SendRight,
    _middle: common::Child,
    calls: u32,
}

impl Chain {
    pub(crate) fn new(what: &str) -> Self {
        let (last, name) = start_honest(what);
        let between = common::name(&format!("{what}-between"));
        let middle = common::start("middle", &[&between, &name]);
        middle.expect("ready");
        Self {
            last,
            first: handfast::connect(&between).unwrap(),
            _direct: handfast::connect(&name).unwrap(),
            name,
            _middle: middle,
            calls: 0,
        }
    }

    /// Calls that are passed on get their own answers.
    pub(crate) fn serves(&mut self) {
        for _ in 0..20 {
            self.calls += 1;
            let text = self.calls.to_string().repeat(self.calls as usize % 100);
            let answer = self.first.call_timeout(text.as_bytes(), common::PATIENCE);
            assert_eq!(&*answer.unwrap(), text.as_bytes());
        }
    }

    pub(crate) fn finish(&mut self) {
        self.serves();
        serves(&self.name);
        assert_eq!(self.last.said(), None);
        self.last.finish();
    }
}

/// The generation is the caller's word. A caller that chose an old one had the replier cut its link with an honest forwarder (`handfast
/// abuse`, once in a dozen runs of ten minutes, for all calls that were passed on or nested from then on).
#[test]
fn a_reply_right_is_passed_on_once_and_its_forwarder_is_not_to_blame() {
    let mut chain = Chain::new("passed-twice");
    let cases: [(u8, &[u32], bool); 4] = [
        (1, &[5], false),
        (2, &[4, 5], false),
        (3, &[0], false),
        (4, &[5], true),
    ];
    for (number, again, is_part) in cases {
        let caller = Hand::new(&chain.name, 50 + number);
        let mut forwarder = Hand::new(&chain.name, 60 + number);
        path(&forwarder, &caller, 1);
        let (handle, word) = (forwarder.welcome.handle, passed_word(1, 9));
        for generation in [1, 2, 5] {
            forwarder.post(Kind::PASSED, (handle, word, generation), (b"once", &[]));
            let answer = caller.outcome(slot_of(2, 9), generation).unwrap();
            assert_eq!(answer, (Kind::Message, b"once".to_vec()));
        }
        for generation in again.iter().copied() {
            match is_part {
                false => forwarder.post(Kind::PASSED, (handle, word, generation), (b"twice", &[])),
                true => forwarder.send(b"", &[Part::Reply { word, generation }]),
            }
        }
        // Its link is not cut: what it passes on after that is answered.
        let word = passed_word(1, 10);
        forwarder.post(Kind::PASSED, (handle, word, 1), (b"another", &[]));
        let answer = caller.outcome(slot_of(2, 10), 1).unwrap();
        assert_eq!(answer, (Kind::Message, b"another".to_vec()));
        // The answer that the caller may be reading has not been written over.
        let answer = caller.outcome(slot_of(2, 9), 5).unwrap();
        assert_eq!(answer, (Kind::Message, b"once".to_vec()));
        chain.serves();
    }
    chain.finish();
}

/// A right to a port of the hand's, which the process keeps.
fn give_right(hand: &mut Hand) {
    let handle = 1 << 31 | 5;
    hand.send(
        b"",
        &[Part::OfSender {
            handle,
            port: 0x100,
        }],
    );
    hand.settle();
}

/// Has the process call, and takes the call.
fn called(last: &mut common::Child, hand: &mut Hand) -> (u32, u32) {
    last.tell("call");
    let (index, generation, _) = hand.next();
    (index, generation)
}

/// Has the process grant a path from a set of its link with this hand to another such set: number, set.
fn granted(hand: &Hand, set: u32) -> (u32, u32) {
    assert!(hand.say(want(1, hand.process, INDEX, set)));
    match hand.hear().message() {
        M::PathGranted { path, set, .. } => (path, set),
        said => panic!("{said:?}"),
    }
}

const LOST: &str = "Err(Gone(Reply))";

#[test]
fn outcomes_that_are_moved_where_they_do_not_come_from_end_their_call_or_the_link() {
    let mut chain = Chain::new("moved");
    let mut other = Hand::new(&chain.name, 1);
    give_right(&mut other);
    let (others, _) = granted(&other, 0);
    let mut hand = Hand::new(&chain.name, 2);
    give_right(&mut hand);
    let (own, set) = granted(&hand, 0);
    assert_eq!(set, 2);
    let (inner, _) = granted(&hand, 2);
    // Harmless by design: a path has one source, and is the caller's to grant; the call is lost.
    for number in [0, 1, 0xfff, u32::MAX, own ^ 1 << 12, others, inner] {
        let call = called(&mut chain.last, &mut hand);
        hand.answer(call, Kind::MOVED, (&number.to_le_bytes(), &[]));
        chain.last.expect(LOST);
    }
    // Answers nobody asked for, in all return slots: nobody looks there.
    for index in REPLIES..ANSWERS {
        hand.answer((index, 1), Kind::Message, (b"unasked", &[OWN]));
    }
    let (index, generation) = called(&mut chain.last, &mut hand);
    hand.answer((index, generation), Kind::MOVED, (&own.to_le_bytes(), &[]));
    let there = (slot_of(2, index % REPLIES), generation);
    hand.answer(there, Kind::Message, (b"there", &[]));
    let is_taken = |line: &str| line == "Ok(\"there\")" || line == "Ok(\"unasked\")";
    assert!(is_taken(&chain.last.line()));
    // A path that is over is known for a while.
    assert!(hand.say(M::PathOver { path: own }));
    hand.settle();
    let call = called(&mut chain.last, &mut hand);
    hand.answer(call, Kind::MOVED, (&own.to_le_bytes(), &[]));
    let line = chain.last.line();
    assert!(line == LOST || is_taken(&line), "{line}");
    // Not so where a rule is broken.
    let outside = Meta {
        len_bytes: 4,
        outside: true,
        kind: Kind::MOVED,
        units: 0,
        cpu: 0,
    };
    for (number, wrong) in (10..).zip([None, Some(&b""[..]), Some(b"123"), Some(b"12345")]) {
        let mut hand = Hand::new(&chain.name, number);
        give_right(&mut hand);
        let (index, generation) = called(&mut chain.last, &mut hand);
        if let Some(wrong) = wrong {
            hand.answer((index, generation), Kind::MOVED, (wrong, &[]));
        } else {
            let at = Side::Acceptor.reply(index);
            hand.region.store(at + reply::META, outside.pack(), SeqCst);
            hand.region
                .store(at + reply::GENERATION, generation, SeqCst);
            let wait = Slot::of(Side::Acceptor, index).wait();
            hand.region.swap(wait, 0, SeqCst);
            hand.region.wake(wait, u32::MAX);
        }
        expect_cut(&chain.last, Rule::ReplyKind, "moved by what is no path");
        let line = chain.last.line();
        assert!(line.starts_with("Err(Fault("), "{line}");
        chain.serves();
    }
    chain.finish();
}

/// A right of a hand's own.
const OWN: Part = Part::OfSender {
    handle: 1 << 31 | 5,
    port: 0x100,
};

#[test]
fn outcomes_are_not_moved_in_a_circle() {
    let mut chain = Chain::new("circle");
    let mut hand = Hand::new(&chain.name, 1);
    give_right(&mut hand);
    let (first, a) = granted(&hand, 0);
    let (second, b) = granted(&hand, a);
    // Over, but known for as long as somebody waits who did so before.
    let early = called(&mut chain.last, &mut hand);
    assert!(hand.say(M::PathOver { path: first }));
    hand.settle();
    let late = called(&mut chain.last, &mut hand);
    let (there, beyond) = (slot_of(a, late.0), slot_of(b, late.0));
    hand.answer((there, late.1), Kind::MOVED, (&second.to_le_bytes(), &[]));
    hand.answer(late, Kind::MOVED, (&first.to_le_bytes(), &[]));
    // It has gone there before the other one is over.
    let waits = Slot::of(Side::Acceptor, beyond).wait();
    let is_there = || hand.region.load(waits, SeqCst) != 0;
    assert!(common::within_patience(is_there));
    hand.answer(early, Kind::Message, (b"early", &[]));
    chain.last.expect("Ok(\"early\")");
    // It waits in the second set then, and nobody in the first; that is not granted again as long as a
    // path leads on from there.
    let start = forger::used(chain.last.pid());
    for _ in 0..20 {
        let call = called(&mut chain.last, &mut hand);
        hand.answer(call, Kind::Message, (b"another", &[]));
        chain.last.expect("Ok(\"another\")");
        assert!(hand.say(want(1, hand.process, INDEX, b)));
        let said = hand.hear();
        let is_granted = |said| matches!(said, M::PathGranted { set, .. } if set == a);
        assert!(!is_granted(said.message()));
    }
    hand.answer((beyond, late.1), Kind::Dropped, (&[], &[]));
    chain.last.expect(LOST);
    let used = forger::used(chain.last.pid()) - start;
    assert!(used < Duration::from_secs(1), "{used:?}");
    chain.finish();
}
