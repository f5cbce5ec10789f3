//! The limit of `payload`: made in shared memory, read there, never copied.
//!
//! No system with a hostile peer can do this for bytes it looks at; it bounds what they could
//! gain.

use super::lanes::Lanes;
use super::pair::{LIMIT, PairCaller};
use super::waiters::{Spin, Waiter};
use super::{Bundle, Named, System, Waits};
use crate::bench::child::Seat;
use crate::bench::plan::{Plan, Task};
use std::io;

/// The spinning pair, with a server that reads the request where it is.
pub(crate) struct InPlace;

impl Named for InPlace {
    fn name(&self) -> &'static str {
        "limit"
    }

    fn key(&self) -> &'static str {
        "limit-in-place"
    }

    fn waits(&self) -> Waits {
        Waits::Spins
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        if plan.task == Task::Consume && plan.clients == 1 {
            return Ok(());
        }
        Err("in place, one client consumes".to_owned())
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        LIMIT.prepare(plan)
    }
}

impl System for InPlace {
    type Caller = PairCaller<Spin>;

    /// Runs its own handler, the checksum over the shared bytes, since the harness's wants a
    /// private copy.
    fn serve(&self, seat: &Seat, _: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let lanes = Lanes::map(seat)?;
        let lane = lanes.lane(0);
        let mut waiter = Spin::new(seat, &[])?;
        let pieces = seat.plan.payload_bytes / 64;
        seat.ready();
        for next in 1.. {
            while !lane.request.has(next) {
                waiter.pass(lanes.server_bed, || false)?;
            }
            let mut sums = [0u64; 8];
            for index in 0..pieces {
                let piece = lane.request_bytes.get(index);
                for (sum, word) in sums.iter_mut().zip(piece) {
                    *sum = sum.wrapping_add(word);
                }
            }
            let sum = sums.into_iter().fold(0, u64::wrapping_add);
            lane.reply.put(&sum.to_le_bytes());
            lane.reply.publish(next);
        }
        Ok(())
    }

    fn connect(&self, seat: &Seat) -> io::Result<Self::Caller> {
        LIMIT.connect(seat)
    }
}
