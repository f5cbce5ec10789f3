//! Sleeping also where an outcome is expected to come: a caller whose last call was passed on is woken once, by
//! the process that answers, and not also by those that pass it on.
//!
//! The caller writes into each slot the number of the path that it expects the outcome to be moved to, and
//! announces its sleep at the end of that path as well. A process that moves the outcome there leaves the
//! caller asleep.

use crate::link::Link;
use crate::paths::{self, Path};
use crate::port::receiver::{park, park_at};
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_layout::link::REPLIES;
use handfast_proto::paths::Source;
use handfast_wait::word;
use std::sync::Arc;

/// Moves that are expected one after the other.
const STEPS_MAX: usize = 4;

/// Looks at an answer elsewhere for which the word that it has been moved there is missing: soon it comes,
/// or the answer is not meant.
pub(crate) const HOPES: u8 = 200;

/// Where an outcome is expected to come instead, in turn; and what had happened to the links there
/// ([`Waiters::roused`](crate::link::rouse::Waiters::roused)).
pub(crate) struct Elsewhere(Vec<(Arc<Path>, Slot, u32)>);

impl Elsewhere {
    /// Where the outcome awaited in slot `index` of the calls made through `link` is expected, by where this
    /// thread's outcomes came last.
    pub(crate) fn of(link: &Link, index: u32) -> Self {
        let mut steps: Vec<(Arc<Path>, Slot, u32)> = Vec::new();
        let mut source = Source {
            link: link.serial,
            set: index / REPLIES,
        };
        while steps.len() < STEPS_MAX
            && let Some(path) = paths::expected(source)
        {
            let index = path.slot_of(index % REPLIES);
            source = Source {
                link: path.link.serial,
                set: index / REPLIES,
            };
            let slot = Slot::of(path.link.calls, index);
            let roused = path.link.waiters.roused.count();
            steps.push((path, slot, roused));
        }
        Self(steps)
    }

    pub(crate) const fn nowhere() -> Self {
        Self(Vec::new())
    }

    /// Announces the sleep there, and says at the slot `at`, where it is announced next, that it is.
    pub(crate) fn announce(&self, (link, at): (&Link, Slot)) {
        let mut before = (link, at);
        for (path, slot, _) in &self.0 {
            let link = &path.link;
            // AcqRel: the control thread looks after this thread while it is not zero.
            link.waiters.parked.of(0).fetch_add(1, Ordering::AcqRel);
            link.returns().sleeps(slot.wait());
            before.1.expect(&before.0.region, path.number());
            word::announce(&link.region, slot.wait(), word::ASLEEP);
            before = (link, *slot);
        }
        before.1.expect(&before.0.region, 0);
    }

    /// Whether the outcome is there, and only the word of that is missing.
    pub(crate) fn is_answered(&self, generation: u32) -> bool {
        let mut steps = self.0.iter();
        steps.any(|(path, slot, _)| slot.is_answered(&path.link.region, generation))
    }

    /// Sleeps in the word of `link` at `at` and there. One system call, or two.
    pub(crate) fn park(&self, (link, at): (&Link, usize), roused: u32, deadline_ns: Option<u64>) {
        if self.0.is_empty() {
            return park_at((link, at), roused, deadline_ns);
        }
        let own = [(link, at, roused)].into_iter();
        let there = self.0.iter();
        let there = there.map(|(path, slot, roused)| (&**path.link, slot.wait(), *roused));
        let words = own.chain(there).flat_map(|(link, at, roused)| {
            [
                (&link.region, at, word::ASLEEP),
                link.waiters.roused.word(roused),
            ]
        });
        park(words, deadline_ns);
    }

    /// Takes the announcements back.
    pub(crate) fn withdraw(self) {
        for (path, slot, _) in self.0 {
            let link = &path.link;
            word::withdraw(&link.region, slot.wait());
            link.returns().wakes(slot.wait());
            link.waiters.parked.of(0).fetch_sub(1, Ordering::AcqRel);
        }
    }
}
