//! The work of each timer.

use super::{ControlThread, rings};
use crate::door::later;
use crate::introduce::ends;
use crate::link::{Link, backlog, doorbell, long, revoked, tasks};
use crate::per_cpu::worker;
use crate::port::ports;
use crate::process::{Process, WATCH_NS, WATCH_NS_MAX};
use crate::{
    again, give_back, left_lanes, links, moving, paths, redirect, relay, served, unbound, unused,
};
use handfast_proto::timers::{Left, Timer};
use handfast_ring::Fault;
use handfast_sys::clock;
use std::sync::Arc;

impl ControlThread {
    /// Does the work of `timer`, as far as possible now.
    pub(super) fn work(&mut self, timer: Timer) -> Left {
        let process = &self.process;
        match timer {
            Timer::Sleepers => return self.watch(),
            Timer::Handshakes => return self.expire(),
            Timer::Listeners => self.listen_again(),
            Timer::MutedPeers => return self.hear_again(),
            Timer::ClosingThreads => process.users.start_again(),
            Timer::Leavers => return self.wake_leavers(),
            Timer::EndedLinks => links::forget_ended(process),
            Timer::DroppedPorts => return Left::soon(unbound::refuse_unbound(process)),
            Timer::Workers => return Left::soon(worker::start_workers(process)),
            Timer::Claims => return Left::for_peer(later::claim_late(process)),
            Timer::MovedPorts => moving::tell_new_holders(process),
            Timer::DomainCalls => {
                for port in ports::those(process, |port| port.served.get().is_some()) {
                    served::publish_calls(&port);
                }
            }
            Timer::LongMessages => {
                let links = links::all(process);
                return match links.iter().filter(|link| long::give_up(link)).count() {
                    0 => Left::Nothing,
                    _ => Left::In(long::KEPT_NS),
                };
            }
            Timer::Receivers => return rings::call_due(process).map_or(Left::Nothing, Left::In),
            Timer::Switches => return Left::for_peer(redirect::switch_again(process)),
            Timer::Paths => return Left::for_peer(paths::leave_paths(process)),
            Timer::Provisions => return Left::for_peer(ends::expire_provisions(process)),
            // Schedules itself again while an answer comes in pieces.
            Timer::Relays => relay::relay(process),
            Timer::Backlog
            | Timer::Counters
            | Timer::Releases
            | Timer::Revocations
            | Timer::Answers
            | Timer::UnusedLinks
            | Timer::TakenLanes
            | Timer::FreedLanes => {
                let links = links::live(process);
                let left = links.iter().map(|link| work_at(process, link, timer));
                return left.max().unwrap_or(Left::Nothing);
            }
        }
        Left::Nothing
    }

    /// Wakes the threads that still wait at links that have ended. A hostile peer may have put them back to sleep: again, until
    /// all have left.
    fn wake_leavers(&mut self) -> Left {
        self.leaving.retain(|link| {
            link.disturb();
            link.waiters.parked.any()
        });
        match self.leaving.is_empty() {
            true => Left::Nothing,
            false => Left::In(Timer::Leavers.delay_ns()),
        }
    }

    /// Looks after callers that sleep, and others that wait for a peer: these less and less often.
    fn watch(&mut self) -> Left {
        let links: Vec<_> = {
            let links = links::list(&self.process);
            let is_watched = |link: &&Arc<Link>| doorbell::is_watched(link);
            links.iter().flatten().filter(is_watched).cloned().collect()
        };
        if links.is_empty() {
            self.watch_ns = WATCH_NS;
            return Left::Nothing;
        }
        let next_ns = links.iter().filter_map(|link| doorbell::watch(link)).min();
        let for_room = links.iter().any(|link| tasks::has_tasks_for_room(link));
        let next_ns = next_ns
            .into_iter()
            .chain(for_room.then_some(WATCH_NS))
            .min();
        self.watch_ns = match next_ns {
            Some(_) => WATCH_NS,
            None => (self.watch_ns * 2).min(WATCH_NS_MAX),
        };
        Left::In(next_ns.unwrap_or(self.watch_ns))
    }

    /// Forgets handshakes whose connectors have taken too long.
    fn expire(&mut self) -> Left {
        let now_ns = clock::now_ns();
        for index in 0..self.pending.len() {
            let pending = self.pending[index].as_ref();
            if pending.is_some_and(|pending| pending.deadline_ns <= now_ns) {
                self.forget_pending(index);
            }
        }
        let deadlines = self
            .pending
            .iter()
            .flatten()
            .map(|pending| pending.deadline_ns);
        until(deadlines.min(), now_ns)
    }

    /// Hears peers again that have been muted for long enough.
    fn hear_again(&mut self) -> Left {
        let now_ns = clock::now_ns();
        let is_over = |(until_ns, _): &(u64, u32)| *until_ns <= now_ns;
        // One after the other: a panic at the end of one link leaves the others in the list.
        while let Some(place) = self.muted.iter().position(is_over) {
            let (_, serial) = self.muted.swap_remove(place);
            let Some(link) = self.link(serial) else {
                continue;
            };
            let connection = &link.connection;
            if connection.hear(&self.process.poll, serial).is_err() {
                // Nothing would be heard of its peer any more.
                self.end_now(link);
            }
        }
        until(
            self.muted.iter().map(|(until_ns, _)| *until_ns).min(),
            now_ns,
        )
    }
}

fn until(next_ns: Option<u64>, now_ns: u64) -> Left {
    next_ns.map_or(Left::Nothing, |next_ns| {
        Left::In(next_ns.saturating_sub(now_ns))
    })
}

/// Does the work of `timer` at one link.
fn work_at(process: &Arc<Process>, link: &Arc<Link>, timer: Timer) -> Left {
    match timer {
        Timer::Backlog => {
            let is_said = cut_at_fault(process, link, backlog::say_again(link));
            Left::for_peer(!is_said.unwrap_or(true))
        }
        Timer::Counters => Left::for_peer(!backlog::show_counters(link, false)),
        Timer::Releases => release(process, link),
        Timer::Revocations => revoked::tell(link),
        Timer::Answers => {
            let is_open = give_back::refuse_replies(link, process);
            // Answers to calls that were given up have made room.
            tasks::wake_for_room(link);
            Left::for_peer(is_open)
        }
        Timer::UnusedLinks => Left::for_peer(unused::leave(process, link)),
        Timer::TakenLanes => Left::soon(left_lanes::say_taken_again(link, process)),
        Timer::FreedLanes => {
            let is_left = cut_at_fault(process, link, left_lanes::leave_lanes(link, process));
            Left::soon(is_left.unwrap_or(false))
        }
        _ => Left::Nothing,
    }
}

/// Rights of a link: those of this process that are kept and unused, those that no thread holds any more, and those that the
/// peer has given back.
fn release(process: &Arc<Process>, link: &Arc<Link>) -> Left {
    let is_kept = again::leave_unused(process, link);
    let is_told = give_back::give_back(link, process);
    give_back::settle(link, process);
    // Until a peer receives what uses them still, which may be never.
    Left::soon(is_kept).max(Left::for_peer(!is_told || give_back::has_unsettled(link)))
}

/// Cuts the link of a peer that has broken a rule.
fn cut_at_fault<T>(process: &Process, link: &Link, done: Result<T, Fault>) -> Option<T> {
    let poison = |fault| {
        link.poison(fault);
        process.attention.raise();
    };
    done.map_err(poison).ok()
}
