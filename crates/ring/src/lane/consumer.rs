//! The consuming half: finds messages, checks what they say of themselves, and copies them out.

use super::{Header, Inline, PREFETCH_AHEAD, Place, Sink, Target, copy_to};
use crate::{Fault, Rule};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::PAGE;
use handfast_layout::link::{ARENA_BYTES, Kind, Meta, SLOTS, UNIT_BYTES, slot, unpack_reply_word};
use handfast_region::Memory;

/// The message has parts, came through another right than the usual one, or breaks a rule;
/// [`Consumer::take`] takes it or says which. Without content, because passing the details on would
/// cost the messages that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusual;

/// The consuming half of a lane.
#[derive(Debug)]
pub struct Consumer {
    place: Place,
    head: u32,
    /// The position the producer knows; or so far back that it is due to be told.
    published: u32,
    /// Pages of the arena that are there; a bit each.
    there: u128,
}

/// Pages of an arena have a bit each.
const _: () = assert!(ARENA_BYTES.div_ceil(PAGE) <= 128);

/// The consumer publishes its head at least once per this many messages.
const PUBLISH_EVERY: u32 = 16;
/// The messages that [`Consumer::poll_many`] took.
#[derive(Debug, Default)]
pub struct Run {
    /// Messages before the last one picked.
    pub messages: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The one that was picked, in the place after theirs; or there is an unusual one.
    pub last: Option<Result<(Header, usize), Unusual>>,
}

impl Consumer {
    /// The consumer of an unused lane (all words zero).
    #[must_use]
    pub const fn new(place: Place) -> Self {
        Self::starting_at(place, 0)
    }

    /// A consumer that expects the given position first.
    #[must_use]
    pub const fn starting_at(place: Place, position: u32) -> Self {
        Self {
            place,
            head: position,
            published: position,
            there: u128::MAX,
        }
    }

    /// The same, of a producer whose messages may lie where no pages are: see [`Self::body_to_find`].
    #[must_use]
    pub const fn of_another_user(self) -> Self {
        Self { there: 0, ..self }
    }

    /// Where the bytes of the message lie that [`Self::peek`] has just told `meta` of, if pages of that have not been found
    /// yet: [`Self::found`] follows when they are there. Until then it is not taken.
    #[inline(always)]
    #[must_use]
    pub fn body_to_find(&self, memory: &impl Memory, meta: Meta) -> Option<(usize, usize)> {
        match meta.outside && self.there != u128::MAX {
            true => self.unknown_body(memory, meta),
            false => None,
        }
    }

    #[cold]
    fn unknown_body(&self, memory: &impl Memory, meta: Meta) -> Option<(usize, usize)> {
        let offset = memory.load(self.place.slot(self.head) + slot::ARENA, Relaxed) as usize;
        let body_bytes = meta.len_bytes as usize + meta.units as usize * UNIT_BYTES;
        (is_in_arena(offset, body_bytes) && !self.is_there(offset, body_bytes))
            .then(|| (self.place.arena() + offset, body_bytes))
    }

    /// Its pages are there, and stay.
    pub const fn found(&mut self, (at, len_bytes): (usize, usize)) {
        self.there |= pages(at - self.place.arena(), len_bytes);
    }

    #[inline(never)]
    const fn is_there(&self, offset: usize, len_bytes: usize) -> bool {
        self.there == u128::MAX || !self.there & pages(offset, len_bytes) == 0
    }

    /// Where the lane lies.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Position of the next message to take.
    #[must_use]
    pub const fn position(&self) -> u32 {
        self.head
    }

    /// Whether everything taken has been published.
    #[inline(always)]
    #[must_use]
    pub const fn has_published(&self) -> bool {
        self.published == self.head
    }

    /// Whether a message waits. One load of a line that is cached until the producer writes it.
    #[inline(always)]
    #[must_use]
    pub fn is_ready(&self, memory: &impl Memory) -> bool {
        // E1 publish, load half. Acquire, by `shows`: after this the words and bytes of the slot may be
        // copied. Store half: `Producer::post_described`.
        memory.shows(
            self.place.slot(self.head) + slot::SEQUENCE,
            self.head.wrapping_add(1),
        )
    }

    /// Starts fetching the line that [`Self::is_ready`] looks at. A hint.
    #[inline]
    pub fn prefetch(&self, memory: &impl Memory) {
        memory.prefetch(self.place.slot(self.head));
    }

    /// The header of the waiting message, without taking it. Call only after
    /// [`Self::is_ready`] said so.
    ///
    /// # Errors
    /// The rule the producer broke.
    #[inline(always)]
    pub fn peek(&self, memory: &impl Memory) -> Result<(Header, Meta), Fault> {
        let at = self.place.slot(self.head);
        Self::header(memory, at, Meta::unpack).ok_or(Fault {
            rule: Rule::MessageLength,
            offset: at + slot::META,
        })
    }

    /// A message that waits so many places behind the next one, without taking it, if one does: its header,
    /// and its bytes when it is inline and has no parts. It is taken in its turn like any other, and may say
    /// something else by then, if its producer is no honest one.
    #[cold]
    pub fn look_ahead(
        &self,
        memory: &impl Memory,
        places: u32,
        bytes: &mut Inline,
    ) -> Option<(Header, usize)> {
        let position = self.head.wrapping_add(places);
        let at = self.place.slot(position);
        // E1 publish, load half. As in `is_ready`.
        if places >= SLOTS || memory.load(at + slot::SEQUENCE, Acquire) != position.wrapping_add(1)
        {
            return None;
        }
        let (header, meta) = Self::header(memory, at, Meta::unpack)?;
        if meta.outside || meta.units > 0 {
            return Some((header, 0));
        }
        memory.copy_out(at + slot::BYTES, bytes);
        Some((header, meta.len_bytes as usize))
    }

    #[inline(always)]
    fn header(
        memory: &impl Memory,
        at: usize,
        unpack: impl Fn(u32) -> Option<Meta>,
    ) -> Option<(Header, Meta)> {
        // Ordered by the Acquire in `is_ready` (E1). In the order of their offsets.
        let [meta, port, reply, generation] = memory.load_words(at + slot::META);
        let meta = unpack(meta)?;
        let (reply, cpu) = match meta.kind {
            Kind::Call => unpack_reply_word(reply, meta.cpu),
            Kind::Message => (0, meta.cpu),
            Kind::PASSED | Kind::CONTROL => (reply, meta.cpu),
        };
        let header = Header {
            kind: meta.kind,
            port,
            reply,
            generation,
            units: meta.units,
            cpu,
        };
        Some((header, meta))
    }

    /// Copies the waiting message out and takes it. Call only after [`Self::is_ready`] said so, and
    /// [`Self::publish_due`] once what the message names has been looked up: the producer may take
    /// rights back that messages it knows to be taken have used.
    ///
    /// # Errors
    /// The rule the producer broke; the message is then not taken.
    #[inline(always)]
    pub fn take(
        &mut self,
        memory: &impl Memory,
        sink: &mut impl Sink,
    ) -> Result<(Header, usize), Fault> {
        let (header, meta) = self.peek(memory)?;
        let taken = self.take_peeked(memory, meta, sink);
        taken.map(|len_bytes| (header, len_bytes))
    }

    /// As [`Self::take`], of the message that [`Self::peek`] has just told `meta` of.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn take_peeked(
        &mut self,
        memory: &impl Memory,
        meta: Meta,
        sink: &mut impl Sink,
    ) -> Result<usize, Fault> {
        let (place, head) = (self.place, self.head);
        let at = place.slot(head);
        let taken = self.take_from(memory, (place, head, at), meta, sink);
        if meta.units > 0 && meta.kind != Kind::Call || meta.kind == Kind::CONTROL {
            // Its producer keeps the rights it has named until it knows that this was taken, and a receiver may not look again.
            // For a call, its answer says so.
            self.published = head.wrapping_sub(PUBLISH_EVERY);
        }
        taken.map_err(|rule| Fault {
            rule,
            offset: at + slot::ARENA,
        })
    }

    /// [`Self::is_ready`] and [`Self::take`] in one function, for the fast path. The caller calls
    /// [`Self::publish_due`] afterwards, as after [`Self::take`]. The slot's address is computed once, before the sequence
    /// word is read: the Acquire would make the compiler compute it again. Takes a message without parts that came
    /// through the `usual` right, the port word of the right that the lane's last message used. A value that is no port
    /// word matches no message.
    ///
    /// # Errors
    /// [`Unusual`] for any other message, which is then not taken.
    #[inline(always)]
    pub fn poll(
        &mut self,
        memory: &impl Memory,
        sink: &mut impl Sink,
        usual: u64,
    ) -> Option<Result<(Header, usize), Unusual>> {
        let (place, head) = (self.place, self.head);
        let at = place.slot(head);
        // E1 publish, load half. As in `is_ready`.
        if !memory.shows(at + slot::SEQUENCE, head.wrapping_add(1)) {
            return None;
        }
        let taken = Self::header(memory, at, Meta::unpack_plain)
            .filter(|(header, _)| u64::from(header.port) == usual)
            .and_then(|(header, meta)| {
                let taken = self.take_from(memory, (place, head, at), meta, sink);
                taken.ok().map(|len_bytes| (header, len_bytes))
            });
        Some(taken.ok_or(Unusual))
    }

    /// [`Self::poll`] for many, published but for the last one picked: takes messages into `places`
    /// one after the other, until none waits, the places are used up, an unusual one comes, or one
    /// that `is_last` picks, which is taken, too. It is not asked about one-way messages that lie in their slots.
    #[inline]
    pub fn poll_many(
        &mut self,
        memory: &impl Memory,
        places: &mut [impl Sink],
        usual: u64,
        mut is_last: impl FnMut(Header) -> bool,
    ) -> Run {
        let mut run = Run::default();
        loop {
            self.poll_short(memory, &mut places[run.messages..], usual, &mut run);
            let Some(place) = places.get_mut(run.messages) else {
                return run;
            };
            match self.poll(memory, place, usual) {
                None => return run,
                Some(Ok((header, len_bytes))) if !is_last(header) => {
                    self.publish_due(memory);
                    run.messages += 1;
                    run.bytes += len_bytes as u64;
                }
                last => {
                    run.last = last;
                    return run;
                }
            }
        }
    }

    /// The fast path of [`Self::poll_many`]: short one-way messages, which take few instructions and few stores each, so that the
    /// processor has many lines under way. Not inlined, so that registers suffice.
    #[inline(never)]
    fn poll_short(
        &mut self,
        memory: &impl Memory,
        places: &mut [impl Sink],
        usual: u64,
        run: &mut Run,
    ) {
        // In registers: what orders memory would make the compiler store and load it every time.
        let mut own = Self { ..*self };
        let mut bytes = 0;
        for sink in places {
            // The line of a later message comes while this one is copied: a look at a line that
            // is on its way takes longer than all the rest.
            memory.prefetch(own.place.slot(own.head.wrapping_add(PREFETCH_AHEAD)));
            let at = own.place.slot(own.head);
            let next = own.head.wrapping_add(1);
            // E1 publish, load half. As in `is_ready`.
            if !memory.shows(at + slot::SEQUENCE, next) {
                break;
            }
            // Ordered by the Acquire above (E1). In the order of their offsets.
            let [meta, port] = memory.load_words(at + slot::META);
            let len_bytes = match Meta::unpack_short(meta) {
                Some(len_bytes) if u64::from(port) == usual => len_bytes,
                _ => break,
            };
            if let Target::Inline(bytes) = sink.place(len_bytes as usize, true) {
                memory.copy_out(at + slot::BYTES, bytes);
            }
            // Commit point: from here on nothing fails.
            own.head = next;
            own.publish_due(memory);
            bytes += u64::from(len_bytes);
        }
        run.messages += own.head.wrapping_sub(self.head) as usize;
        run.bytes += bytes;
        *self = own;
    }

    #[inline(always)]
    fn take_from(
        &mut self,
        memory: &impl Memory,
        (place, head, at): (Place, u32, usize),
        meta: Meta,
        sink: &mut impl Sink,
    ) -> Result<usize, Rule> {
        let len_bytes = meta.len_bytes as usize;
        let mut from = at + slot::BYTES;
        if meta.outside {
            let offset = memory.load(at + slot::ARENA, Relaxed) as usize;
            let body_bytes = len_bytes + meta.units as usize * UNIT_BYTES;
            if !is_in_arena(offset, body_bytes) {
                return Err(Rule::ArenaBounds);
            }
            if !self.is_there(offset, body_bytes) {
                return Err(Rule::Untouched);
            }
            from = place.arena() + offset;
        }
        copy_to(memory, from, meta, sink);
        // Commit point: from here on nothing fails.
        self.head = head.wrapping_add(1);
        if meta.outside {
            // Its block is wanted back.
            self.published = head.wrapping_sub(PUBLISH_EVERY);
        }
        Ok(len_bytes)
    }

    /// Tells the producer what has been taken if it is time: every few messages, and after long
    /// ones. Returns whether it did.
    #[inline(always)]
    pub fn publish_due(&mut self, memory: &impl Memory) -> bool {
        if self.head.wrapping_sub(self.published) >= PUBLISH_EVERY {
            return self.publish_head(memory);
        }
        false
    }

    /// Whether what is taken from now on goes on elsewhere, where it has not arrived when it has been taken here.
    pub fn passes_on(&self, memory: &impl Memory, does: bool) {
        // Relaxed: before the head of the next message that is taken, which is published with Release (E2 consume).
        memory.store(self.place.passed_on(), does.into(), Relaxed);
    }

    /// Tells the producer what has been taken, when the lane turns quiet. Returns whether anything
    /// was new.
    #[inline]
    pub fn publish_head(&mut self, memory: &impl Memory) -> bool {
        if self.published == self.head {
            return false;
        }
        self.published = self.head;
        // E2 consume, store half. Release: our copies out of the slots before this head are done
        // before the producer may overwrite them. Load half: `Producer::look_at_head`.
        memory.store(self.place.head(), self.head, Release);
        true
    }
}

#[inline(always)]
const fn is_in_arena(offset: usize, len_bytes: usize) -> bool {
    offset <= ARENA_BYTES && len_bytes <= ARENA_BYTES - offset
}

/// The pages of a range that lies in the arena; at least one.
const fn pages(offset: usize, len_bytes: usize) -> u128 {
    let (first, end) = (offset / PAGE, (offset + len_bytes) / PAGE + 1);
    (u128::MAX >> (128 - end)) & (u128::MAX << first)
}
