use super::*;
use crate::descriptors::tests::{link, link_of};
use crate::link::held::Held;
use crate::{link_end, links};
use handfast_layout::control::{CONTROL_BYTES_MAX, ControlKind};
use handfast_sys::{OwnedFd, socket};
use std::sync::OnceLock;
use std::time::Instant;

/// The next message to the peer about the last use.
fn told(peer: &OwnedFd) -> ControlKind {
    use ControlKind::{Free, Unused, Used};
    let mut bytes = [0; CONTROL_BYTES_MAX];
    loop {
        socket::receive(peer, &mut bytes, 1).unwrap();
        if let Some(kind @ (Unused | Used | Free)) = ControlKind::of(&bytes) {
            return kind;
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
    usage::tests::BETWEEN.set(Some(Box::new(move || {
        let held = links::hold_link(&other, |link| link.serial == serial);
        assert!(place.set(held).is_ok());
    })));
    drop(last);
    assert!(!leave(&process, &link) && !link.life.usage.is_left());
    assert!(links::hold(&process, &link).is_some());
    drop(found);
    // By the control thread.
    assert_eq!(told(&peer), ControlKind::Unused);
    assert!(links::hold(&process, &link).is_none() && !link.is_down());
    link.life.usage.stays();
    assert!(links::hold(&process, &link).is_some());
    link_end::end_link(&process, &link);
}

#[test]
fn a_link_through_which_something_was_granted_is_not_left() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let last = Held::new(&link);
    let granting = link.clone();
    usage::tests::BETWEEN.set(Some(Box::new(move || {
        granting.life.usage.grant();
    })));
    drop(last);
    assert!(!leave(&process, &link) && !link.life.usage.is_left());
    link_end::end_link(&process, &link);
}

#[test]
fn what_the_peer_does_not_use_ends_when_it_is_not_used_here() {
    let (process, link, peer) = link();
    links::list(&process).push(Some(link.clone()));
    link.life.usage.grant();
    let last = Held::new(&link);
    assert!(!hear_unused(&process, &link));
    assert_eq!(told(&peer), ControlKind::Used);
    drop(last);
    assert_eq!(told(&peer), ControlKind::Free);
    assert!(!link.is_down() && hear_unused(&process, &link) && link.is_down());
    link_end::end_link(&process, &link);
}

#[test]
fn nothing_is_left_of_a_link_that_has_ended_once_nobody_holds_it() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    link_end::end_link(&process, &link);
    let left = Arc::downgrade(&link);
    let is_listed = || links::ended(&process).iter().any(|link| link.ptr_eq(&left));
    assert!(is_listed());
    drop(link);
    assert!(handfast_testing::within_patience(|| !is_listed()));
}

/// A peer that answers nothing takes two descriptors for each link.
#[test]
fn links_that_a_user_leaves_unanswered_end_when_there_are_too_many() {
    /// A user that no other test has.
    const UID: u32 = 3_000_000_124;
    let count = 2 * UNANSWERED_ALL_MAX;
    let mut made = Vec::new();
    for _ in 0..count {
        let (process, link, peer) = link_of(UID);
        links::list(&process).push(Some(link.clone()));
        assert!(link.life.usage.turn((state::USED, state::GONE)));
        assert!(!leave(&process, &link));
        made.push((process, link, peer));
    }
    let are_there = |made: &[(_, Arc<Link>, _)]| -> Vec<bool> {
        made.iter().map(|(_, link, _)| !link.is_down()).collect()
    };
    let mut expected = vec![false; count - UNANSWERED_ALL_MAX];
    expected.resize(count, true);
    assert_eq!(are_there(&made), expected, "the oldest have ended");
    // Fewer are left when the peer has had a second for each.
    let (process, link, _peer) = made.pop().unwrap();
    link.life.usage.set_unused_ns(0);
    for (_, link, _) in &made {
        link.life.usage.set_unused_ns(0);
    }
    (0..count).for_each(|_| end_unanswered(&process, UID, LINGER_NS));
    let left = are_there(&made).into_iter().filter(|is_there| *is_there);
    assert_eq!(left.count() + usize::from(!link.is_down()), UNANSWERED_MAX);
    for (process, link, _) in made.iter().chain([&(process, link, _peer)]) {
        link_end::end_link(process, link);
    }
}

/// A server that lies had an idle client say `unused` without end: each `free` was one more last use that had gone.
#[test]
fn unused_is_said_at_most_ten_times_a_second_whatever_the_peer_answers() {
    let (process, link, peer) = link();
    socket::set_nonblocking(&peer, true).unwrap();
    let start = Instant::now();
    drop(Held::new(&link));
    for _ in 0..100 {
        leave(&process, &link);
        hear_free(&link);
    }
    let mut bytes = [0; CONTROL_BYTES_MAX];
    let mut count = 0;
    while let Ok((len_bytes, _)) = socket::receive(&peer, &mut bytes, 1) {
        if len_bytes == 0 {
            break;
        }
        count += u128::from(ControlKind::of(&bytes) == Some(ControlKind::Unused));
    }
    let most = 1 + start.elapsed().as_millis() / 100;
    assert!((1..=most).contains(&count), "{count}, {most} at most");
    link_end::end_link(&process, &link);
}

/// An acceptor says it twice at most: when its own last use ends while it says `used`.
#[test]
fn a_free_that_answers_no_unused_is_passed_over() {
    let (process, link, _peer) = link();
    let is_heard = || {
        hear_free(&link);
        link.life.usage.turn((state::GONE, state::USED))
    };
    assert!(!is_heard());
    drop(Held::new(&link));
    assert!(!leave(&process, &link) && link.life.usage.is_left());
    assert!(is_heard() && is_heard() && !is_heard());
    link_end::end_link(&process, &link);
}
