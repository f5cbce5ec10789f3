//! Ports that move while their homes, or those who send to them, are killed.

use crate::common;
use crate::homes::Homes;
use handfast::error::SendError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn calls_end_whoever_dies_while_a_port_moves() {
    campaign("deaths while a port moves", |round| {
        Homes::new(&format!("dies{round}"), 4)
    });
}

#[test]
fn calls_end_whoever_dies_while_a_port_that_shares_a_receiver_moves() {
    campaign("deaths while a member moves", |round| {
        Homes::of_members(&format!("member-dies{round}"), 4)
    });
}

fn campaign(what: &str, homes: impl Fn(u32) -> Homes) {
    let mut random = common::Random::seeded(what);
    let end = Instant::now() + common::campaign(6);
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        one_dies(homes(round), &mut random);
    }
    println!("{round} rounds");
}

/// A port moves between three homes, and one of them or a sender dies; every call ends, with a typed outcome.
fn one_dies(mut homes: Homes, random: &mut common::Random) {
    const SENDERS: usize = 3;
    let port = homes.make(0);
    let _ = homes.controls[3]
        .with([port.clone().into()])
        .call(b"spray")
        .unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (ended, ends) = std::sync::mpsc::channel();
    for sender in 0..SENDERS {
        let (port, done, ended) = (port.clone(), done.clone(), ended.clone());
        std::thread::spawn(move || {
            let mut number = 0;
            let outcome = loop {
                number += 1;
                match port.call(format!("{sender}:{number}").as_bytes()) {
                    Ok(_) if done.load(Ordering::Relaxed) => break None,
                    Ok(_) => {}
                    Err(error) => break Some(error),
                }
            };
            ended.send(outcome).unwrap();
        });
    }
    let (turns, victim) = (random.below(4), random.below(3) as usize);
    let mut from = 0;
    for turn in 0..=turns {
        let to = (from + 1 + random.below(2) as usize) % 3;
        let _ = port
            .call_timeout(
                format!("move {}", homes.names[to]).as_bytes(),
                common::PATIENCE,
            )
            .unwrap();
        if turn == turns {
            // Some way into the move.
            let until = Instant::now() + Duration::from_micros(random.below(4000));
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            homes.children[[from, to, 3][victim]].kill();
        }
        from = to;
    }
    done.store(true, Ordering::Relaxed);
    for _ in 0..SENDERS {
        let outcome = ends.recv_timeout(common::PATIENCE);
        let outcome = outcome.unwrap_or_else(|_| panic!("a call hangs: {turns} {victim}"));
        assert!(
            matches!(outcome, None | Some(SendError::Gone(_))),
            "{turns} {victim}: {outcome:?}"
        );
        assert!(
            victim < 2 || outcome.is_none(),
            "nobody has died but a sender: {outcome:?}"
        );
    }
    homes.expect_no_cut();
}
