//! The periodic work of a receiver: quiet lanes, load, waiters, the dead, the end.

use super::{Poller, clearing, diverted, load, places};
use handfast_channel::arm;
use handfast_layout::bell::LINKS;
use handfast_layout::link::LANES;
use handfast_proto::rota::Key;
use handfast_sys::clock;
use handfast_sys::cpu;

/// A lane without a message for this long is armed and no longer polled.
const QUIET_NS: u64 = 20_000;
/// One-way messages between two quiet checks that make a lane a stream: its producer need not fence
/// each, and arming it then costs a few microseconds.
const STREAM_MIN: u32 = 64;
/// A client that was woken keeps its place for so long before it is seen to run: the kernel may
/// let it wait for a processor. Giving the place away at once would wake ever more of them.
const WAKING_NS: u64 = 2_000_000;
/// So many times in a row the client served last is found on the receiver's CPU before one asks whether it has others.
const BESIDE: u32 = 16;

/// Every few looks: arms lanes that have been quiet, follows changes of the process's lists,
/// publishes the load.
#[cold]
pub(super) fn check_quiet(poller: &mut Poller) {
    clearing::refresh(poller);
    diverted::rest(poller);
    // For `cpu::recent`, too.
    let here = cpu::current();
    let now_ns = clock::ticks_ns();
    if now_ns.saturating_sub(poller.looks.checked_ns) < QUIET_NS {
        return;
    }
    poller.looks.checked_ns = now_ns;
    load::publish_counts(poller);
    check_beside(poller, here);
    let is_one_of_many = poller.active.len() > 1;
    load::set_fenceless(poller, is_one_of_many);
    let mut active = core::mem::take(&mut poller.active);
    active.retain(|key| is_busy(poller, key, now_ns));
    poller.active = active;
    let overloaded = poller.rota.is_overloaded(now_ns) || is_crowded(poller);
    if overloaded || poller.clients.overloaded {
        load::publish_load(poller, overloaded);
    }
}

/// Whether this thread and its active clients are more than their processors: clients leave this one's processor then, as if it were
/// overloaded (`docs/decisions/0044`).
fn is_crowded(poller: &Poller) -> bool {
    let (active, cpus) = (poller.active.len(), poller.clients.cpus as usize);
    active > 1 && active >= cpus && !poller.clients.shares_only_cpu
}

/// Whether an active lane goes on being looked at. It is armed if not.
fn is_busy(poller: &mut Poller, key: Key, now_ns: u64) -> bool {
    let Some(lane) = poller.lanes[key].as_mut() else {
        return false;
    };
    let position = lane.consumer.position();
    let moved = position.wrapping_sub(core::mem::replace(&mut lane.checked, position));
    let is_busy = moved != 0;
    let called = core::mem::take(&mut lane.called);
    if moved >= STREAM_MIN && !called && !lane.streaming && poller.process.may_ask {
        lane.streaming = true;
        arm::stream(&lane.link.region, lane.consumer.place());
    }
    if is_busy {
        lane.woken_ns = 0;
    }
    let is_waking = now_ns.saturating_sub(lane.woken_ns) < WAKING_NS;
    if is_busy || is_waking || !lane.arm() {
        return true;
    }
    poller.rota.quiet(key, now_ns);
    places::rested(poller, key);
    false
}

/// If this thread and all its clients have one CPU between them, no client runs while it polls: a client that is not
/// woken does not run. All may be active then.
fn check_beside(poller: &mut Poller, here: u32) {
    if poller.pinned.is_some() {
        return;
    }
    let beside = poller.clients.cpu == here;
    poller.clients.beside = if beside {
        poller.clients.beside.wrapping_add(1)
    } else {
        0
    };
    let is_only = match poller.clients.beside % BESIDE {
        _ if !beside => false,
        0 => cpu::available() == 1,
        _ => poller.clients.shares_only_cpu,
    };
    if is_only != poller.clients.shares_only_cpu {
        poller.clients.shares_only_cpu = is_only;
        let all = LINKS as usize * LANES as usize;
        poller
            .rota
            .set_cap(if is_only { all } else { poller.clients.cap });
    }
}
