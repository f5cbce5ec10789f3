//! Introducers that show the way to a process that is a stranger to the recipient, beside one that does not.

use crate::forger::Hand;
use crate::forger::introductions::third;
use crate::trio::{How, Trio};
use handfast_layout::control::ControlMessage;

/// The answer of the first introducer when it is asked for the exporter's door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Silence,
    NoDoor,
    Death,
}

#[test]
fn an_introducer_that_says_nothing_keeps_no_other_from_showing_a_door() {
    shows_a_door_beside(Answer::Silence);
}

#[test]
fn an_introducer_that_has_no_door_keeps_no_other_from_showing_it() {
    shows_a_door_beside(Answer::NoDoor);
}

#[test]
fn an_introducer_that_ends_without_an_answer_keeps_no_other_from_showing_a_door() {
    shows_a_door_beside(Answer::Death);
}

fn shows_a_door_beside(answer: Answer) {
    let trio = Trio::new(&format!("no-door-{answer:?}"), How::Door);
    let exporter = Hand::new(&trio.names[0], 2).peer;
    let mut hostile = Hand::new(&trio.names[1], 1);
    hostile.send(b"keep", &[third(exporter)]);
    assert_eq!(hostile.hear(), ControlMessage::DoorWhere { exporter });
    let hostile = match answer {
        // When the other has been asked, too.
        Answer::Silence | Answer::NoDoor => Some(hostile),
        Answer::Death => None,
    };
    trio.keep([trio.open(1)]);
    if let Some(hostile) = &hostile
        && answer == Answer::NoDoor
    {
        assert!(hostile.say(ControlMessage::DoorOf { exporter }));
    }
    assert_eq!(trio.ask("call 1 x"), "1: x 0");
    assert!(trio.is_linked(), "its door was not knocked at");
    let is_direct = || trio.ask("peer 1") == trio.exporter.pid().to_string();
    assert!(crate::common::within_patience(is_direct));
    assert_eq!(trio.ask("call 1 y"), "1: y 0");
}
