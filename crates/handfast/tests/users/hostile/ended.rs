//! The descriptors of links that have ended, where the application keeps a right of each.

use super::{ATTACKER, Stage};
use crate::common;
use handfast::Right;

const GIVERS: usize = 20;

/// Keeps the rights that it is sent.
pub(super) fn keeper(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut kept: Vec<Right> = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        kept.extend(request.take_rights());
        let bytes = request.bytes().to_vec();
        if request.is_call() {
            let _ = request.reply(&bytes);
        }
    }
}

/// Gives a right to a port of its own.
pub(super) fn giver(name: &str) {
    let right = handfast::connect(name).unwrap();
    let port = handfast::anonymous().unwrap();
    let given = right.with([port.mint(1).into()]).call(b"keep");
    assert_eq!(given.unwrap().len(), 4);
    common::say("given");
    common::told();
}

#[test]
fn links_that_have_ended_keep_no_descriptor_of_a_server_that_keeps_rights_of_them() {
    let Some(mut stage) = Stage::set("ended", "keeper", "") else {
        return;
    };
    stage.goes_on("before");
    let before = common::at_rest(stage.server.pid());
    for _ in 0..GIVERS {
        let mut giver = common::start("giver", &[&ATTACKER.to_string(), &stage.name]);
        giver.expect("given");
        giver.kill();
    }
    stage.goes_on("after");
    let now = || common::holdings(stage.server.pid()).0;
    // The server may be at the end of the last one still, and has a link with its victim's last process.
    let is_as_before = common::within_patience(|| now() <= before + 3);
    assert!(is_as_before, "{before}, then {}", now());
    stage.server.kill();
}
