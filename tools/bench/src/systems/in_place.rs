//! The limit of `payload` and of echoes: made in shared memory, read there, never copied.
//!
//! The server of an echo passes the bytes from the request's place to the reply's, once, since
//! each side writes its own memory only.
//!
//! No system with a hostile peer can do this for bytes it looks at; it bounds what they could
//! gain.

use super::lanes::Lanes;
use super::pair::{LIMIT, PairCaller};
use super::waiters::{Spin, Waiter};
use super::{Bundle, Named, System, Waits};
use crate::plan::{Plan, Task};
use crate::shared::Piece;
use crate::systems::child::Seat;
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
        if matches!(plan.task, Task::Consume | Task::Return) && plan.clients == 1 {
            return Ok(());
        }
        Err("in place, one client has its payload consumed or returned".to_owned())
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        LIMIT.prepare(plan)
    }
}

impl System for InPlace {
    type Caller = PairCaller<Spin>;

    /// Does the task over the shared bytes itself, since the harness's handler wants a private copy.
    fn serve(&self, seat: &Seat, _: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let lanes = Lanes::map(seat)?;
        let lane = lanes.lane(0);
        let mut waiter = Spin::new(seat, &[])?;
        let len_bytes = seat.plan.payload_bytes;
        let returns = seat.plan.task == Task::Return;
        seat.ready();
        for next in 1.. {
            while !lane.request.has(next) {
                waiter.pass(lanes.server_bed, || false)?;
            }
            if returns {
                lane.request_bytes.copy_to(&lane.reply_bytes, len_bytes);
            } else {
                let sum = lane.request_bytes.sum(len_bytes / size_of::<Piece>());
                lane.reply.put(&sum.to_le_bytes());
            }
            lane.reply.publish(next);
        }
        Ok(())
    }

    fn connect(&self, seat: &Seat) -> io::Result<Self::Caller> {
        LIMIT.connect(seat)
    }
}
