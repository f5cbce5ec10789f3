//! Receive rights that are sent within their process.

use crate::common;
use crate::common::within_patience;
use handfast::error::{Gone, RightError, SendError};
use handfast::{ReceiveRight, Right, SendRight};

/// A right of this process by which it sends to a port of its own.
fn right_to(port: &ReceiveRight) -> SendRight {
    port.mint(1).connect().unwrap()
}

fn only_port(rights: Vec<Right>) -> ReceiveRight {
    match <[Right; 1]>::try_from(rights) {
        Ok([Right::Receive(port)]) => port,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_port_goes_to_another_thread_with_its_name_and_what_waits_in_it() {
    let name = common::name("within");
    let port = handfast::bind(&name).unwrap();
    let desk = handfast::anonymous().unwrap();
    let (to_port, to_desk) = (right_to(&port), right_to(&desk));
    for number in 0..3 {
        to_port.send(&[number]).unwrap();
    }
    to_desk.with([port.into()]).send(b"serve it").unwrap();
    let serving = std::thread::spawn(move || {
        let port = only_port(desk.receive().unwrap().take_rights());
        for number in 0..3 {
            assert_eq!(port.receive().unwrap().bytes(), [number]);
        }
        for _ in 0..2 {
            let request = port.receive().unwrap();
            request.reply(b"there").unwrap();
        }
        port
    });
    assert_eq!(&*to_port.call(b"where").unwrap(), b"there");
    // By its name, too: nobody is told to come again, to another process.
    let by_name = handfast::connect(&name).unwrap();
    assert_eq!(&*by_name.call(b"where").unwrap(), b"there");
    // And on: an answer brings it back.
    let port = serving.join().unwrap();
    let lender = handfast::anonymous().unwrap();
    let to_lender = right_to(&lender);
    let lending = std::thread::spawn(move || {
        let request = lender.receive().unwrap();
        request.reply_with(b"yours", [port.into()]).unwrap();
    });
    let port = only_port(to_lender.call(b"lend").unwrap().take_rights());
    lending.join().unwrap();
    to_port.send(b"last").unwrap();
    assert_eq!(port.receive().unwrap().bytes(), b"last");
    // A port that stays in its process keeps nobody waiting who asks about those that have left.
    assert!(handfast::wait_moved_timeout(std::time::Duration::ZERO));
}

#[test]
fn a_port_whose_message_nobody_receives_ends() {
    let (port, desk) = (
        handfast::anonymous().unwrap(),
        handfast::anonymous().unwrap(),
    );
    let (to_port, to_desk) = (right_to(&port), right_to(&desk));
    to_desk.with([port.into()]).send(b"never").unwrap();
    to_port.send(b"waits").unwrap();
    drop(desk);
    assert!(within_patience(|| {
        to_port.send(b"") == Err(SendError::Gone(Gone::Port))
    }));
}

#[test]
fn a_port_does_not_go_where_nobody_could_receive_from_it() {
    let port = handfast::anonymous().unwrap();
    let to = right_to(&port);
    let returned = to.with([port.into()]).send(b"").unwrap_err();
    assert_eq!(returned.error, SendError::Right(RightError::Home));
    let port = only_port(returned.rights);
    to.send(b"still here").unwrap();
    assert_eq!(port.receive().unwrap().bytes(), b"still here");
}
