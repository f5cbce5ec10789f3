//! Notices: events that a receiver is told of, each once, through the port itself.
//!
//! As in Mach (paper 004, sections 2.5.4 and 2.5.5) a notice comes where messages come, so a server waits for
//! both at once, in a wait set too. A notice that no sender is left is checked when it is taken: if a right has
//! been made since, the notice waits until there is none again.

use crate::link::deaths::HearsOfDeaths;
use crate::port::{Port, ports};
use core::sync::atomic::Ordering;
use handfast_layout::part::is_member;

pub(crate) mod members;

/// Ends of ports that wait to be received on the word of peers.
const DEATHS_MAX: usize = 1 << 18;
/// Ends of watched rights that are taken down under one lock.
const ENDED_MAX: usize = 1024;

/// The receiver of a port asks to be told when no right to send to it is left.
pub(crate) fn ask_no_senders(port: &Port) {
    if port.notices.ask() {
        tell(port);
    }
}

/// So many rights to this port have ended. After [`watched_ended`] for those that were marked.
pub(crate) fn rights_ended(port: &Port, count: u64) {
    count_off(port, count, tell);
}

/// As [`rights_ended`], of one right, by a thread that may hold a receiver; with its badge, where that was watched.
pub(crate) fn right_ended_later(port: &Port, watched: Option<u64>) {
    mark_off(port, watched.map(|badge| (badge, 1)), tell_later);
    count_off(port, 1, tell_later);
}

fn count_off(port: &Port, count: u64, tell: impl Fn(&Port)) {
    let is_due = port.notices.ended(count, links_ended(port));
    match &port.once {
        // Taken out of the table when the receiver looks next.
        Some(once) if is_due && once.is_used() => note(port),
        _ if is_due => tell(port),
        _ => {}
    }
}

/// Rights that were marked have ended: badges, and how many with each.
pub(crate) fn watched_ended(port: &Port, ended: impl IntoIterator<Item = (u64, u32)>) {
    mark_off(port, ended, tell);
}

fn mark_off(port: &Port, ended: impl IntoIterator<Item = (u64, u32)>, tell: impl Fn(&Port)) {
    let mut ended = ended.into_iter().peekable();
    // The receiver wants the lock, too, and there may be a million.
    while ended.peek().is_some() {
        let some = ended.by_ref().take(ENDED_MAX);
        if port.notices.watched_ended(some, links_ended(port)) {
            tell(port);
        }
    }
}

/// The links that have ended so far: that of the peer whose rights end now is among them.
fn links_ended(port: &Port) -> u32 {
    // Acquire: pairs with the Release in `link_end::end_link`.
    port.process.deaths.load(Ordering::Acquire)
}

/// A send-once right to this port could not come with it. On a peer's word, as [`hear_of_death`].
pub(crate) fn tell_unused(port: &Port, badge: u64) {
    port.notices.has_unused(badge);
    tell_later(port);
}

/// Notes the end of a port that this one was to be told of.
pub(crate) fn tell_death(port: &Port, number: u64) {
    let _ = port.notices.has_died(number, usize::MAX);
    tell(port);
}

/// As [`tell_death`], on a peer's word, which a thread hears that holds its receiver: the control thread wakes the others. `false`: so many wait to be received that no honest peer has told of them.
pub(crate) fn hear_of_death(port: &Port, number: u64) -> bool {
    let has_room = port.notices.has_died(number, DEATHS_MAX);
    if has_room {
        tell_later(port);
    }
    has_room
}

fn tell(port: &Port) {
    note(port);
    ports::rouse(&port.process, port.receiver);
}

/// As [`tell`], by a thread that may hold a receiver: the control thread wakes the others.
fn tell_later(port: &Port) {
    note(port);
    ports::rouse_later(&port.process, port.receiver);
}

/// As [`tell`], without waking anybody.
fn note(port: &Port) {
    // The receiver, if it sleeps, is woken after.
    let was_due = port.notices.raise();
    if is_member(port.id) {
        if !was_due {
            port.at.members_due.add(port.id);
        }
        // After that: a receiver that lowers it looks for the ports behind that.
        port.at.notices.raise();
    }
}

impl HearsOfDeaths for Port {
    fn hear_death(&self, number: u64) {
        tell_death(self, number);
    }
}

#[cfg(test)]
mod model;
