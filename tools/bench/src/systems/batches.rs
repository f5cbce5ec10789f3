//! One-way streams through handfast's public API: one message at a time, and many in one operation.

use super::handfast::DEFAULT;
use super::{Bundle, Named, OneWay, Producer, Waits};
use crate::plan::Plan;
use crate::systems::child::Seat;
use handfast::{Batch, SendRight};
use std::io;

/// Sent with `send_many`, received with `receive_many`.
pub(crate) const BATCHES: Batches = Batches {
    key: "handfast-batches",
    messages: 32,
};
/// Each sent and received on its own.
pub(crate) const SINGLES: Batches = Batches {
    key: "handfast-singles",
    messages: 1,
};

/// Streams with the default strategy.
pub(crate) struct Batches {
    key: &'static str,
    /// Messages of one `send_many`.
    messages: usize,
}

impl Named for Batches {
    fn name(&self) -> &'static str {
        DEFAULT.name()
    }

    fn key(&self) -> &'static str {
        self.key
    }

    fn waits(&self) -> Waits {
        Waits::Adapts
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        DEFAULT.prepare(plan)
    }
}

impl OneWay for Batches {
    type Producer = BatchProducer;

    fn consume(&self, seat: &Seat, mut received: impl FnMut(u64)) -> io::Result<()> {
        let port = DEFAULT.bind(seat)?;
        seat.ready();
        let mut count = 0;
        if self.messages == 1 {
            loop {
                let request = port.receive().map_err(io::Error::other)?;
                count += 1;
                check(request.bytes(), count)?;
                received(count);
            }
        }
        let mut batch = Batch::new();
        loop {
            port.receive_many(&mut batch).map_err(io::Error::other)?;
            for message in batch.messages() {
                count += 1;
                check(message, count)?;
            }
            received(count);
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<BatchProducer> {
        Ok(BatchProducer {
            port: DEFAULT.port(seat)?,
            batch: Vec::with_capacity(self.messages),
        })
    }
}

/// As the limit does: the messages are looked at, and are all there in order.
#[inline]
fn check(message: &[u8], count: u64) -> io::Result<()> {
    let counter = message
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes));
    if counter == Some(count) {
        return Ok(());
    }
    Err(io::Error::other("messages out of order"))
}

/// The sending end: fills a batch, then sends it.
pub(crate) struct BatchProducer {
    port: SendRight,
    batch: Vec<Piece>,
}

/// One message.
struct Piece([[u8; 8]; 3]);

impl AsRef<[u8]> for Piece {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.0.as_flattened()
    }
}

impl Producer for BatchProducer {
    #[inline]
    fn send(&mut self, message: [u64; 3]) -> io::Result<()> {
        let piece = Piece(message.map(u64::to_le_bytes));
        if self.batch.capacity() == 1 {
            return self.port.send(piece.as_ref()).map_err(io::Error::other);
        }
        self.batch.push(piece);
        if self.batch.len() < self.batch.capacity() {
            return Ok(());
        }
        self.port.send_many(&self.batch).map_err(io::Error::other)?;
        self.batch.clear();
        Ok(())
    }
}
