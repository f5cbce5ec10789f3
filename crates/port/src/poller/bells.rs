//! How lanes become active, and how the receiver goes to sleep.

use super::{Poller, clearing, pinned, rung, state};
use crate::link::Link;
use crate::link::group::{self, Group};
use core::sync::atomic::Ordering;
use handfast_channel::bell;
use handfast_region::Memory;
use handfast_wait::word;
use std::sync::Arc;

/// Looks at some links with other users, in turn: they ring there and nowhere else. Users come in turn, too.
pub(super) fn hear_foreign(poller: &mut Poller) {
    for _ in 0..poller.foreign.turns {
        let Some((place, first)) = poller.foreign.groups.pop_front() else {
            return;
        };
        // Each link of a crowd may be another user's.
        let links = match poller.groups[place].uid {
            Some(_) => poller.foreign.links,
            None => state::FOREIGN_LINKS_PER_LOOK,
        };
        let next = hear_some(poller, place, first, links);
        poller.foreign.groups.push_back((place, next.unwrap_or(0)));
    }
}

/// Looks at all links with other users.
pub(crate) fn hear_foreign_all(poller: &mut Poller) {
    for place in 0..poller.groups.len() {
        if poller.groups[place].is_foreign {
            hear_some(poller, place, 0, u32::MAX);
        }
    }
}

fn hear_some(poller: &mut Poller, group: usize, first: u32, count: u32) -> Option<u32> {
    let receiver = poller.receiver;
    let has_rung = |link: &Link| bell::link_rang(&link.region, link.calls.other(), receiver);
    let (rang, next) = poller.groups[group].some_links(first, count, has_rung);
    for index in rang {
        answer_link(poller, group, index);
    }
    next
}

/// Answers the bells that rang; whether any did.
#[inline]
pub(super) fn hear(poller: &mut Poller) -> bool {
    let mut heard = false;
    for group in 0..poller.groups.len() {
        if poller.groups[group].is_foreign {
            continue;
        }
        if bell::rang(&poller.groups[group].bells, poller.receiver) {
            answer_bell(poller, group);
            heard = true;
        }
    }
    heard
}

/// Whether all lanes are armed, and none waits for its turn: they were empty when they were armed, but for the waiting ones, and a
/// post rings.
pub(super) fn is_idle(poller: &Poller) -> bool {
    poller.active.is_empty() && poller.rota.waiting() == 0 && !clearing::is_clearing(poller)
}

/// Whether nothing has rung since the receiver was prepared to sleep: its lanes have been empty since, but for the waiting ones.
pub(super) fn still_sleeps(poller: &mut Poller) -> bool {
    let sleep = Group::sleep(poller.receiver);
    // Relaxed: what is posted at this moment is no older than this look.
    let stands = |group: &Arc<Group>| group.bells.load(sleep, Ordering::Relaxed) != word::AWAKE;
    // Processes of other users take no announcement.
    is_idle(poller)
        && poller.groups.iter().all(stands)
        && !any_link_rang(poller)
        && !clearing::has_left(poller)
        && !have_lists_changed(poller)
}

pub(super) fn any_link_rang(poller: &mut Poller) -> bool {
    let receiver = poller.receiver;
    if poller.pinned.is_some() {
        return pinned::any_known_rang(poller);
    }
    let mut rang = Vec::new();
    for (place, group) in poller.groups.iter().enumerate() {
        let found =
            group.any_link(|_, link| bell::link_rang(&link.region, link.calls.other(), receiver));
        if let Some(index) = found {
            rang.push((place, index));
        }
    }
    for (group, index) in &rang {
        answer_link(poller, *group, *index);
    }
    !rang.is_empty()
}

/// Whether links have come to other groups, or have ended.
pub(super) fn have_lists_changed(poller: &Poller) -> bool {
    // Acquire: pairs with the Release of the threads that change the lists.
    group::of(&poller.process).version() != poller.seen.groups
        || poller.process.deaths.load(Ordering::Acquire) != poller.seen.deaths
}

/// Takes up the lanes of all links that rang, whatever the bells say.
pub(crate) fn hear_all(poller: &mut Poller) {
    let mut rang = Vec::new();
    for (place, group) in poller.groups.iter().enumerate() {
        let _ = group.any_link(|index, link| {
            if bell::link_rang(&link.region, link.calls.other(), poller.receiver) {
                rang.push((place, index));
            }
            false
        });
    }
    for (group, index) in rang {
        answer_link(poller, group, index);
    }
}

/// The groups whose bells this receiver sleeps in.
pub(crate) fn groups(poller: &Poller) -> Arc<[Arc<Group>]> {
    poller.groups.clone()
}

#[cold]
fn answer_bell(poller: &mut Poller, group: usize) {
    let (groups, receiver) = (poller.groups.clone(), poller.receiver);
    bell::take(&groups[group].bells, receiver, |index| {
        answer_link(poller, group, index);
    });
}

pub(super) fn answer_link(poller: &mut Poller, group: usize, index: u32) {
    if poller.pinned.is_some() && pinned::answer_known(poller, group, index) {
        return;
    }
    if let Some(link) = poller.groups[group].link(index) {
        rung::hear_link(poller, &link);
    }
}

#[cfg(test)]
mod tests {
    use crate::poller::idle;

    use crate::Node;
    use crate::polling;
    use handfast_wait::word;

    /// One that has counted the nudges after the last one of a shutdown, having looked before it.
    #[test]
    fn no_receiver_goes_to_sleep_once_its_node_is_shut_down() {
        let node = Node::builder().start().unwrap();
        let port = node.anonymous().unwrap();
        node.shutdown();
        let at = &port.port().at;
        let handed = at.handed.count();
        let mut poller = polling::lock(at);
        // The first looks follow what the shutdown has ended.
        let slept = (0..16).any(|_| idle::prepare_sleep(&mut poller, word::ASLEEP));
        assert!(!slept);
        assert_eq!(
            at.handed.count(),
            handed,
            "nothing else would end the sleep"
        );
    }
}
