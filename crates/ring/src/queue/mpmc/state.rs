//! The state word of a slot, and where positions lie: pure arithmetic, checked once.

use handfast_layout::queue::{MEMBERS, mpmc as layout};

/// The use of a slot in its turn. The only steps are these, each by compare-exchange or by
/// the member that owns the slot at that moment:
///
/// ```text
/// Empty(t) -> Writing(t, m) -> Full(t) -> Reading(t, m) -> Empty(t + 1)
///             Writing(t, dead) or Reading(t, dead)      -> Empty(t + 1)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for the push of its turn.
    Empty = 0,
    /// Claimed by a push, which is copying the message in.
    Writing = 1,
    /// Holds a message.
    Full = 2,
    /// Claimed by a pop, which is copying the message out.
    Reading = 3,
}

/// A state word, taken apart and found plausible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) turn: u32,
    /// The member that claimed the slot; zero when nobody has.
    pub(super) member: u32,
    pub(super) phase: Phase,
}

const PHASE_MASK: u32 = (1 << layout::PHASE_BITS) - 1;
const MEMBER_MASK: u32 = (1 << layout::MEMBER_BITS) - 1;
const TURN_SHIFT: u32 = layout::PHASE_BITS + layout::MEMBER_BITS;

impl State {
    pub(super) const fn of(phase: Phase, turn: u32, member: u32) -> Self {
        Self {
            turn,
            member,
            phase,
        }
    }

    /// The word that says this.
    pub(super) const fn pack(self) -> u32 {
        self.turn << TURN_SHIFT | self.member << layout::PHASE_BITS | self.phase as u32
    }

    /// The state in a word; `None` when no member of a ring of this geometry writes it.
    pub(super) const fn unpack(word: u32, geometry: Geometry) -> Option<Self> {
        let phase = match word & PHASE_MASK {
            0 => Phase::Empty,
            1 => Phase::Writing,
            2 => Phase::Full,
            _ => Phase::Reading,
        };
        let member = word >> layout::PHASE_BITS & MEMBER_MASK;
        let claimed = matches!(phase, Phase::Writing | Phase::Reading);
        let turn = word >> TURN_SHIFT;
        if (member > 0) != claimed || member > geometry.members || turn > geometry.turn_mask {
            return None;
        }
        Some(Self::of(phase, turn, member))
    }
}

/// How the turn of a slot lies to the turn of a position that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// The slot is in the turn of the position.
    Now,
    /// The slot is still in the turn before.
    Before,
    /// The slot has left the turn of the position: the position is out of date.
    Later,
    /// Two turns or more before: no honest slot, unless the position is older than half of all
    /// turns.
    Never,
}

/// Where a ring lies and how large it is. Private; never read again after attaching.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    at: usize,
    slots: u32,
    members: u32,
    turn_mask: u32,
}

impl Geometry {
    /// # Panics
    /// If `slots` is no power of two up to `SLOTS_MAX` or `members` is not from 1 to `MEMBERS`.
    pub(super) const fn new(at: usize, slots: u32, members: u32) -> Self {
        assert!(slots.is_power_of_two() && slots <= layout::SLOTS_MAX);
        assert!(members >= 1 && members <= MEMBERS);
        // A position has 32 bits; what is above its index counts laps, and no more than the word
        // has room for. Both divide 2^32, so positions and turns wrap around together.
        let laps = u32::MAX >> slots.trailing_zeros();
        let room = (1 << layout::TURN_BITS) - 1;
        Self {
            at,
            slots,
            members,
            turn_mask: if laps < room { laps } else { room },
        }
    }

    pub(super) const fn slots(self) -> u32 {
        self.slots
    }

    pub(super) const fn members(self) -> u32 {
        self.members
    }

    /// Offset of a word before the slots.
    pub(super) const fn word(self, offset: usize) -> usize {
        self.at + offset
    }

    /// Offset of the slot of a position: always inside the ring.
    #[inline(always)]
    pub(super) const fn slot(self, position: u32) -> usize {
        self.at + layout::slot(position & (self.slots - 1))
    }

    /// Turn in which a position uses its slot.
    #[inline(always)]
    pub(super) const fn turn(self, position: u32) -> u32 {
        position >> self.slots.trailing_zeros() & self.turn_mask
    }

    pub(super) const fn next(self, turn: u32) -> u32 {
        turn.wrapping_add(1) & self.turn_mask
    }

    #[inline(always)]
    pub(super) const fn age(self, found: u32, turn: u32) -> Age {
        let ahead = found.wrapping_sub(turn) & self.turn_mask;
        if ahead == 0 {
            Age::Now
        } else if ahead == self.turn_mask {
            Age::Before
        } else if ahead <= self.turn_mask / 2 {
            Age::Later
        } else {
            Age::Never
        }
    }
}
