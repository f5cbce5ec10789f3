//! Reply slots: where a call's one outcome is written, and where its caller waits.
//!
//! The caller reserves the slot with the call, so the callee never waits for room.
//! A generation tells a late reply from the one waited for; a slot whose caller gave up is not
//! used again before its reply has come, so a late reply never writes under a later call.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::link::{
    INLINE_BYTES, Kind, Meta, REPLY_BUFFER_BYTES, Side, UNIT_BYTES, UNITS_MAX, reply,
};
use handfast_region::{Bytes, Memory, Region};
use handfast_ring::lane::{Sink, Unit, copy_to};
use handfast_ring::{Fault, Rule};
use handfast_wait::word;

/// Where a reply slot and its buffer lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    side: Side,
    index: u32,
    at: usize,
}

impl Slot {
    /// Reply slot `index` of `side`.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub const fn of(side: Side, index: u32) -> Self {
        Self {
            side,
            index,
            at: side.reply(index),
        }
    }

    /// Offset of the buffer for what does not fit inline.
    const fn buffer(self) -> usize {
        self.side.reply_buffer(self.index)
    }

    /// Offset of the caller's wait word.
    #[must_use]
    pub const fn wait(self) -> usize {
        self.at + reply::WAIT
    }

    /// Offset of the wait word of a callee that wants to hear when the call is given up.
    #[must_use]
    pub const fn watch_word(self) -> usize {
        self.at + reply::WATCH
    }

    /// Offset of the word that says which call was given up.
    #[must_use]
    pub const fn cancel_word(self) -> usize {
        self.at + reply::CANCEL
    }

    /// Offset of the waker's time stamp.
    #[must_use]
    pub const fn stamp(self) -> usize {
        self.at + reply::STAMP
    }

    /// Offset of the inline bytes.
    #[must_use]
    pub const fn inline_bytes(self) -> usize {
        self.at + reply::BYTES
    }

    /// Offsets of all words, for models.
    #[must_use]
    pub const fn words(self) -> [usize; 7] {
        [
            self.at + reply::GENERATION,
            self.at + reply::META,
            self.at + reply::CPU,
            self.at + reply::WAIT,
            self.at + reply::STAMP,
            self.at + reply::DEFER,
            self.at + reply::EXPECTED,
        ]
    }

    /// Caller: has the slot and its buffer be there, for whatever the outcome is. Page faults at the first use of the
    /// slot between users, and nothing else.
    #[cold]
    pub fn make(self, region: &Region) {
        region.make(self.at, reply::BYTES_ALL);
        region.make_bytes(self.buffer(), REPLY_BUFFER_BYTES);
    }

    /// Callee: whether the caller has done so. A system call or two at the first use of the slot between users.
    #[cold]
    #[must_use]
    pub fn is_there(self, region: &Region) -> bool {
        region.is_there(self.at, reply::BYTES_ALL)
            && region.is_there(self.buffer(), REPLY_BUFFER_BYTES)
    }

    /// Callee: writes and publishes the outcome of call `generation`. One copy; no system call,
    /// no fence. Whether the caller must be woken is looked at next, after a fence.
    ///
    /// # Panics
    /// If `bytes` is longer than a message can be.
    #[inline(always)]
    pub fn answer(self, memory: &impl Memory, generation: u32, kind: Kind, cpu: u32, bytes: &[u8]) {
        self.answer_described(memory, (generation, kind, cpu), (bytes, &[]));
    }

    /// As [`Self::answer`], with units that describe the reply's parts.
    ///
    /// # Panics
    /// If `bytes` is longer than a message can be, or there are more units than it can have.
    #[inline(always)]
    pub fn answer_described(
        self,
        memory: &impl Memory,
        (generation, kind, cpu): (u32, Kind, u32),
        (bytes, units): (impl Bytes, &[Unit]),
    ) {
        let len_bytes = bytes.len_bytes();
        assert!(len_bytes <= handfast_layout::MESSAGE_BYTES_MAX && units.len() <= UNITS_MAX);
        let outside = len_bytes + units.len() * UNIT_BYTES > INLINE_BYTES;
        let to = if outside {
            bytes.copy_many_to(memory, self.buffer());
            self.buffer()
        } else {
            bytes.copy_to(memory, self.inline_bytes());
            self.inline_bytes()
        };
        if !units.is_empty() {
            memory.copy_in(to + len_bytes, units.as_flattened());
        }
        let meta = Meta {
            len_bytes: len_bytes as u32,
            outside,
            kind,
            units: units.len() as u32,
            cpu,
        };
        // Relaxed, both: published by the generation (E6).
        memory.store(self.at + reply::META, meta.pack(), Relaxed);
        memory.store(self.at + reply::CPU, cpu, Relaxed);
        // E6 reply, store half. Release: the outcome above is visible to the caller that observes
        // this generation, and so is that its request was taken. Load half: `is_answered`.
        memory.store(self.at + reply::GENERATION, generation, Release);
    }

    /// Callee: tells the caller that its call waits its turn, so that it stops spinning.
    pub fn defer(self, memory: &impl Memory, generation: u32) {
        // Relaxed: a hint.
        memory.store(self.at + reply::DEFER, generation, Relaxed);
    }

    /// Callee: whether the caller has announced a sleep. A hint the caller writes.
    #[must_use]
    pub fn is_asleep(self, memory: &impl Memory) -> bool {
        // Relaxed: a hint.
        memory.load(self.wait(), Relaxed) != word::AWAKE
    }

    /// Caller: whether the outcome of call `generation` is there. One load of a line that is
    /// cached until the callee writes it.
    #[inline(always)]
    #[must_use]
    pub fn is_answered(self, memory: &impl Memory, generation: u32) -> bool {
        // E6 reply, load half. Acquire: the outcome may be copied out. Store half: `answer_described`.
        memory.load(self.at + reply::GENERATION, Acquire) == generation
    }

    /// Caller: whether the outcome is one that nothing is lost with when nobody takes it. Call only
    /// after [`Self::is_answered`].
    #[must_use]
    pub fn is_plain(self, memory: &impl Memory) -> bool {
        // Relaxed: ordered by the Acquire in `is_answered` (E6).
        let meta = Meta::unpack(memory.load(self.at + reply::META, Relaxed));
        meta.is_none_or(|meta| meta.units == 0 && meta.kind != Kind::MOVED)
    }

    /// Caller: whether the outcome says that it has parts. Call only after [`Self::is_answered`].
    #[must_use]
    pub fn has_parts(self, memory: &impl Memory) -> bool {
        // Relaxed: ordered by the Acquire in `is_answered` (E6).
        let meta = Meta::unpack(memory.load(self.at + reply::META, Relaxed));
        meta.is_some_and(|meta| meta.units > 0)
    }

    /// Caller: of which call an outcome is there; zero for none.
    #[must_use]
    pub fn generation(self, memory: &impl Memory) -> u32 {
        // E6 reply, load half. Acquire: as in `is_answered`.
        memory.load(self.at + reply::GENERATION, Acquire)
    }

    /// Callee: writes and publishes that the outcome of call `generation` comes by `path`.
    #[inline]
    pub fn move_on(self, memory: &impl Memory, generation: u32, path: u32) {
        let meta = Meta {
            len_bytes: size_of_val(&path) as u32,
            outside: false,
            kind: Kind::MOVED,
            units: 0,
            cpu: 0,
        };
        // Relaxed, both: published by the generation (E6).
        memory.store(self.inline_bytes(), path, Relaxed);
        memory.store(self.at + reply::META, meta.pack(), Relaxed);
        // E6 reply, store half. Release: as in `answer_described`.
        memory.store(self.at + reply::GENERATION, generation, Release);
    }

    /// Caller: the path by which the outcome comes instead. Call only after [`Self::is_answered`].
    #[must_use]
    pub fn moved(self, memory: &impl Memory) -> Option<u32> {
        // Relaxed, both: ordered by the Acquire in `is_answered` (E6).
        let meta = Meta::unpack(memory.load(self.at + reply::META, Relaxed))?;
        let is_moved = meta.kind == Kind::MOVED && meta.len_bytes == 4 && !meta.outside;
        is_moved.then(|| memory.load(self.inline_bytes(), Relaxed))
    }

    /// Caller: about to announce a sleep that the answerer at the end of `path` ends as well; zero for
    /// none.
    pub fn expect(self, memory: &impl Memory, path: u32) {
        // Relaxed: published by the fence of the announcement that follows (E4).
        memory.store(self.at + reply::EXPECTED, path, Relaxed);
    }

    /// Callee, after [`Self::move_on`] and a fence: whether the caller has to be woken.
    #[must_use]
    pub fn must_wake(self, memory: &impl Memory, path: u32) -> bool {
        // Relaxed, both: ordered after the announcement, if that is seen, as it was made (E4). A caller that lies
        // sleeps on.
        let how = memory.load(self.wait(), Relaxed);
        how != word::AWAKE
            && (how != word::ASLEEP || memory.load(self.at + reply::EXPECTED, Relaxed) != path)
    }

    /// Callee: takes away what a former user of the slot has left, whose generations were others.
    pub fn clear(self, memory: &impl Memory) {
        // Relaxed: the caller looks here only once it has been told of the slot's new use.
        memory.store(self.at + reply::GENERATION, 0, Relaxed);
    }

    /// Caller: nobody waits for the outcome of call `generation` any more. Returns whether the callee
    /// waits for that, so that its control thread must be rung.
    #[must_use]
    pub fn cancel(self, memory: &impl Memory, generation: u32) -> bool {
        // Relaxed: all that is said; ordered by the fence.
        memory.store(self.at + reply::CANCEL, generation, Relaxed);
        // E14 give-up, caller half. Store-load fence, in there. Pairs with the fence of `watch`: either the
        // announcement is seen here, or the callee sees that the call was given up.
        word::fence_then_taken(memory, self.watch_word()).is_some()
    }

    /// Callee: wants to hear when the call is given up. Whether it has been is looked at next. Nobody
    /// takes this back: at worst a caller rings for nothing, once.
    pub fn watch(self, memory: &impl Memory) {
        // E14 give-up, callee half. Store-load fence, in there. Pairs with the fence of `cancel`. The thread to
        // be woken has been entered before.
        word::announce(memory, self.watch_word(), word::DESCRIPTOR);
    }

    /// Caller: nothing that a former user of the slot has said holds for the next one.
    pub fn forget(self, memory: &impl Memory) {
        // Relaxed, both: published with what tells the callee of the slot's new use.
        memory.store(self.at + reply::CANCEL, 0, Relaxed);
        memory.store(self.at + reply::DEADLINE_OF, 0, Relaxed);
    }

    /// Caller: until when it waits for the outcome of call `generation`. Before the call is posted.
    pub fn set_deadline(self, memory: &impl Memory, generation: u32, deadline_ns: u64) {
        // Relaxed, all three: published with the call (E1).
        memory.store(self.at + reply::DEADLINE_OF, generation, Relaxed);
        memory.store(self.at + reply::DEADLINE, deadline_ns as u32, Relaxed);
        memory.store(
            self.at + reply::DEADLINE + 4,
            (deadline_ns >> 32) as u32,
            Relaxed,
        );
    }

    /// Callee: until when the caller waits, if it has said so.
    #[must_use]
    pub fn deadline_ns(self, memory: &impl Memory, generation: u32) -> Option<u64> {
        // Relaxed, all three: as in `set_deadline`.
        let is_known = memory.load(self.at + reply::DEADLINE_OF, Relaxed) == generation;
        let half = |at| u64::from(memory.load(self.at + reply::DEADLINE + at, Relaxed));
        is_known.then(|| half(4) << 32 | half(0))
    }

    /// Callee: whether the caller has said so of call `generation`.
    #[must_use]
    pub fn is_cancelled(self, memory: &impl Memory, generation: u32) -> bool {
        // Relaxed: nothing else is said; after `watch`, ordered by its fence (E14).
        memory.load(self.at + reply::CANCEL, Relaxed) == generation
    }

    /// Caller: whether the callee has put call `generation` off.
    #[must_use]
    pub fn is_deferred(self, memory: &impl Memory, generation: u32) -> bool {
        // Relaxed: a hint.
        memory.load(self.at + reply::DEFER, Relaxed) == generation
    }

    /// Caller: as [`Self::take`], for an outcome without parts. `None` for others, and for one that
    /// breaks a rule.
    #[inline(always)]
    pub fn take_plain(self, memory: &impl Memory, sink: &mut impl Sink) -> Option<Meta> {
        // Relaxed: ordered by the Acquire in `is_answered` (E6).
        let meta = Meta::unpack_plain(memory.load(self.at + reply::META, Relaxed))?;
        (meta.kind != Kind::Call).then(|| self.copy(memory, meta, sink))
    }

    #[inline(always)]
    fn copy(self, memory: &impl Memory, meta: Meta, sink: &mut impl Sink) -> Meta {
        // Relaxed: as the other words.
        let cpu = memory.load(self.at + reply::CPU, Relaxed);
        let from = if meta.outside {
            self.buffer()
        } else {
            self.inline_bytes()
        };
        copy_to(memory, from, meta, sink);
        Meta { cpu, ..meta }
    }

    /// Caller: copies the outcome out. Call only after [`Self::is_answered`] said so. Returns
    /// the outcome's metadata.
    ///
    /// # Errors
    /// The rule the callee broke.
    pub fn take(self, memory: &impl Memory, sink: &mut impl Sink) -> Result<Meta, Fault> {
        let at = self.at + reply::META;
        // Relaxed: ordered by the Acquire in `is_answered` (E6).
        let Some(meta) = Meta::unpack(memory.load(at, Relaxed)) else {
            return Err(Fault {
                rule: Rule::MessageLength,
                offset: at,
            });
        };
        if meta.kind == Kind::Call {
            return Err(Fault {
                rule: Rule::ReplyKind,
                offset: at,
            });
        }
        Ok(self.copy(memory, meta, sink))
    }

    /// Caller: takes an outcome that is the bytes of one word, or that there is none. Call only after [`Self::is_answered`] said
    /// so. Nothing else is read or copied, whatever the outcome says that it has.
    ///
    /// # Errors
    /// The callee has written anything else.
    pub fn take_word(self, memory: &impl Memory) -> Result<Option<[u8; 4]>, Fault> {
        let at = self.at + reply::META;
        // Relaxed, both: ordered by the Acquire in `is_answered` (E6).
        let meta = Meta::unpack(memory.load(at, Relaxed));
        match meta.map(|meta| (meta.kind, meta.len_bytes, meta.outside, meta.units)) {
            Some((Kind::Message, 4, false, 0)) => {
                let word = memory.load(self.inline_bytes(), Relaxed);
                Ok(Some(word.to_le_bytes()))
            }
            Some((Kind::Dropped, 0, false, 0)) => Ok(None),
            _ => Err(Fault {
                rule: Rule::Introduction,
                offset: at,
            }),
        }
    }
}

#[cfg(test)]
mod model;
