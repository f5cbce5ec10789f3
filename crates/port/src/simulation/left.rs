//! A process connects to a server, and drops the right, again and again, while the server uses their link for a right that it
//! has claimed. No right may be left when all have been dropped.

use super::{enter, node, seeds};
use crate::Node;
use crate::port::notices::Notice;
use core::time::Duration;
use handfast_sys::clock;
use handfast_sys::simulation::random;
use handfast_sys::thread;

/// Longer than anything may take.
const PATIENCE: Duration = Duration::from_secs(80);
/// Less than a claim waits that nobody looks at.
const NOTICED: Duration = Duration::from_secs(5);
const CONNECTIONS: u32 = 20;
const SERVER: u32 = 1;
const CLIENT: u32 = 2;
const INTRODUCER: u32 = 3;

/// One run. The server's process may have a further node, to a port of which the client has a right.
fn run(seed: u64, has_further: bool) {
    let world = enter(seed);
    let nodes = [SERVER, CLIENT, INTRODUCER].map(|number| node(&world, number));
    let [server, client, introducer] = nodes.clone();
    let port = world.as_process(SERVER, || server.bind("left-server").unwrap());
    let middle = world.as_process(CLIENT, || client.bind("left-client").unwrap());
    let client = &client;
    let further = has_further.then(|| {
        let further = node(&world, SERVER);
        let port = world.as_process(SERVER, || further.bind("left-further").unwrap());
        let connect = || client.connect_timeout("left-further", PATIENCE).unwrap();
        (world.as_process(CLIENT, connect), further, port)
    });
    let connect = || client.connect_timeout("left-server", PATIENCE).unwrap();
    // The server claims a right to the client's port by their link. The client, which does not receive, gives nothing by it.
    let first = world.as_process(CLIENT, connect);
    world.as_process(INTRODUCER, || {
        let right = introducer.connect_timeout("left-client", PATIENCE);
        let to = introducer.connect_timeout("left-server", PATIENCE).unwrap();
        let rights = [right.unwrap().into()];
        to.with(rights).send_timeout(b"", PATIENCE).unwrap();
    });
    let kept = world.as_process(SERVER, || {
        let mut rights = port.receive_timeout(PATIENCE).unwrap().take_rights();
        rights.pop().unwrap()
    });
    world.as_process(CLIENT, || drop(first));
    let fickle = || {
        let client = client.clone();
        let work = move || {
            for _ in 0..CONNECTIONS {
                drop(client.connect_timeout("left-server", PATIENCE).unwrap());
                // About as long as it takes until the server is told that the link is not used.
                clock::sleep(Duration::from_micros(1_000 + random(1_500)));
            }
        };
        world.as_process(CLIENT, || thread::spawn("fickle", 1 << 18, work).unwrap())
    };
    assert!(fickle().join());
    let last = world.as_process(CLIENT, connect);
    world.as_process(SERVER, || port.notify_no_senders());
    world.as_process(CLIENT, || drop(last));
    let heard = world.as_process(SERVER, || port.receive_timeout(NOTICED));
    let notice = heard.ok().and_then(|request| request.notice());
    assert_eq!(notice, Some(Notice::NoSenders), "HANDFAST_SEED={seed}");
    world.as_process(SERVER, || drop(kept));
    if let Some((right, further, port)) = further {
        world.as_process(CLIENT, || drop(right));
        world.as_process(SERVER, || further.shutdown());
        world.as_process(SERVER, || drop(port));
    }
    for (number, node) in [SERVER, CLIENT, INTRODUCER].into_iter().zip(&nodes) {
        world.as_process(number, || node.shutdown());
    }
    world.as_process(SERVER, || drop(port));
    world.as_process(CLIENT, || drop(middle));
    // Until threads of users that have nothing to close have ended.
    clock::sleep(Duration::from_secs(2));
    world.leave();
}

fn run_all(has_further: bool) {
    Node::builder().start().unwrap().shutdown();
    let seeds = seeds();
    println!("HANDFAST_SEED={} and the next", seeds.start);
    for seed in seeds {
        if std::panic::catch_unwind(|| run(seed, has_further)).is_err() {
            eprintln!("failed: HANDFAST_SEED={seed}");
            // Its threads do not end.
            std::process::exit(1);
        }
    }
}

#[test]
fn no_right_is_left_of_connections_by_a_link_that_is_just_being_left() {
    run_all(false);
}

#[test]
fn no_right_is_left_of_connections_to_one_of_two_nodes_of_a_process() {
    run_all(true);
}
