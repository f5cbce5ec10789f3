//! One-way messages through a System V queue.

use super::{SysVMessage, SysVQueue, fits, queues};
use crate::plan::Plan;
use crate::systems::child::Seat;
use crate::systems::{Bundle, Named, OneWay, Producer, Waits};
use std::io;

/// One queue, one sender.
pub(crate) struct SysVOneWay;

impl Named for SysVOneWay {
    fn name(&self) -> &'static str {
        "sysv-queue"
    }

    fn key(&self) -> &'static str {
        "sysv-oneway"
    }

    fn waits(&self) -> Waits {
        Waits::Blocks
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        fits(plan, "/proc/sys/kernel/msgmax")
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        let queue = SysVQueue::create()?;
        if plan.room > 0 {
            queue.limit(plan.room as usize * plan.payload_bytes)?;
        }
        Ok(Bundle {
            address: queue.id.to_string(),
            guard: Some(Box::new(queue)),
            ..Bundle::default()
        })
    }
}

impl OneWay for SysVOneWay {
    type Producer = Sender;

    fn consume(&self, seat: &Seat, mut received: impl FnMut(u64)) -> io::Result<()> {
        let queue = queue(seat)?;
        let mut private = vec![0; seat.plan.payload_bytes];
        let mut buffer = SysVMessage::new(seat, seat.server_tally());
        seat.ready();
        let mut count = 0;
        loop {
            buffer.receive(queue, &mut private)?;
            count += 1;
            let number = private.first_chunk().copied().map(u64::from_le_bytes);
            if number != Some(count) {
                return Err(io::Error::other("messages out of order"));
            }
            received(count);
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<Sender> {
        Ok(Sender {
            queue: queue(seat)?,
            buffer: SysVMessage::new(seat, seat.client_tally()),
        })
    }
}

fn queue(seat: &Seat) -> io::Result<i32> {
    let found = queues(seat)?.pop();
    found.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The sending end.
pub(crate) struct Sender {
    queue: i32,
    buffer: SysVMessage,
}

impl Producer for Sender {
    #[inline]
    fn send(&mut self, message: [u64; 3]) -> io::Result<()> {
        let words = message.map(u64::to_le_bytes);
        self.buffer.send(self.queue, 1, words.as_flattened())
    }
}
