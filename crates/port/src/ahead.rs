//! Copying the bytes of a long message while their sender still fills their block with them: see `handfast_channel::fill`.
//!
//! A thread that waits for a message, or for an answer, copies what is there, into the buffer that will be the message's. It goes on as
//! long as the sender does, for some time in each look. Where the sender pauses, or sends nothing afterwards, nobody copies ahead any more
//! until the next long message has come: others may have sent short messages meanwhile.

use crate::buffers;
use crate::link::{Link, fills, inbox, long};
use core::cell::Cell;
use handfast_channel::fill::{Filling, Place};
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::loan::LentBlock;
use handfast_region::Lent;
use handfast_sys::clock;

/// The bytes that a thread has copied so far of the message that it expects next.
struct Ahead {
    key: Key,
    bytes: Vec<u8>,
    copied: usize,
}

/// Link, fill, arena and block: by these the message names its bytes.
type Key = (u32, u32, u32, u32);

thread_local! {
    static AHEAD: Cell<Option<Ahead>> = const { Cell::new(None) };
    /// How long it has copied since it was asked last.
    static WORKED_NS: Cell<u64> = const { Cell::new(0) };
}

/// How long a thread waits for the next bytes: a sender that runs copies [`STEP_BYTES`] in less.
const PAUSE_NS: u64 = 30_000;
/// How long a look takes at most, however fast the sender is: other senders are looked at in between, and deadlines after some looks.
const LOOK_NS_MAX: u64 = 200_000;
/// Looks between two readings of the clock, and most looks: the clock of a simulated machine stands still.
const LOOKS_PER_CLOCK: u32 = 64;
const LOOKS_MAX: u32 = 4096;
/// Fewer bytes are not worth a copy, unless they are the last.
const STEP_BYTES: usize = fills::STEP_BYTES as usize;

/// Steps that are copied between two readings of the clock.
const STEPS_MAX: usize = 4;

/// The result of a look: how the sender gets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No block is filled there.
    Nothing,
    /// The sender goes on, and so may the next look.
    GoesOn,
    /// All is copied, or the sender has just ended: the message must come soon.
    ComesSoon,
    /// The sender has paused, or what it says leads nowhere.
    InVain,
}

/// Copies what is there of a message in `lane` of the peer's, or of the answer in the reply slot with the number before `answers`. At most
/// one allocation for a message.
#[inline]
pub(crate) fn look(link: &Link, lane: u32, answers: u32) -> Progress {
    let place = Place::of(link.calls.other(), lane);
    match place.look(&link.region) {
        Some(filling) if filling.answers == answers => copy(link, place, filling),
        _ => Progress::Nothing,
    }
}

/// Looks for a message that must come soon.
#[cold]
pub(crate) fn await_soon<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut wait = BriefWait::begin();
    loop {
        let found = look();
        if found.is_some() || !wait.goes_on() {
            return found;
        }
    }
}

/// How long this thread has copied ahead since this was asked last.
pub(crate) fn worked_ns() -> u64 {
    WORKED_NS.try_with(Cell::take).unwrap_or_default()
}

/// How long a thread looks for what the sender does next.
struct BriefWait {
    looks: u32,
    since_ns: u64,
}

impl BriefWait {
    fn begin() -> Self {
        Self {
            looks: 0,
            since_ns: clock::ticks_ns(),
        }
    }

    /// After a look in vain: whether there is to be another one.
    fn goes_on(&mut self) -> bool {
        core::hint::spin_loop();
        self.looks += 1;
        let is_clock_due = self.looks.is_multiple_of(LOOKS_PER_CLOCK);
        let is_late = is_clock_due && clock::ticks_ns().saturating_sub(self.since_ns) > PAUSE_NS;
        self.looks < LOOKS_MAX && !is_late
    }
}

#[cold]
fn copy(link: &Link, place: Place, filling: Filling) -> Progress {
    let (len_bytes, longest) = (filling.len_bytes as usize, long::longest(link));
    if longest <= MESSAGE_BYTES_MAX {
        // Another user's, which fills no blocks: its word must not keep this thread from copying ahead for others.
        return Progress::Nothing;
    }
    if !(MESSAGE_BYTES_MAX + 1..=longest).contains(&len_bytes) {
        return Progress::InVain;
    }
    let of_block = (filling.arena, filling.block);
    let found = inbox::inbox(link).borrowed.find(of_block, len_bytes as u64);
    let Some((Ok(memory), at)) = found else {
        return Progress::InVain;
    };
    let key = (link.serial, filling.serial, filling.arena, filling.block);
    let is_it = |ahead: &Ahead| ahead.key == key && ahead.bytes.len() == len_bytes;
    let known = AHEAD.try_with(Cell::take).ok().flatten();
    let ahead = match known {
        Some(ahead) if is_it(&ahead) => Some(ahead),
        known => {
            if let Some(known) = known {
                buffers::keep(known.bytes);
            }
            Ahead::begin(key, len_bytes)
        }
    };
    let Some(mut ahead) = ahead.filter(|_| !memory.get().is_forked()) else {
        return Progress::InVain;
    };
    let start_ns = clock::ticks_ns();
    let look = ahead.goes_on((link, place), (memory.get(), at), start_ns);
    if ahead.copied > 0 {
        let worked_ns = clock::ticks_ns().saturating_sub(start_ns);
        let _ = WORKED_NS.try_with(|sum| sum.set(sum.get() + worked_ns));
    }
    let _ = AHEAD.try_with(|known| known.set(Some(ahead)));
    look
}

impl Ahead {
    fn begin(key: Key, len_bytes: usize) -> Option<Self> {
        Some(Self {
            key,
            bytes: buffers::take(len_bytes)?,
            copied: 0,
        })
    }

    /// Up to where the next bytes are there, if there are so many that they are worth a copy. No more of them than are copied between
    /// two readings of the clock.
    fn reached(&self, link: &Link, place: Place) -> Option<usize> {
        let len_bytes = self.bytes.len();
        let reached = (place.reached(&link.region) as usize).min(len_bytes);
        let least = (self.copied + STEP_BYTES).min(len_bytes);
        let is_worth_it = reached > self.copied && reached >= least;
        is_worth_it.then(|| reached.min(self.copied + STEPS_MAX * STEP_BYTES))
    }

    /// Copies along with the sender.
    fn goes_on(
        &mut self,
        (link, place): (&Link, Place),
        (memory, at): (&Lent, usize),
        start_ns: u64,
    ) -> Progress {
        let (_, serial, _, _) = self.key;
        let mut wait = BriefWait::begin();
        while self.copied < self.bytes.len() && place.goes_on(&link.region, serial) {
            if let Some(reached) = self.reached(link, place) {
                let bytes = &mut self.bytes[self.copied..reached];
                memory.copy_out(at + self.copied, bytes);
                self.copied = reached;
                wait = BriefWait::begin();
                if wait.since_ns.saturating_sub(start_ns) > LOOK_NS_MAX {
                    return Progress::GoesOn;
                }
            } else if !wait.goes_on() {
                return Progress::InVain;
            }
        }
        Progress::ComesSoon
    }
}

/// The bytes that this thread has copied of the message in that block: a buffer of its length, and how many bytes are in it.
pub(crate) fn take(link: &Link, lent: &LentBlock) -> Option<(Vec<u8>, usize)> {
    let ahead = AHEAD.try_with(Cell::take).ok().flatten()?;
    let key = (link.serial, lent.fill, lent.arena, lent.block);
    if ahead.key == key && ahead.bytes.len() as u64 == lent.len_bytes {
        return Some((ahead.bytes, ahead.copied));
    }
    // Of a message that is still to come.
    let _ = AHEAD.try_with(|known| known.set(Some(ahead)));
    None
}

#[cfg(test)]
mod tests;
