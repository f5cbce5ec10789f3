//! The link region: everything two processes share to exchange messages.
//!
//! ```text
//! side 0 (calls made by the connector) | side 1 (calls made by the acceptor)
//!
//! side:  header page | LOANS x line | LANES x lane | ANSWERS x reply slot | ANSWERS x 64 KiB reply buffer
//! lane:  control lines | SLOTS x slot | arena blocks
//! ```
//!
//! The first set of reply slots is for calls. The other sets are *return slots*, for outcomes that are
//! not the callee's own reply to a call: in set 1, as the caller names them; the slots of a
//! later set belong, one by one, to a set of another link of the caller's, whose callee has passed its
//! reply rights on.
//!
//! On each side the *caller* writes requests and the *callee* writes replies. Most of the region
//! is never touched: pages of a memory file exist only once written.

use crate::loan::{LOANS, fill};
use crate::{LINE, MESSAGE_BYTES_MAX, PAGE, PARTS_MAX, page_align};

/// Lanes per side: request rings, one per calling thread until the bound is reached.
pub const LANES: u32 = 16;
/// Slots of a lane's ring; a power of two.
pub const SLOTS: u32 = 64;
/// Reply slots per side: the calls that may be outstanding at once.
pub const REPLIES: u32 = 256;
/// Sets of that many reply slots and return slots.
pub const SETS: u32 = 5;
/// The set of return slots that the caller names.
pub const OWN_SET: u32 = 1;
/// Reply slots and return slots of a side.
pub const ANSWERS: u32 = SETS * REPLIES;

/// Bytes of a slot or reply slot taken by its header words.
pub const SLOT_HEADER_BYTES: usize = 24;
/// Message bytes that travel in the slot's own cache line.
pub const INLINE_BYTES: usize = LINE - SLOT_HEADER_BYTES;

/// Unit of the words that describe the parts of a message. They follow its bytes.
pub const UNIT_BYTES: usize = 16;
/// Most units of one part, without the units of a moving port's name ([`Bound`](crate::part::Bound)).
pub const PART_UNITS_MAX: usize = 3;
/// Most units of one message.
pub const UNITS_MAX: usize = PARTS_MAX * PART_UNITS_MAX;
/// Bytes of the longest message with all that describes its parts, rounded up to a line.
pub const BODY_BYTES_MAX: usize = MESSAGE_BYTES_MAX + UNITS_MAX * UNIT_BYTES;

/// Word offsets inside a request slot. Written by the caller, read by the callee.
pub mod slot {
    /// Position + 1 of the message that fills the slot; the publishing word.
    pub const SEQUENCE: usize = 0;
    /// [`super::Meta`]: length, kind, place, CPU of the writer.
    pub const META: usize = 4;
    /// The right it came through: a handle of the callee's export table, or a word by which the caller has claimed one.
    pub const PORT: usize = 8;
    /// Reply slot of a call, and the upper bits of the CPU ([`super::reply_word`]), or of a reply
    /// right passed on ([`super::passed_word`]); not written for a one-way message, as the next.
    pub const REPLY: usize = 12;
    /// Generation of that reply slot.
    pub const GENERATION: usize = 16;
    /// Arena offset of the bytes, relative to the lane's arena; not written when they are inline.
    pub const ARENA: usize = 20;
    /// First inline byte.
    pub const BYTES: usize = super::SLOT_HEADER_BYTES;
}

/// Word offsets inside a reply slot. The callee writes all but [`reply::WAIT`], which both write,
/// and the words behind it, which the caller writes.
pub mod reply {
    /// Generation of the call this reply answers; the publishing word.
    pub const GENERATION: usize = 0;
    /// [`super::Meta`] of the reply.
    pub const META: usize = 4;
    /// CPU the callee ran on; a hint.
    pub const CPU: usize = 8;
    /// Wait word of the caller: see `handfast-wait`. In a line of its own: the callee looks at it
    /// right after it has written the reply, when the reply's line is still on its way.
    pub const WAIT: usize = crate::LINE;
    /// Generation of the call whose caller has given it up; a hint. The caller writes it.
    pub const CANCEL: usize = crate::LINE + 4;
    /// Number of the path at whose end the caller sleeps as well; zero for none. The caller writes it.
    pub const EXPECTED: usize = crate::LINE + 8;
    /// Generation of the call that the next two words are about. The caller writes it.
    pub const DEADLINE_OF: usize = crate::LINE + 12;
    /// Until when its caller waits: nanoseconds of the monotonic clock, low half, high half; a hint. The
    /// caller writes it.
    pub const DEADLINE: usize = crate::LINE + 16;
    /// Wait word of a callee that wants to hear when the caller gives up. Both write.
    pub const WATCH: usize = crate::LINE + 24;
    /// When the waker woke, in truncated nanoseconds; a hint for the adaptive strategy.
    pub const STAMP: usize = 12;
    /// Generation of a call the callee has put off (overload rotation, rule 1); a hint.
    pub const DEFER: usize = 16;
    /// Zero.
    pub const RESERVED_2: usize = 20;
    /// Bytes of a reply slot.
    pub const BYTES_ALL: usize = 2 * crate::LINE;
    /// First inline byte.
    pub const BYTES: usize = super::SLOT_HEADER_BYTES;
}

/// Word offsets inside a lane's control lines.
pub mod lane {
    use crate::LINE;

    /// One while the caller may post without a fence (streaming); callee writes.
    pub const STREAMING: usize = 4;
    /// One while the callee polls the lane; zero while the lane is armed, so that a post must
    /// ring. An unused lane is armed. Callee writes.
    pub const POLLED: usize = LINE;
    /// Messages consumed, published lazily. Callee writes.
    pub const HEAD: usize = 2 * LINE;
    /// Wait word of a caller that waits for space. Both write.
    pub const SPACE: usize = 2 * LINE + 4;
    /// One while what is consumed here goes on to where the port has moved, and has not been received yet. Callee
    /// writes.
    pub const PASSED_ON: usize = 2 * LINE + 8;
    /// The receiver that the lane leads to, plus one; zero where that has not been said, [`NO_RECEIVER`] for none.
    /// Caller writes.
    pub const RECEIVER: usize = 3 * LINE;
    /// The lane leads nowhere at present.
    pub const NO_RECEIVER: u32 = u32::MAX;
    /// First of the words of [`fill`](crate::loan::fill). Caller writes.
    pub const FILL: usize = 3 * LINE + 16;
    /// Bytes of all control lines.
    pub const CONTROL_BYTES: usize = 4 * LINE;
}

const _: () = assert!(lane::FILL + fill::BYTES_ALL <= lane::CONTROL_BYTES);

/// Arena classes of a lane: block length and count. A message takes the smallest class that
/// holds it; a larger block serves when the class is used up.
pub const ARENA_CLASSES: [(usize, u32); 3] = [(1024, 64), (8 * 1024, 16), (BODY_BYTES_MAX, 4)];

const fn arena_bytes() -> usize {
    let mut total = 0;
    let mut class = 0;
    while class < ARENA_CLASSES.len() {
        total += ARENA_CLASSES[class].0 * ARENA_CLASSES[class].1 as usize;
        class += 1;
    }
    total
}

/// Bytes of one lane's arena.
pub const ARENA_BYTES: usize = arena_bytes();
/// Bytes of one lane.
pub const LANE_BYTES: usize = page_align(LANE_HEAD_BYTES) + page_align(ARENA_BYTES);
/// Bytes of a lane without its arena.
pub const LANE_HEAD_BYTES: usize = lane::CONTROL_BYTES + SLOTS as usize * LINE;
/// Bytes of one reply buffer.
pub const REPLY_BUFFER_BYTES: usize = page_align(BODY_BYTES_MAX);

/// Each in a line of its own.
const SIDE_OVER: usize = PAGE - 2 * LINE;
const SIDE_CLAIMED: usize = PAGE - LINE;
/// Lines of ready words: receivers on different CPUs have theirs apart, but for the last two.
const READY_LINES: u32 = (SIDE_OVER / LINE) as u32;
/// In a line each: the lender looks at some while the borrower writes others.
const SIDE_RETURNED: usize = PAGE;
const SIDE_LANES: usize = SIDE_RETURNED + page_align(LOANS as usize * LINE);
const SIDE_REPLIES: usize = SIDE_LANES + LANES as usize * LANE_BYTES;
const SIDE_BUFFERS: usize = SIDE_REPLIES + page_align(ANSWERS as usize * reply::BYTES_ALL);
/// Bytes of one side.
pub const SIDE_BYTES: usize = SIDE_BUFFERS + ANSWERS as usize * REPLY_BUFFER_BYTES;
/// Bytes of a link region.
pub const REGION_BYTES: usize = 2 * SIDE_BYTES;

/// Which of the two parties of a link makes the calls of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Calls made by the process that connected.
    Connector,
    /// Calls made by the process that accepted.
    Acceptor,
}

impl Side {
    /// The side of the other party's calls.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Connector => Self::Acceptor,
            Self::Acceptor => Self::Connector,
        }
    }

    /// First byte of the side's header, and its length: all that comes before its lanes.
    #[must_use]
    pub const fn header(self) -> (usize, usize) {
        (self.base(), SIDE_LANES)
    }

    const fn base(self) -> usize {
        match self {
            Self::Connector => 0,
            Self::Acceptor => SIDE_BYTES,
        }
    }

    /// Bitmap of lanes that rang for `receiver` since the callee last took it. Both write (set by
    /// the caller, taken by the callee).
    ///
    /// # Panics
    /// If `receiver` is not below [`RECEIVERS`](crate::bell::RECEIVERS).
    #[must_use]
    pub const fn ready(self, receiver: u32) -> usize {
        assert!(receiver < crate::bell::RECEIVERS);
        self.base()
            + (receiver % READY_LINES) as usize * LINE
            + (receiver / READY_LINES) as usize * 4
    }

    /// How many of the caller's descriptors the callee has claimed, modulo 2^32, descriptors of its replies
    /// on the other side included. The callee writes it.
    #[must_use]
    pub const fn claimed(self) -> usize {
        self.base() + SIDE_CLAIMED
    }

    /// The generation of loan `loan` of the caller's when it was given back last. The callee writes it.
    ///
    /// # Panics
    /// If `loan` is not below [`LOANS`].
    #[must_use]
    pub const fn returned(self, loan: u32) -> usize {
        assert!(loan < LOANS);
        self.base() + SIDE_RETURNED + loan as usize * LINE
    }

    /// Not zero once the caller has taken back its loans, since the link has ended. The caller
    /// writes it.
    #[must_use]
    pub const fn over(self) -> usize {
        self.base() + SIDE_OVER
    }

    /// First byte of lane `lane`.
    ///
    /// # Panics
    /// If `lane` is not below [`LANES`].
    #[must_use]
    pub const fn lane(self, lane: u32) -> usize {
        assert!(lane < LANES);
        self.base() + SIDE_LANES + lane as usize * LANE_BYTES
    }

    /// First byte of reply slot `index`, or of the return slot with that number.
    ///
    /// # Panics
    /// If `index` is not below [`ANSWERS`].
    #[must_use]
    pub const fn reply(self, index: u32) -> usize {
        assert!(index < ANSWERS);
        self.base() + SIDE_REPLIES + index as usize * reply::BYTES_ALL
    }

    /// First byte of the buffer of reply slot, or return slot, `index`.
    ///
    /// # Panics
    /// If `index` is not below [`ANSWERS`].
    #[must_use]
    pub const fn reply_buffer(self, index: u32) -> usize {
        assert!(index < ANSWERS);
        self.base() + SIDE_BUFFERS + index as usize * REPLY_BUFFER_BYTES
    }
}

/// Number, among all reply slots of a side, of slot `index` of `set`.
///
/// # Panics
/// If there is no such slot.
#[must_use]
pub const fn slot_of(set: u32, index: u32) -> u32 {
    assert!(set < SETS && index < REPLIES);
    set * REPLIES + index
}

/// Offset of ring slot `position` within a lane.
#[must_use]
pub const fn slot_offset(position: u32) -> usize {
    lane::CONTROL_BYTES + (position & (SLOTS - 1)) as usize * LINE
}

/// Offset of the arena within a lane.
#[must_use]
pub const fn arena_offset() -> usize {
    LANE_BYTES - page_align(ARENA_BYTES)
}

/// The content of a slot's meta word. The word is peer-written: [`Meta::unpack`] refuses values it does
/// not know instead of guessing.
///
/// ```text
/// bits  0..17 length in bytes (0 to 65,536)    17 not inline    18..20 kind
/// 20..24 units that describe parts, behind the bytes    24..32 CPU
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Length of the message.
    pub len_bytes: u32,
    /// Whether the bytes lie outside the slot.
    pub outside: bool,
    /// The kind of the slot's content.
    pub kind: Kind,
    /// Units that describe the message's parts, right behind its bytes.
    pub units: u32,
    /// Low bits of the CPU the writer ran on; a hint.
    pub cpu: u32,
}

/// The kind of a slot's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A one-way message (in a request slot) or a reply (in a reply slot).
    Message,
    /// A call: the sender waits in the named reply slot.
    Call,
    /// In a reply slot: the callee dropped the reply right unused.
    Dropped,
    /// In a reply slot: the callee has no such port (any more).
    DeadPort,
}

impl Kind {
    /// In a request slot, where nothing is [`Self::Dropped`]: a message with another's reply right,
    /// which the slot names as [`passed_word`] says.
    pub const PASSED: Self = Self::Dropped;
    /// In a request slot, where nothing is a [`Self::DeadPort`]: what is said about introductions, in
    /// order with the messages; see [`crate::lane_control`].
    pub const CONTROL: Self = Self::DeadPort;
    /// In a reply slot, where nothing is a [`Self::Call`]: the outcome comes by another path, whose
    /// number is in the first four bytes.
    pub const MOVED: Self = Self::Call;

    #[inline(always)]
    const fn of(word: u32) -> Self {
        match (word >> 18) & 3 {
            0 => Self::Message,
            1 => Self::Call,
            2 => Self::Dropped,
            _ => Self::DeadPort,
        }
    }
}

/// The content of a reply of kind [`Kind::DeadPort`] when the port is there, and the right that the call came
/// through was revoked; nothing otherwise.
pub const REVOKED: &[u8] = &[1];

/// The word of the CPU of a reply of kind [`Kind::Dropped`] when the domain that served the call went wrong:
/// this, and in the low byte how. No CPU has such a number.
pub const FAILED: u32 = 0xfa11_ed00;

/// Mask of the CPU hint in a meta word: its low bits.
pub const META_CPU_MASK: u32 = 0xff;

/// Packs a call's reply slot, below 65,536, with the upper bits of the CPU its caller runs on.
#[must_use]
pub const fn reply_word(slot: u32, cpu: u32) -> u32 {
    slot | (cpu & !META_CPU_MASK) << 8
}

/// The reply slot of a call, and the CPU its caller ran on with the low bits from its meta word.
#[must_use]
pub const fn unpack_reply_word(word: u32, low: u32) -> (u32, u32) {
    (word & 0xffff, word >> 16 << 8 | low)
}

/// The party of a reply right that answers to the process that passes it on, in its [`OWN_SET`].
pub const PARTY_SENDER: u32 = 0;

/// Packs what names a reply right that is passed on: the party it answers to, below 2^24, and the
/// slot, below [`REPLIES`], in the set that is meant by that.
#[must_use]
pub const fn passed_word(party: u32, index: u32) -> u32 {
    party << 8 | index
}

const _: () = assert!(REPLIES == 1 << 8);

/// Party and reply slot of a reply right that is passed on.
#[must_use]
pub const fn unpack_passed_word(word: u32) -> (u32, u32) {
    (word >> 8, word & 0xff)
}

impl Meta {
    /// Packs the fields into one word.
    #[must_use]
    pub const fn pack(self) -> u32 {
        let kind = match self.kind {
            Kind::Message => 0,
            Kind::Call => 1,
            Kind::Dropped => 2,
            Kind::DeadPort => 3,
        };
        let (outside, cpu) = (self.outside as u32, self.cpu & META_CPU_MASK);
        self.len_bytes | outside << 17 | kind << 18 | self.units << 20 | cpu << 24
    }

    /// The length of a one-way message, or reply, that lies in its slot and has no parts: `None` for others.
    #[inline(always)]
    #[must_use]
    pub const fn unpack_short(word: u32) -> Option<u32> {
        // Outside of its slot, with units, or of another kind the number is above the limit.
        let len_bytes = word & 0xff_ffff;
        if len_bytes > INLINE_BYTES as u32 {
            return None;
        }
        Some(len_bytes)
    }

    /// As [`Self::unpack`], for a message or call without parts: `None` for others.
    #[inline(always)]
    #[must_use]
    pub const fn unpack_plain(word: u32) -> Option<Self> {
        let (len_bytes, outside) = (word & 0x1_ffff, word & (1 << 17) != 0);
        let limit = if outside {
            MESSAGE_BYTES_MAX
        } else {
            INLINE_BYTES
        };
        // With units, or another kind, the number is above any limit.
        if (word & 0xf9_ffff) as usize > limit {
            return None;
        }
        Some(Self {
            len_bytes,
            outside,
            kind: Kind::of(word),
            units: 0,
            cpu: word >> 24,
        })
    }

    /// Unpacks a word a peer wrote; `None` when its length is over the limit or does not fit the
    /// place it names.
    #[must_use]
    pub const fn unpack(word: u32) -> Option<Self> {
        let len_bytes = word & 0x1_ffff;
        let outside = word & (1 << 17) != 0;
        let units = (word >> 20) & 0xf;
        let limit = if outside {
            MESSAGE_BYTES_MAX
        } else {
            INLINE_BYTES
        };
        if len_bytes as usize > limit || units > 0 && !fits(len_bytes, outside, units) {
            return None;
        }
        Some(Self {
            len_bytes,
            outside,
            kind: Kind::of(word),
            units,
            cpu: word >> 24,
        })
    }
}

/// Whether a message with parts fits the place it names, its bytes alone do.
#[cold]
const fn fits(len_bytes: u32, outside: bool, units: u32) -> bool {
    let body_bytes = len_bytes as usize + units as usize * UNIT_BYTES;
    units as usize <= UNITS_MAX && (outside || body_bytes <= INLINE_BYTES)
}

const _: () = {
    assert!(SLOTS.is_power_of_two());
    assert!(LANES <= 32, "lane bitmaps are one 32-bit word");
    assert!(slot::BYTES == SLOT_HEADER_BYTES && slot::ARENA + 4 == slot::BYTES);
    assert!(reply::BYTES == SLOT_HEADER_BYTES && reply::RESERVED_2 + 4 == reply::BYTES);
    assert!(INLINE_BYTES == 40);
    assert!(LANE_BYTES.is_multiple_of(PAGE) && SIDE_BYTES.is_multiple_of(PAGE));
    assert!(lane::SPACE + 4 <= lane::CONTROL_BYTES);
    assert!(arena_offset() >= slot_offset(SLOTS - 1) + LINE);
    assert!(MESSAGE_BYTES_MAX < 1 << 17);
    assert!(REGION_BYTES < 1 << 31, "offsets fit 32 bits");
    assert!(BODY_BYTES_MAX.is_multiple_of(LINE) && UNITS_MAX < 16);
};

#[cfg(test)]
mod tests;
