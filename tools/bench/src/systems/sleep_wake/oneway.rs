//! The asynchronous Send of paper 000 (sections 1 and 2.1): a client fills the server's receive queue and waits for nothing but
//! room in it. Its steps are those of Reply. Both sides spin, by yields on one CPU: where a queue is full, the paper's other
//! protocols sleep for a second.

use super::{Channel, Kind, Message, Party, Protocol, Real, channels};
use crate::plan::Plan;
use crate::systems::child::Seat;
use crate::systems::{Bundle, Named, OneWay, Producer, Waits};
use std::io;

/// Under BSS.
pub(crate) struct Asynchronous;

const BSS: Protocol = Protocol::new("bss", Kind::Bss);

impl Named for Asynchronous {
    fn name(&self) -> &'static str {
        BSS.name()
    }

    fn key(&self) -> &'static str {
        "bss-oneway"
    }

    fn waits(&self) -> Waits {
        BSS.waits()
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        BSS.supports(plan)
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        BSS.prepare(plan)
    }
}

impl OneWay for Asynchronous {
    type Producer = Sender;

    fn consume(&self, seat: &Seat, mut received: impl FnMut(u64)) -> io::Result<()> {
        let party = BSS.party(seat, seat.server_tally(), true)?;
        let own = channel(seat)?;
        seat.ready();
        let mut count = 0;
        loop {
            let message = party.receive(&own)?;
            count += 1;
            let number = message.first_chunk().copied().map(u64::from_le_bytes);
            if number != Some(count) {
                return Err(io::Error::other("messages out of order"));
            }
            received(count);
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<Sender> {
        Ok(Sender {
            party: BSS.party(seat, seat.client_tally(), false)?,
            server: channel(seat)?,
        })
    }
}

/// The server's.
fn channel(seat: &Seat) -> io::Result<Channel> {
    let found = channels(seat, [0])?.pop();
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// A client that sends and waits for no answer.
pub(crate) struct Sender {
    party: Party<Real>,
    server: Channel,
}

impl Producer for Sender {
    #[inline]
    fn send(&mut self, message: [u64; 3]) -> io::Result<()> {
        let words = message.map(u64::to_le_bytes);
        let mut message: Message = [0; size_of::<Message>()];
        message.copy_from_slice(words.as_flattened());
        self.party.reply(&self.server, &message)
    }
}
