//! How an unused link ends.
//!
//! The side that made it reports it unused, once all its messages through the link have been taken, or a second has
//! passed, and does not use it from then on. The other process may have begun to use it meanwhile: it ends the link, or
//! says that it stays. Messages that it has not received by then are received as those of a process that has ended.
//!
//! ```text
//! connector -> acceptor    unused
//! acceptor -> connector    used, and later free      (or the end of the link)
//! ```
//!
//! A process that does not answer is not waited for where its user has left several such links unanswered: each takes descriptors.

use crate::link::Link;
use crate::link::lanes::{Sent, sent};
use crate::link::usage::{self, state};
use crate::process::Process;
use crate::{link_end, links};
use core::sync::atomic::Ordering;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::LANES;
use handfast_sys::clock;
use std::sync::Arc;

/// How long the peer has to take what was sent, before the link is reported unused all the same.
const LINGER_NS: u64 = 1_000_000_000;
/// Links that the processes of one user may leave unanswered, for longer than that, and at all.
const UNANSWERED_MAX: usize = 16;
const UNANSWERED_ALL_MAX: usize = 128;

/// Whether the peer has taken all that was sent.
fn is_drained(link: &Link) -> bool {
    (0..LANES).all(|lane| sent::is_taken(link, lane, Sent::Something))
}

/// From now on no thread finds a link that is unused. Returns whether it is.
fn cut_off(process: &Process, link: &Link) -> bool {
    let _links = links::list(process);
    let is_unused = !link.life.usage.is_used();
    if is_unused {
        // Release: as in `Link::take_down`.
        link.life.down.store(true, Ordering::Release);
    }
    is_unused
}

/// Control thread: tells the peer if a link is not used any more. Returns whether that has to be seen to again.
pub(crate) fn leave(process: &Arc<Process>, link: &Arc<Link>) -> bool {
    if !link.life.usage.turn((state::GONE, state::USED)) {
        return false;
    }
    let is_unused = || !link.life.usage.is_used() && !link.life.usage.is_granted();
    if !is_unused() {
        return false;
    }
    if link.is_loop() {
        // Both ends are here, and only the one that connects is used.
        if cut_off(process, link) {
            // It is not the peer that goes.
            link.death_notices().clear();
            link_end::end_link(process, link);
        }
        return false;
    }
    let (since_ns, now_ns) = (link.life.usage.unused_ns(), clock::ticks_ns());
    let lingers = now_ns.saturating_sub(since_ns) < LINGER_NS && !is_drained(link);
    if lingers || link.life.usage.is_said_at(now_ns) {
        return link.life.usage.turn((state::USED, state::GONE));
    }
    {
        let _links = links::list(process);
        if !is_unused() || !link.life.usage.turn((state::USED, state::SAID)) {
            return false;
        }
    }
    // It is not the peer that goes.
    link.death_notices().clear();
    link.life.usage.set_unused_ns(now_ns);
    link.life.usage.say_at(now_ns);
    link.say(ControlMessage::Unused);
    end_unanswered(process, link.peer.uid, now_ns);
    false
}

/// Ends the link that the processes of a user have left unanswered the longest, if there are too many.
fn end_unanswered(process: &Arc<Process>, uid: u32, now_ns: u64) {
    let links = links::list(process);
    let is_one =
        |link: &&Arc<Link>| link.peer.uid == uid && link.life.usage.is_left() && !link.is_down();
    let left: Vec<_> = links.iter().flatten().filter(is_one).cloned().collect();
    drop(links);
    let since_ns = |link: &Arc<Link>| link.life.usage.unused_ns();
    let Some(longest) = left.iter().min_by_key(|link| since_ns(link)) else {
        return;
    };
    let is_late = now_ns.saturating_sub(since_ns(longest)) >= LINGER_NS;
    let is_too_much = left.len() > UNANSWERED_ALL_MAX || is_late && left.len() > UNANSWERED_MAX;
    if is_too_much && cut_off(process, longest) {
        link_end::end_link(process, longest);
    }
}

/// Control thread: the peer does not use the link any more. Returns whether this process does not either, so that
/// it is to be ended.
pub(crate) fn hear_unused(process: &Process, link: &Link) -> bool {
    link.life.usage.is_asked();
    let is_over = cut_off(process, link);
    // A peer that asks reads the answer; one that does not hears only of the end of the use.
    if !is_over && !link.is_behind() {
        link.say(ControlMessage::Used);
        if !link.life.usage.is_used() {
            // Since the look; it may have been said before that.
            link.life.usage.turn((state::ASKED, state::USED));
            link.say(ControlMessage::Free);
        }
    }
    is_over
}

/// Control thread: the peer does not use the link any more either. Without a word of this process before it means nothing.
pub(crate) fn hear_free(link: &Link) {
    if !link.life.usage.take_free() {
        return;
    }
    // The peer used it until now, also if it has not said so.
    link.life.usage.stays();
    if !link.life.usage.is_used() {
        usage::is_gone(link);
    }
}

#[cfg(test)]
mod tests;
