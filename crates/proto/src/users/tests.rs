use super::*;
use crate::schedule::{Dice, all_pass};

const LIMIT: Limit = Limit::of(1000);

fn users() -> Users {
    Users::new(|_| LIMIT)
}

/// Takes as much as it can get, in pieces of this size.
fn takes_all(users: &mut Users, user: u32, quota: Quota, piece: u64) -> u64 {
    while users.charge(user, quota, piece).is_ok() {}
    users.held(user, quota)
}

#[test]
fn one_user_leaves_the_reserve_to_the_others() {
    for quota in ALL {
        for piece in [1, 7, 100] {
            let mut users = users();
            let taken = takes_all(&mut users, 1, quota, piece);
            assert!(taken <= LIMIT.per_user && taken + piece > LIMIT.per_user);
            assert_eq!(
                users.charge(1, quota, piece),
                Err(Refused::User {
                    limit: LIMIT.per_user
                })
            );
            assert_eq!(users.charge(2, quota, LIMIT.modest), Ok(()));
        }
    }
}

#[test]
fn many_users_who_take_all_they_can_leave_something_to_eight_more() {
    let mut users = users();
    for user in 0..100 {
        takes_all(&mut users, user, Quota::Links, 40);
    }
    // Users that want more than is modest get nothing of the reserve.
    assert_eq!(users.used(Quota::Links), LIMIT.total - LIMIT.reserve - 30);
    for user in 200..208 {
        assert_eq!(takes_all(&mut users, user, Quota::Links, 1), LIMIT.modest);
    }
    assert!(users.charge(209, Quota::Links, LIMIT.modest).is_ok());
}

#[test]
fn what_is_held_already_is_entered_beyond_the_limits() {
    let mut users = users();
    users.force(1, Quota::Descriptors, 5000);
    assert!(users.charge(1, Quota::Descriptors, 1).is_err());
    assert_eq!(
        users.charge(2, Quota::Descriptors, 1),
        Err(Refused::All { limit: LIMIT.total })
    );
    users.refund(1, Quota::Descriptors, 5000);
    assert_eq!(users.charge(2, Quota::Descriptors, 1), Ok(()));
    users.refund(2, Quota::Descriptors, 1);
    assert!(users.held.is_empty());
}

#[test]
#[should_panic(expected = "a refund of 2 Links that user 1 does not hold")]
fn nothing_is_given_back_that_nobody_holds() {
    let mut users = users();
    users.force(1, Quota::Links, 1);
    users.force(2, Quota::Links, 1);
    users.refund(1, Quota::Links, 2);
}

/// Random charges and refunds beside a list of all that is held.
fn run(seed: u64) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let mut users = users();
    let mut held: Vec<(u32, Quota, u64)> = Vec::new();
    for step in 0..300 {
        if dice.roll(3) > 0 {
            let (user, quota) = (dice.roll(6) as u32, ALL[dice.roll(KINDS)]);
            let amount = dice.roll(200) as u64;
            if users.charge(user, quota, amount).is_ok() {
                held.push((user, quota, amount));
            }
        } else if let Some(place) = dice.pick(0..held.len()) {
            let (user, quota, amount) = held.swap_remove(place);
            users.refund(user, quota, amount);
        }
        for quota in ALL {
            let of = |user: Option<u32>| -> u64 {
                let its = held
                    .iter()
                    .filter(|of| of.1 == quota && user.is_none_or(|user| of.0 == user));
                its.map(|of| of.2).sum()
            };
            if users.used(quota) != of(None) || of(None) > LIMIT.total {
                return Err(format!("step {step}: {quota:?} in all"));
            }
            let is_wrong =
                |user| users.held(user, quota) != of(Some(user)) || of(Some(user)) > LIMIT.per_user;
            if (0..6).any(is_wrong) {
                return Err(format!("step {step}: {quota:?} of one"));
            }
        }
    }
    Ok(())
}

#[test]
fn what_users_hold_adds_up() {
    all_pass(500, &[], run);
}
