//! Words and parts of messages that mean something to the process, or nothing.

use super::hand::Hand;
use super::length;
use crate::{Input, below, one_of, word};
use arbitrary::Result;
use handfast_layout::control::Shape;
use handfast_layout::hello::Process;
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::UNITS_MAX;
use handfast_layout::loan::{LentBlock, next_number};
use handfast_layout::part::{Bound, Part, ThirdForm};
use handfast_ring::lane::Unit;

/// The vocabulary of one of the peers.
pub(super) struct Words<'a> {
    hands: &'a [Hand],
    hand: usize,
}

impl<'a> Words<'a> {
    pub(super) const fn of(hands: &'a [Hand], hand: usize) -> Self {
        Self { hands, hand }
    }

    fn own(&self) -> &Hand {
        &self.hands[self.hand]
    }

    /// A word that means something here, or any.
    pub(super) fn value(&self, input: &mut Input<'_>) -> Result<u32> {
        let welcome = &self.own().welcome;
        Ok(match below(input, 8)? {
            0 => welcome.handle,
            1 => welcome.port,
            // A right of the hand's own, and its port.
            2 => 1 << 31 | u32::from(below(input, 4)?),
            3 => 0x100 * u32::from(below(input, 3)?),
            4 => next_number(below(input, 3)?.into()),
            5 => self.own().heard,
            _ => word(input)?,
        })
    }

    fn process(&self, input: &mut Input<'_>) -> Result<Process> {
        Ok(match below(input, 4)? {
            0 => self.hands[0].other(),
            1 => [7; 20],
            which => self.hands[usize::from(which) % self.hands.len()].process,
        })
    }

    /// A part of a control message.
    pub(super) fn fill(
        &self,
        shape: Shape,
        bytes: &mut Vec<u8>,
        input: &mut Input<'_>,
    ) -> Result<()> {
        let word = |input: &mut Input<'_>| self.value(input);
        match shape {
            Shape::Zero(len_bytes) => bytes.extend(vec![0; len_bytes]),
            Shape::Word => bytes.extend(word(input)?.to_le_bytes()),
            Shape::Long => bytes.extend(u64::from(word(input)?).to_le_bytes()),
            Shape::Process => bytes.extend(self.process(input)?),
            Shape::List(element_bytes) => {
                // An element, and any words behind it: whole elements or not.
                for _ in 0..element_bytes / 4 {
                    bytes.extend(word(input)?.to_le_bytes());
                }
                for _ in 0..input.arbitrary::<u8>()? {
                    bytes.extend(word(input)?.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    fn part(&self, input: &mut Input<'_>) -> Result<Vec<Unit>> {
        let value = |input: &mut Input<'_>| self.value(input);
        let sent = self.own().sent;
        let descriptor = |input: &mut Input<'_>| Ok(sent.wrapping_sub(below(input, 4)?.into()));
        let part = match below(input, 12)? {
            0 => Part::OfSender {
                handle: value(input)?,
                port: value(input)?,
            },
            1 => Part::OfReceiver {
                handle: value(input)?,
            },
            2 => Part::Reply {
                word: value(input)?,
                generation: value(input)?,
            },
            3 => {
                let (exporter, pid) = split(self.process(input)?);
                let vine = (value(input)?, value(input)?);
                let (port, number) = (value(input)?, value(input)?.into());
                let form = match below(input, 3)? {
                    0 => ThirdForm::Kept,
                    1 => ThirdForm::Plain,
                    _ => ThirdForm::Once,
                };
                Part::Third {
                    vine,
                    port,
                    exporter,
                    number,
                    pid,
                    form,
                }
            }
            4 => Part::Again {
                number: value(input)?.into(),
            },
            5 => {
                let (introducer, pid) = split(self.process(input)?);
                let (port, number) = (value(input)?, value(input)?.into());
                Part::Home {
                    port,
                    introducer,
                    pid,
                    number,
                }
            }
            6 => {
                let name = below(input, 5)?;
                let number = if name > 0 { descriptor(input)? } else { 0 };
                let (token, asks) = (value(input)?, below(input, 2)? == 0);
                let part = Part::Receive {
                    token,
                    number,
                    name_bytes: name,
                    asks,
                };
                let mut units = vec![part.to_units().0[0]];
                if name > 0 {
                    let name = "moved"[..usize::from(name)].to_owned();
                    units.extend(Bound { file: (1, 2), name }.to_units());
                }
                return Ok(units);
            }
            7 => Part::Descriptor {
                number: descriptor(input)?,
            },
            8 => {
                let len_bytes = one_of(input, &[4096, 8192, 1])?.unwrap_or(0);
                Part::Memory {
                    number: descriptor(input)?,
                    len_bytes,
                }
            }
            9 => Part::Loan(LentBlock {
                arena: value(input)?,
                block: below(input, 3)?.into(),
                loan: value(input)?,
                generation: value(input)?,
                len_bytes: length(input)? as u64,
                fill: 0,
            }),
            10 => Part::Bytes(LentBlock {
                arena: value(input)?,
                block: below(input, 3)?.into(),
                loan: value(input)?,
                generation: value(input)?,
                len_bytes: one_of(input, &[65_537, 131_072, 1, u64::MAX])?.unwrap_or(0),
                fill: value(input)?,
            }),
            _ => return Ok(vec![input.arbitrary()?; 1]),
        };
        let (units, count) = part.to_units();
        Ok(units[..count].to_vec())
    }

    pub(super) fn parts(&self, input: &mut Input<'_>) -> Result<Vec<Unit>> {
        let mut units = Vec::new();
        for _ in 0..below(input, 8)?.saturating_sub(3) {
            units.extend(self.part(input)?);
        }
        units.truncate(UNITS_MAX);
        Ok(units)
    }

    pub(super) fn said(&self, input: &mut Input<'_>) -> Result<Vec<u8>> {
        let number = self.value(input)?.into();
        let word = self.value(input)?;
        let said = match below(input, 7)? {
            0 => LaneControl::Provide {
                number,
                recipient: self.process(input)?,
            },
            1 => LaneControl::Claim {
                word,
                number,
                introducer: self.process(input)?,
            },
            2 => LaneControl::Attenuate {
                word,
                mask: word as u16,
            },
            3 => LaneControl::Mint {
                word,
                badge: number,
                permissions: u16::MAX,
                is_once: number & 1 == 1,
            },
            4 => LaneControl::Mark {
                lanes: word,
                number,
            },
            5 => LaneControl::Told { number },
            _ => {
                let len_bytes = input.arbitrary::<u8>()?;
                return Ok(input.bytes(usize::from(len_bytes))?.to_vec());
            }
        };
        Ok(said.encode().to_vec())
    }
}

fn split(process: Process) -> ([u8; 16], u32) {
    let mut incarnation = [0; 16];
    incarnation.copy_from_slice(&process[..16]);
    let pid = [process[16], process[17], process[18], process[19]];
    (incarnation, u32::from_le_bytes(pid))
}
