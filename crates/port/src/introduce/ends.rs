//! The ends of introducers and recipients, as their exporter hears of them.

use crate::introduce;
use crate::introduce::OF_MOVED;
use crate::link::Link;
use crate::links;
use crate::process::Process;
use core::sync::atomic::Ordering;
use handfast_proto::timers::Timer;
use handfast_sys::{Errno, clock, process};
use std::collections::{BTreeSet, HashSet};

/// Control thread: a link has ended: ends the provisions to its peer, and by it.
pub(crate) fn end_introductions(process: &Process, link: &Link) {
    // Its link may have ended for want of use: the peer may still claim the rights it was provided with.
    let is_dead = !link.connection.has_process();
    let unheard = core::mem::take(&mut link.introductions().unheard);
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
        let unheard = &mut other.introductions().unheard;
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

/// Processes that the kernel is asked for in one round.
const ASKED_MAX: usize = 256;
/// Overdue claims of one link that are looked at in one round.
const OVERDUE_MAX: usize = 256;

/// Control thread: ends unclaimed provisions, and claims of what is not provided. Returns whether there will be more.
pub(crate) fn expire_provisions(process: &Process) -> bool {
    let gone = gone_recipients(process);
    let is_gone = |of: [u8; 20]| gone.contains(&pid_of(of));
    let expired = introduce::provisions(process).expire(clock::ticks_ns(), is_gone);
    for target in expired {
        introduce::ended(process, target);
    }
    answer_overdue(process) || introduce::provisions(process).has_mortal()
}

const fn pid_of([.., a, b, c, d]: [u8; 20]) -> u32 {
    u32::from_le_bytes([a, b, c, d])
}

/// Recipients of introducers that have ended, some of them in turn, that have ended for sure: the kernel knows none of that number.
/// Another process may have the number by now: then the provision is waited for.
fn gone_recipients(process: &Process) -> HashSet<u32> {
    let pids: BTreeSet<u32> = introduce::provisions(process)
        .recipients_of_ended()
        .map(pid_of)
        .collect();
    // Relaxed: of the control thread alone.
    let last = &process.introductions.asked_last;
    let from = last.load(Ordering::Relaxed);
    let in_turn = pids.range(from..).chain(pids.range(..from));
    let asked: Vec<_> = in_turn.take(ASKED_MAX.min(pids.len())).copied().collect();
    if let Some(latest) = asked.last() {
        last.store(latest.wrapping_add(1), Ordering::Relaxed);
    }
    let is_gone = |pid: &u32| {
        process::pidfd(*pid).map_or_else(
            |errno| errno == Errno::SRCH,
            |pidfd| process::has_ended(&pidfd),
        )
    };
    asked.into_iter().filter(is_gone).collect()
}

/// Control thread: answers claims of what nobody has provided, and that nobody has looked at since. Returns whether some wait still.
fn answer_overdue(process: &Process) -> bool {
    let mut is_left = false;
    for link in links::live(process) {
        let now_ns = clock::ticks_ns();
        let overdue = link.introductions().claims.overdue(now_ns, OVERDUE_MAX);
        for word in overdue {
            // Later than until any waits.
            introduce::look_at_claim(&link, process, word, u64::MAX);
        }
        is_left |= link.introductions().claims.has_waiting();
    }
    is_left
}
