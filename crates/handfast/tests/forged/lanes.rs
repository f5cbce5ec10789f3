//! Statements about lanes that a peer makes and an honest one does not.

use crate::forger::{Hand, expect_cut, refused_by_name, serves, start_honest};
use handfast::error::Rule;
use handfast_layout::control::ControlMessage::{LaneBack, LaneFree, LaneWanted};
use handfast_layout::link::{Kind, LANES};

/// A word by which nobody has claimed a right: a message that has it waits in its lane.
const UNCLAIMED: u32 = 5;

#[test]
fn lanes_that_are_not_free_not_there_or_not_asked_for_are_refused_by_name() {
    refused_by_name(
        "lanes",
        &[
            (
                "a lane with a message that waits is said to be free",
                |hand| {
                    // A receiver has the lane.
                    hand.call(hand.welcome.handle, b"x");
                    hand.post(Kind::Message, (UNCLAIMED, 0, 0), (b"", &[]));
                    hand.say(LaneFree { lane: 0 });
                },
                Rule::LaneReceiver,
            ),
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
