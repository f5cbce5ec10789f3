//! A path, as its caller sees it.

use crate::link::Link;
use crate::link::held::Held;
use crate::paths;
use crate::slots::SlotState;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use handfast_layout::link::slot_of;
use handfast_proto::paths::Source;
use std::sync::{Arc, OnceLock, Weak};

/// Paths a thread remembers.
const REMEMBERED: usize = 8;

thread_local! {
    /// Paths by which outcomes of calls of this thread came. They keep none alive: a thread may never call
    /// again, and in a forked child they are the parent's.
    static LAST: [Cell<Option<Weak<Path>>>; REMEMBERED] = const {
        [const { Cell::new(None) }; REMEMBERED]
    };
}

const fn place(source: Source) -> usize {
    (source.link ^ source.set << 1) as usize % REMEMBERED
}

/// The one that this thread remembers at the place of `source`, if it is there still.
pub(super) fn remembered(source: Source) -> Option<Arc<Path>> {
    let found = LAST.try_with(|last| {
        let last = &last[place(source)];
        let weak = last.take()?;
        let path = weak.upgrade()?;
        last.set(Some(weak));
        Some(path)
    });
    found.ok().flatten()
}

/// The path by which the last outcome from `source` came to this thread.
pub(crate) fn expected(source: Source) -> Option<Arc<Path>> {
    let path = remembered(source)?;
    let is_it = path.source == source && !path.is_over() && !path.link.is_down();
    is_it.then_some(path)
}

/// Caller: a path it has granted, as long as a thread may wait in its set.
pub(crate) struct Path {
    /// With the replier.
    pub(crate) link: Held,
    pub(super) number: u32,
    pub(super) source: Source,
    pub(super) set: u32,
    /// Where its outcomes were awaited first: the link and whether in a slot of the link's own set.
    pub(super) root: Root,
    pub(super) is_over: AtomicBool,
    /// The outcomes that were awaited when it was over: slot and generation. Some calls may not have been told
    /// yet that they come by it.
    pub(super) last: OnceLock<Vec<(u32, u32)>>,
}

/// Reply slots or own return slots of a link of the caller's.
#[derive(Clone)]
pub(super) struct Root {
    pub(super) link: Weak<Link>,
    pub(super) is_own: bool,
}

impl Root {
    /// The outcomes awaited there: slot and generation.
    fn awaited(&self) -> Vec<(u32, u32)> {
        let Some(link) = self.link.upgrade() else {
            return Vec::new();
        };
        if self.is_own {
            return link.returns().in_use();
        }
        let calls = link.slots.iter().zip(0..);
        // A call whose slot is only claimed has not been made: its outcome will not come by a path that is
        // over, and its thread may keep it for ever.
        let is_made = |slot: &SlotState| {
            // Acquire, both: the claim of a call that is seen has been seen whole.
            let state = slot.state.load(Ordering::Acquire);
            let is_given_up = state == SlotState::ABANDONED && link.is_down();
            // No answer comes to a call that was given up where the link has ended.
            state != SlotState::FREE && state != SlotState::CLAIMED && !is_given_up
        };
        calls
            .filter(|(slot, _)| is_made(slot))
            .map(|(slot, index)| (index, slot.generation.load(Ordering::Acquire)))
            .collect()
    }
}

impl Path {
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// The slot for the outcome that slot `index` of the source's set awaits.
    pub(crate) const fn slot_of(&self, index: u32) -> u32 {
        slot_of(self.set, index)
    }

    /// The replier has said that nothing more comes, or is gone.
    pub(super) fn end(&self) {
        let _ = self.last.set(self.root.awaited());
        // Release: pairs with the Acquire in `is_over`.
        self.is_over.store(true, Ordering::Release);
    }

    /// For this thread's next call: it takes no lock.
    pub(super) fn remember(self: &Arc<Self>) {
        if self.is_over() {
            return;
        }
        // A thread that is ending remembers nothing.
        let _ = LAST.try_with(|last| last[place(self.source)].set(Some(Arc::downgrade(self))));
    }

    /// Whether no thread waits for outcomes that have come by it.
    pub(super) fn is_left(&self) -> bool {
        self.last.get().is_some_and(|last| {
            let awaited = self.root.awaited();
            !last.iter().any(|call| awaited.contains(call))
        })
    }

    /// Whether the replier has said that nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        // Acquire: its earlier answers are seen.
        self.is_over.load(Ordering::Acquire)
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        // The lock of a parent's table may be held by a thread that its child does not have.
        if self.link.is_forked() {
            return;
        }
        paths::callers(&self.link.process).core.left(self.number);
    }
}
