//! The receivers of a port that is served on every CPU: each has its own poller for the messages of one port.
//!
//! Between a message and its answer such a poller takes no lock that others take, and writes to nothing that others
//! write to. So it has its own list of the links that may ring, and publishes late what it has counted for them.

use super::Poller;
use crate::link::Link;
use crate::link::group::Group;
use core::sync::atomic::Ordering;
use handfast_channel::bell;
use handfast_layout::bell::LINKS;
use handfast_layout::link::LANES;
use handfast_proto::rota::{Key, Rota};
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

impl Poller {
    /// From now on it takes what is sent to `port`, from threads of its own CPU.
    pub(crate) fn works_for(&mut self, port: u32) {
        self.port = port;
        self.pinned = Some(Box::default());
        // Its clients wait for the CPU by themselves: all may be active, and none takes a turn of another's.
        self.clients.cap = LINKS as usize * LANES as usize;
        self.rota = Rota::new(self.clients.cap);
    }

    /// Whether its thread goes, or only sleeps.
    pub(super) fn rests(&mut self, rests: bool) {
        if let Some(pinned) = &mut self.pinned {
            pinned.rests = rests;
        }
    }

    /// Whether what was counted is not published yet.
    pub(super) fn counts_wait(&mut self) -> bool {
        let Some(pinned) = &mut self.pinned else {
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
    pub(super) fn forget_groups(&mut self) {
        if let Some(pinned) = &mut self.pinned {
            pinned.groups.clear();
        }
    }

    /// Links have ended: state known of others is not kept for them.
    #[cold]
    pub(super) fn forget_links(&mut self) {
        let Some(pinned) = &mut self.pinned else {
            return;
        };
        for (known, group) in pinned.groups.iter_mut().zip(&*self.groups) {
            if known.version != group.version() {
                *known = Known::of(group);
            }
        }
    }

    /// As the scan of [`Self::anything_rang`], of the links as they are now.
    pub(super) fn any_known_rang(&mut self) -> bool {
        let Some(mut pinned) = self.pinned.take() else {
            return false;
        };
        pinned.groups.truncate(self.groups.len());
        let mut rang = false;
        for (place, group) in self.groups.clone().iter().enumerate() {
            if pinned.groups.len() == place {
                pinned.groups.push(Known::of(group));
            }
            let known = &mut pinned.groups[place];
            // Asked after the announcement: a link that is missing finds it, as in E4.
            if known.version != group.version() {
                *known = Known::of(group);
            }
            for (index, link) in &known.links {
                if bell::link_rang(&link.region, link.calls.other(), self.receiver) {
                    rang = true;
                    if !self.answer_lanes(link) {
                        self.answer_slowly(place, *index);
                    }
                }
            }
        }
        if pinned.rests {
            // Links that end meanwhile are kept by no thread.
            pinned.groups.clear();
        }
        self.pinned = Some(pinned);
        rang
    }

    /// As [`Self::answer_link`], where all lanes that rang are known.
    pub(super) fn answer_known(&mut self, group: usize, index: u32) -> bool {
        let Some(pinned) = self.pinned.take() else {
            return false;
        };
        let known = pinned.groups.get(group);
        let links = known.map_or(&[][..], |known| &known.links);
        let place = links.binary_search_by_key(&index, |(index, _)| *index);
        let is_answered = place.is_ok_and(|place| {
            // Another may have its index by now: then what rang is not known.
            self.groups[group].version() == known.map_or(0, |known| known.version)
                && self.answer_lanes(&links[place].1)
        });
        self.pinned = Some(pinned);
        is_answered
    }

    /// Takes up the lanes of a link that rang. `false`: not all of them are known, or it has ended.
    fn answer_lanes(&mut self, link: &Arc<Link>) -> bool {
        let (side, receiver) = (link.calls.other(), self.receiver);
        // Relaxed: `take_lanes` synchronises.
        let rang = link.region.load(side.ready(receiver), Ordering::Relaxed);
        let is_known = |lane: &u32| self.known_key(link, *lane).is_some();
        let mut lanes = (0..LANES).filter(|lane| rang & 1 << lane != 0);
        if link.is_down() || !lanes.all(|lane| is_known(&lane)) {
            return false;
        }
        let mut is_all = true;
        bell::take_lanes(&link.region, side, receiver, |lane| {
            match self.known_key(link, lane) {
                Some(key) => self.answer_key(key),
                None => {
                    // The lane has rung since the look.
                    bell::note(&link.region, (side, lane), receiver);
                    is_all = false;
                }
            }
        });
        is_all
    }

    fn answer_slowly(&mut self, group: usize, index: u32) {
        if let Some(link) = self.groups[group].link(index) {
            self.hear_link(&link);
        }
    }

    /// The key of a lane, if this receiver has seen it.
    pub(super) fn known_key(&self, link: &Arc<Link>, index: u32) -> Option<Key> {
        let noted: Key = link.incoming.key(index);
        let lane = self.lanes.get(noted).and_then(Option::as_ref);
        let is_it = lane.is_some_and(|lane| lane.index == index && Arc::ptr_eq(&lane.link, link));
        is_it.then_some(noted)
    }
}
