//! A lane as its receiver sees it, and wake-ups of those at its other end.

use super::state::Awaits;
use crate::link::Link;
use crate::link::hearing::Hearing;
use crate::link::wake::wake_producer;
use crate::request::Received;
use crate::seal::Seal;
use core::sync::atomic::Ordering;
use handfast_channel::arm;
use handfast_channel::reply::Slot;
use handfast_layout::link::Kind;
use handfast_layout::link::REPLIES;
use handfast_region::Memory;
use handfast_ring::Fault;
use handfast_ring::Rule;
use handfast_ring::lane::Consumer;
use handfast_ring::lane::Place;
use handfast_wait::word;

/// A lane this receiver has seen.
pub(super) struct Lane {
    pub(super) link: Hearing,
    /// For the next request: only what differs from the last one is written.
    pub(super) spare: Option<Box<Received>>,
    /// As that, for messages with reply rights that were passed on.
    pub(super) passed: Option<Box<Received>>,
    /// Position at which a lane whose link is down is left, whatever messages it still holds.
    pub(super) end: Option<u32>,
    pub(super) index: u32,
    pub(super) consumer: Consumer,
    /// Reply slots below are there, whatever their callers do.
    pub(super) slots: u32,
    /// Position up to which the counters know its messages.
    pub(super) counted: u32,
    /// The right its last message came through, the right's seal, and how many rights of the link had ended
    /// when it was looked up.
    pub(super) word: u64,
    pub(super) seal: Seal,
    pub(super) ended: u32,
    /// Position at the last quiet check; a lane that is still there has been quiet.
    pub(super) checked: u32,
    /// Posts to it are not fenced at present (E12).
    pub(super) streaming: bool,
    /// Its first message waits until then, by `Waiting::patience`.
    pub(super) until_ns: Option<u64>,
    /// The lane is one of `Poller::waiting`.
    pub(super) waits: bool,
    pub(super) awaits: Awaits,
    /// For a dead link: when its messages stop waiting, however many there are.
    pub(super) ends_ns: Option<u64>,
    /// A call came since the last quiet check.
    pub(super) called: bool,
    /// When its client was last woken; it may take a while to run.
    pub(super) woken_ns: u64,
    /// Reply slots whose callers wait for their turn to be woken.
    pub(super) wakes: Vec<Slot>,
}

impl Lane {
    /// A lane from which this receiver has taken nothing yet.
    pub(super) fn new(link: Hearing, index: u32, consumer: Consumer) -> Self {
        let position = consumer.position();
        let slots = match link.region.looks_for_pages() {
            true => 0,
            false => REPLIES,
        };
        Self {
            link,
            spare: None,
            passed: None,
            until_ns: None,
            waits: false,
            awaits: Awaits::Claim,
            ends_ns: None,
            end: None,
            index,
            consumer,
            slots,
            counted: position,
            word: NO_RIGHT,
            seal: Seal::default(),
            ended: 0,
            streaming: false,
            called: false,
            woken_ns: 0,
            checked: position.wrapping_sub(1),
            wakes: Vec::new(),
        }
    }
}

/// In the place of a right, above all of them.
pub(super) const NO_RIGHT: u64 = u64::MAX;

impl Lane {
    /// The right its last message came through, unless it may have ended since; or what no message
    /// can name.
    #[inline(always)]
    pub(super) fn usual(&self) -> u64 {
        // Acquire: pairs with `give_back::finish`.
        if self.ended == self.link.rights.ended.load(Ordering::Acquire) {
            self.word
        } else {
            NO_RIGHT
        }
    }

    /// The reply slot of the call that waits, if one does, and its generation there; none in which an answer would cost pages.
    pub(super) fn waiting_slot(&self) -> Option<(Slot, u32)> {
        let (header, _) = self.consumer.peek(&self.link.region).ok()?;
        let index = header.reply;
        let is_call = header.kind == Kind::Call && index < REPLIES;
        let is_there = is_call && (index < self.slots || self.link.find_slot(index).is_ok());
        is_there.then(|| (Slot::of(self.link.calls.other(), index), header.generation))
    }

    /// Sees that a call can be answered in a reply slot: it is one, and its caller has made it.
    #[cold]
    pub(super) fn find_slot(&self, index: u32) -> Result<(), Fault> {
        if index < REPLIES {
            return self.link.find_slot(index);
        }
        let offset = self.consumer.place().head();
        let rule = Rule::ReplySlot;
        Err(Fault { rule, offset })
    }
}

/// After a head was published: wakes a producer that waits for room, if it is seen at once.
#[inline(always)]
pub(super) fn wake_for_room(link: &Link, place: Place) {
    // Relaxed: a hint; `arm` looks after a fence.
    if link.region.load(place.space(), Ordering::Relaxed) != word::AWAKE {
        wake_producer(link, place);
    }
}

impl Lane {
    /// Arms it. `false` when a message was there after all.
    pub(super) fn arm(&mut self) -> bool {
        if core::mem::take(&mut self.streaming) {
            return arm::arm_after_stream(&self.link.region, &mut self.consumer);
        }
        arm::arm(&self.link.region, &mut self.consumer)
    }

    /// Its client has been woken, and has not posted since.
    pub(super) fn woke(&mut self, now_ns: u64) {
        self.woken_ns = now_ns;
        self.checked = self.consumer.position();
    }

    /// As [`Self::count`], which the link's row says, too.
    pub(super) fn count_for_link(&mut self) -> u64 {
        let taken = self.count();
        // The row of a link that has ended may be another's by now.
        if taken > 0 && !self.link.is_down() {
            self.link.row.add(3, taken);
        }
        taken
    }

    /// Messages taken since this was last asked.
    pub(super) fn count(&mut self) -> u64 {
        let position = self.consumer.position();
        let taken = position.wrapping_sub(self.counted);
        self.counted = position;
        taken.into()
    }
}
