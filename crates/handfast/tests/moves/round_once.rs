//! A port that goes round while send-once rights to each of its homes are not used.

use crate::common::{self, within_patience};
use crate::ring::{self, Home};
use handfast::error::{ReceiveError, RightError, SendError};
use handfast::{Notice, ReceiveRight, Request, Right, SendOnceRight};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

const HOMES: usize = 3;
const MOVES: u64 = 200;
/// Made at each home, at each move: each home keeps one.
const RIGHTS: u64 = HOMES as u64;

/// The badge of a right whose message has come, or of one that has ended unused.
fn badge_of(request: &Request) -> u64 {
    match request.notice() {
        Some(Notice::SendOnceUnused(badge)) => badge,
        None => request.badge(),
        other => panic!("{other:?}"),
    }
}

/// Sends the port on. Where that is refused, the oldest of the rights are used, what comes of them is received, and the trails may end. Returns
/// how often it was.
fn move_on(
    home: &Home,
    port: ReceiveRight,
    kept: &mut VecDeque<SendOnceRight>,
    came: &mut Vec<u64>,
) -> usize {
    let (mut rights, mut refused) = (vec![Right::from(port)], 0);
    loop {
        let failed = match home.next.with(rights).send(b"port") {
            Ok(()) => return refused,
            Err(failed) => failed,
        };
        let is_refused = matches!(
            failed.error,
            SendError::Right(RightError::SendOnceTrails { .. } | RightError::Trails { .. })
        );
        assert!(is_refused, "{failed:?}");
        (rights, refused) = (failed.rights, refused + 1);
        let some = kept.len().min(2 * RIGHTS as usize);
        for right in kept.drain(..some) {
            right.send(b"").unwrap();
        }
        let Some(Right::Receive(port)) = rights.first() else {
            panic!("{rights:?}");
        };
        // The trails pass on no more than a lane holds as long as nobody receives here.
        while let Ok(request) = port.receive_timeout(Duration::from_millis(5)) {
            came.push(badge_of(&request));
        }
    }
}

/// A right of a home, given on by so many.
fn given_on(homes: &[Home], from: usize, steps: usize, mut right: SendOnceRight) -> SendOnceRight {
    for at in from..from + steps {
        let to = &homes[(at + 1) % HOMES];
        (homes[at % HOMES].next.with([right.into()]))
            .send(b"right")
            .unwrap();
        let mut request = to.mail.receive().unwrap();
        let Some(Right::SendOnce(given)) = request.take_rights().pop() else {
            panic!("no right came");
        };
        right = given;
    }
    right
}

#[test]
fn a_port_that_goes_round_with_unused_send_once_rights_loses_none() {
    let homes = ring::homes("round", HOMES);
    let mut port = homes[0].node.anonymous().unwrap();
    let (mut kept, mut came, mut refused) = (VecDeque::new(), Vec::new(), 0);
    for turn in 0..MOVES {
        let home = &homes[turn as usize % HOMES];
        for steps in 0..RIGHTS {
            let right = port.mint_once(turn * RIGHTS + steps).unwrap();
            kept.push_back(given_on(&homes, turn as usize, steps as usize, right));
        }
        refused += move_on(home, port, &mut kept, &mut came);
        let next = &homes[(turn as usize + 1) % HOMES];
        let mut request = next.mail.receive().unwrap();
        let Some(Right::Receive(moved)) = request.take_rights().pop() else {
            panic!("no port came");
        };
        port = moved;
    }
    println!("{refused} moves refused");
    drop(kept);
    let mut left: BTreeSet<_> = (0..MOVES * RIGHTS).collect();
    for badge in came {
        assert!(left.remove(&badge), "{badge} twice");
    }
    while !left.is_empty() {
        let request = match port.receive_timeout(common::PATIENCE) {
            Ok(request) => request,
            Err(ReceiveError::TimedOut) => panic!("nothing comes of {left:?}"),
            Err(error) => panic!("{error}"),
        };
        let badge = badge_of(&request);
        assert!(left.remove(&badge), "{badge} twice");
    }
    for home in &homes {
        assert!(within_patience(|| home
            .node
            .wait_moved_timeout(Duration::from_millis(10))));
    }
}
