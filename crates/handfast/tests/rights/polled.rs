//! A receiver that only looks now and then.

use crate::common;
use handfast::Right;
use std::time::Duration;

/// Time between two looks: longer than a message waits for the claim of its right.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOKS: usize = 12;

/// Looks at its port now and then, once it is told to begin.
pub(crate) fn exporter(name: &str) {
    common::say_cuts();
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    common::told();
    for _ in 0..LOOKS {
        if let Ok(request) = port.try_receive() {
            common::say(&format!("got {}", String::from_utf8_lossy(request.bytes())));
        }
        // Sleep: the time between looks is tested.
        std::thread::sleep(LOOK_EVERY);
    }
    common::say("end");
    common::told();
}

/// Answers each call with a right to the port `to`.
pub(crate) fn introducer(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    let right = handfast::connect(to).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        request.reply_with(b"", [right.clone().into()]).unwrap();
    }
}

/// The claim of an introduced right lay behind others in one lane, and a message by the right in another: the receiver, which
/// took one message every 250 ms, had the latter wait for the former too long by its own count, and cut the link.
#[test]
fn a_server_that_looks_four_times_a_second_cuts_no_honest_peer() {
    let (exporter_name, introducer_name) = (common::name("looks"), common::name("gives"));
    let mut exporter = common::start("polling exporter", &[&exporter_name]);
    exporter.expect("ready");
    let introducer = common::start("introducer to all", &[&introducer_name, &exporter_name]);
    introducer.expect("ready");
    let by_name = handfast::connect(&exporter_name).unwrap();
    let to_introducer = handfast::connect(&introducer_name).unwrap();
    for number in 0..3 {
        by_name.send(format!("{number}").as_bytes()).unwrap();
    }
    let rights = to_introducer.call(b"").unwrap().take_rights();
    let Some(Right::Send(introduced)) = rights.into_iter().next() else {
        panic!("a right to send");
    };
    // From another thread, so in another lane.
    std::thread::scope(|scope| {
        scope.spawn(|| introduced.send(b"introduced").unwrap());
    });
    exporter.tell("go");
    let mut got = Vec::new();
    loop {
        match exporter.line() {
            line if line == "end" => break,
            line => got.push(line),
        }
    }
    assert!(got.contains(&"got introduced".to_owned()), "{got:?}");
    assert_eq!(by_name.send(b"after"), Ok(()));
}
