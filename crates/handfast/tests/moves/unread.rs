//! Messages that nobody receives, at ports that have nothing to do with one that moves.

use crate::common;
use crate::common::PATIENCE;
use handfast::{Notice, ReceiveRight, Right};
use std::time::Duration;

/// Takes a port, and says what comes there until it has no senders.
pub(crate) fn heir(name: &str) {
    let control = handfast::bind(name).unwrap();
    common::say("ready");
    let mut request = control.receive().unwrap();
    let Some(Right::Receive(port)) = request.take_rights().pop() else {
        panic!("no port came");
    };
    request.reply(b"").unwrap();
    let mut count = 0;
    loop {
        let came = port.receive().unwrap();
        match came.notice() {
            Some(Notice::NoSenders) => break,
            Some(other) => panic!("{other:?}"),
            None => count += 1,
        }
    }
    common::say(&format!("{count} messages, and no senders"));
    common::told();
}

/// Moves a port that this process sends to by its own right, and lets go of that; what else is done with the right, and with
/// another port, is `meanwhile`'s. The end of the last sender is heard, and this process is not needed any more.
fn moves(name: &str, meanwhile: impl FnOnce(&handfast::SendRight, &ReceiveRight)) {
    let name = common::name(name);
    let mut child = common::start("heir", &[&name]);
    child.expect("ready");
    let control = handfast::connect(&name).unwrap();
    let port = handfast::anonymous().unwrap();
    port.notify_no_senders();
    let right = port.mint(1).connect().unwrap();
    let other = handfast::anonymous().unwrap();
    meanwhile(&right, &other);
    let _ = control.with([port.into()]).call(b"take").unwrap();
    for _ in 0..5 {
        right.send(b"x").unwrap();
    }
    drop(right);
    child.expect("5 messages, and no senders");
    assert!(handfast::wait_moved_timeout(PATIENCE));
    assert!(other.try_receive().is_ok(), "it was there all the time");
    child.tell("");
    child.finish();
}

/// Soundness finding 12: the old home waited for an unread message that had nothing to do with the port, and the child never
/// heard of the end of the last sender.
#[test]
fn an_unread_message_at_another_port_hides_no_end_of_the_last_sender() {
    moves("unread", |_, other| {
        let to_other = other.mint(2).connect().unwrap();
        to_other.send(b"never received").unwrap();
        std::mem::forget(to_other);
    });
}

/// As that, where the right was sent to the other port before, and came out of it.
#[test]
fn one_that_came_after_the_right_was_received_there_hides_none_either() {
    moves("unread-after", |right, other| {
        let to_other = other.mint(2).connect().unwrap();
        to_other.with([right.clone().into()]).send(b"with").unwrap();
        let mut came = other.receive_timeout(PATIENCE).unwrap();
        assert_eq!(came.take_rights().len(), 1);
        to_other.send(b"never received").unwrap();
        std::mem::forget(to_other);
    });
}

/// The end of the last sender, without a move: through a lane that has led elsewhere since nothing.
#[test]
fn a_right_ends_though_messages_at_another_port_are_unread() {
    let (port, other) = (
        handfast::anonymous().unwrap(),
        handfast::anonymous().unwrap(),
    );
    port.notify_no_senders();
    let right = port.mint(1).connect().unwrap();
    let to_other = other.mint(2).connect().unwrap();
    to_other.with([right.clone().into()]).send(b"with").unwrap();
    drop(other.receive_timeout(PATIENCE).unwrap());
    to_other.send(b"never received").unwrap();
    right.send(b"x").unwrap();
    drop(right);
    assert_eq!(port.receive_timeout(PATIENCE).unwrap().bytes(), b"x");
    let told = port.receive_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(told.notice(), Some(Notice::NoSenders));
}
