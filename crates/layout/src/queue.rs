//! Layouts of the two plain shared queues: the two-lock queue and the bounded MPMC ring.
//!
//! Both hold fixed-size messages of [`MESSAGE_BYTES`] bytes, as the experiments of paper 000 do.

pub mod two_lock;

/// Bytes of a message in a plain queue (paper 000, section 2.2).
pub const MESSAGE_BYTES: usize = 24;

/// Most processes that share one plain queue; they are numbered from 1.
pub const MEMBERS: u32 = 63;

/// The bounded MPMC ring.
///
/// ```text
/// line 0 format, slots, members | line 1 tail | line 2 head | slots x line
/// slot: state word | padding | message
/// ```
///
/// Format, slots and members are written once, before anyone attaches. Every other word may be
/// written by every member. The state word is, from its lowest bit, the phase (2 bits), the
/// member that claimed the slot (6 bits, zero when nobody has) and the turn (24 bits).
pub mod mpmc {
    use super::{MEMBERS, MESSAGE_BYTES};
    use crate::LINE;

    /// Says that a ring lies here, once the words and slots after it are in place.
    pub const FORMAT: usize = 0;
    /// The value of [`FORMAT`].
    pub const FORMAT_WORD: u32 = u32::from_le_bytes(*b"HFM1");
    /// Number of slots.
    pub const SLOTS: usize = 4;
    /// Largest number of a member.
    pub const MEMBER_LIMIT: usize = 8;
    /// Position of the next push, or one before it.
    pub const TAIL: usize = LINE;
    /// Position of the next pop, or one before it.
    pub const HEAD: usize = 2 * LINE;
    /// Bytes before the first slot.
    pub const CONTROL_BYTES: usize = 3 * LINE;

    /// State word of a slot.
    pub const STATE: usize = 0;
    /// Message of a slot.
    pub const BYTES: usize = 8;
    /// Bytes of a slot: one cache line.
    pub const SLOT_BYTES: usize = LINE;
    /// Most slots of a ring. A position of 32 bits then still counts 2^16 laps.
    pub const SLOTS_MAX: u32 = 1 << 16;

    /// Bits of the phase in a state word.
    pub const PHASE_BITS: u32 = 2;
    /// Bits of the member in a state word.
    pub const MEMBER_BITS: u32 = 6;
    /// Bits of the turn in a state word.
    pub const TURN_BITS: u32 = 24;

    /// Offset of slot `index` in a ring.
    #[must_use]
    pub const fn slot(index: u32) -> usize {
        CONTROL_BYTES + index as usize * SLOT_BYTES
    }

    /// Bytes of a ring of `slots` slots.
    #[must_use]
    pub const fn len_bytes(slots: u32) -> usize {
        slot(slots)
    }

    const _: () = {
        assert!(PHASE_BITS + MEMBER_BITS + TURN_BITS == u32::BITS);
        assert!(MEMBERS < 1 << MEMBER_BITS);
        assert!(BYTES + MESSAGE_BYTES <= SLOT_BYTES && BYTES.is_multiple_of(8));
        assert!(CONTROL_BYTES.is_multiple_of(LINE) && SLOTS_MAX.is_power_of_two());
    };
}
