use super::*;
use crate::descriptors::tests::link_of;
use crate::link::returns::Own;
use crate::link_end;
use crate::links;
use handfast_layout::control::Released;
use handfast_layout::link::{Kind, OWN_SET};
use handfast_layout::part::{IS_HANDLE, Part};
use handfast_proto::rights::{Target, Use};
use handfast_proto::users::Quota;
use std::sync::atomic::AtomicBool;

/// A user that no other test has.
const UID: u32 = 3_000_000_123;

/// The peer of a link, which reads nothing, sends so many rights, each dropped at once; all but so many bytes of what its user may
/// leave unread are taken. Whether the peer is cut.
fn is_cut(count: u32, left_bytes: u64, uses: &[Use]) -> bool {
    let (process, link, _peer) = link_of(UID);
    let mut others = process.users.nothing(UID, Quota::Backlog);
    others
        .grow(process.users.limit(Quota::Backlog) - left_bytes)
        .unwrap();
    for index in 0..count {
        let mut imports = link.imports();
        imports.arrive(IS_HANDLE | index, 7).unwrap();
        imports.dropped(IS_HANDLE | index, uses);
        drop(imports);
        if index % 1000 == 999 {
            give_back(&link, &process);
        }
    }
    give_back(&link, &process);
    let is_cut = link.fault().is_some();
    if is_cut {
        assert_eq!(link.fault().unwrap().rule, Rule::Unread);
    }
    link_end::end_link(&process, &link);
    drop(link);
    // Nothing stays charged: all fits again.
    drop(others);
    let mut all = process.users.nothing(UID, Quota::Backlog);
    let limit = process.users.limit(Quota::Backlog);
    assert!(handfast_testing::within_patience(|| all
        .grow(limit)
        .is_ok()));
    is_cut
}

#[test]
fn a_peer_that_reads_of_no_right_that_was_dropped_is_cut_at_its_users_limit() {
    // Some 20,000 are in the socket.
    assert!(!is_cut(50_000, 1 << 20, &[]));
    assert!(is_cut(150_000, 1 << 20, &[]));
    // A position that the peer has not reached.
    let unread = [Use { lane: 0, tail: 1 }];
    assert!(!is_cut(5_000, 1 << 20, &unread));
    assert!(is_cut(10_000, 1 << 20, &unread));
}

/// Whether all that the user may leave unread can be charged.
fn fits_all(process: &Arc<Process>, uid: u32) -> bool {
    let mut all = process.users.nothing(uid, Quota::Backlog);
    all.grow(process.users.limit(Quota::Backlog)).is_ok()
}

#[test]
fn nothing_is_charged_for_a_link_that_has_ended_and_is_held() {
    /// As above.
    const UID: u32 = 3_000_000_125;
    let (process, link, _peer) = link_of(UID);
    links::list(&process).push(Some(link.clone()));
    for index in 0..10_000 {
        let mut imports = link.imports();
        imports.arrive(IS_HANDLE | index, 7).unwrap();
        imports.dropped(IS_HANDLE | index, &[Use { lane: 0, tail: 1 }]);
    }
    give_back(&link, &process);
    assert!(link.fault().is_none() && !fits_all(&process, UID));
    link_end::end_link(&process, &link);
    // The control thread may be at it.
    let is_over = || fits_all(&process, UID);
    assert!(handfast_testing::within_patience(is_over));
    drop(link);
}

#[test]
fn a_peer_that_reads_is_not_cut_for_what_others_of_its_user_leave_unread() {
    /// As above.
    const UID: u32 = 3_000_000_126;
    let (process, link, _peer) = link_of(UID);
    let mut others = process.users.nothing(UID, Quota::Backlog);
    others.grow(process.users.limit(Quota::Backlog)).unwrap();
    let mut imports = link.imports();
    for index in 0..300 {
        imports.arrive(IS_HANDLE | index, 7).unwrap();
        imports.dropped(IS_HANDLE | index, &[Use { lane: 0, tail: 1 }]);
    }
    drop(imports);
    give_back(&link, &process);
    assert!(link.fault().is_none());
    link_end::end_link(&process, &link);
}

/// Gives the peer of `link` a right to a port for each of these badges, and takes them back.
fn gives_back(
    link: &Arc<Link>,
    process: &Arc<Process>,
    badges: core::ops::Range<u64>,
) -> Result<Vec<Handle>, Fault> {
    let mut given = Vec::new();
    for badge in badges {
        let handle = link.exports().export(Target::full(1, badge)).unwrap();
        given.push(handle);
        let right = Released {
            name: handle,
            count: 1,
        };
        take_back(link, process, core::iter::once(right))?;
    }
    Ok(given)
}

/// The peer answers one of this process's calls with a right, which no thread has looked at.
fn answers(link: &Link, place: u32, generation: u32) {
    let unit = Part::OfReceiver { handle: IS_HANDLE }.to_units().0[0];
    let outcome = (generation, Kind::Message, 0);
    let slot = Slot::of(link.calls, slot_of(OWN_SET, place));
    slot.answer_described(&link.region, outcome, (&[][..], &[unit]));
}

fn lives(link: &Link, handle: Handle) -> bool {
    link.exports().resolve(handle).is_some()
}

#[test]
fn rights_that_were_given_back_end_when_the_replies_have_been_read_that_were_unread_then() {
    let (process, link, _peer) = link_of(UID);
    links::list(&process).push(Some(link.clone()));
    // Its set of return slots has been used.
    Own::take(&link).unwrap().free();
    answers(&link, 3, 7);
    let first = gives_back(&link, &process, 0..1).unwrap()[0];
    answers(&link, 4, 9);
    let second = gives_back(&link, &process, 1..2).unwrap()[0];
    let take = |place, generation| {
        link.returns().took(slot_of(OWN_SET, place), generation);
        settle(&link, &process);
        (lives(&link, first), lives(&link, second))
    };
    assert_eq!(take(4, 8), (true, true), "an earlier answer");
    assert_eq!(take(3, 7), (false, true));
    answers(&link, 5, 1);
    assert_eq!(
        take(4, 9),
        (false, false),
        "a later answer is not waited for"
    );
    assert!(link.releases().back.is_empty());
    link_end::end_link(&process, &link);
}

#[test]
fn rights_that_were_given_back_count_as_claims_of_the_user_until_they_end() {
    /// As above.
    const UID: u32 = 3_000_000_127;
    let (process, link, _peer) = link_of(UID);
    links::list(&process).push(Some(link.clone()));
    let mut others = process.users.nothing(UID, Quota::Claims);
    let left = 2000;
    others
        .grow(process.users.limit(Quota::Claims) - left)
        .unwrap();
    let fits_all = || {
        let mut all = process.users.nothing(UID, Quota::Claims);
        all.grow(left).is_ok()
    };
    gives_back(&link, &process, 0..5000).unwrap();
    assert!(fits_all(), "they have ended");
    Own::take(&link).unwrap().free();
    answers(&link, 3, 7);
    gives_back(&link, &process, 0..200).unwrap();
    assert!(fits_all(), "a few are nobody's");
    gives_back(&link, &process, 200..2000).unwrap();
    assert!(!fits_all());
    let refused = gives_back(&link, &process, 2000..3000);
    assert_eq!(refused.unwrap_err().rule, Rule::Introduction);
    link_end::end_link(&process, &link);
    assert!(fits_all(), "of a link that has ended and is held");
}

/// Calls that were given up and have been answered hold no slot, also while the control thread looks at them.
#[test]
fn slots_of_calls_given_up_and_answered_are_there_for_the_next_ones_at_once() {
    let port = crate::anonymous().unwrap();
    let right = port.mint(1).connect().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                refuse_replies(right.link(), right.process());
            }
        });
        let found = (0..20_000).find(|_| {
            let calls: Result<Vec<_>, _> = (0..SLOTS_PER_LANE)
                .map(|_| right.try_call(b"given up"))
                .collect();
            let is_full = calls.is_err();
            drop(calls);
            while let Ok(request) = port.try_receive() {
                drop(request);
            }
            is_full
        });
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(found, None, "the round in which a slot was held");
    });
}
