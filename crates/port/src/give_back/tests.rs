use super::*;
use crate::descriptors::tests::link_of;
use crate::link_life;
use crate::links;
use handfast_layout::part::IS_HANDLE;
use handfast_proto::rights::Use;
use handfast_proto::users::Quota;

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
    link_life::end_link(&process, &link);
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
    link_life::end_link(&process, &link);
    assert!(fits_all(&process, UID));
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
    link_life::end_link(&process, &link);
}
