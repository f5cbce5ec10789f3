//! The resources of nodes that were shut down, and the global node.

use super::{SHUT, call, node_in, send, serve};
use crate::common::{self, within_patience};
use handfast::Node;
use handfast::error::{Gone, ReceiveError, SendError};

/// Makes and ends nodes, and says what is left.
pub(crate) fn shut_down() {
    let directory = common::directory();
    let once = || {
        let (exporter, middle, recipient) = (
            node_in(directory.clone()),
            node_in(directory.clone()),
            node_in(directory.clone()),
        );
        let served = serve(exporter.bind("exporter").unwrap());
        let giver = middle.bind("middle").unwrap();
        let right = middle.connect("exporter").unwrap();
        let gives = std::thread::spawn(move || {
            let request = giver.receive().unwrap();
            request.reply_with(b"", [right.clone().into()]).unwrap();
            giver.receive().unwrap_err()
        });
        let given = recipient
            .connect("middle")
            .unwrap()
            .call(b"")
            .unwrap()
            .take_rights();
        let given = send(given.into_iter().next().unwrap());
        assert_eq!(call(&given, "given"), "GIVEN 0");
        for node in [&middle, &exporter, &recipient] {
            node.shutdown();
        }
        assert_eq!(served.join().unwrap(), ReceiveError::Misuse(SHUT));
        assert_eq!(gives.join().unwrap(), ReceiveError::Misuse(SHUT));
    };
    // The first round makes everything that stays for ever.
    once();
    let pid = std::process::id();
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names
            .filter(|name| name.starts_with("handfast-"))
            .collect::<Vec<_>>()
    };
    let are_gone = within_patience(|| threads().is_empty());
    assert!(are_gone, "{:?}", threads());
    let before = common::holdings(pid);
    for _ in 0..20 {
        once();
    }
    let is_as_before = || threads().is_empty() && common::holdings(pid) == before;
    let settled = within_patience(is_as_before);
    let left = std::fs::read_dir("/proc/self/fd").unwrap();
    let left = left.map(|entry| std::fs::read_link(entry.unwrap().path()));
    assert!(
        settled,
        "{before:?} -> {:?}: {:#?}",
        common::holdings(pid),
        left.collect::<Vec<_>>()
    );
    common::say("nothing is left");
    while common::told().is_some() {}
}

#[test]
fn nodes_that_were_shut_down_leave_nothing() {
    let child = common::start("shut down", &[]);
    child.expect("nothing is left");
}

#[test]
fn the_global_node_starts_anew_after_a_shutdown() {
    let _alone = common::alone();
    if common::ran_in_own_process(the_global_node_starts_anew_after_a_shutdown) {
        return;
    }
    let name = common::name("global");
    let thread = serve(handfast::bind(&name).unwrap());
    let right = handfast::connect(&name).unwrap();
    assert_eq!(call(&right, "first"), "FIRST 0");
    Node::global().unwrap().shutdown();
    assert_eq!(thread.join().unwrap(), ReceiveError::Misuse(SHUT));
    assert_eq!(right.call(b"").unwrap_err(), SendError::Gone(Gone::Process));
    let thread = serve(handfast::bind(&name).unwrap());
    assert_eq!(
        call(&handfast::connect(&name).unwrap(), "second"),
        "SECOND 0"
    );
    Node::global().unwrap().shutdown();
    assert_eq!(thread.join().unwrap(), ReceiveError::Misuse(SHUT));
}
