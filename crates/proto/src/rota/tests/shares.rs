//! Shares of users, step by step.

use super::super::*;

/// A rota in which user 0 has `crowd` active lanes, and user 1 the three keys behind those, out.
fn crowded(cap: usize, crowd: usize) -> (Rota, Key) {
    let mut rota = Rota::new(cap);
    for key in 0..crowd {
        rota.add(key, 0);
        assert_eq!(
            rota.rang(key, 1, false),
            Rang::Poll,
            "alone, above the places"
        );
    }
    (crowd..crowd + 3).for_each(|key| rota.add(key, 1));
    (rota, crowd)
}

#[test]
fn what_a_user_has_above_its_share_takes_no_place_of_another() {
    // Rules 2 and 3. Two places are each user's share.
    let (mut rota, first) = crowded(4, 10);
    assert_eq!(rota.rang(first, 2, true), Rang::Poll);
    assert_eq!(rota.rang(first + 1, 2, true), Rang::Poll);
    assert_eq!(rota.rang(first + 2, 2, true), Rang::Queued);
    assert_eq!(rota.admit(3), None);
    rota.quiet(first, 4);
    assert_eq!(rota.admit(5), Some(Admitted::Request(first + 2)));
}

#[test]
fn a_client_is_woken_at_once_whose_user_takes_nobodys_place() {
    // Rule 4.
    let (mut rota, first) = crowded(2, 5);
    assert_eq!(rota.rang(first, 2, false), Rang::Poll);
    assert_eq!(rota.asleep_at_reply(first, 3), Wake::Now);
    assert_eq!(rota.asleep_at_reply(0, 3), Wake::Later);
}

#[test]
fn a_turn_ends_for_another_user_where_users_are_more_than_places() {
    // Rule 1.
    let (mut rota, first) = crowded(1, 1);
    assert_eq!(rota.rang(first, 2, true), Rang::Queued);
    assert_eq!(rota.request(0, 3), Verdict::Serve);
    assert_eq!(rota.admit(4), None);
    assert_eq!(rota.request(0, 4 + 2 * TURN_NS), Verdict::Defer);
    assert_eq!(rota.admit(5), Some(Admitted::Request(first)));
}

#[test]
fn a_user_with_a_lane_for_each_place_waits_for_more_when_it_is_not_alone() {
    // Rule 3.
    let (mut rota, first) = crowded(2, 1);
    assert_eq!(rota.rang(first, 2, false), Rang::Poll);
    assert_eq!(rota.rang(first + 1, 2, false), Rang::Poll);
    assert_eq!(rota.rang(first + 2, 2, false), Rang::Queued);
}

#[test]
fn counts_and_shares_are_right_after_any_operations() {
    let seed = 0x9e37_79b9_7f4a_7c15_u64;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let steps = if cfg!(miri) { 2_000 } else { 50_000 };
    let (mut rota, mut active) = (Rota::new(3), Active::default());
    let mut users = [None; 24];
    for step in 0..steps {
        let key = random(24) as Key;
        let now_ns = step * 40_000;
        let is_active = users[key].is_some() && rota.is_active(key);
        match (users[key], random(8)) {
            (None, _) => {
                users[key] = Some(random(6) as u32);
                rota.add(key, users[key].unwrap());
            }
            (Some(_), 0) => {
                rota.remove(key);
                active.remove(key);
                users[key] = None;
            }
            (Some(user), 1 | 2) => {
                let rang = rota.rang(key, now_ns, random(2) == 0);
                if rang == Rang::Poll {
                    active.push(user, key);
                }
            }
            (_, 3) => {
                while let Some(Admitted::Request(key) | Admitted::Reply(key)) = rota.admit(now_ns) {
                    active.push(users[key].unwrap(), key);
                }
            }
            (_, 4 | 5) if is_active => {
                let verdict = rota.request(key, now_ns);
                if verdict == Verdict::Defer {
                    active.remove(key);
                }
            }
            (_, 6) if is_active => {
                let wake = rota.asleep_at_reply(key, now_ns);
                if wake == Wake::Later {
                    active.remove(key);
                }
            }
            (_, 7) if is_active => {
                rota.quiet(key, now_ns);
                active.remove(key);
            }
            _ => {}
        }
        let lanes = (0..24).filter(|key| users[*key].is_some_and(|_| rota.is_active(*key)));
        let lanes: Vec<_> = lanes.collect();
        assert_eq!((rota.active, active.len()), (lanes.len(), lanes.len()));
        let mut looked = Vec::new();
        active.begin();
        while let Some(key) = active.look() {
            looked.push(key);
            assert!(looked.len() <= 24 * 24, "a sweep does not end");
        }
        looked.sort_unstable();
        looked.dedup();
        assert_eq!(looked, lanes, "a sweep looks at each lane");
        let sums = rota
            .users
            .iter()
            .map(|user| (user.active, user.queue.len()));
        let (sum, waiting) = sums.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let present = rota.users.iter().filter(|user| !user.is_idle()).count();
        assert_eq!(
            (rota.active, rota.waiting, rota.present),
            (sum, waiting, present)
        );
        assert_eq!(rota.share, 3_usize.div_ceil(present.max(1)));
        assert!(rota.users.len() <= 6);
    }
}

#[test]
fn a_sweep_looks_at_few_lanes_of_a_user_between_two_looks_at_anothers() {
    let mut active = Active::default();
    (0..100).for_each(|key| active.push(7, key));
    active.push(8, 100);
    active.begin();
    let mut since = 0;
    let mut seen = [0; 101];
    while let Some(key) = active.look() {
        seen[key] += 1;
        since = if key == 100 { 0 } else { since + 1 };
        assert!(since <= 8, "{since} looks at lanes of one user");
    }
    assert!(seen.iter().all(|times| *times > 0));
}
