//! The load of a receiver, as its clients and its counters see it.

use super::{Poller, pinned};
use handfast_channel::bell;
use handfast_layout::counters;
use handfast_sys::cpu;

/// How long an overloaded server asks its active clients to spin: longer than a sweep over all of them takes.
pub(super) const OVERLOAD_SPIN_NS: u32 = 20_000;

/// With several clients a fence after each reply costs more than the whole rest of the work:
/// it waits until the reply's line has come from the client. While this is on, replies are
/// not fenced, and a client that is about to sleep makes this process pass a fence instead
/// (E11).
pub(super) fn set_fenceless(poller: &mut Poller, on: bool) {
    // On one CPU callers sleep for every call, and would ask for each fence.
    let on =
        on && poller.process.agreed && poller.pinned.is_none() && !poller.clients.shares_only_cpu;
    if on == poller.clients.fenceless {
        return;
    }
    poller.clients.fenceless = on;
    for group in &*poller.groups {
        bell::set_fenceless(&group.bells, poller.receiver, on);
    }
}

/// Publishes what was counted privately since the last time.
pub(super) fn publish_counts(poller: &mut Poller) {
    if pinned::counts_wait(poller) {
        return;
    }
    let counts = core::mem::take(&mut poller.counts);
    let tally = &poller.process.counting.tally;
    let receiver = poller.receiver;
    let mut total = counts.taken;
    // The others have been counted when they left.
    for key in poller.active.keys() {
        if let Some(lane) = poller.lanes[key].as_mut() {
            total += lane.count_for_link();
        }
    }
    let calls = total.saturating_sub(counts.sends + counts.said);
    let columns = [(3, calls), (4, counts.sends), (6, counts.bytes)];
    for (column, amount) in columns {
        tally.add(counters::port_word(receiver, column), amount);
    }
    let shared = [
        (counters::BYTES_OUT, counts.bytes_out),
        (counters::WAKES, counts.wakes),
        (counters::FAULTS, counts.faults),
    ];
    for (column, amount) in shared {
        if amount > 0 {
            tally.add_shared(counters::port_word(receiver, column), amount);
        }
    }
    tally.store(counters::port_word(receiver, 11), poller.counts.defers);
}

pub(super) fn publish_load(poller: &mut Poller, overloaded: bool) {
    if !overloaded && !poller.clients.overloaded {
        return;
    }
    poller.clients.overloaded = overloaded;
    for group in &*poller.groups {
        bell::publish_load(
            &group.bells,
            poller.receiver,
            overloaded,
            cpu::current(),
            OVERLOAD_SPIN_NS,
        );
    }
}
