//! One suite for all distances: over the link of a process with itself, and between two processes. A third driver, the simulated
//! machine, runs the same cases in `src/simulation/conformance.rs`.

use handfast_port as api;

mod cases;

use api::{Node, SendRight};
use cases::Case;
use handfast_testing::Directory;
use std::path::Path;
use std::time::{Duration, Instant};

const NAME: &str = "server";
const CONNECTS: Duration = Duration::from_secs(10);

#[test]
fn a_child_process_plays_its_role() {
    handfast_testing::play(|role, arguments| match role {
        "server" => serve(arguments[0], arguments[1]),
        _ => unreachable!(),
    });
}

fn case(name: &str) -> Case {
    cases::all().find(|case| case.name == name).unwrap()
}

fn node(directory: &Path) -> Node {
    Node::builder().directory(directory).start().unwrap()
}

/// Serves one case.
fn serve(case_name: &str, directory: &str) {
    let node = node(directory.as_ref());
    let port = node.bind(NAME).unwrap();
    handfast_testing::say("bound");
    (case(case_name).serve)(&node, port);
    handfast_testing::say("served");
    // Until then its rights are good.
    assert_eq!(handfast_testing::told().unwrap(), "end");
}

/// Connects to a port of this process, which it uses like one of another.
fn connect_here(node: &Node, case: Case) {
    let port = node.anonymous().unwrap();
    let right: SendRight = port.mint(0).connect().unwrap();
    let serves = node.clone();
    let server = std::thread::spawn(move || (case.serve)(&serves, port));
    (case.call)(node, right);
    server.join().unwrap();
}

/// Runs each case, on one node.
fn each(distance: &str, run: impl Fn(&Node, &Path, Case)) {
    let directory = Directory::new(distance);
    let node = node(&directory.0);
    for case in cases::all() {
        let began = Instant::now();
        println!("{}", case.name);
        run(&node, &directory.0, case);
        println!("    {:?}", began.elapsed());
    }
    node.shutdown();
}

#[test]
fn a_process_with_itself() {
    each("here", |node, _, case| connect_here(node, case));
}

#[test]
fn two_processes() {
    each("there", |node, directory, case| {
        let directory = directory.to_str().unwrap();
        let mut server = handfast_testing::start("server", &[case.name, directory]);
        server.expect("bound");
        let right = node.connect_timeout(NAME, CONNECTS).unwrap();
        (case.call)(node, right);
        server.expect("served");
        server.tell("end");
        server.finish();
    });
}
