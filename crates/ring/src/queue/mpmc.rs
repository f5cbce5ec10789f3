//! The bounded MPMC ring: any number of pushing and popping members, any of which may die at any
//! instruction.
//!
//! After the bounded MPMC queue of Dmitry Vyukov (1024cores.net, "Bounded MPMC queue"), which has
//! a sequence number per slot. There, a push claims its position by moving the tail, and nothing
//! says who claimed it: a member that dies then leaves a hole for ever. Here the claim is made on
//! the slot's own state word, which names the turn, the phase and the claiming member; tail and
//! head are hints that anybody moves on once the slot they name is claimed
//! (`docs/decisions/0003-mpmc-ring.md`).
//!
//! **Order.** The pushes and pops that return a success are first in, first out: each takes effect
//! at its claim, and claims are made in the order of positions. Full and Empty are weaker: they
//! speak of the oldest position only. A pop reports Empty while the oldest message is still being
//! copied in, even when later ones are whole; a push reports Full while the message one lap back
//! is still being copied out, even when later ones are gone. Both mean "not now".
//!
//! **Death.** A member that dies before its message was whole never pushed it; its position is
//! skipped. One that dies after pushed it. A member that dies after it claimed a message takes
//! that message with it: at most once. Giving it back would be a second delivery whenever the
//! dead member had already acted on it, and by then the head may have moved on, so that the
//! message would lie where nobody looks. The next member that needs the claimed slot asks
//! [`Members::is_dead`] after a short look and frees it.
//!
//! This relies on the oracle: a member is dead when no thread of the process that has its number
//! now runs any more.
//!
//! **Stopping.** A member that is stopped, not dead, in the few instructions between claim and
//! release holds up those who come to its slot: they are told Full or Empty, they do not block.
//! Turns and positions wrap around, so one that is stopped while the others go on for an exact
//! multiple of 2^24 laps (of 2^32 positions, when there are more than 256 slots) is not noticed:
//!
//! * between looking and claiming, it claims a place or a message that is free but not next: whole
//!   and once, but out of order;
//! * between learning of a death and freeing the dead claim, if meanwhile the number was given
//!   away and its new owner has just claimed the same slot, it takes that living claim: that
//!   message is lost, or torn;
//! * between looking and moving a hint, after a multiple of 2^32 positions, it moves the hint one
//!   too far, and the ring may say Empty and Full for ever.
//!
//! We accept these: 2^25 positions of a ring of two slots take a second, but only one instant of
//! that second does harm.
//!
//! Every word another member can write is loaded once, checked (`State::unpack`, `Age`) and
//! then used; every loop has a budget.
//!
//! Edges (`spec/memory-model.md`): Q10 message, Q11 place, Q12 repair, Q13 hint, Q14 owner,
//! Q15 format.

mod state;

use self::state::{Age, Geometry, Phase, State};
use super::{Members, Message, Pop, Push, Queue};
use crate::{Fault, Rule};
use core::ops::Deref;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::queue::{MESSAGE_BYTES, mpmc as layout};
use handfast_region::Memory;

/// A ring in shared memory, attached to by this process. Shared by its threads: attach once.
pub struct Ring<M, L> {
    memory: M,
    members: L,
    geometry: Geometry,
    me: u32,
    /// How often a claimed slot is looked at before its member is asked after.
    looks: u32,
    /// How often an operation starts over before it is a fault.
    retries: u32,
}

/// Looks at a claimed slot before its member is asked after: some microseconds, many times the
/// copy of a message and about as long as the system call that follows.
const LOOKS: u32 = 64;

/// Retries of one operation. Each means that another member made progress in between, so honest
/// members do not reach this; members that write nonsense in a loop do.
const RETRIES: u32 = 1 << 16;

/// Makes an empty ring of `slots` slots for members numbered up to `members` at offset `at` of
/// the memory ([`layout::len_bytes`] bytes). Call before any member attaches. No system call.
///
/// # Panics
/// If `slots` is no power of two up to [`layout::SLOTS_MAX`], if `members` is not from 1 to
/// [`MEMBERS`](handfast_layout::queue::MEMBERS), or if the ring does not fit the memory.
pub fn create(memory: &impl Memory, at: usize, slots: u32, members: u32) {
    create_at(memory, Geometry::new(at, slots, members), 0);
}

/// As [`create`], with the first message at `position`.
fn create_at(memory: &impl Memory, geometry: Geometry, position: u32) {
    // Relaxed: published by the format word below, and so are the slots.
    memory.store(geometry.word(layout::SLOTS), geometry.slots(), Relaxed);
    let members = geometry.members();
    memory.store(geometry.word(layout::MEMBER_LIMIT), members, Relaxed);
    memory.store(geometry.word(layout::TAIL), position, Relaxed);
    memory.store(geometry.word(layout::HEAD), position, Relaxed);
    for ahead in 0..geometry.slots() {
        let position = position.wrapping_add(ahead);
        let empty = State::of(Phase::Empty, geometry.turn(position), 0);
        let at = geometry.slot(position) + layout::STATE;
        memory.store(at, empty.pack(), Relaxed);
    }
    // Q15 format, store half. Release: the words above are visible to a member that finds the format
    // word. Load half: `Ring::attach`.
    memory.store(geometry.word(layout::FORMAT), layout::FORMAT_WORD, Release);
}

impl<M, L> Ring<M, L>
where
    M: Deref<Target: Memory>,
    L: Members,
{
    /// Attaches this process to a ring that [`create`] made with the same arguments, and frees
    /// what an earlier process of the same number left (`Ring::adopt`). Looks at every slot
    /// once. No system call.
    ///
    /// A process attaches once and shares the ring among its threads; a second `attach` under
    /// the same number would undo the first one's claims.
    ///
    /// # Errors
    /// [`Rule::RingFormat`] when no such ring lies there; the rule broken in a slot.
    ///
    /// # Panics
    /// As [`create`], and if this process's number is not from 1 to `members`.
    pub fn attach(
        memory: M,
        at: usize,
        (slots, limit): (u32, u32),
        members: L,
    ) -> Result<Self, Fault> {
        let geometry = Geometry::new(at, slots, limit);
        let me = members.me();
        assert!(
            (1..=limit).contains(&me),
            "member {me} of a ring of {limit}"
        );
        // Q15 format, load half. Acquire: the words and slots are as `create_at` left them or
        // newer. Store half: `create_at`.
        let format = memory.load(geometry.word(layout::FORMAT), Acquire);
        // Relaxed: published by the format word. Compared, never used.
        let found = [layout::SLOTS, layout::MEMBER_LIMIT]
            .map(|word| memory.load(geometry.word(word), Relaxed));
        if format != layout::FORMAT_WORD || found != [slots, limit] {
            return Err(Fault {
                rule: Rule::RingFormat,
                offset: geometry.word(layout::FORMAT),
            });
        }
        let ring = Self {
            memory,
            members,
            geometry,
            me,
            looks: LOOKS,
            // The head may have to pass a lap whose pushes all died.
            retries: RETRIES + 2 * slots,
        };
        ring.adopt()?;
        Ok(ring)
    }

    /// Frees every slot that an earlier process of this number had claimed when it died: its unfinished
    /// pushes were never pushed, its unfinished pops are gone. Called by [`Self::attach`],
    /// before the first claim of this process. If this process dies midway, the next one of its
    /// number or any member that needs a slot does the rest. Returns how many slots were freed.
    ///
    /// # Errors
    /// The rule broken in a slot; the slots before it have been freed.
    fn adopt(&self) -> Result<u32, Fault> {
        let mut freed = 0;
        for index in 0..self.geometry.slots() {
            let at = self.geometry.slot(index) + layout::STATE;
            let state = self.look(at)?;
            if state.member == self.me && self.free(at, state) {
                freed += 1;
            }
        }
        Ok(freed)
    }

    /// The state of a slot.
    #[inline(always)]
    fn look(&self, at: usize) -> Result<State, Fault> {
        // Q14 owner, load half. Acquire: that the member named here had joined, before it is
        // asked after. Store half: `Ring::claim`. Nothing else relies on it: a member that uses the
        // slot claims it first, and that exchange acquires.
        let word = self.memory.load(at, Acquire);
        State::unpack(word, self.geometry).ok_or(Fault {
            rule: Rule::RingState,
            offset: at,
        })
    }

    /// Takes a slot in the given state for this thread; whether it did. That another thread of
    /// this process bears the same number does no harm: only one exchange succeeds, and a claim
    /// is known by that, never by the number.
    #[inline(always)]
    fn claim(&self, at: usize, state: State, phase: Phase) -> bool {
        let claimed = State::of(phase, state.turn, self.me).pack();
        // Q10 message, load half. Acquire: the copy in is visible. Store half: `Ring::try_push`.
        // Q11 place, load half. Acquire: the copy out is done. Store half: `Ring::try_pop`.
        // Q12 repair, load half. Acquire: what the repairer knew of a dead user. Store half:
        // `Ring::free`.
        // Q14 owner, store half. Release: this member had joined. Load half: `Ring::look`.
        self.memory
            .compare_exchange(at, state.pack(), claimed)
            .is_ok()
    }

    /// Takes a slot from a dead member, for its next turn; whether this thread did it and nobody
    /// else before.
    fn free(&self, at: usize, dead: State) -> bool {
        let empty = State::of(Phase::Empty, self.geometry.next(dead.turn), 0);
        // Q12 repair, store half. Release: the dead member's copies, which we know to be over.
        // Load half: `Ring::claim`.
        self.memory
            .compare_exchange(at, dead.pack(), empty.pack())
            .is_ok()
    }

    /// A slot is claimed by another member and in our way. Looks a while whether it lets go, then
    /// asks whether it has died, and if so frees the slot. Returns whether the slot has changed,
    /// so that it is worth another look. At most one question of [`Members::is_dead`].
    #[cold]
    fn outwait(&self, at: usize, claimed: State) -> Result<bool, Fault> {
        for _ in 0..self.looks {
            core::hint::spin_loop();
            if self.look(at)? != claimed {
                return Ok(true);
            }
        }
        if claimed.member == self.me || !self.members.is_dead(claimed.member) {
            return Ok(false);
        }
        self.free(at, claimed);
        Ok(true)
    }

    /// The tail or head: a position whose claim, and all before it, are visible.
    #[inline(always)]
    fn hint(&self, word: usize) -> u32 {
        // Q13 hint, load half. Acquire: the claims of all earlier positions, so that a slot is
        // not seen a lap too old. Store half: `Ring::advance`.
        self.memory.load(self.geometry.word(word), Acquire)
    }

    /// Moves the tail or head past a position that has been claimed; any member may do so.
    #[inline(always)]
    fn advance(&self, word: usize, position: u32) {
        let at = self.geometry.word(word);
        // Q13 hint, store half. Release: that the position, and those before it, are claimed.
        // Load half: `Ring::hint`. It fails when somebody else has done it.
        let _ = self
            .memory
            .compare_exchange(at, position, position.wrapping_add(1));
    }

    /// A slot cannot be as it was found if the position is right. Either the position was old, or
    /// a member wrote nonsense.
    #[cold]
    fn doubt(&self, word: usize, position: u32) -> Result<(), Fault> {
        if self.hint(word) != position {
            return Ok(());
        }
        Err(Fault {
            rule: Rule::RingTurn,
            offset: self.geometry.slot(position) + layout::STATE,
        })
    }

    /// The fault of an operation that does not end.
    #[cold]
    fn exhausted(&self, word: usize) -> Fault {
        Fault {
            rule: Rule::RingProgress,
            offset: self.geometry.word(word),
        }
    }
}

/// Lock-free: an operation retries only when another has succeeded. Two exchanges and one copy
/// when undisturbed, no system call, except that a slot claimed by a member that does not let go
/// costs a question after that member.
impl<M, L> Queue for Ring<M, L>
where
    M: Deref<Target: Memory>,
    L: Members,
{
    fn try_push(&self, message: &Message) -> Result<(), Push> {
        for _ in 0..self.retries {
            let tail = self.hint(layout::TAIL);
            let (slot, turn) = (self.geometry.slot(tail), self.geometry.turn(tail));
            let at = slot + layout::STATE;
            let state = self.look(at).map_err(Push::Fault)?;
            match (self.geometry.age(state.turn, turn), state.phase) {
                (Age::Now, Phase::Empty) => {
                    if !self.claim(at, state, Phase::Writing) {
                        continue;
                    }
                    self.memory.copy_in(slot + layout::BYTES, message);
                    let full = State::of(Phase::Full, turn, 0);
                    // Commit point: the message is pushed, even if we die here.
                    // Q10 message, store half. Release: the copy above is visible to the pop
                    // that claims it. Load half: `Ring::claim`.
                    self.memory.store(at, full.pack(), Release);
                    self.advance(layout::TAIL, tail);
                    return Ok(());
                }
                (Age::Now | Age::Later, _) => self.advance(layout::TAIL, tail),
                (Age::Before, Phase::Full) => return Err(Push::Full),
                (Age::Before, Phase::Writing | Phase::Reading) => {
                    if !self.outwait(at, state).map_err(Push::Fault)? {
                        return Err(Push::Full);
                    }
                }
                (Age::Before, Phase::Empty) | (Age::Never, _) => {
                    self.doubt(layout::TAIL, tail).map_err(Push::Fault)?;
                }
            }
        }
        Err(Push::Fault(self.exhausted(layout::TAIL)))
    }

    fn try_pop(&self) -> Result<Message, Pop> {
        for _ in 0..self.retries {
            let head = self.hint(layout::HEAD);
            let (slot, turn) = (self.geometry.slot(head), self.geometry.turn(head));
            let at = slot + layout::STATE;
            let state = self.look(at).map_err(Pop::Fault)?;
            match (self.geometry.age(state.turn, turn), state.phase) {
                (Age::Now, Phase::Full) => {
                    // Commit point: the message is ours, and lost if we die before we return.
                    if !self.claim(at, state, Phase::Reading) {
                        continue;
                    }
                    let mut message = [0; MESSAGE_BYTES];
                    self.memory.copy_out(slot + layout::BYTES, &mut message);
                    let empty = State::of(Phase::Empty, self.geometry.next(turn), 0);
                    // Q11 place, store half. Release: the copy above is done before the push
                    // that claims the slot writes it. Load half: `Ring::claim`.
                    self.memory.store(at, empty.pack(), Release);
                    self.advance(layout::HEAD, head);
                    return Ok(message);
                }
                // Nothing pushed yet; or its last message is still being copied out.
                (Age::Now, Phase::Empty) | (Age::Before, Phase::Reading) => {
                    return Err(Pop::Empty);
                }
                (Age::Now, Phase::Writing) => {
                    if !self.outwait(at, state).map_err(Pop::Fault)? {
                        return Err(Pop::Empty);
                    }
                }
                (Age::Now, Phase::Reading) | (Age::Later, _) => self.advance(layout::HEAD, head),
                (Age::Before | Age::Never, _) => {
                    self.doubt(layout::HEAD, head).map_err(Pop::Fault)?;
                }
            }
        }
        Err(Pop::Fault(self.exhausted(layout::HEAD)))
    }
}

#[cfg(test)]
mod death;
#[cfg(test)]
mod model;
#[cfg(test)]
mod pause;
#[cfg(test)]
mod stress;
#[cfg(test)]
mod tests;
