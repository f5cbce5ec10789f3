//! A thread's sleep until an outcome comes, as the process that answers sees it.

use crate::elsewhere::Elsewhere;
use crate::link::Link;
use crate::slots::SLOTS_PER_LANE;
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_channel::reply::Slot;
use handfast_channel::stamped_after;
use handfast_layout::link::REPLIES;
use handfast_region::Region;
use handfast_wait::place::{Parked, Sleep, Start};
use handfast_wait::word;
use std::sync::Arc;

/// A sleep that is announced in the slot of an outcome. To be taken back by [`Self::withdraw`].
pub(crate) struct Announced<'a> {
    link: &'a Arc<Link>,
    slot: Slot,
    index: u32,
    how: u32,
    /// The count of what had happened to the link before.
    roused: u32,
    elsewhere: Elsewhere,
    notified: u32,
}

impl<'a> Announced<'a> {
    /// Announces a sleep in slot `index` of the calls made through `link`; and where the outcome is expected instead, if `follows`. The
    /// caller looks once more before it sleeps.
    pub(crate) fn new(link: &'a Arc<Link>, index: u32, how: Sleep, follows: bool) -> Self {
        let slot = Slot::of(link.calls, index);
        // AcqRel: the control thread looks after this thread while it is not zero.
        parked(link, index).fetch_add(1, Ordering::AcqRel);
        if index >= REPLIES {
            link.returns().sleeps(slot.wait());
        }
        watch(link, index);
        let roused = link.waiters.roused.count();
        let notified = crate::arrivals::epoch();
        let how = match how {
            Sleep::Notify if crate::arrivals::is_active() => word::DESCRIPTOR,
            // Without a handler no signal would end the sleep.
            Sleep::Notify | Sleep::Block => word::ASLEEP,
        };
        let elsewhere = match how {
            word::ASLEEP if follows => Elsewhere::of(link, index),
            _ => Elsewhere::nowhere(),
        };
        elsewhere.announce((link, slot));
        // A peer that answers fences before it looks at the word, or is made to (`bell::fence_for_sleep`).
        word::announce(&link.region, slot.wait(), how);
        Self {
            link,
            slot,
            index,
            how,
            roused,
            elsewhere,
            notified,
        }
    }

    /// The words in which a thread sleeps that sleeps in others, too, and follows to no other place.
    pub(crate) fn words(&self) -> [(&Region, usize, u32); 2] {
        let own = self.link.waiters.roused.word(self.roused);
        [(&self.link.region, self.slot.wait(), self.how), own]
    }

    /// Sleeps. One system call, or two.
    fn park(&self, deadline_ns: Option<u64>) {
        if self.how == word::ASLEEP {
            let at = (&**self.link, self.slot.wait());
            self.elsewhere.park(at, self.roused, deadline_ns);
        } else {
            let _ = crate::arrivals::wait(self.notified, deadline_ns);
        }
    }

    /// Takes the announcement back.
    pub(crate) fn withdraw(self) {
        let (link, slot) = (self.link, self.slot);
        word::withdraw(&link.region, slot.wait());
        self.elsewhere.withdraw();
        if self.index >= REPLIES {
            link.returns().wakes(slot.wait());
        }
        parked(link, self.index).fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sleeps until the outcome of `generation` may be there, or `until` that time. `look` says whether; it is asked before the sleep and
/// after. `hopes`: how often that may yet be an answer elsewhere ([`HOPES`](crate::elsewhere::HOPES)).
pub(crate) fn sleep(
    (link, index, generation): (&Arc<Link>, u32, u32),
    (how, start): (Sleep, Option<Start>),
    hopes: &mut u8,
    look: impl Fn() -> bool,
    until: impl FnOnce() -> Option<u64>,
) -> Parked {
    let announced = Announced::new(link, index, how, *hopes > 0);
    let until_ns = until();
    let start_ns = start.map(Start::now_ns);
    if look() {
    } else if announced.elsewhere.is_answered(generation) {
        // The peer that may say so does it only when the outcome has been moved there: soon, or never.
        *hopes -= 1;
    } else {
        announced.park(until_ns);
    }
    let slot = announced.slot;
    announced.withdraw();
    let stamp = |start_ns| stamped_after(&link.region, slot.stamp(), start_ns);
    Parked {
        ready: look(),
        posted_after_ns: start_ns.map(stamp).filter(|after_ns| *after_ns > 0),
    }
}

/// Has the control thread look after the sleep.
fn watch(link: &Link, index: u32) {
    match link.slots.get(index as usize) {
        Some(slot) => {
            slot.enter();
            link.process.watch_caller();
        }
        // A call that is passed on has its slot elsewhere.
        None => link.process.watch_sleepers(),
    }
}

/// The count of those that sleep until an outcome comes to a slot.
fn parked(link: &Link, index: u32) -> &AtomicU32 {
    link.waiters.parked.of(match index < REPLIES {
        true => index / SLOTS_PER_LANE,
        false => 0,
    })
}
