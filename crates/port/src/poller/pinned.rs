//! The receivers of a port that is served on every CPU: each has its own poller for the messages of one port.
//!
//! Between a message and its answer such a poller takes no lock that others take, and writes to nothing that others
//! write to. So it has its own list of the links that may ring, and publishes late what it has counted for them.

use super::{Poller, rung};
use crate::link::Link;
use crate::link::group::Group;
use core::sync::atomic::Ordering;
use handfast_channel::bell;
use handfast_layout::bell::LINKS;
use handfast_layout::link::LANES;
use handfast_proto::rota::Key;
use handfast_proto::rota::Rota;
use handfast_region::Memory;
use handfast_sys::clock;
use std::sync::Arc;

/// How late what was counted may be published: the row of a link is of all receivers.
const COUNTS_NS: u64 = 10_000_000;

#[derive(Default)]
pub(super) struct Pinned {
    /// By trust group.
    groups: Vec<Known>,
    /// No thread looks here from now on.
    rests: bool,
    published_ns: u64,
}

/// The links of a group, as they were.
struct Known {
    version: u32,
    links: Vec<(u32, Arc<Link>)>,
}

impl Known {
    fn of(group: &Group) -> Self {
        // Before the list: a thread that finds this number later has the links that were there then.
        let version = group.version();
        let links = group.all_links();
        Self { version, links }
    }
}

/// From now on it takes what is sent to `port`, from threads of its own CPU.
pub(crate) fn works_for(poller: &mut Poller, port: u32) {
    poller.port = port;
    poller.pinned = Some(Box::default());
    // Its clients wait for the CPU by themselves: all may be active, and none takes a turn of another's.
    poller.clients.cap = LINKS as usize * LANES as usize;
    poller.rota = Rota::new(poller.clients.cap);
}

/// Whether its thread goes, or only sleeps.
pub(super) fn rests(poller: &mut Poller, rests: bool) {
    if let Some(pinned) = &mut poller.pinned {
        pinned.rests = rests;
    }
}

/// Whether what was counted is not published yet.
pub(super) fn counts_wait(poller: &mut Poller) -> bool {
    let Some(pinned) = &mut poller.pinned else {
        return false;
    };
    let now_ns = clock::ticks_ns();
    if !pinned.rests && now_ns.saturating_sub(pinned.published_ns) < COUNTS_NS {
        return true;
    }
    pinned.published_ns = now_ns;
    false
}

/// Groups have come or gone: the known state is of groups in their old places.
#[cold]
pub(super) fn forget_groups(poller: &mut Poller) {
    if let Some(pinned) = &mut poller.pinned {
        pinned.groups.clear();
    }
}

/// Links have ended: state known of others is not kept for them.
#[cold]
pub(super) fn forget_links(poller: &mut Poller) {
    let Some(pinned) = &mut poller.pinned else {
        return;
    };
    for (known, group) in pinned.groups.iter_mut().zip(&*poller.groups) {
        if known.version != group.version() {
            *known = Known::of(group);
        }
    }
}

/// As the scan of `idle::anything_rang`, of the links as they are now.
pub(super) fn any_known_rang(poller: &mut Poller) -> bool {
    let Some(mut pinned) = poller.pinned.take() else {
        return false;
    };
    pinned.groups.truncate(poller.groups.len());
    let mut rang = false;
    for (place, group) in poller.groups.clone().iter().enumerate() {
        if pinned.groups.len() == place {
            pinned.groups.push(Known::of(group));
        }
        let known = &mut pinned.groups[place];
        // Asked after the announcement: a link that is missing finds it, as in E4.
        if known.version != group.version() {
            *known = Known::of(group);
        }
        for (index, link) in &known.links {
            if bell::link_rang(&link.region, link.calls.other(), poller.receiver) {
                rang = true;
                if !answer_lanes(poller, link) {
                    answer_slowly(poller, place, *index);
                }
            }
        }
    }
    if pinned.rests {
        // Links that end meanwhile are kept by no thread.
        pinned.groups.clear();
    }
    poller.pinned = Some(pinned);
    rang
}

/// As `bells::answer_link`, where all lanes that rang are known.
pub(super) fn answer_known(poller: &mut Poller, group: usize, index: u32) -> bool {
    let Some(pinned) = poller.pinned.take() else {
        return false;
    };
    let known = pinned.groups.get(group);
    let links = known.map_or(&[][..], |known| &known.links);
    let place = links.binary_search_by_key(&index, |(index, _)| *index);
    let is_answered = place.is_ok_and(|place| {
        // Another may have its index by now: then what rang is not known.
        poller.groups[group].version() == known.map_or(0, |known| known.version)
            && answer_lanes(poller, &links[place].1)
    });
    poller.pinned = Some(pinned);
    is_answered
}

/// Takes up the lanes of a link that rang. `false`: not all of them are known, or it has ended.
fn answer_lanes(poller: &mut Poller, link: &Arc<Link>) -> bool {
    let (side, receiver) = (link.calls.other(), poller.receiver);
    // Relaxed: `take_lanes` synchronises.
    let rang = link.region.load(side.ready(receiver), Ordering::Relaxed);
    let is_known = |lane: &u32| known_key(poller, link, *lane).is_some();
    let mut lanes = (0..LANES).filter(|lane| rang & 1 << lane != 0);
    if link.is_down() || !lanes.all(|lane| is_known(&lane)) {
        return false;
    }
    let mut is_all = true;
    bell::take_lanes(&link.region, side, receiver, |lane| {
        match known_key(poller, link, lane) {
            Some(key) => rung::answer_key(poller, key),
            None => {
                // The lane has rung since the look.
                bell::note(&link.region, (side, lane), receiver);
                is_all = false;
            }
        }
    });
    is_all
}

fn answer_slowly(poller: &mut Poller, group: usize, index: u32) {
    if let Some(link) = poller.groups[group].link(index) {
        rung::hear_link(poller, &link);
    }
}

/// The key of a lane, if this receiver has seen it.
pub(super) fn known_key(poller: &Poller, link: &Arc<Link>, index: u32) -> Option<Key> {
    let noted: Key = link.incoming.key(index);
    let lane = poller.lanes.get(noted).and_then(Option::as_ref);
    let is_it = lane.is_some_and(|lane| lane.index == index && Arc::ptr_eq(&lane.link, link));
    is_it.then_some(noted)
}
