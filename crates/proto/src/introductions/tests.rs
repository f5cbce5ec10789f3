use super::*;

const A: Incarnation = [1; 20];
const B: Incarnation = [2; 20];
const C: Incarnation = [3; 20];

/// A peer that has left filled the table once: the memory of thousands of provisions stayed for ever.
#[test]
fn a_table_that_was_full_gives_its_memory_back() {
    let (introducer, recipient) = (A, B);
    let mut provisions = Provisions::default();
    for number in 0..10_000 {
        let refused = provisions.provide((introducer, number), Some(()), recipient, 0);
        assert!(refused.is_none(), "{number}");
    }
    assert_eq!(provisions.ended(recipient, true, 1).len(), 10_000);
    // A tree keeps no room for entries that have gone.
    assert!(provisions.provided.is_empty() && provisions.shares.is_empty());
    assert!(provisions.totals.is_empty() && provisions.forgone.is_empty());
}

#[test]
fn a_provision_is_redeemed_once_by_whom_it_names() {
    let mut provisions = Provisions::default();
    assert_eq!(provisions.redeem((A, 1), B), Redeemed::NotYet);
    assert_eq!(provisions.provide((A, 1), Some(7), B, 0), None);
    assert_eq!(provisions.redeem((A, 1), C), Redeemed::Dead);
    assert_eq!(provisions.redeem((C, 1), B), Redeemed::NotYet);
    assert_eq!(provisions.redeem((A, 1), B), Redeemed::To(7));
    assert_eq!(provisions.redeem((A, 1), B), Redeemed::NotYet);
    provisions.provide((A, 2), None, B, 0);
    assert_eq!(provisions.redeem((A, 2), B), Redeemed::Dead);
    provisions.provide_within((A, 2), Err(Nothing::Right), (B, 9), 0);
    assert_eq!(provisions.redeem((A, 2), B), Redeemed::Revoked);
}

/// A claim by a link that the exporter has not entered yet found nothing, for good: the provision had come before.
#[test]
fn a_provision_waits_for_a_recipient_that_has_no_link_yet_and_no_longer_than_a_while() {
    let mut provisions = Provisions::default();
    for number in [1, 2] {
        provisions.provide((A, number), Some(number), B, 0);
        provisions.let_expire((A, number), C, 5);
        assert!(!provisions.has_mortal() || number == 2);
        provisions.let_expire((A, number), B, 5);
        assert!(provisions.has_mortal());
    }
    let lives = |_| false;
    assert!(provisions.expire(4 + GRACE_NS, lives).is_empty());
    assert_eq!(provisions.redeem((A, 1), B), Redeemed::To(1));
    assert_eq!(provisions.expire(5 + GRACE_NS, lives), [2]);
    assert_eq!(provisions.redeem((A, 2), B), Redeemed::NotYet);
    provisions.let_expire((A, 3), B, 5);
    assert!(!provisions.has_mortal());
}

#[test]
fn processes_of_one_user_share_what_one_process_may_have() {
    let mut provisions = Provisions::default();
    let process = |number: u32| -> Incarnation {
        core::array::from_fn(|place| {
            if place < 4 {
                number.to_le_bytes()[place]
            } else {
                0
            }
        })
    };
    for number in 0..100 {
        provisions.belongs(process(number), 4711);
    }
    provisions.belongs(B, 4712);
    let provide = |provisions: &mut Provisions<u8>, by, number| {
        provisions.provide((by, number), Some(7), C, 0).is_none()
    };
    let mut make_all = |by| {
        let made = (0..).take_while(|number| provide(&mut provisions, by, *number));
        made.count()
    };
    // Half of three quarters, then half of the rest.
    let of_user = PROVISIONS_MAX / 4 * 3;
    let first = make_all(process(0));
    assert_eq!((first, make_all(process(1))), (of_user / 2, of_user / 4));
    let all = first
        + of_user / 4
        + (2..100)
            .map(|number| make_all(process(number)))
            .sum::<usize>();
    assert!((of_user - 8..=of_user).contains(&all), "{all}");
    assert!(make_all(B) > (PROVISIONS_MAX - of_user) / 3);
    // All are given back.
    for of in (0..100).map(process).chain([B]) {
        provisions.ended(of, true, 0);
    }
    provisions.expire(2 * GRACE_NS, |_| true);
    assert!(provisions.shares.is_empty() && provisions.totals.is_empty());
    assert!(provisions.users.is_empty());
}

#[test]
fn what_was_revoked_is_claimed_in_vain_by_those_it_was_revoked_from() {
    let mut provisions = Provisions::default();
    for (number, target, recipient) in [(1, 7, B), (2, 7, C), (3, 8, B)] {
        assert_eq!(
            provisions.provide((A, number), Some(target), recipient, 0),
            None
        );
    }
    assert_eq!(provisions.revoke(Some(B), |of| *of == 7), [7]);
    assert_eq!(provisions.redeem((A, 1), B), Redeemed::Revoked);
    assert_eq!(provisions.redeem((A, 3), B), Redeemed::To(8));
    assert_eq!(provisions.targets_mut().count(), 1);
    assert_eq!(provisions.revoke(None, |of| *of == 7), [7]);
    assert_eq!(provisions.revoke(None, |_| true), []);
    assert_eq!(provisions.take_back((A, 2), 0), None, "told of");
}

#[test]
fn what_is_taken_back_is_not_redeemed_whichever_comes_first() {
    let mut provisions = Provisions::default();
    provisions.provide((A, 1), Some(7), B, 0);
    assert_eq!(provisions.take_back((A, 1), 0), Some(7));
    assert_eq!(provisions.take_back((A, 2), 0), None);
    assert_eq!(provisions.provide((A, 2), Some(8), B, 0), Some(8));
    assert_eq!(provisions.provide((A, 2), Some(9), B, 0), None);
    assert_eq!(provisions.provide((A, 2), Some(10), B, 0), Some(10));
    assert_eq!(provisions.redeem((A, 2), B), Redeemed::To(9));
    assert_eq!(provisions.take_back((A, 3), 0), None);
    assert_eq!(provisions.take_back((A, 3), 0), None, "twice");
    assert_eq!(provisions.redeem((A, 3), B), Redeemed::Dead);
    assert_eq!(provisions.provide((A, 3), Some(11), B, 0), Some(11));
}

#[test]
fn provisions_end_with_their_recipient_and_a_while_after_their_introducer() {
    let mut provisions = Provisions::default();
    provisions.provide((A, 1), Some(7), B, 0);
    provisions.provide((A, 2), Some(8), C, 0);
    assert_eq!(provisions.ended(B, true, 5), [7]);
    assert!(!provisions.has_mortal());
    assert_eq!(provisions.ended(A, true, 5), []);
    assert!(provisions.has_mortal());
    assert_eq!(provisions.expire(GRACE_NS, |of| of != C), []);
    assert_eq!(provisions.redeem((A, 2), C), Redeemed::To(8));
    provisions.provide((A, 3), Some(9), C, 0);
    let _ = provisions.ended(A, true, 5);
    assert_eq!(provisions.expire(GRACE_NS + 5, |_| false), [9]);
    // Its link has ended, and it lives.
    provisions.provide((A, 4), Some(10), B, 0);
    assert_eq!(provisions.ended(B, false, 5), []);
    assert_eq!(provisions.redeem((A, 4), B), Redeemed::To(10));
    provisions.provide((A, 5), Some(11), B, 0);
    assert_eq!(provisions.ended(B, false, 5), []);
    assert_eq!(provisions.expire(GRACE_NS + 5, |_| false), [11]);
    provisions.provide((A, 6), Some(10), C, 0);
    provisions.provide((B, 4), Some(11), C, 0);
    let _ = provisions.ended(A, true, 5);
    assert_eq!(provisions.expire(6, |of| of == C), [10]);
}

#[test]
fn a_claim_that_is_given_up_ends_its_own_provision_and_no_other() {
    let mut provisions = Provisions::default();
    provisions.provide((A, 1), Some(7), B, 0);
    assert_eq!(provisions.forgo((A, 1), C, 0), None);
    assert_eq!(provisions.forgo((A, 2), C, 0), None);
    assert_eq!(provisions.provide((A, 2), Some(8), B, 0), None);
    assert_eq!(provisions.redeem((A, 1), B), Redeemed::To(7));
    assert_eq!(provisions.redeem((A, 2), B), Redeemed::To(8));
    // Before it comes, and after.
    assert_eq!(provisions.forgo((A, 3), B, 0), None);
    assert_eq!(provisions.provide((A, 3), Some(9), B, 0), Some(9));
    provisions.provide((A, 4), Some(10), B, 0);
    assert_eq!(provisions.forgo((A, 4), B, 0), Some(10));
    // The statements of C last a while, too.
    assert!(provisions.has_mortal());
    assert_eq!(provisions.expire(GRACE_NS, |_| false), []);
    assert!(!provisions.has_mortal() && provisions.shares.is_empty());
}

#[test]
fn who_makes_as_many_as_it_can_leaves_room_for_others() {
    if cfg!(miri) {
        // It is some thousand times slower, and looks for something else.
        return;
    }
    for by_voids in [false, true] {
        let mut provisions = Provisions::default();
        for number in 0..2 * PROVISIONS_MAX as u64 {
            match by_voids {
                true => drop(provisions.take_back((A, number), 0)),
                false => drop(provisions.provide((A, number), Some(1), B, 0)),
            }
            provisions.forgo((C, number), B, 0);
        }
        assert!(provisions.provided.len() + provisions.forgone.len() < PROVISIONS_MAX);
        for number in 0..1000 {
            assert_eq!(provisions.provide((C, number), Some(2), A, 0), None);
        }
        let _ = (provisions.ended(A, true, 0), provisions.ended(B, true, 0));
        let _ = (
            provisions.ended(C, true, 0),
            provisions.expire(GRACE_NS, |_| false),
        );
        assert!(provisions.provided.is_empty() && provisions.shares.is_empty());
    }
}
