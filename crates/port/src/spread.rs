//! Ports that are served on every CPU, as their senders see them: which receiver is on which CPU.
//!
//! The exporter says so once for each link, by a control message. Until it has come, and on CPUs that it does not
//! name, messages go to the port's own receiver. A peer that lies here says it of its own ports, and only to itself:
//! a receiver that is another port's refuses what comes by a right that is not to it.

use crate::link::spread::Entry;
use crate::send::SendRight;
use handfast_layout::control::{ControlMessage, Encoded, spread_entry};

/// A right to such a port: the same for each CPU, with that receiver's lanes.
pub(crate) struct Spread {
    pub(crate) rights: Box<[SendRight]>,
    /// Index into the rights, plus one, by CPU.
    of_cpu: Box<[u8]>,
}

impl Spread {
    pub(crate) fn new(entries: &[Entry], make: impl Fn(Entry) -> SendRight) -> Self {
        let last = entries
            .iter()
            .map(|(cpu, _)| *cpu)
            .max()
            .unwrap_or_default();
        let mut of_cpu = vec![0; last as usize + 1];
        for ((cpu, _), place) in entries.iter().zip(1..) {
            of_cpu[*cpu as usize] = place;
        }
        Self {
            rights: entries.iter().map(|entry| make(*entry)).collect(),
            of_cpu: of_cpu.into(),
        }
    }

    /// The place of the right for `cpu`, from 1 on; 0 where the port has no receiver.
    #[inline]
    pub(crate) fn place(&self, cpu: u32) -> u8 {
        self.of_cpu.get(cpu as usize).copied().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn right(&self, place: u8) -> Option<&SendRight> {
        self.rights.get(usize::from(place).checked_sub(1)?)
    }
}

/// The announcement of a port to peers.
pub(crate) fn message(port: u32, entries: &[Entry]) -> Encoded {
    let entries = entries.iter();
    let entries: Vec<_> = entries
        .map(|(cpu, receiver)| spread_entry(*cpu as u16, *receiver as u8))
        .collect();
    let entries = &entries[..];
    ControlMessage::Spread { port, entries }.encode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::spread::CPUS;
    use crate::link::spread::checked;
    use handfast_layout::bell::RECEIVERS;

    #[test]
    fn what_is_said_is_what_is_heard_and_anything_else_is_refused() {
        let entries = [(0, 3), (1, 4), (CPUS - 1, RECEIVERS - 1)];
        let said = message(0x502, &entries);
        let heard = |said: &[u8]| match ControlMessage::parse(said) {
            Ok(Some(ControlMessage::Spread { port, entries })) => checked(port, entries),
            _ => None,
        };
        assert_eq!(heard(&said), Some(entries.to_vec()));
        let with = |at: usize, byte: u8| {
            let mut said = said.to_vec();
            said[2 + at] = byte;
            heard(&said)
        };
        // The port is a handle; its receiver, a CPU, a receiver are out of bounds; the last byte is not zero.
        for (at, byte) in [(3, 0x80), (0, 64), (5, 4), (6, 64), (6, 255), (7, 1)] {
            assert_eq!(with(at, byte), None, "{at} {byte}");
        }
        // A receiver twice, the receiver of the port itself, a CPU twice.
        for (at, byte) in [(10, 3), (6, 2), (8, 0)] {
            assert_eq!(with(at, byte), None, "{at} {byte}");
        }
        for len in 0..said.len() {
            let is_whole = len > 6 && (len - 6).is_multiple_of(4);
            assert_eq!(heard(&said[..len]).is_some(), is_whole, "{len}");
        }
    }
}
