//! Sending the descriptors of a message ahead of it.

use super::Described;
use crate::body::Body;
use crate::call_slots;
use crate::descriptors::{Unsent, send_descriptors};
use crate::link::{Link, Outgoing};
use crate::right::Right;
use crate::send::{Blocked, SendRight};
use handfast_layout::link::{Kind, UNIT_BYTES};
use handfast_layout::part::Part;
use handfast_region::Bytes;
use handfast_ring::lane::Refused;

impl Described {
    /// Sends the descriptors of a message, all or none, and names them in its units. Nothing may
    /// keep the message from following. One system call if there are any.
    pub(crate) fn send_descriptors(&mut self, link: &Link, rights: &[Right]) -> Result<(), Unsent> {
        let fds: Vec<_> = rights.iter().filter_map(Right::fd).collect();
        if fds.is_empty() {
            return Ok(());
        }
        let mut number = send_descriptors(link, &fds)?;
        let mut units = self.units_of_rights();
        for right in rights {
            let parsed = Part::parse(units);
            let count = parsed.map_or(1, |(_, count)| count);
            let (of_right, rest) = units.split_at_mut(count);
            let numbered = match (right, parsed) {
                (Right::Receive(receive), Some((part, _))) if receive.listener().is_some() => {
                    Some(part.with_number(number))
                }
                _ => right.numbered(number),
            };
            if let Some(part) = numbered {
                of_right[0] = part.to_units().0[0];
                number = number.wrapping_add(1);
            }
            units = rest;
        }
        Ok(())
    }
}

/// Sends the descriptors of a message, once there is a place for it in its lane, whose lock is held:
/// descriptors that were sent are posted.
pub(crate) fn send(
    this: &SendRight,
    (outgoing, lane): (&mut Outgoing, u32),
    (bytes, kind): (Body<'_>, Kind),
    (described, rights): (&mut Described, &[Right]),
) -> Result<(), Blocked> {
    if rights.iter().all(|right| right.fd().is_none()) {
        return Ok(());
    }
    if kind == Kind::Call && outgoing.claimed.is_none() {
        outgoing.claimed = call_slots::claim(this, lane, &mut outgoing.producer);
        outgoing.claimed.ok_or(Blocked::Slots)?;
    }
    let body_bytes = bytes.len_bytes() + described.units().len() * UNIT_BYTES;
    let has_room = outgoing.producer.has_room(&this.link().region, body_bytes);
    if !has_room.map_err(|fault| Blocked::Lane(Refused::Fault(fault)))? {
        return Err(Blocked::Lane(Refused::Full));
    }
    let sent = described.send_descriptors(this.link(), rights);
    sent.map_err(|unsent| match unsent {
        Unsent::Full => Blocked::Slots,
        Unsent::Right(error) => Blocked::Right(error),
        Unsent::Fault(fault) => Blocked::Lane(Refused::Fault(fault)),
    })
}
