//! Where the outcome of a call goes, as its holder sees it.

use crate::error::DomainError;
use crate::link::held::Held;
use crate::link::passing::Party;
use crate::link::wake::wake_caller;
use crate::link::{Link, tasks};
use handfast_channel::reply::Slot;
use handfast_layout::counters;
use handfast_layout::link::{
    FAILED, Kind, OWN_SET, PARTY_SENDER, REPLIES, slot_of, unpack_passed_word,
};
use handfast_region::{Bytes, Memory};
use handfast_ring::Fault;
use handfast_ring::lane::Unit;
use handfast_sys::cpu;
use std::sync::Arc;

/// Where a call's one outcome goes.
pub(crate) struct ReplySlot {
    pub(crate) link: Arc<Link>,
    pub(crate) index: u32,
    pub(crate) generation: u32,
    /// The poller's key of the lane; no key where it was passed on.
    pub(crate) key: u32,
    /// The receiver that the call came to; none where it was passed on: no poller knows its caller.
    pub(crate) receiver: u32,
    /// How it was passed on to this process, unless it answers to the sender of the message.
    pub(crate) party: Option<PartyUse>,
    /// The receiver of this process that it was passed on to.
    pub(crate) passed_to: u32,
    /// A right that came beside a message keeps the link, as one to a port of the peer does.
    pub(crate) held: Option<Held>,
}

/// A party a forwarder has named; the path lasts with it.
pub(crate) struct PartyUse {
    /// Serial of the forwarder's link: each forwarder has numbers of its own.
    of: u32,
    number: u32,
    /// The forwarder's parties, as they were when it was looked up.
    version: u32,
    pub(crate) party: Arc<Party>,
}

/// In the place of a poller's key, or of a receiver.
pub(crate) const NO_KEY: u32 = u32::MAX;

impl ReplySlot {
    #[inline(always)]
    pub(crate) fn slot(&self) -> Slot {
        Slot::of(self.link.calls.other(), self.index)
    }

    /// A reply slot that came with a message through `link`, as `word` names it. `None` when the peer that
    /// passes it on has dropped the right that `word` names, when its caller is gone, or has used the generation before.
    ///
    /// # Errors
    /// The rule the peer broke.
    #[cold]
    pub(crate) fn passed(
        link: &Arc<Link>,
        word: u32,
        generation: u32,
    ) -> Result<Option<Self>, Fault> {
        let (number, place) = unpack_passed_word(word);
        // Before the look.
        let version = link.parts.passing.parties();
        let party = match number {
            PARTY_SENDER => {
                match link.find_slot(slot_of(OWN_SET, place)) {
                    // Nobody looks for its pages any more, nor answers there.
                    Err(_) if link.is_down() => return Ok(None),
                    found => found?,
                }
                None
            }
            number => match link.parts.passing.lock().parties.get(number) {
                Some(party) => Some(party.clone()),
                None => return Ok(None),
            },
        };
        // The generation is the caller's word, which the forwarder passes on as it came: the forwarder is not to blame.
        if party
            .as_ref()
            .is_some_and(|party| !party.is_new(place, generation))
        {
            return Ok(None);
        }
        let of = link.serial;
        let set = party.as_ref().map_or(OWN_SET, |party| party.set);
        let link = party.as_ref().map_or(link, |party| &party.link).clone();
        Ok(Some(Self {
            link,
            index: slot_of(set, place),
            generation,
            key: NO_KEY,
            receiver: NO_KEY,
            party: party.map(|party| PartyUse {
                of,
                number,
                version,
                party,
            }),
            passed_to: NO_KEY,
            held: None,
        }))
    }

    /// Makes this one, of a message through `link`, the one that `word` names there: if it is of the
    /// same party.
    #[inline]
    pub(crate) fn pass_again(&mut self, link: &Link, word: u32, generation: u32) -> bool {
        let (number, place) = unpack_passed_word(word);
        let is_same = self.party.as_ref().is_some_and(|party| {
            (party.of, party.number) == (link.serial, number)
                && party.version == link.parts.passing.parties()
                && party.party.is_new(place, generation)
        });
        // A slot that is not new is refused where it is looked up.
        if !is_same {
            return false;
        }
        self.index = self.index / REPLIES * REPLIES + place;
        self.generation = generation;
        true
    }

    /// Whether it is not the one that the call has made.
    #[inline]
    pub(crate) const fn is_passed(&self) -> bool {
        self.index >= REPLIES
    }

    /// The receiver that the message came to.
    pub(crate) fn came_to(&self) -> u32 {
        match self.is_passed() {
            true => self.passed_to,
            false => self.receiver,
        }
    }

    /// Publishes the outcome and wakes the caller if it sleeps. Returns whether it did.
    pub(crate) fn answer(&self, kind: Kind, bytes: &[u8]) -> bool {
        let (slot, region) = (self.slot(), &self.link.region);
        slot.answer(region, self.generation, kind, cpu::hint(), bytes);
        let woke = wake_caller(&self.link, slot);
        self.count(bytes.len(), woke);
        woke
    }

    /// As [`Self::answer`] with a reply, and units that describe its parts.
    pub(crate) fn answer_described(&self, bytes: impl Bytes, units: &[Unit]) -> bool {
        let (slot, region) = (self.slot(), &self.link.region);
        let outcome = (self.generation, Kind::Message, cpu::current());
        slot.answer_described(region, outcome, (bytes, units));
        let woke = wake_caller(&self.link, slot);
        self.count(bytes.len_bytes(), woke);
        woke
    }

    /// Counts an answer for the port that its call came to. Called by the answering thread: the receiver does
    /// not know.
    fn count(&self, len_bytes: usize, woke: bool) {
        let receiver = self.came_to();
        if receiver >= counters::PORT_ROWS {
            // The call came to no port: a right beside a message.
            return;
        }
        let tally = &self.link.group.tally;
        for (column, amount) in [
            (counters::BYTES_OUT, len_bytes as u64),
            (counters::WAKES, woke.into()),
        ] {
            if amount > 0 {
                tally.add_shared(counters::port_word(receiver, column), amount);
            }
        }
    }

    /// Tells the caller that its outcome comes by `path`; [`Self::wake`] must follow.
    pub(crate) fn move_on(&self, path: u32) {
        let (slot, region) = (self.slot(), &self.link.region);
        slot.move_on(region, self.generation, path);
    }

    /// Wakes the caller, if it sleeps and not at the end of `path` as well.
    pub(crate) fn wake(&self, path: u32) {
        let (slot, region) = (self.slot(), &self.link.region);
        // E4 wake. As in `fence_then_taken`.
        region.fence();
        if slot.must_wake(region, path) {
            let woke = wake_caller(&self.link, slot);
            self.count(0, woke);
        }
    }

    #[cold]
    pub(crate) fn dropped(&self) {
        // A node that was shut down answers nothing any more: its links end.
        if !self.link.is_forked() && !self.link.process.is_over() {
            self.answer(Kind::Dropped, &[]);
        }
    }

    /// The port of the call has ended; or the call's right was revoked: then `why` is [`REVOKED`](handfast_layout::link::REVOKED).
    #[cold]
    pub(crate) fn refuse(&self, why: &[u8]) {
        // As in `dropped`: the caller finds the end of the link, and no other.
        if !self.link.is_forked() && !self.link.process.is_over() {
            self.answer(Kind::DeadPort, why);
        }
    }

    /// The domain that was to answer has gone wrong.
    #[cold]
    pub(crate) fn fail(&self, error: DomainError) {
        let (slot, region) = (self.slot(), &self.link.region);
        let why = FAILED | u32::from(error.code());
        slot.answer(region, self.generation, Kind::Dropped, why, &[]);
        let woke = wake_caller(&self.link, slot);
        self.count(0, woke);
    }
}

impl ReplySlot {
    /// Whether its caller is known not to wait any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        tasks::is_given_up(&self.link, self.slot(), self.generation)
    }

    /// Until when its caller waits, if it has said so.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let is_own = !self.link.is_forked();
        let said = is_own.then(|| self.slot().deadline_ns(&self.link.region, self.generation));
        said.flatten()
    }

    /// Has this process's control thread rung when the caller gives up. Whether it has is looked at next.
    pub(crate) fn watch(&self) {
        self.slot().watch(&self.link.region);
    }
}
