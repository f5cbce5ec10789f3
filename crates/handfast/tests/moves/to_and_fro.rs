//! A port that goes back and forth all the time leaves nothing behind.

use crate::common::{self, at_rest, holdings, own_kib, within_patience};
use crate::homes::{Homes, call};

/// The resources of both homes and this process: own memory, descriptors, mappings.
fn all(homes: &Homes) -> Vec<(usize, (usize, usize))> {
    let pids = homes.children.iter().map(|child| child.pid());
    let pids = pids.chain([std::process::id()]);
    // Once nothing is at its end still.
    pids.map(|pid| (own_kib(pid), (at_rest(pid), holdings(pid).1)))
        .collect()
}

/// Moves of one port, by turns.
const TURNS: usize = 250;

#[test]
fn a_port_that_goes_back_and_forth_leaves_nothing_behind() {
    if common::ran_in_own_process(a_port_that_goes_back_and_forth_leaves_nothing_behind) {
        return;
    }
    let homes = Homes::new("forth", 2);
    let mut rounds = Vec::new();
    for _ in 0..4 {
        let port = homes.make(0);
        for turn in 1..=TURNS {
            homes.move_to(&port, turn % 2);
            let _ = call(&port, 1, turn as u64);
            // Each place that it has left and that somebody has not would need another receiver, and lanes there.
            assert!(within_patience(|| homes.rests((turn + 1) % 2)));
        }
        drop(port);
        assert!(within_patience(|| homes.rests(0) && homes.rests(1)));
        rounds.push(all(&homes));
    }
    for round in &rounds {
        println!("{round:?}");
    }
    // The resources that the first rounds needed are there. State that is kept for a while is some bytes for each move.
    for (before, after) in rounds[1].iter().zip(&rounds[3]) {
        assert_eq!(before.1, after.1, "descriptors and mappings");
        let grown = after.0.saturating_sub(before.0);
        assert!(grown < TURNS, "{grown} KiB");
    }
}
