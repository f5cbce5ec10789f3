use super::*;
use crate::descriptors::tests::link;
use crate::link_life;
use crate::links;
use handfast_layout::control::kind;
use handfast_sys::{OwnedFd, socket};
use std::sync::OnceLock;

/// The next message to the peer about the last use.
fn told(peer: &OwnedFd) -> u8 {
    let mut bytes = [0; 512];
    loop {
        socket::receive(peer, &mut bytes, 1).unwrap();
        if (kind::UNUSED..=kind::FREE).contains(&bytes[0]) {
            return bytes[0];
        }
    }
}

#[test]
fn a_link_that_is_found_while_its_last_use_is_dropped_stays() {
    let (process, link, peer) = link();
    links::list(&process).push(Some(link.clone()));
    let (last, found) = (Held::new(&link), Arc::new(OnceLock::new()));
    let (other, place) = (process.clone(), found.clone());
    let serial = link.serial;
    crate::link::usage::tests::BETWEEN.set(Some(Box::new(move || {
        let held = hold_link(&other, |link| link.serial == serial);
        assert!(place.set(held).is_ok());
    })));
    drop(last);
    assert!(!leave(&process, &link) && !link.life.usage.is_left());
    assert!(hold(&process, &link).is_some());
    drop(found);
    // By the keeper.
    assert_eq!(told(&peer), kind::UNUSED);
    assert!(hold(&process, &link).is_none() && !link.is_down());
    link.life.usage.stays();
    assert!(hold(&process, &link).is_some());
    link_life::end_link(&process, &link);
}

#[test]
fn a_link_through_which_something_was_granted_is_not_left() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let last = Held::new(&link);
    let granting = link.clone();
    crate::link::usage::tests::BETWEEN.set(Some(Box::new(move || {
        granting.life.usage.grant();
    })));
    drop(last);
    assert!(!leave(&process, &link) && !link.life.usage.is_left());
    link_life::end_link(&process, &link);
}

#[test]
fn what_the_peer_does_not_use_ends_when_it_is_not_used_here() {
    let (process, link, peer) = link();
    links::list(&process).push(Some(link.clone()));
    link.life.usage.grant();
    let last = Held::new(&link);
    assert!(!hear_unused(&process, &link));
    assert_eq!(told(&peer), kind::USED);
    drop(last);
    assert_eq!(told(&peer), kind::FREE);
    assert!(!link.is_down() && hear_unused(&process, &link) && link.is_down());
    link_life::end_link(&process, &link);
}

#[test]
fn nothing_is_left_of_a_link_that_has_ended_once_nobody_holds_it() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    link_life::end_link(&process, &link);
    let left = Arc::downgrade(&link);
    let is_listed = || links::ended(&process).iter().any(|link| link.ptr_eq(&left));
    assert!(is_listed());
    drop(link);
    assert!(handfast_testing::within_patience(|| !is_listed()));
}
