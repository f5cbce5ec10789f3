//! Waiters at ports that are not sleeping threads, as far as the control thread calls them.

use crate::link::Link;
use crate::polling::waits::{call_due_at, rung_at};
use crate::port::ports;
use crate::port::receiver::Receiver;
use crate::process::Process;
use core::sync::atomic::Ordering;
use handfast_sys::clock;

/// Messages that wait for the rights they name, at ports where no thread waits, have waited long enough.
/// Returns how long until the next ones have.
pub(super) fn call_due(process: &Process) -> Option<u64> {
    let ports = ports::all(process);
    let due = ports
        .iter()
        .map(|port| call_due_at(&port.at, clock::ticks_ns()));
    due.flatten().min()
}

/// A peer has rung for the port at `receiver`, if there is one.
pub(super) fn rung(process: &Process, link: &Link, receiver: u32) {
    // Relaxed: a port missed here has been rung for.
    let has_waits = |port: &Receiver| port.followers.load(Ordering::Relaxed) > 0;
    for port in ports::those(process, |port| {
        port.receiver == receiver || has_waits(&port.at)
    }) {
        rung_at(&port.at, link, receiver);
    }
}
