//! Making a link by the door of a stranger (`door`).

use crate::connect;
use crate::door;
use crate::link::Link;
use crate::process::Process;
use crate::users::Foreign;
use core::time::Duration;
use handfast_proto::users::Quota;
use handfast_sys::thread;
use std::sync::Arc;

/// How long a handshake by a door may take.
const KNOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Recipient: has a thread make a link by the door of `exporter`, and all that waits for one uses it. Without a door, rights from
/// this introducer stay on their vines; others wait for what theirs have to say. Nothing comes of a door that was not asked for.
pub(crate) fn knock(
    process: &Arc<Process>,
    introducer: &Link,
    exporter: [u8; 20],
    shown: Option<Foreign>,
) {
    let by = introducer.serial;
    let Some(has_moved) = door::answered(process, introducer, exporter) else {
        return;
    };
    // The process behind a door may make this thread wait for ever: the thread counts against its user.
    let Ok(charge) = (process.users).charge(introducer.peer.uid, Quota::Threads, 1) else {
        return door::stay_without(process, exporter, by);
    };
    // The connector pays for the link's memory, and a process that was given a right has not asked for that. Senders follow a port.
    let may_be = move |uid| has_moved || uid == handfast_sys::process::uid();
    let node = process.clone();
    let work = move || {
        handfast_sys::signal::block_all();
        let link = shown.and_then(|shown| {
            connect::by_door(&node, (&shown, exporter), may_be, KNOCK_TIMEOUT)
                .inspect_err(|error| crate::guest::tell!(debug, %error, "not let in by a door"))
                .ok()
        });
        match &link {
            Some(link) => door::meet(&node, exporter, link),
            None => door::stay_without(&node, exporter, by),
        }
        drop((link, charge));
    };
    if thread::spawn("handfast-door", 256 * 1024, work).is_err() {
        door::stay_without(process, exporter, by);
    }
}
