//! Connections that wait for a server that does not answer.

use super::passes;
use crate::common::{self, answers};
use handfast::error::ConnectError;
use handfast_layout::hello::HELLO_BYTES;
use handfast_sys::socket;

#[test]
fn a_limit_ends_a_connection_that_waits_for_the_welcome_or_to_be_accepted() {
    // Nobody else here keeps the turn to connect for long.
    let _alone = common::alone();
    let name = common::name("silent");
    let path = common::directory().join(&name);
    let _listener = socket::listen(&path, 0).unwrap();
    // The first is taken by the kernel and waits for the welcome; the next finds the queue full.
    passes(&name, 30);
    passes(&name, 30);
    passes(&name, 0);
}

#[test]
fn a_limit_ends_a_connection_to_a_stopped_server_which_serves_on_afterwards() {
    let _alone = common::alone();
    let name = common::name("stopped");
    let mut server = common::start("echo", &[&name]);
    server.expect("ready");
    server.stop();
    passes(&name, 30);
    passes(&name, 0);
    server.resume();
    let right = handfast::connect_timeout(&name, common::PATIENCE).unwrap();
    let reply = right.call_timeout(b"awake", common::PATIENCE).unwrap();
    assert_eq!(&*reply, b"awake");
    server.finish();
}

/// Listens at two names, and accepts one connection at each when told to, but says nothing.
pub(crate) fn silent(names: &[&str]) {
    let listen = |name: &&str| {
        let listener = socket::listen(&common::directory().join(name), 4).unwrap();
        socket::set_nonblocking(&listener, false).unwrap();
        listener
    };
    let listeners: Vec<_> = names.iter().map(listen).collect();
    common::say("listening");
    let mut accepted = Vec::new();
    for listener in &listeners {
        common::told();
        socket::set_timeout(listener, common::PATIENCE / 4).unwrap();
        accepted.push(socket::accept(listener).unwrap());
        common::say("accepted");
    }
    common::told();
    // Its connector may have gone: then that is the end of what it said.
    let said = socket::receive(&accepted[1], &mut [0; 2 * HELLO_BYTES], 4);
    common::say(&format!("heard {}", said.map_or(0, |(len, _)| len)));
    while common::told().is_some() {}
}

#[test]
fn a_server_that_is_silent_keeps_only_those_waiting_that_connect_to_it() {
    let _alone = common::alone();
    let name = common::name("beside");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let names = ["ahead", "ahead-too"].map(common::name);
    let mut silent = common::start("silent", &[&names[0], &names[1]]);
    silent.expect("listening");
    std::thread::scope(|scope| {
        let ahead = scope.spawn(|| handfast::connect_timeout(&names[0], common::PATIENCE));
        silent.tell("accept");
        silent.expect("accepted");
        // It has its turn, and keeps it.
        passes(&names[0], 30);
        // Another name of the same process: there would be two links.
        passes(&names[1], 30);
        silent.tell("accept");
        silent.expect("accepted");
        silent.tell("listen");
        silent.expect("heard 0");
        let right = handfast::connect_timeout(&name, common::PATIENCE / 4);
        let reply = right.unwrap().call_timeout(b"there?", common::PATIENCE);
        assert_eq!(&*reply.unwrap(), b"there?");
        assert!(!ahead.is_finished());
        silent.kill();
        let error = ahead.join().unwrap().unwrap_err();
        assert!(
            matches!(error, ConnectError::ServerDead { .. }),
            "{error:?}"
        );
    });
    answers(&name);
}
