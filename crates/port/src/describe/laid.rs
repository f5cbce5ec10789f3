//! The bytes of long messages: laid in a block that is lent with the message.

use super::Described;
use crate::arena::Block;
use crate::body::Body;
use crate::error::RightError;
use crate::lending;
use crate::link::fills::{Fill, STEP_BYTES};
use crate::link::long::{self, NoBlock, Use};
use crate::link::wake::wake_caller_early;
use crate::link::{Link, doorbell};
use crate::slots::SLOTS_PER_LANE;
use handfast_channel::reply::Slot;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::REPLIES;
use handfast_layout::loan::LentBlock;
use handfast_layout::part::Part;
use handfast_region::{Bytes, copy_to_reader};
use handfast_sys::cpu;
use std::sync::Arc;

/// A block of the link with this number; the fill by which the bytes lie there, once they do; and the loan, while they are described.
pub(super) struct Laid {
    link: u32,
    pub(super) block: Block,
    fill: Option<u32>,
    pub(super) loan: Option<u32>,
}

/// For whom bytes are laid: that thread copies along if it looks, and is woken to do so unless it runs on this thread's processor.
#[derive(Clone, Copy)]
pub(crate) enum Reader {
    /// For a receiver, which was last seen on this processor; by a lane.
    Receiver { lane: u32, receiver: u32, cpu: u32 },
    /// For the caller at this slot.
    Caller { slot: u32 },
}

impl Described {
    /// Lays the bytes of a message in a block of the link with its peer, if they are too many for a lane, and describes the block. Before
    /// the rights are described. As there, [`Self::sent`] or [`Self::take_back`] must follow. Returns the bytes that are left for the
    /// lane.
    pub(crate) fn lay<'a>(
        &mut self,
        link: &Arc<Link>,
        bytes: Body<'a>,
        reader: Reader,
    ) -> Result<Body<'a>, RightError> {
        if bytes.len_bytes() <= MESSAGE_BYTES_MAX {
            return Ok(bytes);
        }
        self.lay_long(link, bytes, reader).map(|()| Body::NONE)
    }

    /// As [`Self::take_back`], before a wait for the peer: others may use the block meanwhile.
    pub(crate) fn lift(&mut self, link: &Link) {
        self.take_back(link);
        self.laid = None;
    }

    #[cold]
    fn lay_long(
        &mut self,
        link: &Arc<Link>,
        bytes: Body<'_>,
        reader: Reader,
    ) -> Result<(), RightError> {
        let laid = self.laid.take().filter(|laid| laid.link == link.serial);
        let mut laid = match laid {
            Some(laid) => laid,
            None => Laid::take(link, bytes.len_bytes(), reader)?,
        };
        let lent = match lending::lend(link, &laid.block) {
            // The application lends of all others.
            Err(RightError::Arenas { limit }) => Err(RightError::Loans { limit }),
            lent => lent,
        };
        if let Ok(lent) = &lent {
            laid.loan = Some(lent.loan);
            if laid.fill.is_none() {
                laid.fill = Some(fill(link, bytes, (&mut laid.block, lent), reader));
            }
        }
        let fill = laid.fill.unwrap_or(0);
        self.laid = Some(laid);
        let (units, count) = Part::Bytes(LentBlock { fill, ..lent? }).to_units();
        self.units[..count].copy_from_slice(&units[..count]);
        (self.count, self.before) = (count, count);
        Ok(())
    }
}

impl Laid {
    fn take(link: &Link, len_bytes: usize, reader: Reader) -> Result<Self, RightError> {
        let use_of = match reader {
            Reader::Receiver { .. } => Use::Message,
            Reader::Caller { .. } => Use::Reply,
        };
        let block = long::take(link, len_bytes, use_of).map_err(|no_block| match no_block {
            NoBlock::Lent { limit } => RightError::Loans { limit },
            NoBlock::Memory => RightError::NoMemory { len_bytes },
        })?;
        Ok(Self {
            link: link.serial,
            block,
            fill: None,
            loan: None,
        })
    }
}

/// Copies the bytes, and tells their reader meanwhile how many are there. Returns the number of the fill; zero for one that the reader was
/// not told of.
fn fill(
    link: &Link,
    bytes: Body<'_>,
    (block, lent): (&mut Block, &LentBlock),
    reader: Reader,
) -> u32 {
    let begun = match reader {
        Reader::Receiver { lane, .. } => Fill::begin(link, (lane, 0), lent),
        // An answer in a return slot goes to a process that may only pass it on.
        Reader::Caller { slot } if slot >= REPLIES => None,
        Reader::Caller { slot } => Fill::begin(link, (slot / SLOTS_PER_LANE, slot + 1), lent),
    };
    let Some(fill) = begun else {
        bytes.copy_into(block, copy_to_reader);
        return 0;
    };
    match reader {
        Reader::Receiver { cpu, .. } if cpu == cpu::current() => {}
        Reader::Receiver { receiver, .. } => doorbell::wake_early(link, receiver),
        Reader::Caller { .. } if link.parts.fills.shares_processor() => {}
        Reader::Caller { slot } => {
            wake_caller_early(link, Slot::of(link.calls.other(), slot));
        }
    }
    const STEP: usize = STEP_BYTES as usize;
    bytes.copy_into(block, |from, to| {
        for (from, to) in from.chunks(STEP).zip(to.chunks_mut(STEP)) {
            copy_to_reader(from, to);
            fill.reach(from.len());
        }
    });
    fill.serial()
}
