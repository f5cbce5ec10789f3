//! Ports that share a receiver, in a forked child: they are the parent's.

use super::{fork, wait_for};
use crate::common;
use handfast::error::{BindError, ConnectError, Misuse, SendError};
use handfast::{Notice, Right};
use std::sync::atomic::{AtomicBool, Ordering};

const BADGE: u64 = 7;
/// Forks while another thread of the parent uses the same port.
const FORKS: u32 = 60;
/// Badges that are in use then.
const BADGES: u64 = 1000;

/// Gives rights to three members. At `fork`, a child does what it can to two of them; the rights to the third end by the parent, after that.
pub(crate) fn server(name: &str) {
    let port = handfast::bind(name).unwrap();
    let (used, third) = (port.member().unwrap(), port.member().unwrap());
    let mut dropped = Some(port.member().unwrap());
    let keys = [used.key(), dropped.as_ref().unwrap().key()];
    common::say("ready");
    while let Ok(request) = port.receive() {
        match (request.member(), request.bytes()) {
            (Some(_), _) => request.reply(b"").unwrap(),
            (None, b"rights") => {
                let members = [&used, dropped.as_ref().unwrap(), &third];
                let rights = members.map(|member| Right::from(member.mint(BADGE)));
                request.reply_with(b"", rights).unwrap();
            }
            (None, b"fork") => {
                let child = fork(|| {
                    used.revoke(BADGE);
                    used.notify_no_senders();
                    used.notify_no_senders_of(BADGE);
                    let its_keys = [used.key(), dropped.as_ref().unwrap().key()];
                    drop(dropped.take());
                    let connected = used.mint(BADGE).connect();
                    let is_refused = matches!(connected, Err(ConnectError::Misuse(Misuse::Forked)))
                        && matches!(port.member(), Err(BindError::Misuse(Misuse::Forked)));
                    i32::from(!(is_refused && its_keys == keys))
                });
                assert_eq!(wait_for(child), 0);
                third.revoke(BADGE);
                request.reply(b"").unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_forked_child_changes_nothing_of_its_parents_members() {
    let name = common::name("fork-members");
    let server = common::start("server of members that forks", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let mut given = right.call_timeout(b"rights", common::PATIENCE).unwrap();
    let rights = common::send_rights(given.take_rights());
    let [used, dropped, third] = rights.try_into().unwrap();
    let call = |right: &handfast::SendRight| right.call_timeout(b"", common::PATIENCE).map(|_| ());
    assert_eq!([call(&used), call(&dropped), call(&third)], [Ok(()); 3]);
    assert!(right.call_timeout(b"fork", common::PATIENCE).is_ok());
    // The word of that comes by the socket by which the child's would have come before.
    assert!(common::within_patience(|| third.try_send(b"").is_err()));
    assert_eq!([call(&used), call(&dropped)], [Ok(()); 2]);
}

#[test]
fn a_forked_child_takes_no_lock_of_its_parents_members() {
    let port = handfast::anonymous().unwrap();
    let member = port.member().unwrap();
    let is_over = AtomicBool::new(false);
    let outcomes = std::thread::scope(|threads| {
        threads.spawn(|| {
            for badge in (0..BADGES).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                drop(member.mint(badge));
                member.notify_no_senders_of(badge);
                member.revoke(badge);
            }
        });
        // Takes the notices, so that they do not become more and more.
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = port.try_receive();
            }
        });
        let child = |_| {
            wait_for(fork(|| {
                drop(member.mint(BADGE));
                member.notify_no_senders();
                member.notify_no_senders_of(BADGE);
                member.revoke(BADGE);
                0
            }))
        };
        let first_bad = (0..FORKS).map(child).find(|outcome| *outcome != 0);
        is_over.store(true, Ordering::Relaxed);
        first_bad
    });
    assert_eq!(outcomes, None);
}

#[test]
fn a_forked_child_uses_none_of_its_parents_send_once_rights() {
    let port = handfast::anonymous().unwrap();
    let [mut used, mut dropped] = [1, 2].map(|badge| Some(port.mint_once(badge).unwrap()));
    let child = fork(|| {
        drop(dropped.take());
        let sent = used
            .take()
            .unwrap()
            .send(b"")
            .map_err(|failed| failed.error);
        let is_refused = sent == Err(SendError::Misuse(Misuse::Forked))
            && matches!(port.mint_once(3), Err(BindError::Misuse(Misuse::Forked)));
        i32::from(!is_refused)
    });
    assert_eq!(wait_for(child), 0);
    used.unwrap().send(b"whole").unwrap();
    assert_eq!(port.receive().unwrap().badge(), 1);
    drop(dropped);
    let told = port.receive().unwrap();
    assert_eq!(told.notice(), Some(Notice::SendOnceUnused(2)));
}
