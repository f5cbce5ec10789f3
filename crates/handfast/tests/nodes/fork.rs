//! Forks without exec: a child has none of its parent's handles and does the parent no harm.

pub(crate) mod members;
pub(crate) mod table;

use crate::common::{self, call};
use handfast::Memory;
use handfast::error::{
    BindError, MemoryError, Misuse, ReceiveError, ReplyError, RightError, SendError,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Forks; the child runs `work` and ends with its answer as status, whatever happens.
fn fork(work: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child runs ordinary code after a fork of a process with threads; that is what
    // these tests are about.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid > 0 {
        return pid;
    }
    // SAFETY: takes no pointers. A child that hangs is ended by it.
    unsafe { libc::alarm(common::PATIENCE.as_secs() as u32) };
    let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(99);
    // SAFETY: ends the process without its parent's exit handlers.
    unsafe { libc::_exit(status) }
}

/// The exit status of a child, or its signal above 1000.
fn wait_for(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is valid for a write.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        1000 + libc::WTERMSIG(status)
    }
}

pub(crate) fn server_with_a_child(name: &str) {
    let _port = handfast::bind(name).unwrap();
    let child = fork(|| {
        // SAFETY: takes no pointers.
        unsafe { libc::pause() };
        0
    });
    common::say(&child.to_string());
    while common::told().is_some() {}
}

#[test]
fn the_name_of_a_dead_server_is_free_though_its_forked_child_has_the_socket() {
    let name = common::name("orphan");
    let mut server = common::start("server with a child", &[&name]);
    let child: i32 = server.line().parse().unwrap();
    let taken = handfast::bind(&name).map(|_| ()).unwrap_err();
    assert!(
        matches!(taken, BindError::NameTaken { pid, .. } if pid == server.pid()),
        "{taken:?}"
    );
    server.kill();
    // The child lives on, with the listening socket.
    // SAFETY: takes no pointers.
    assert_eq!(unsafe { libc::kill(child, 0) }, 0);
    let port = handfast::bind(&name);
    // SAFETY: as above; the child is ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let port = port.unwrap();
    let right = handfast::connect(&name).unwrap();
    right.send(b"new").unwrap();
    assert_eq!(
        port.receive_timeout(common::PATIENCE).unwrap().bytes(),
        b"new"
    );
}

#[test]
fn memory_that_is_being_written_cannot_be_sealed_in_a_child() {
    let zeros = Memory::create(8192).unwrap();
    let bytes = Memory::from_bytes(b"bytes").unwrap().into_mut().unwrap();
    let child = fork(|| {
        let sealed = [zeros, bytes].map(|memory| memory.seal().map(drop));
        i32::from(sealed != [Err(MemoryError::Misuse(Misuse::Forked)); 2])
    });
    assert_eq!(wait_for(child), 0);
}

/// Threads that call all the time, while the main thread forks again and again.
pub(crate) fn forks_while_calling(theirs: &str, ours: &str) {
    let right: &'static _ = Box::leak(Box::new(handfast::connect(theirs).unwrap()));
    let port: &'static _ = Box::leak(Box::new(handfast::bind(ours).unwrap()));
    static STOP: AtomicBool = AtomicBool::new(false);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let threads: Vec<_> = (0..4)
        .map(|key| {
            std::thread::spawn(move || {
                while !STOP.load(Ordering::Relaxed) {
                    let number = CALLS.fetch_add(1, Ordering::Relaxed);
                    let sent = common::content((number % 300) as usize, key);
                    assert_eq!(*right.call_timeout(&sent, common::PATIENCE).unwrap(), sent);
                    if key == 0 {
                        // The locks of connecting and binding are taken too.
                        drop(handfast::connect(theirs_of()).unwrap());
                    }
                }
            })
        })
        .collect();
    let mut outcomes = std::collections::BTreeMap::new();
    for round in 0..60 {
        let child = fork(|| child_of_callers(right, port, round));
        *outcomes.entry(wait_for(child)).or_insert(0) += 1;
    }
    STOP.store(true, Ordering::Relaxed);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    common::say(&format!("{outcomes:?}"));
}

/// The name of the server, from this role's arguments.
fn theirs_of() -> &'static str {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| {
        let arguments = std::env::var("HANDFAST_TEST_ARGUMENTS").unwrap();
        arguments.split('\n').next().unwrap().to_owned()
    })
}

/// Zero when every inherited handle says what it must.
fn child_of_callers(right: &handfast::SendRight, port: &handfast::ReceiveRight, round: u32) -> i32 {
    let forked =
        |outcome: Result<(), SendError>| matches!(outcome, Err(SendError::Misuse(Misuse::Forked)));
    let received = port.receive_timeout(common::PATIENCE).map(|_| ());
    match () {
        () if !forked(right.send(b"x")) => 1,
        () if !forked(right.try_send(b"x")) => 2,
        () if !forked(right.call(b"x").map(|_| ())) => 3,
        () if !forked(right.try_call(b"x").map(|_| ())) => 4,
        () if !matches!(received, Err(ReceiveError::Misuse(Misuse::Forked))) => 5,
        () if round.is_multiple_of(2) => 0,
        // A link of the child's own.
        () => match handfast::connect(theirs_of()) {
            Ok(own) => match own.call_timeout(b"from a child", common::PATIENCE) {
                Ok(reply) if *reply == *b"from a child" => 0,
                _ => 7,
            },
            Err(_) => 6,
        },
    }
}

#[test]
fn a_fork_while_threads_call_leaves_the_child_errors_and_the_parent_whole() {
    let (theirs, ours) = (common::name("fork-server"), common::name("fork-own"));
    let server = common::start("echo", &[&theirs]);
    server.expect("ready");
    let mut caller = common::start("forks while calling", &[&theirs, &ours]);
    let outcomes = caller.line();
    caller.finish();
    assert_eq!(outcomes, "{0: 60}", "status of children: how many");
}

/// Passes calls on. At `fork` a child of it does so too, at `other`, on the same thread.
pub(crate) fn forwarder_that_forks(last: &str, name: &str, other: &str) {
    let serve = |name: &str, mut count: u32| {
        let to = handfast::connect(last).unwrap();
        let port = handfast::bind(name).unwrap();
        common::say("ready");
        while count > 0 {
            let mut request = port.receive().unwrap();
            if request.bytes() == b"fork" {
                return request.reply(b"").unwrap();
            }
            let message = request.take_message();
            request.forward(&to, &message).unwrap();
            count -= 1;
        }
    };
    serve(name, u32::MAX);
    let child = fork(|| {
        serve(other, FORKED_CALLS);
        // The last answer may come by this process.
        common::told();
        0
    });
    while common::told().is_some() {}
    assert_eq!(wait_for(child), 0);
}

/// Calls that the child of a forwarder passes on.
const FORKED_CALLS: u32 = 50;

#[test]
fn a_forked_child_of_a_forwarder_knows_nothing_of_its_parents_ways() {
    let names = ["way-last", "way-parent", "way-child"].map(common::name);
    let last = common::start("echo", &[&names[0]]);
    last.expect("ready");
    let arguments = [&*names[0], &names[1], &names[2]];
    let mut forwarder = common::start("forwarder that forks", &arguments);
    forwarder.expect("ready");
    let _direct = handfast::connect(&names[0]).unwrap();
    let right = handfast::connect(&names[1]).unwrap();
    common::warm(&right);
    let _ = right.call(b"fork").unwrap();
    forwarder.expect("ready");
    let right = handfast::connect(&names[2]).unwrap();
    for number in 0..FORKED_CALLS {
        let text = format!("child {number}");
        let answer = right.call_timeout(text.as_bytes(), common::PATIENCE);
        assert_eq!(&*answer.unwrap(), text.as_bytes());
    }
    forwarder.finish();
}

/// Runs `child` in a forked child and checks that it says so.
fn in_fork(child: impl FnOnce() -> bool) {
    assert_eq!(wait_for(fork(|| i32::from(!child()))), 0);
}

pub(crate) fn forker(name: &str) {
    let right = handfast::connect(name).unwrap();
    let pending = right.try_call(b"pending").unwrap();
    call(&right, b"before");
    in_fork(|| {
        let forked = Err(SendError::Misuse(Misuse::Forked));
        let called = right.call(b"in the child").map(|_| ());
        called == forked && right.send(b"x") == forked && right.try_send(b"x") == forked
    });
    call(&right, b"after");
    assert_eq!(&*pending.wait().unwrap(), b"pending");
    // A forked child that drops what it inherited takes nothing from its parent.
    let mut inherited = Some(right);
    in_fork(|| {
        drop(inherited.take());
        true
    });
    let right = inherited.unwrap();
    call(&right, b"after the drop");
    // And connects for itself.
    in_fork(|| {
        let own = handfast::connect(name).unwrap();
        let passed_on = own.with([right.clone().into()]).call(b"its parent's");
        let error = passed_on.unwrap_err().error;
        &*own.call(b"own").unwrap() == b"own" && error == SendError::Right(RightError::Forked)
    });
    call(&right, b"at last");
    common::say("forked");
}

#[test]
fn a_forked_childs_use_of_a_send_right_is_an_error_and_the_parent_goes_on() {
    let name = common::name("fork");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let mut client = common::start("forker", &[&name]);
    client.expect("forked");
    client.finish();
}

pub(crate) fn receiving_forker(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let request = port.receive().unwrap();
    in_fork(|| {
        let forked = ReceiveError::Misuse(Misuse::Forked);
        port.receive().unwrap_err() == forked && port.try_receive().unwrap_err() == forked
    });
    // Nor does it end a call by dropping its request.
    let mut inherited = Some(request);
    in_fork(|| {
        let is_cancelled = inherited.as_ref().unwrap().is_cancelled();
        let replied = inherited.take().unwrap().reply(b"from the child");
        is_cancelled && replied == Err(ReplyError::Misuse(Misuse::Forked))
    });
    in_fork(|| {
        drop(inherited.take());
        true
    });
    let request = inherited.unwrap();
    let bytes = request.bytes().to_vec();
    let request = port.reply_and_receive(request, &bytes).unwrap();
    let mut inherited = Some(port);
    in_fork(|| {
        drop(inherited.take());
        true
    });
    request.reply(b"still there").unwrap();
    let port = inherited.unwrap();
    let request = port.receive().unwrap();
    request.reply(b"and bound").unwrap();
    while common::told().is_some() {}
}

#[test]
fn a_forked_childs_use_of_a_receive_right_is_an_error_and_the_parent_goes_on() {
    let name = common::name("receiving-fork");
    let mut server = common::start("receiving forker", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    call(&right, b"one");
    assert_eq!(
        &*right.call_timeout(b"two", common::PATIENCE).unwrap(),
        b"still there"
    );
    drop(right);
    let right = handfast::connect(&name).unwrap();
    assert_eq!(
        &*right.call_timeout(b"three", common::PATIENCE).unwrap(),
        b"and bound"
    );
    server.finish();
}

#[test]
fn a_parents_node_is_none_of_its_childs() {
    if common::ran_in_own_process(a_parents_node_is_none_of_its_childs) {
        return;
    }
    let directory = common::directory().join("a-parents-node");
    std::fs::create_dir(&directory).unwrap();
    let node = || {
        handfast::Node::builder()
            .directory(&directory)
            .start()
            .unwrap()
    };
    let parents = node();
    let port = parents.bind("parents").unwrap();
    let child = fork(|| {
        let bound = parents.bind("childs").unwrap_err();
        let connected = parents.connect("parents").unwrap_err();
        // Nothing of its parent's.
        parents.shutdown();
        let own = node();
        let port = own.bind("childs").unwrap();
        let right = own.connect("childs").unwrap();
        right.send(b"own").unwrap();
        let is_own = &*port.receive().unwrap().take_message() == b"own";
        own.shutdown();
        let is_forked = matches!(bound, BindError::Misuse(Misuse::Forked))
            && matches!(
                connected,
                handfast::error::ConnectError::Misuse(Misuse::Forked)
            );
        i32::from(!(is_forked && is_own))
    });
    assert_eq!(wait_for(child), 0);
    parents.connect("parents").unwrap().send(b"still").unwrap();
    assert_eq!(&*port.receive().unwrap().take_message(), b"still");
    parents.shutdown();
}

#[test]
fn a_childs_use_of_its_parents_node_is_refused_without_a_lock() {
    if common::ran_in_own_process(a_childs_use_of_its_parents_node_is_refused_without_a_lock) {
        return;
    }
    let node = handfast::Node::builder()
        .directory(common::directory().clone())
        .start()
        .unwrap();
    let port = node.anonymous().unwrap();
    let minted = port.mint(1);
    let child = fork(|| {
        let forked = Misuse::Forked;
        assert_eq!(node.set_quotas(handfast::Quotas::new()), Err(forked));
        assert!(!node.wait_moved_timeout(common::PATIENCE));
        let set = node.wait_set(handfast::Options::new());
        assert_eq!(set.err(), Some(handfast::error::SetError::Misuse(forked)));
        let connected = minted.connect().unwrap_err();
        assert!(matches!(
            connected,
            handfast::error::ConnectError::Misuse(Misuse::Forked)
        ));
        0
    });
    assert_eq!(wait_for(child), 0);
    drop(port);
    node.shutdown();
}
