//! Nested calls, which end with the call that they are made for.

use crate::cancelling::{SOON, bind, heard_soon, receive, start};
use crate::common;
use crate::common::Pace;
use handfast::error::{Gone, SendError};
use std::time::Instant;

/// Calls on behalf of its callers, and says how that ended.
pub(crate) fn nests(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    let to = handfast::connect(to).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        let outcome = request.call_through(&to, request.bytes());
        common::say(&match &outcome {
            Ok(_) => "answered".to_owned(),
            Err(error) => format!("{error:?}"),
        });
        if let Ok(reply) = outcome {
            let _ = request.reply(&reply);
        }
    }
}

#[test]
fn a_nested_call_ends_when_the_first_caller_gives_up_and_so_do_those_behind_it() {
    let names = ["nested0", "nested1", "nested2"].map(common::name);
    let last = start("waits", &[&names[2]]);
    let second = start("nests", &[&names[1], &names[2]]);
    let first = start("nests", &[&names[0], &names[1]]);
    let right = handfast::connect(&names[0]).unwrap();
    // One that is answered is as ever.
    assert_eq!(
        &*right.call_timeout(b"echo", common::PATIENCE).unwrap(),
        b"echo"
    );
    first.expect("answered");
    second.expect("answered");
    let (mut delays, mut pace) = (Vec::new(), Pace::new());
    for _ in 0..20 {
        pace.look();
        let call = right.try_call(b"nested").unwrap();
        last.expect("got");
        let dropped = Instant::now();
        drop(call);
        last.expect("given up");
        delays.push(dropped.elapsed());
        first.expect("Cancelled");
        second.expect("Cancelled");
    }
    heard_soon("two calls further", 2 * SOON, &mut delays, &pace);
    // By death, too.
    for _ in 0..4 {
        let mut client = start("client", &[&names[0]]);
        client.tell("stay");
        last.expect("got");
        client.kill();
        last.expect("given up");
        first.expect("Cancelled");
        second.expect("Cancelled");
    }
    assert_eq!(
        &*right.call_timeout(b"echo", common::PATIENCE).unwrap(),
        b"echo"
    );
}

#[test]
fn a_nested_call_back_to_the_caller_ends_as_well() {
    // Both calls go through one link.
    let (port, name) = bind("back");
    let first_name = common::name("back-first");
    let first = start("nests", &[&first_name, &name]);
    let right = handfast::connect(&first_name).unwrap();
    for _ in 0..20 {
        let call = right.try_call(b"nested").unwrap();
        let request = receive(&port);
        drop(call);
        assert!(request.wait_cancelled_timeout(common::PATIENCE));
        first.expect("Cancelled");
    }
}

#[test]
fn a_nested_call_that_was_passed_on_ends_as_well() {
    let names = ["nested-passed0", "nested-passed1", "nested-passed2"].map(common::name);
    let last = start("waits", &[&names[2]]);
    let _middle = start("plain middle", &[&names[1], &names[2]]);
    let first = start("nests", &[&names[0], &names[1]]);
    let right = handfast::connect(&names[0]).unwrap();
    // Until there is a path.
    for _ in 0..40 {
        right.call_timeout(b"echo", common::PATIENCE).unwrap();
        first.expect("answered");
    }
    for _ in 0..20 {
        let call = right.try_call(b"nested").unwrap();
        last.expect("got");
        drop(call);
        last.expect("given up");
        first.expect("Cancelled");
    }
}

#[test]
fn a_nested_call_to_a_server_that_is_killed_ends_with_that() {
    let (port, name) = bind("nested-killed");
    drop(port);
    let mut server = start("waits", &[&name]);
    let first_name = common::name("nested-first");
    let first = start("nests", &[&first_name, &name]);
    let right = handfast::connect(&first_name).unwrap();
    let call = right.try_call(b"nested").unwrap();
    server.expect("got");
    server.kill();
    first.expect("Gone(Process)");
    assert_eq!(
        call.wait_timeout(common::PATIENCE).err(),
        Some(SendError::Gone(Gone::Reply))
    );
}
