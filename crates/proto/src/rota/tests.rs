//! A simulated machine: one server, `n` closed-loop clients, service and wake-up times as
//! arguments. No thread, no clock.

mod shares;
mod users;

use super::*;

const SERVICE_NS: u64 = 100;
const WAKE_NS: u64 = 5_000;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Client {
    /// Will post at this time.
    Posts(u64),
    /// Has a request in its lane and spins.
    Spins(u64),
    /// Has a request in its lane (or a reply waiting) and sleeps since.
    Sleeps(u64),
}

struct Outcome {
    served: Vec<u64>,
    longest_wait_ns: u64,
    wakes: u64,
}

/// Runs for `total_ns`. `defiant` clients never sleep, whatever they are told.
fn simulate(n: usize, cap: usize, defiant: usize, total_ns: u64) -> Outcome {
    let mut rota = Rota::new(cap);
    let mut clients = vec![Client::Posts(0); n];
    let mut since = vec![0; n];
    let mut out = Outcome {
        served: vec![0; n],
        longest_wait_ns: 0,
        wakes: 0,
    };
    (0..n).for_each(|key| rota.add(key, 0));
    let mut now = 1;
    while now < total_ns {
        now += 50;
        for key in 0..n {
            if let Client::Posts(at) = clients[key]
                && at <= now
            {
                clients[key] = Client::Spins(now);
                since[key] = now;
                rota.rang(key, now, false);
            }
        }
        for key in 0..n {
            let pending = matches!(clients[key], Client::Spins(_) | Client::Sleeps(_));
            if !rota.is_active(key) || !pending {
                continue;
            }
            if rota.request(key, now) == Verdict::Defer {
                if key >= defiant {
                    clients[key] = Client::Sleeps(now);
                }
                continue;
            }
            serve(key, &mut now, &mut rota, &mut clients, &mut since, &mut out);
        }
        while let Some(admitted) = rota.admit(now) {
            match admitted {
                Admitted::Request(key) => {
                    serve(key, &mut now, &mut rota, &mut clients, &mut since, &mut out);
                }
                Admitted::Reply(key) => {
                    now += WAKE_NS;
                    clients[key] = Client::Posts(now + WAKE_NS);
                }
            }
        }
    }
    for key in 0..n {
        if !matches!(clients[key], Client::Posts(_)) {
            out.longest_wait_ns = out.longest_wait_ns.max(now - since[key]);
        }
    }
    out
}

fn serve(
    key: Key,
    now: &mut u64,
    rota: &mut Rota,
    clients: &mut [Client],
    since: &mut [u64],
    out: &mut Outcome,
) {
    *now += SERVICE_NS;
    out.served[key] += 1;
    out.longest_wait_ns = out.longest_wait_ns.max(*now - since[key]);
    if matches!(clients[key], Client::Sleeps(_)) {
        if rota.asleep_at_reply(key, *now) == Wake::Now {
            *now += WAKE_NS;
            out.wakes += 1;
            rota.woke(key, *now);
            clients[key] = Client::Posts(*now + WAKE_NS);
        }
    } else {
        rota.awake_at_reply(key);
        clients[key] = Client::Posts(*now + 40);
    }
}

fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|c| *c as f64).sum();
    let squares: f64 = counts.iter().map(|c| (*c as f64).powi(2)).sum();
    sum * sum / (counts.len() as f64 * squares)
}

#[test]
#[cfg_attr(miri, ignore = "a long simulation of safe code")]
fn throughput_is_flat_fair_and_bounded_from_3_to_256_clients() {
    let second = 1_000_000_000;
    let mut peak = 0;
    for n in [3, 4, 6, 16, 64, 256] {
        let out = simulate(n, 3, 0, second);
        let total: u64 = out.served.iter().sum();
        peak = peak.max(total);
        let fair = jain(&out.served);
        let turns = (n as u64).div_ceil(3) * TURN_NS;
        let bound = 2 * turns.min(CYCLE_NS) + 5_000_000;
        println!(
            "{n:4} clients: {total:8} served, Jain {fair:.3}, longest wait {} us, {} wakes",
            out.longest_wait_ns / 1000,
            out.wakes
        );
        assert!(
            total * 10 >= peak * 8,
            "{n} clients: {total} of a peak of {peak}"
        );
        assert!(fair >= 0.95, "{n} clients: Jain {fair}");
        assert!(
            out.longest_wait_ns <= bound,
            "{n} clients: waited {}",
            out.longest_wait_ns
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "a long simulation of safe code")]
fn a_client_that_ignores_the_rules_gains_nothing() {
    for defiant in [1, 3] {
        let out = simulate(64, 3, defiant, 1_000_000_000);
        let others = out.served[defiant..].iter().sum::<u64>() / (64 - defiant as u64);
        for key in 0..defiant {
            assert!(
                out.served[key] <= others * 3 / 2,
                "defiant {} against {others}",
                out.served[key]
            );
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "a long simulation of safe code")]
fn with_room_for_all_nobody_is_deferred_or_queued() {
    let out = simulate(3, 3, 0, 100_000_000);
    assert_eq!(out.wakes, 0);
    let mut rota = Rota::new(3);
    rota.add(0, 0);
    assert_eq!(rota.rang(0, 10, true), Rang::Poll);
    assert_eq!(rota.request(0, 0), Verdict::Serve);
    assert_eq!(rota.asleep_at_reply(0, 20), Wake::Now);
    assert!(!rota.is_overloaded(20));
}

#[test]
fn a_lane_removed_in_any_state_leaves_the_counts_right() {
    let mut rota = Rota::new(1);
    (0..3).for_each(|key| rota.add(key, 0));
    assert_eq!(rota.rang(0, 1, false), Rang::Poll);
    assert_eq!(rota.rang(1, 1, true), Rang::Queued);
    assert_eq!(rota.rang(2, 1, true), Rang::Queued);
    assert_eq!(rota.admit(2), None);
    rota.remove(1);
    rota.remove(0);
    assert_eq!(rota.admit(3), Some(Admitted::Request(2)));
    rota.remove(2);
    assert_eq!((rota.admit(4), rota.waiting()), (None, 0));
    rota.add(1, 0);
    assert_eq!(rota.rang(1, 5, true), Rang::Poll);
}

#[test]
fn clients_that_think_for_ever_do_not_starve_the_queue() {
    // Rule 6: the one place is held by a client that never posts again.
    let mut rota = Rota::new(1);
    rota.add(0, 0);
    rota.add(1, 0);
    assert_eq!(rota.rang(0, 1, false), Rang::Poll);
    assert_eq!(rota.rang(1, 1, true), Rang::Queued);
    assert_eq!(rota.admit(1_000_000), None);
    assert_eq!(rota.admit(2_500_000), Some(Admitted::Request(1)));
}

#[test]
fn clients_that_sleep_often_are_an_overload_only_when_they_are_more_than_the_places() {
    for clients in 1..=6 {
        let mut rota = Rota::new(3);
        for wake in 0..100 {
            rota.woke(wake % clients, wake as u64 * 10_000);
        }
        let now_ns = 100 * 10_000;
        assert_eq!(rota.is_overloaded(now_ns), clients > 3, "{clients} clients");
        assert!(!rota.is_overloaded(now_ns + WAKE_WINDOW_NS));
        rota.slept();
        assert!(!rota.is_overloaded(now_ns));
    }
}
