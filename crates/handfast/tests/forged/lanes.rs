//! Statements about lanes that a peer makes and an honest one does not.

use crate::common;
use crate::forger::{Hand, expect_cut, refused_by_name, serves, start_honest};
use handfast::error::Rule;
use handfast_layout::control::ControlMessage::{LaneBack, LaneFree, LaneWanted};
use handfast_layout::link::{Kind, LANES};
use std::time::{Duration, Instant};

/// A word by which nobody has claimed a right: a message that has it waits in its lane.
const UNCLAIMED: u32 = 5;
/// For so long.
const CLAIM_WAIT: Duration = Duration::from_millis(200);

#[test]
fn lanes_that_are_not_free_not_there_or_not_asked_for_are_refused_by_name() {
    refused_by_name(
        "lanes",
        &[
            (
                "a lane that there is not",
                |hand| {
                    hand.say(LaneFree { lane: LANES as u8 });
                },
                Rule::LaneReceiver,
            ),
            (
                "one that was not asked for is back",
                |hand| {
                    hand.say(LaneBack { lane: 0 });
                },
                Rule::LaneReceiver,
            ),
        ],
        |_, _| {},
    );
}

/// The message waits for a moment only: where this machine is so busy that the statement comes later, the message itself is refused.
#[test]
fn a_lane_with_a_message_that_waits_is_not_free() {
    let (mut server, name) = start_honest("waiting-lane");
    let is_refused = || {
        let began = Instant::now();
        let mut hand = Hand::new(&name, 1);
        // A receiver has the lane.
        hand.call(hand.welcome.handle, b"x");
        hand.post(Kind::Message, (UNCLAIMED, 0, 0), (b"", &[]));
        hand.say(LaneFree { lane: 0 });
        let line = server.line_that(|line| line.starts_with(common::CUT));
        hand.expect_end();
        let is_late = began.elapsed() > CLAIM_WAIT / 2 && line.contains(Rule::RightHandle.text());
        let is_refused = line.contains(Rule::LaneReceiver.text());
        assert!(is_refused || is_late, "{line}");
        is_refused
    };
    assert!(common::within_patience(is_refused));
    serves(&name);
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn a_lane_that_was_freed_and_is_used_again_serves() {
    let (mut server, name) = start_honest("reused-lane");
    let mut hand = Hand::new(&name, 1);
    let port = hand.welcome.handle;
    for _ in 0..100 {
        assert_eq!(hand.call(port, b"x").1, b"x");
        assert!(hand.say(LaneWanted));
        assert!(hand.say(LaneFree { lane: 0 }));
        assert_eq!(hand.hear(), LaneBack { lane: 0 });
    }
    serves(&name);
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn who_frees_lanes_and_does_not_read_that_they_are_free_is_cut() {
    let (mut server, name) = start_honest("unread-lanes");
    let hand = Hand::new(&name, 1);
    let says = || (0..100_000).all(|_| hand.say(LaneFree { lane: 3 }));
    // It cannot say more than the other takes.
    let _ = says();
    expect_cut(&server, Rule::LaneReceiver, "unread");
    serves(&name);
    assert_eq!(server.said(), None);
    server.finish();
}
