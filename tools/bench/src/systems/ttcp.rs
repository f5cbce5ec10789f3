//! One-way streams of any message size through handfast, with one strategy on both sides.

use super::handfast::{self, Handfast};
use super::{Named, OneWay, Producer, Waits};
use crate::systems::child::Seat;
use ::handfast::SendRight;
use std::io;

pub(crate) const SPIN: Ttcp = Ttcp(handfast::SPIN, "ttcp-spin");
pub(crate) const SCHED: Ttcp = Ttcp(handfast::SCHED, "ttcp-sched");
pub(crate) const BLOCK: Ttcp = Ttcp(handfast::BLOCK, "ttcp-block");
pub(crate) const NOTIFY: Ttcp = Ttcp(handfast::NOTIFY, "ttcp-notify");
pub(crate) const SPIN_SCHED: Ttcp = Ttcp(handfast::SPIN_SCHED, "ttcp-spin-sched");
pub(crate) const SPIN_BLOCK: Ttcp = Ttcp(handfast::SPIN_BLOCK, "ttcp-spin-block");
pub(crate) const SPIN_NOTIFY: Ttcp = Ttcp(handfast::SPIN_NOTIFY, "ttcp-spin-notify");
pub(crate) const DEFAULT: Ttcp = Ttcp(handfast::DEFAULT, "ttcp-default");

/// A strategy and its key.
pub(crate) struct Ttcp(Handfast, &'static str);

impl Named for Ttcp {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn key(&self) -> &'static str {
        self.1
    }

    fn waits(&self) -> Waits {
        self.0.waits()
    }
}

impl OneWay for Ttcp {
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
