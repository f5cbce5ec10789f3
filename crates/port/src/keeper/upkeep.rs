//! The work of each timer.

use crate::link::Link;
use crate::process::Process;
use handfast_proto::timers::{Left, Timer};
use handfast_ring::Fault;
use std::sync::Arc;

/// Does the work of `timer`, as far as possible now.
pub(super) fn work(process: &Arc<Process>, timer: Timer) -> Left {
    let links = |work: &dyn Fn(&Arc<Link>) -> Left| {
        let links = process.live_links();
        links.iter().map(work).max().unwrap_or(Left::Nothing)
    };
    match timer {
        Timer::EndedLinks => {
            process.forget_ended();
            Left::Nothing
        }
        Timer::DroppedPorts => Left::soon(process.refuse_unbound()),
        Timer::Workers => Left::soon(process.start_workers()),
        Timer::Backlog => links(&|link| {
            let is_said = cut_at_fault(process, link, link.say_again());
            Left::for_peer(!is_said.unwrap_or(true))
        }),
        Timer::Counters => links(&|link| Left::for_peer(!link.show_counters(process, false))),
        Timer::Releases => links(&|link| release(process, link)),
        Timer::Revocations => links(&|link| Left::for_peer(!link.tell_revoked())),
        Timer::Answers => links(&|link| {
            let is_open = link.refuse_replies(process);
            // Answers to calls that were given up have made room.
            link.wake_for_room();
            Left::for_peer(is_open)
        }),
        Timer::UnusedLinks => links(&|link| Left::for_peer(process.leave(link))),
        Timer::TakenLanes => links(&|link| Left::soon(link.say_taken_again(process))),
        Timer::FreedLanes => links(&|link| {
            let is_left = cut_at_fault(process, link, link.leave_lanes(process));
            Left::soon(is_left.unwrap_or(false))
        }),
        Timer::Claims => {
            process.claim_late();
            Left::Nothing
        }
        Timer::MovedPorts => {
            process.tell_new_holders();
            Left::Nothing
        }
        Timer::DomainCalls => {
            for port in process.ports(|port| port.served.get().is_some()) {
                port.served.get().inspect(|local| local.publish(&port));
            }
            Left::Nothing
        }
        Timer::Receivers => process.call_due().map_or(Left::Nothing, Left::In),
        Timer::Switches => Left::for_peer(process.switch_again()),
        Timer::Paths => Left::for_peer(process.leave_paths()),
        Timer::Provisions => Left::for_peer(process.expire_provisions()),
        Timer::Relays => {
            // Schedules itself again while an answer comes in pieces.
            process.relay();
            Left::Nothing
        }
    }
}

/// Rights of a link: those of this process that are kept and unused, those that no thread holds any more, and those that the
/// peer has given back.
fn release(process: &Arc<Process>, link: &Arc<Link>) -> Left {
    let is_kept = process.leave_unused(link);
    let is_told = link.give_back(process);
    link.settle(process);
    // Until a peer receives what uses them still, which may be never.
    Left::soon(is_kept).max(Left::for_peer(!is_told || link.has_unsettled()))
}

/// Cuts the link of a peer that has broken a rule.
fn cut_at_fault<T>(process: &Process, link: &Link, done: Result<T, Fault>) -> Option<T> {
    let poison = |fault| {
        link.poison(fault);
        process.attention.raise();
    };
    done.map_err(poison).ok()
}
