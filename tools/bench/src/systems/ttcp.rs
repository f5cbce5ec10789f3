//! One-way streams of any message size through handfast, with one strategy on both sides.

use super::handfast::{self, By, Usage};
use super::{OneWay, Producer};
use crate::systems::child::Seat;
use ::handfast::SendRight;
use std::io;

pub(crate) const SPIN: By<Ttcp> = By(handfast::SPIN, "ttcp-spin", Ttcp);
pub(crate) const SCHED: By<Ttcp> = By(handfast::SCHED, "ttcp-sched", Ttcp);
pub(crate) const BLOCK: By<Ttcp> = By(handfast::BLOCK, "ttcp-block", Ttcp);
pub(crate) const NOTIFY: By<Ttcp> = By(handfast::NOTIFY, "ttcp-notify", Ttcp);
pub(crate) const SPIN_SCHED: By<Ttcp> = By(handfast::SPIN_SCHED, "ttcp-spin-sched", Ttcp);
pub(crate) const SPIN_BLOCK: By<Ttcp> = By(handfast::SPIN_BLOCK, "ttcp-spin-block", Ttcp);
pub(crate) const SPIN_NOTIFY: By<Ttcp> = By(handfast::SPIN_NOTIFY, "ttcp-spin-notify", Ttcp);
pub(crate) const DEFAULT: By<Ttcp> = By(handfast::DEFAULT, "ttcp-default", Ttcp);

/// See the module text.
pub(crate) struct Ttcp;

impl Usage for Ttcp {}

impl OneWay for By<Ttcp> {
    type Producer = TtcpProducer;

    fn consume(&self, seat: &Seat, mut received: impl FnMut(u64)) -> io::Result<()> {
        let port = self.0.bind(seat)?;
        let mut count = 0u64;
        seat.ready();
        loop {
            let request = port.receive().map_err(io::Error::other)?;
            count += 1;
            let number = request.bytes().first_chunk();
            let is_whole = request.bytes().len() == seat.plan.payload_bytes;
            if !is_whole || number.map(|bytes| u64::from_le_bytes(*bytes)) != Some(count) {
                return Err(io::Error::other("messages out of order, or cut"));
            }
            received(count);
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<TtcpProducer> {
        Ok(TtcpProducer {
            port: self.0.port(seat)?,
            message: vec![0x5a; seat.plan.payload_bytes],
        })
    }
}

/// The sending end.
pub(crate) struct TtcpProducer {
    port: SendRight,
    message: Vec<u8>,
}

impl Producer for TtcpProducer {
    #[inline]
    fn send(&mut self, [number, ..]: [u64; 3]) -> io::Result<()> {
        // The rest stays as it is.
        self.message[..8].copy_from_slice(&number.to_le_bytes());
        self.port.send(&self.message).map_err(io::Error::other)
    }
}
