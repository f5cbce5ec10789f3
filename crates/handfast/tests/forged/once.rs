//! Holders of send-once rights that use them more than once.

use crate::common;
use crate::forger::Hand;
use handfast::{Notice, Right};
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::{Kind, passed_word};
use handfast_layout::part::Part;

/// Gives a send-once right to whoever sends it a right to send one to, and says what comes of each.
pub(crate) fn giver(name: &str) {
    common::say_cuts();
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut badge = 0;
    loop {
        let mut request = port.receive().unwrap();
        if let Some(Notice::SendOnceUnused(badge)) = request.notice() {
            common::say(&format!("unused {badge}"));
        } else if request.is_send_once() {
            common::say(&format!("message {}", request.badge()));
        } else if let Some(Right::Send(to)) = request.take_rights().pop() {
            badge += 1;
            let right = port.mint_once(badge).unwrap();
            to.with([right.into()]).send(b"").unwrap();
        } else if request.is_call() {
            let bytes = request.bytes().to_vec();
            request.reply(&bytes).unwrap();
        }
    }
}

/// Starts that process, with a holder that does as it likes.
fn start(what: &str) -> (common::Child, String, Hand) {
    let name = common::name(what);
    let child = common::start("giver of send-once rights", &[&name]);
    child.expect("ready");
    let hand = Hand::new(&name, 1);
    (child, name, hand)
}

/// Has the process give the next one: its name.
fn given(hand: &mut Hand) -> u32 {
    let own = Part::OfSender {
        handle: 1 << 31 | 5,
        port: 0x100,
    };
    hand.send(b"", &[own]);
    match Part::parse(&hand.next_units(1)).unwrap().0 {
        Part::Once { handle, .. } => handle,
        part => panic!("{part:?}"),
    }
}

/// Finding of a review: by one with fewer permissions than it has, its port would have moved twice.
#[test]
fn nothing_is_taken_away_from_a_send_once_right() {
    let (child, _, mut hand) = start("once-attenuated");
    let handle = given(&mut hand);
    let said = LaneControl::Attenuate { word: 7, mask: 1 };
    let body = (&said.encode()[..], &[][..]);
    hand.post(Kind::CONTROL, (handle, passed_word(0, 0), 1), body);
    hand.post(Kind::Message, (7, 0, 0), (b"less", &[]));
    hand.settle();
    assert_eq!(child.said(), None);
    hand.post(Kind::Message, (handle, 0, 0), (b"all", &[]));
    child.expect("message 1");
}

#[test]
fn a_used_right_leads_nowhere_however_long_its_name_is_kept() {
    let (child, name, mut hand) = start("once-forged");
    let (first, second) = (given(&mut hand), given(&mut hand));
    assert_ne!(first, second);
    for _ in 0..3 {
        hand.post(Kind::Message, (first, 0, 0), (b"again", &[]));
    }
    // A call that comes first is the message: the receiver may answer it, and this one does not.
    assert_eq!(hand.call(second, b"asks").0, Kind::Dropped);
    for used in [first, second] {
        assert_eq!(hand.call(used, b"late"), (Kind::DeadPort, Vec::new()));
    }
    hand.settle();
    child.expect("message 1");
    child.expect("message 2");
    // Their names are still there: others get other ports.
    let third = given(&mut hand);
    hand.post(Kind::Message, (first, 0, 0), (b"again", &[]));
    hand.settle();
    assert_eq!(child.said(), None);
    drop(hand);
    child.expect("unused 3");
    assert!(third != first && third != second);
    let honest = handfast::connect(&name).unwrap();
    assert_eq!(&*honest.call(b"still here").unwrap(), b"still here");
    assert_eq!(child.said(), None);
}
