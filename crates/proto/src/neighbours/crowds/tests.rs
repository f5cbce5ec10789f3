//! The laws of crowds.

use super::{Crowd, Rule};

const CLIENTS: [usize; 8] = [1, 2, 3, 4, 6, 16, 64, 299];
/// As long as a client waits at most: a cycle of turns, and time slices on its processor.
const LONGEST: u64 = 60_000_000;

#[test]
#[cfg_attr(miri, ignore = "a long simulation of safe code")]
fn no_crowd_is_slower_than_asleep_or_far_slower_than_the_best() {
    for (cpus, clients) in (1..=4).flat_map(|cpus| CLIENTS.map(|clients| (cpus, clients))) {
        let of = |rule| Crowd::new(rule, cpus, clients).outcome();
        let [ours, asleep, yields] = [Rule::Adaptive, Rule::Sleep, Rule::Yield].map(of);
        let (served, fairness) = (ours.total(), ours.fairness());
        let (asleep, yields) = (asleep.total(), yields.total());
        let longest_us = ours.longest_ns / 1000;
        println!(
            "{cpus} CPUs, {clients} clients: {served} calls, asleep {asleep}, where all yield {yields}; \
             Jain {fairness:.2}, longest wait {longest_us} us"
        );
        assert!(
            served * 105 >= asleep * 100,
            "{cpus} CPUs, {clients} clients: {served}, asleep {asleep}"
        );
        assert!(
            served * 2 >= asleep.max(yields),
            "{cpus} CPUs, {clients} clients: {served}, where all yield {yields}"
        );
        assert!(
            ours.longest_ns < LONGEST,
            "{cpus} CPUs, {clients} clients: {longest_us} us"
        );
    }
}

/// A crowd on one processor whose members have all been held up by another program.
#[test]
#[cfg_attr(miri, ignore = "a long simulation of safe code")]
fn a_crowd_that_was_held_up_yields_again() {
    let clients = 64;
    let of = |rule| {
        let mut crowd = Crowd::new(rule, 1, clients);
        for thread in &mut crowd.threads {
            for _ in 0..6 {
                thread.wait.yields.ended(None, 3_000_000);
            }
        }
        crowd.outcome_after(600_000_000).total()
    };
    let undisturbed = Crowd::new(Rule::Adaptive, 1, clients).outcome().total();
    let [with, without] = [Rule::Adaptive, Rule::Resigned].map(of);
    println!("{undisturbed} calls; held up {with}; without tries {without}");
    assert!(with * 10 > undisturbed * 9, "{with} of {undisturbed}");
    assert!(without * 2 < undisturbed, "{without} of {undisturbed}");
}
