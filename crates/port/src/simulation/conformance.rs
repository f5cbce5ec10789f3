//! The suite for all distances (`tests/conformance`), with the simulated machine as the driver below.

use super::home::links_left;
use super::{SETTLED, SETTLES, enter, node, seeds};
use crate as api;
use crate::Node;
use core::time::Duration;
use handfast_sys::clock;
use handfast_sys::thread;

#[path = "../../tests/conformance/cases/mod.rs"]
mod cases;

use cases::Case;

/// Schedules of each case, of those that are asked for.
const OF_EACH: usize = 20;
const CONNECTS: Duration = Duration::from_secs(10);

/// Server and client are processes of their own.
fn run(case: Case, seed: u64) {
    let world = enter(seed);
    let nodes = [1, 2].map(|number| node(&world, number));
    let [serves, calls] = nodes.clone();
    let server = world.as_process(1, || {
        let port = serves.bind("server").unwrap();
        thread::spawn("server", 1 << 18, move || (case.serve)(&serves, port)).unwrap()
    });
    let client = world.as_process(2, || {
        thread::spawn("client", 1 << 18, move || {
            let right = calls.connect_timeout("server", CONNECTS).unwrap();
            (case.call)(&calls, right);
        })
    });
    for thread in [client.unwrap(), server] {
        assert!(thread.join(), "{}: HANDFAST_SEED={seed}", case.name);
    }
    // No right is left.
    let until_ns = clock::deadline_ns(SETTLED);
    loop {
        let left = nodes.iter().zip(1..);
        let left = left.flat_map(|(node, number)| links_left(node, number));
        let left: Vec<_> = left.collect();
        if left.is_empty() {
            break;
        }
        let is_late = clock::now_ns() > until_ns;
        assert!(!is_late, "{}: HANDFAST_SEED={seed}: {left:#?}", case.name);
        clock::sleep(SETTLES);
    }
    for (node, number) in nodes.iter().zip(1..) {
        world.as_process(number, || node.shutdown());
    }
    drop(nodes);
    clock::sleep(Duration::from_secs(2));
    world.leave();
}

#[test]
fn two_nodes_on_a_simulated_machine() {
    Node::builder().start().unwrap().shutdown();
    for case in cases::all() {
        for seed in seeds().take(OF_EACH) {
            if std::panic::catch_unwind(|| run(case, seed)).is_err() {
                eprintln!("failed: {}: HANDFAST_SEED={seed}", case.name);
                std::process::exit(1);
            }
        }
        println!("{}", case.name);
    }
}
