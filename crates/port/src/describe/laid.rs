//! The bytes of long messages: laid in a block that is lent with the message.

use super::Described;
use crate::arena::Block;
use crate::body::Body;
use crate::error::RightError;
use crate::lending;
use crate::link::Link;
use crate::link::long::{self, NoBlock, Use};
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::part::Part;
use handfast_region::{Bytes, copy_to_reader};
use std::sync::Arc;

/// Bytes that lie in a block of the link with this number; and the loan, while they are described.
pub(super) struct Laid {
    link: u32,
    pub(super) block: Block,
    pub(super) loan: Option<u32>,
}

impl Described {
    /// Lays the bytes of a message in a block of the link with its peer, if they are too many for a lane, and describes the block. Before
    /// the rights are described. As there, [`Self::sent`] or [`Self::take_back`] must follow. Returns the bytes that are left for the
    /// lane.
    pub(crate) fn lay<'a>(
        &mut self,
        link: &Arc<Link>,
        bytes: Body<'a>,
        use_of: Use,
    ) -> Result<Body<'a>, RightError> {
        if bytes.len_bytes() <= MESSAGE_BYTES_MAX {
            return Ok(bytes);
        }
        self.lay_long(link, bytes, use_of).map(|()| Body::NONE)
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
        use_of: Use,
    ) -> Result<(), RightError> {
        let laid = self.laid.take().filter(|laid| laid.link == link.serial);
        let block = match laid {
            Some(laid) => laid.block,
            None => {
                let taken = long::take(link, bytes.len_bytes(), use_of);
                let mut block = taken.map_err(|no_block| match no_block {
                    NoBlock::Lent { limit } => RightError::Loans { limit },
                    NoBlock::Memory => RightError::NoMemory {
                        len_bytes: bytes.len_bytes(),
                    },
                })?;
                bytes.copy_into(&mut block, copy_to_reader);
                block
            }
        };
        let lent = match lending::lend(link, &block) {
            // The application lends of all others.
            Err(RightError::Arenas { limit }) => Err(RightError::Loans { limit }),
            lent => lent,
        };
        let loan = lent.as_ref().ok().map(|lent| lent.loan);
        self.laid = Some(Laid {
            link: link.serial,
            block,
            loan,
        });
        let (units, count) = Part::Bytes(lent?).to_units();
        self.units[..count].copy_from_slice(&units[..count]);
        (self.count, self.before) = (count, count);
        Ok(())
    }
}
