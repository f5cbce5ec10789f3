//! Control messages: each is taken from its socket, parsed, and handed to the protocol that it is for.

use super::{ControlThread, Turn, rings};
use crate::door::{self, later};
use crate::link::inbox::{self, Unheard, rule_of};
use crate::link::{Link, backlog, counters, deaths, in_force, lanes, spread, tasks};
use crate::process::{Process, token};
use crate::users::Foreign;
use crate::{
    again, give_back, introduce, knock, left_lanes, links, moving, paths, redirect, relay, unbound,
    unused,
};
use handfast_layout::control::{CONTROL_BYTES_MAX, ControlMessage, Malformed};
use handfast_proto::timers::Timer;
use handfast_ring::Fault;
use handfast_sys::poll::Event;
use handfast_sys::{Errno, clock};
use std::sync::Arc;

/// Control messages taken from one link before others get their turn.
const CONTROL_BUDGET: usize = 64;
/// How soon to listen again to a link whose messages another thread is reading.
const BUSY_NS: u64 = 500_000;

impl ControlThread {
    /// Takes the control messages that others have read in search of descriptors.
    pub(super) fn listen_to_unheard(&mut self) {
        let unheard: Vec<_> = {
            let links = links::list(&self.process);
            let has_unheard = |link: &&Arc<Link>| inbox::has_unheard(link);
            let unheard = links.iter().flatten().filter(has_unheard);
            unheard.map(|link| link.serial).collect()
        };
        for serial in unheard {
            let event = Event {
                token: token::LINK | u64::from(serial),
                readable: true,
                writable: false,
                hung_up: false,
            };
            self.listen(serial, event);
            if self
                .link(serial)
                .is_some_and(|link| inbox::has_unheard(&link))
            {
                self.process.attention.raise();
            }
        }
    }

    /// Takes control messages of a link, as many as its peer may send.
    pub(super) fn listen(&mut self, serial: u32, event: Event) {
        let Some(link) = self.link(serial) else {
            return;
        };
        let uid = link.peer.uid;
        // Otherwise the event is reported again.
        let Some(turn) = self.turn_of(uid) else {
            return;
        };
        let mut count = 0;
        self.listen_to(&link, (event, turn), &mut count);
        if count > 0 {
            // Also where the peer has rung in vain, since all this was unread.
            relay::relay_by(&self.process, &link);
        }
        self.spend(uid, turn);
        if let Some(until_ns) = in_force::heard_enough(&link, count) {
            self.mute(&link, until_ns);
        }
    }

    fn listen_to(&mut self, link: &Arc<Link>, (event, turn): (Event, Turn), count: &mut u32) {
        let serial = link.serial;
        let mut bytes = [0; CONTROL_BYTES_MAX];
        for _ in 0..CONTROL_BUDGET {
            match inbox::hear(link, &mut bytes) {
                Ok((0, _)) => return self.end(serial),
                Err(Unheard::Fault(fault)) => {
                    link.poison(fault);
                    return self.end(serial);
                }
                Ok((len, fd)) => {
                    *count += 1;
                    if let Err(fault) = self.control(link, &bytes[..len], fd) {
                        link.poison(fault);
                        return self.end(serial);
                    }
                    if clock::ticks_ns() >= turn.until_ns {
                        return;
                    }
                }
                // Its user's closing thread, or a receiver, is at it. A link that is cut is not waited for.
                Err(Unheard::Busy) if link.is_down() => return self.end(serial),
                Err(Unheard::Busy) => return self.mute(link, clock::now_ns() + BUSY_NS),
                Err(Unheard::Os(Errno::AGAIN)) if event.hung_up && !event.readable => {
                    return self.end(serial);
                }
                Err(Unheard::Os(Errno::AGAIN | Errno::INTR)) => return,
                // Without room for its descriptor a message is lost, and only that.
                Err(Unheard::Os(Errno::MFILE)) => {}
                Err(Unheard::Os(Errno::MSGSIZE)) => {
                    crate::guest::tell!(
                        warn,
                        pid = link.peer.pid,
                        "control message out of bounds, link cut"
                    );
                    return self.end(serial);
                }
                Err(_) => return self.end(serial),
            }
        }
    }

    /// Takes no more from a link until then. Its death is told by its process descriptor meanwhile.
    fn mute(&mut self, link: &Link, until_ns: u64) {
        if !link.is_down() && !self.muted.iter().any(|(_, muted)| *muted == link.serial) {
            link.connection.unhear(&self.process.poll);
            self.muted.push((until_ns, link.serial));
            let from_now_ns = until_ns.saturating_sub(clock::now_ns());
            self.process.schedule_in(Timer::MutedPeers, from_now_ns);
        }
    }

    fn control(&self, link: &Arc<Link>, bytes: &[u8], fd: Option<Foreign>) -> Result<(), Fault> {
        use ControlMessage as M;
        let message = match ControlMessage::parse(bytes) {
            Ok(Some(message)) => message,
            // A message of a later release.
            Ok(None) => return Ok(()),
            Err(malformed) => return fault_of(malformed).map_or(Ok(()), Err),
        };
        let process = &self.process;
        match message {
            M::Ring { receiver } => {
                tasks::wake_answered(link);
                process.raise_sets();
                rings::rung(process, link, receiver.into());
                unbound::rung(process, link, receiver.into());
            }
            M::ShowCounters => {
                if !backlog::show_counters(link, true) {
                    // The peer has not read the answers it asked for before: later.
                    process.schedule(Timer::Counters);
                }
            }
            M::Counters => counters::hear(link, fd)?,
            M::Unused => {
                if unused::hear_unused(process, link) {
                    // The link ends at the next event.
                    process.attention.raise();
                }
            }
            M::Used => link.life.usage.stays(),
            M::Free => unused::hear_free(link),
            M::LaneFree { lane } => left_lanes::hear_lane_free(link, process, lane)?,
            M::LaneWanted => {
                if left_lanes::say_taken(link, process) {
                    process.schedule(Timer::TakenLanes);
                }
            }
            M::LaneBack { lane } => {
                lanes::hear_back(link, lane)?;
                later::has_lane(process);
            }
            M::Closed { port, .. } => link.close_port(port),
            M::Revoked { in_vain, names } => deaths::hear_revoked(link, in_vain, names.iter()),
            M::Spread { port, entries } => spread::hear(link, port, entries.iter())?,
            M::Release { rights } => give_back::take_back(link, process, rights.iter())?,
            M::PathAsk { .. }
            | M::PathWant { .. }
            | M::PathGranted { .. }
            | M::PathDenied { .. }
            | M::PathReady { .. }
            | M::PathRefused { .. }
            | M::PathOver { .. }
            | M::PathDrop { .. } => hear_of_path(process, link, message)?,
            // The first two were heard where they were read; and a link is made once.
            M::Descriptors(_) | M::Arena(_) | M::Sealed => {}
            M::ProvisionVoid { .. }
            | M::Declined { .. }
            | M::DoorWhere { .. }
            | M::DoorAsk { .. }
            | M::Door { .. }
            | M::DoorOf { .. }
            | M::Arrived { .. }
            | M::NotArrived { .. }
            | M::Moved { .. }
            | M::Kept { .. }
            | M::Leave { .. }
            | M::Left { .. } => self.introduce(link, message, fd)?,
        }
        Ok(())
    }

    /// A message about rights of third processes, or ports that move.
    fn introduce(
        &self,
        link: &Arc<Link>,
        message: ControlMessage<'_>,
        fd: Option<Foreign>,
    ) -> Result<(), Fault> {
        use ControlMessage as M;
        let process = &self.process;
        match message {
            M::ProvisionVoid { number } => {
                introduce::take_back_provision(process, (link.identity(), number));
            }
            M::Declined { number, exporter } => introduce::hear_declined(link, number, exporter),
            M::DoorWhere { exporter } => door::ask_for_door(process, link, exporter),
            M::DoorAsk { token } => door::show_door(process, link, token),
            M::Door { token } => door::pass_door_on(process, link, token, fd),
            M::DoorOf { exporter } => knock::knock(process, link, exporter, fd),
            M::Arrived {
                token,
                port,
                handle,
            } => moving::hear_arrived(process, link, token, (port, handle))?,
            M::NotArrived { token } => moving::hear_not_arrived(process, link, token),
            M::Moved {
                name,
                port,
                number,
                home,
            } => redirect::hear_moved(process, link, name, (port, number, home))?,
            M::Kept { .. } | M::Leave { .. } | M::Left { .. } => {
                again::take_again_message(link, message)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// The rule that a peer breaks by a message that is not whole.
fn fault_of(malformed: Malformed) -> Option<Fault> {
    let rule = rule_of(malformed.kind)?;
    Some(Fault { rule, offset: 0 })
}

/// A message about return paths. Answers that were to come by one that is over are looked for.
fn hear_of_path(
    process: &Arc<Process>,
    link: &Arc<Link>,
    message: ControlMessage<'_>,
) -> Result<(), Fault> {
    paths::take_path_message(process, link, message)?;
    if matches!(message, ControlMessage::PathOver { .. }) {
        relay::relay(process);
    }
    Ok(())
}
