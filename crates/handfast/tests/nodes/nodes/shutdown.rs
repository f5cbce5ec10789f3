//! The resources of nodes that were shut down, and the global node.

use super::{SHUT, call, node_in, send, serve};
use crate::common::{self, within_patience};
use handfast::error::{ReceiveError, SendError, ServeError};
use handfast::{Node, Right};

/// The threads of this process whose names begin so.
fn threads(start: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with(start)).collect()
}

/// Takes up a name, shuts the node down, and says whether the thread that accepted connections has ended while the port is still there.
pub(crate) fn name_taken_up() {
    let directory = common::directory();
    let (old, new) = (node_in(directory.clone()), node_in(directory.clone()));
    let port = old.bind("taken-up").unwrap();
    let home = new.bind("home").unwrap();
    let to_new = old.connect("home").unwrap();
    to_new.with([port.into()]).send(b"").unwrap();
    let came = home.receive().unwrap().take_rights().pop();
    let Some(Right::Receive(mut port)) = came else {
        panic!("{came:?}");
    };
    port.take_up_name().unwrap();
    assert!(within_patience(|| threads("handfast-accept").len() == 1));
    new.shutdown();
    assert!(within_patience(|| threads("handfast-accept").is_empty()));
    drop(port);
    common::say("ended");
}

#[test]
fn a_shutdown_ends_the_thread_of_a_name_that_was_taken_up() {
    let child = common::start("name taken up", &[]);
    child.expect("ended");
}

#[test]
fn a_shutdown_ends_the_workers_of_a_port_that_is_served_per_cpu() {
    let node = node_in(common::directory().clone());
    let name = common::name("per-cpu");
    let served = node.bind(&name).unwrap();
    let served = served.serve_per_cpu(|worker, request| {
        let _ = worker.reply(request, b"served");
    });
    let served = served.unwrap();
    let client = node_in(common::directory().clone());
    let right = client.connect(&name).unwrap();
    assert_eq!(&*right.call(b"").unwrap(), b"served");
    node.shutdown();
    let workers = || {
        served
            .places()
            .iter()
            .map(|place| place.workers)
            .sum::<u32>()
    };
    assert!(within_patience(|| workers() == 0));
    let started = || {
        served
            .places()
            .iter()
            .map(|place| place.started)
            .sum::<u64>()
    };
    let before = started();
    // Sleep: a while in which nothing is to happen.
    std::thread::sleep(core::time::Duration::from_millis(50));
    assert_eq!(started(), before);
    let again = node_in(common::directory().clone());
    let port = again.anonymous().unwrap();
    again.shutdown();
    let refused = port.serve_per_cpu(|_, _| {}).unwrap_err();
    assert_eq!(refused, ServeError::Misuse(SHUT));
    client.shutdown();
}

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
    let threads = || threads("handfast-");
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
    assert_eq!(right.call(b"").unwrap_err(), SendError::Misuse(SHUT));
    let thread = serve(handfast::bind(&name).unwrap());
    assert_eq!(
        call(&handfast::connect(&name).unwrap(), "second"),
        "SECOND 0"
    );
    Node::global().unwrap().shutdown();
    assert_eq!(thread.join().unwrap(), ReceiveError::Misuse(SHUT));
}

/// Starts a node, and looks at what this process has registered for by then, as the kernel tells (from Linux 6.3 on).
pub(crate) fn registrations() {
    const GET_REGISTRATIONS: i32 = 1 << 9;
    let _node = node_in(common::directory().clone());
    // SAFETY: the call takes no pointers.
    let registered = unsafe { libc::syscall(libc::SYS_membarrier, GET_REGISTRATIONS, 0, 0) };
    match i32::try_from(registered).unwrap() {
        ..0 => common::not_exercised("no MEMBARRIER_CMD_GET_REGISTRATIONS"),
        registered => {
            let both = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
                | libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED;
            assert_eq!(registered & both, both);
        }
    }
    common::say("registered");
}

/// A second thread that came to a receiver registered the process, and was away for up to a second on a busy machine.
#[test]
fn a_node_registers_for_fences_before_threads_need_them() {
    let child = common::start("registrations", &[]);
    child.expect("registered");
}
