//! Ports of the peer that are served on every CPU: which receiver is on which CPU, as the peer has said.
//!
//! The exporter says so once for each link, by a control message. Until it has come, and on CPUs that it does not
//! name, messages go to the port's own receiver. A peer that lies here says it of its own ports, and only to itself:
//! a receiver that is another port's refuses what comes by a right that is not to it.

use super::Link;
use crate::rank;
use core::sync::atomic::{AtomicBool, Ordering};
use handfast_layout::bell::RECEIVERS;
use handfast_layout::control::{ControlMessage, Encoded, OnCpu};
use handfast_layout::part::{is_handle, receiver_of};
use handfast_ring::{Fault, Rule};
use handfast_sys::sync::{Mutex, MutexGuard};
use std::sync::Arc;

/// CPUs are numbered below this: as many as an affinity mask has.
pub(crate) const CPUS: u32 = 1024;

/// A CPU, and the receiver there.
pub(crate) type Entry = (u32, u32);

/// Ports, and where each is served.
type Ports = Vec<(u32, Arc<[Entry]>)>;

/// The ports that a peer has announced: at most one for each receiver.
#[derive(Default)]
pub(crate) struct Told {
    ports: Mutex<Ports, rank::Spread>,
    has_any: AtomicBool,
}

/// The announcement of a port to peers.
pub(crate) fn message(port: u32, entries: &[Entry]) -> Encoded {
    let entries = entries.iter();
    let entries: Vec<_> = entries
        .map(|(cpu, receiver)| OnCpu {
            cpu: *cpu as u16,
            receiver: *receiver as u8,
        })
        .collect();
    let entries = entries[..].into();
    ControlMessage::Spread { port, entries }.encode()
}

/// A port's receivers, if there can be such.
fn checked(port: u32, entries: impl Iterator<Item = OnCpu>) -> Option<Vec<Entry>> {
    let is_port = !is_handle(port) && receiver_of(port) < RECEIVERS;
    if !is_port {
        return None;
    }
    let mut seen = 1u64 << receiver_of(port);
    let mut found: Vec<Entry> = Vec::new();
    for OnCpu { cpu, receiver } in entries {
        let (cpu, receiver) = (u32::from(cpu), u32::from(receiver));
        // Each receiver once: there are fewer entries than receivers.
        if cpu >= CPUS || receiver >= RECEIVERS || seen & 1 << receiver != 0 {
            return None;
        }
        if found.iter().any(|(other, _)| *other == cpu) {
            return None;
        }
        seen |= 1 << receiver;
        found.push((cpu, receiver));
    }
    (!found.is_empty()).then_some(found)
}

fn spread_told(link: &Link) -> MutexGuard<'_, Ports, rank::Spread> {
    link.rights.spread.ports.lock()
}

/// Control thread: the peer says which receivers one of its ports has. A port that is told of again is the same; a later
/// one at its receiver takes its place.
///
/// # Errors
/// The rule the peer broke.
pub(crate) fn hear(
    link: &Link,
    port: u32,
    entries: impl Iterator<Item = OnCpu>,
) -> Result<(), Fault> {
    let rule = Rule::Spread;
    let entries = checked(port, entries).ok_or(Fault { rule, offset: 0 })?;
    let mut told = spread_told(link);
    if let Some((_, known)) = told.iter().find(|(known, _)| *known == port) {
        return match known[..] == entries[..] {
            true => Ok(()),
            false => Err(Fault { rule, offset: 0 }),
        };
    }
    told.retain(|(known, _)| receiver_of(*known) != receiver_of(port));
    told.push((port, entries.into()));
    drop(told);
    // Release: a thread that sees it finds the port.
    link.rights.spread.has_any.store(true, Ordering::Release);
    // Rights that have been used already look again.
    link.disturb();
    Ok(())
}

/// Whether the peer has such ports. One load of a line that does not change.
#[inline]
pub(crate) fn is_known(link: &Link) -> bool {
    // Acquire: pairs with the Release of `hear_spread`.
    link.rights.spread.has_any.load(Ordering::Acquire)
}

/// The receivers of the peer's `port`, if it has one for each CPU.
pub(crate) fn of(link: &Link, port: u32) -> Option<Arc<[Entry]>> {
    let told = spread_told(link);
    let known = told.iter().find(|(known, _)| *known == port);
    known.map(|(_, entries)| entries.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_layout::bell::RECEIVERS;

    #[test]
    fn what_is_said_is_what_is_heard_and_anything_else_is_refused() {
        let entries = [(0, 3), (1, 4), (CPUS - 1, RECEIVERS - 1)];
        let said = message(0x502, &entries);
        let heard = |said: &[u8]| match ControlMessage::parse(said) {
            Ok(Some(ControlMessage::Spread { port, entries })) => checked(port, entries.iter()),
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
