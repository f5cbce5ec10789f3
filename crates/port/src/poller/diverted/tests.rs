use super::*;
use crate::descriptors::tests::link;
use crate::port::notices::Notice;
use crate::request::{Mark, marked, notify};
use crate::seal::Seal;

const ONE: Sender = Sender { uid: 1, link: 10 };
const TWO: Sender = Sender { uid: 2, link: 20 };
const UPSTREAM: Sender = Sender { uid: 1, link: 30 };

/// A message, told from others by its notice, which is none that comes for a port.
fn message(number: u64) -> Request {
    notify(Notice::NoSendersOf(number), 0)
}

fn number_of(next: Option<(Request, bool)>) -> (u64, bool) {
    match next {
        Some((request, has_room)) => match request.notice() {
            Some(Notice::NoSendersOf(number)) => (number, has_room),
            notice => panic!("{notice:?}"),
        },
        None => panic!("nothing"),
    }
}

fn full(by: Sender) -> Diverted {
    let diverted = Diverted::new(Some(UPSTREAM.link));
    let count = ROOM.requests as u64;
    (0..count).for_each(|number| assert!(diverted.push(message(number), Some(by)).is_ok()));
    diverted
}

#[test]
fn users_have_turns_and_a_senders_messages_their_order() {
    let diverted = full(ONE);
    assert!(diverted.has_to_wait(ONE) && !diverted.has_to_wait(TWO));
    assert!(diverted.push(message(7000), Some(TWO)).is_ok());
    assert!(diverted.push(message(7001), Some(TWO)).is_ok());
    let first: Vec<_> = (0..5).map(|_| number_of(diverted.next()).0).collect();
    assert_eq!(first, [0, 7000, 1, 7001, 2]);
}

#[test]
fn a_lane_waits_in_vain_once_until_something_is_taken() {
    let diverted = full(ONE);
    // It has waited.
    assert!(diverted.push(message(9000), Some(ONE)).is_err());
    assert!(!diverted.has_to_wait(ONE));
    assert!(diverted.push(message(9001), Some(ONE)).is_err());
    assert_eq!(number_of(diverted.next()), (0, true));
    assert!(diverted.push(message(9002), Some(ONE)).is_ok());
    assert!(diverted.has_to_wait(ONE));
}

#[test]
fn marks_and_what_comes_from_an_earlier_home_wait_for_no_room() {
    let (_process, link, _peer) = link();
    let diverted = full(ONE);
    assert!(!diverted.has_to_wait(UPSTREAM));
    assert!(diverted.push(message(8000), Some(UPSTREAM)).is_ok());
    let mark = Mark {
        link,
        port: 0,
        right: 0,
        seal: Seal::NONE,
        lanes: 1,
        number: 1,
    };
    assert!(diverted.push(marked(mark), Some(ONE)).is_ok());
}

#[test]
fn a_notice_comes_behind_what_had_come_before() {
    let diverted = Diverted::new(None);
    assert!(diverted.push(message(1), Some(ONE)).is_ok());
    assert!(diverted.push(message(2), Some(TWO)).is_ok());
    assert!(diverted.push(message(100), None).is_ok());
    assert!(diverted.push(message(3), Some(ONE)).is_ok());
    let order: Vec<_> = (0..4).map(|_| number_of(diverted.next()).0).collect();
    assert_eq!(order, [1, 2, 100, 3]);
}
