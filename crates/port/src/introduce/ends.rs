//! The ends of introducers and recipients, as their exporter hears of them.

use crate::introduce;
use crate::introduce::OF_MOVED;
use crate::link::Link;
use crate::links;
use crate::process::Process;
use handfast_proto::timers::Timer;
use handfast_sys::{Errno, clock, process};
use std::collections::HashMap;

/// Keeper: a link has ended: ends the provisions to its peer, and by it.
pub(crate) fn end_introductions(process: &Process, link: &Link) {
    // Its link may have ended for want of use: the peer may still claim the rights it was provided with.
    let is_dead = link.pidfd.as_ref().is_none_or(process::has_ended);
    let unheard = core::mem::take(&mut *link.unheard());
    for (exporter, number) in unheard {
        // The peer has heard before of ports that have moved; if it is dead after all, their new homes see
        // that.
        let may_claim = !is_dead && number & OF_MOVED != 0;
        if let Some(exporter) = exporter.upgrade().filter(|_| !may_claim) {
            introduce::void(&exporter, number);
        }
    }
    // Its provisions concern no peer any more. A link that something refers to, even weakly, keeps its memory.
    for other in links::all(process) {
        let mut unheard = other.unheard();
        unheard.retain(|(exporter, _)| !core::ptr::eq(exporter.as_ptr(), link));
    }
    let of = link.identity();
    if links::find(process, |other| other.identity() == of).is_some() {
        return;
    }
    let ended = introduce::provisions(process).ended(of, is_dead, clock::ticks_ns());
    for target in ended {
        introduce::ended(process, target);
    }
    process.schedule(Timer::Provisions);
}

/// Keeper: ends unclaimed provisions, and claims of what is not provided. Returns whether there will be more.
pub(crate) fn expire_provisions(process: &Process) -> bool {
    // The kernel is asked once for each: it may have ended, or was never visible from here. Another process
    // may have its number by now: then the provision is waited for.
    let mut known = HashMap::new();
    let is_gone = |of: [u8; 20]| {
        *known.entry(of).or_insert_with(|| {
            let [.., a, b, c, d] = of;
            let pidfd = process::pidfd(u32::from_le_bytes([a, b, c, d]));
            pidfd.map_or_else(
                |errno| errno == Errno::SRCH,
                |pidfd| process::has_ended(&pidfd),
            )
        })
    };
    let expired = introduce::provisions(process).expire(clock::ticks_ns(), is_gone);
    for target in expired {
        introduce::ended(process, target);
    }
    answer_overdue(process) || introduce::provisions(process).has_mortal()
}

/// How much longer than a receiver a claim waits where no message names it: the clocks of busy receivers go more slowly, and what it
/// waits for may lie in a lane.
const OVERDUE_NS: u64 = 10_000_000_000;

/// Keeper: answers claims of what nobody has provided, and that nobody has looked at since. Returns whether some wait still.
fn answer_overdue(process: &Process) -> bool {
    let mut is_left = false;
    for link in links::live(process) {
        let now_ns = clock::ticks_ns();
        let overdue = link.claims().overdue(now_ns.saturating_sub(OVERDUE_NS));
        for word in overdue {
            introduce::look_at_claim(&link, process, word, now_ns);
        }
        is_left |= link.claims().has_waiting();
    }
    is_left
}
