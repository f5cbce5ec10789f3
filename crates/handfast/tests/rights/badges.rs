//! Badges as objects: whoever watches one is told when its last right is gone.

use crate::common;
use crate::common::{Child, PATIENCE, Random};
use handfast::{Notice, ReceiveRight, Right, SendRight};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Keeps the rights that come, and drops what it is told to: by place.
pub(crate) fn holder(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut kept = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        kept.extend(request.take_rights());
        for place in request.bytes() {
            drop(kept.remove(usize::from(*place)));
        }
        if request.is_call() {
            request.reply(b"").unwrap();
        }
    }
}

fn start(what: &str) -> (Child, SendRight) {
    let name = common::name(what);
    let child = common::start("holder", &[&name]);
    child.expect("ready");
    (child, handfast::connect(&name).unwrap())
}

fn give(to: &SendRight, rights: impl IntoIterator<Item = Right>) {
    to.with(rights).call_timeout(b"", PATIENCE).unwrap();
}

/// The badge of the next notice.
fn told(port: &ReceiveRight) -> u64 {
    let told = port.receive_timeout(PATIENCE).unwrap().notice();
    let Some(Notice::NoSendersOf(badge)) = told else {
        panic!("{told:?}");
    };
    badge
}

#[test]
fn the_badges_of_a_holder_that_dies_are_told_of_one_by_one_and_once() {
    const BADGES: u64 = 10_000;
    let port = handfast::anonymous().unwrap();
    let (mut dying, to_dying) = start("dying");
    let (mut living, to_living) = start("living");
    for badge in (0..BADGES).step_by(4) {
        give(
            &to_dying,
            (badge..badge + 4).map(|badge| port.mint(badge).into()),
        );
    }
    // Every tenth has another holder, and every tenth after those nobody asks about.
    for badge in (0..BADGES).step_by(10) {
        give(&to_living, [port.mint(badge).into()]);
    }
    for badge in (0..BADGES).filter(|badge| badge % 10 != 1) {
        port.notify_no_senders_of(badge);
    }
    assert!(port.try_receive().is_err());
    let start = Instant::now();
    dying.kill();
    let mut of_dead: Vec<_> = (0..BADGES / 10 * 8).map(|_| told(&port)).collect();
    println!(
        "{} told of {:?} after the kill",
        of_dead.len(),
        start.elapsed()
    );
    of_dead.sort_unstable();
    assert!(
        of_dead
            .into_iter()
            .eq((0..BADGES).filter(|badge| badge % 10 > 1))
    );
    assert!(port.receive_timeout(Duration::from_millis(20)).is_err());
    living.kill();
    let mut of_dead: Vec<_> = (0..BADGES / 10).map(|_| told(&port)).collect();
    of_dead.sort_unstable();
    assert!(of_dead.into_iter().eq((0..BADGES).step_by(10)));
    assert!(port.receive_timeout(Duration::from_millis(20)).is_err());
}

#[test]
fn a_notice_waits_for_rights_that_are_made_meanwhile_under_way_or_at_home() {
    let port = handfast::anonymous().unwrap();
    let (mut holder, to) = start("waits");
    // Of none: at once. So it is with one that was there before.
    port.notify_no_senders_of(7);
    assert_eq!(told(&port), 7);
    let own = port.mint(7);
    port.notify_no_senders_of(7);
    // Made again before it is taken.
    drop(own);
    let own = port.mint(7);
    assert!(port.try_receive().is_err());
    // It ends, and so it is told; once.
    drop(own.clone());
    assert!(port.try_receive().is_err());
    drop(own);
    assert_eq!(told(&port), 7);
    drop(port.mint(7));
    assert!(port.try_receive().is_err());
    // Under way: in a message that its receiver has not looked at.
    holder.stop();
    to.with([port.mint(7).into(), port.mint(8).into()])
        .send(&[0])
        .unwrap();
    port.notify_no_senders_of(7);
    port.notify_no_senders_of(8);
    assert!(port.receive_timeout(Duration::from_millis(20)).is_err());
    holder.resume();
    assert_eq!(told(&port), 7);
    // Revoked.
    let own = port.mint(8);
    port.revoke(9);
    assert!(port.try_receive().is_err());
    port.revoke(8);
    assert_eq!(told(&port), 8);
    drop(own);
    assert!(port.receive_timeout(Duration::from_millis(20)).is_err());
    holder.kill();
}

#[test]
fn whatever_becomes_of_rights_each_badge_is_told_of_once_and_when_it_is_so() {
    const BADGES: u64 = 5;
    let mut random = Random::seeded("badges");
    let end = Instant::now() + common::campaign(2);
    let port = handfast::anonymous().unwrap();
    let mut holders: Vec<_> = (0..3)
        .map(|n| (start(&format!("badges-{n}")), Vec::<u64>::new()))
        .collect();
    let mut own = Vec::new();
    let mut asked = BTreeMap::new();
    let (mut steps, mut notices, mut kills, mut longest) = (0, 0, 0, Duration::ZERO);
    while Instant::now() < end || notices == 0 || kills == 0 {
        steps += 1;
        let badge = random.below(BADGES);
        let at = random.below(3) as usize;
        let ((child, to), kept) = &mut holders[at];
        match random.below(14) {
            0..=3 if kept.len() < 8 => {
                give(to, [port.mint(badge).into()]);
                kept.push(badge);
            }
            4..=6 if !kept.is_empty() => {
                let place = random.below(kept.len() as u64) as usize;
                to.call_timeout(&[place as u8], PATIENCE).unwrap();
                kept.remove(place);
            }
            7 if random.below(4) == 0 => {
                kills += 1;
                child.kill();
                holders[at] = (start(&format!("badges-again-{kills}")), Vec::new());
            }
            8 => own.push(port.mint(badge)),
            9 if !own.is_empty() => {
                drop(own.swap_remove(random.below(own.len() as u64) as usize));
            }
            10 if random.below(3) == 0 => {
                port.revoke(badge);
                own.retain(|own| own.badge() != badge);
                // The rights that they keep are dead.
                for (_, kept) in &mut holders {
                    for of in kept.iter_mut().filter(|of| **of == badge) {
                        *of = u64::MAX;
                    }
                }
            }
            11 | 12 => {
                port.notify_no_senders_of(badge);
                asked.insert(badge, ());
            }
            // Sleep: a moment chosen at random.
            13 => std::thread::sleep(Duration::from_millis(random.below(4))),
            _ => {}
        }
        let done = Instant::now();
        let is_left = |badge: u64| {
            own.iter().any(|own| own.badge() == badge)
                || holders.iter().any(|(_, kept)| kept.contains(&badge))
        };
        // All that are due, and no other.
        let due = asked.keys().filter(|badge| !is_left(**badge)).count();
        for _ in 0..due {
            let badge = told(&port);
            assert!(asked.remove(&badge).is_some() && !is_left(badge), "{badge}");
            notices += 1;
        }
        if due > 0 {
            longest = longest.max(done.elapsed());
        }
        assert!(port.try_receive().is_err());
    }
    println!(
        "{steps} steps, {kills} kills, told {notices} times, after {longest:?} at the longest"
    );
}

/// A server that hears that there is no sender may drop the port.
#[test]
fn that_no_sender_is_left_is_told_after_all_of_its_badges() {
    for is_killed in [true, false] {
        let port = handfast::anonymous().unwrap();
        let (mut holder, to_holder) = start(&format!("last-{is_killed}"));
        port.notify_no_senders();
        for badge in 0..8 {
            give(&to_holder, [port.mint(badge).into()]);
            port.notify_no_senders_of(badge);
        }
        match is_killed {
            true => holder.kill(),
            false => to_holder.send(&[0; 8]).unwrap(),
        }
        let mut badges: Vec<_> = (0..8).map(|_| told(&port)).collect();
        badges.sort_unstable();
        assert_eq!(badges, (0..8).collect::<Vec<_>>());
        let last = port.receive_timeout(PATIENCE).unwrap().notice();
        assert_eq!(last, Some(Notice::NoSenders));
    }
}
