//! The hand-written systems over shared lanes: the limits others are held against, and `eventfd`.
//!
//! Up to 24 bytes travel in the line. Larger requests are made in place: the client writes the
//! counter into the shared buffer, the server copies out and copies its answer back, the client
//! copies out. That is the least a system can do whose two sides do not trust each other.

use super::lanes::{INLINE_BYTES, Lane, Lanes};
use super::waiters::{EventFd, Spin, SpinThenSleep, SpinThenYield, Waiter};
use super::{Bundle, Caller, Named, System, Waits};
use crate::plan::Plan;
use crate::process::dup;
use crate::shared::{Piece, Shared};
use crate::systems::child::Seat;
use std::io;
use std::marker::PhantomData;

/// Both sides spin: the limit of a call.
pub(crate) const LIMIT: Pair<Spin> = Pair::new("limit", "limit", Waits::Spins);

/// Both sides spin for the plan's limit, then yield. On one CPU with a limit of zero: two yields
/// per call, the limit there.
pub(crate) const YIELDING: Pair<SpinThenYield> =
    Pair::new("limit", "limit-yielding", Waits::Adapts);

/// Both sides sleep at once: the limit where both are asleep. Plans give it a spin limit of zero.
pub(crate) const FUTEX: Pair<SpinThenSleep> = Pair::new("futex", "futex", Waits::Blocks);

/// Both sides spin for the plan's limit, then sleep: the fixed policies of `wait`.
pub(crate) const SPIN_THEN_SLEEP: Pair<SpinThenSleep> =
    Pair::new("limit", "limit-spin-then-sleep", Waits::Adapts);

/// Shared memory with an event descriptor each way.
pub(crate) const EVENTFD: Pair<EventFd> = Pair::new("eventfd", "eventfd", Waits::Blocks);

/// A pair, or one server and several clients, whose sides wait as `W` does.
pub(crate) struct Pair<W> {
    name: &'static str,
    key: &'static str,
    waits: Waits,
    _waiter: PhantomData<W>,
}

impl<W> Pair<W> {
    const fn new(name: &'static str, key: &'static str, waits: Waits) -> Self {
        Self {
            name,
            key,
            waits,
            _waiter: PhantomData,
        }
    }
}

impl<W> Named for Pair<W> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn key(&self) -> &'static str {
        self.key
    }

    fn waits(&self) -> Waits {
        self.waits
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        if self.key == "eventfd" && plan.clients > 1 {
            return Err("eventfd is measured with one client".to_owned());
        }
        Ok(())
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        let (fd, _) = Shared::create("handfast-bench-lanes", Lanes::len_bytes(plan))?;
        let mut bundle = Bundle {
            common: vec![fd],
            ..Bundle::default()
        };
        if self.key == "eventfd" {
            let event = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
            let (request, reply) = (event()?, event()?);
            // Each side: the one it sleeps in, then the one it writes.
            bundle.clients = vec![vec![dup(&reply)?, dup(&request)?]];
            bundle.server = vec![request, reply];
        }
        Ok(bundle)
    }
}

impl<W: Waiter> System for Pair<W> {
    type Caller = PairCaller<W>;

    fn serve(&self, seat: &Seat, mut handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let lanes = Lanes::map(seat)?;
        let server_bed = lanes.server_bed;
        let mut waiter = W::new(seat, &seat.fds[1..])?;
        // Each lane with the number of the request it waits for.
        let mut lanes: Vec<(Lane, u64)> = (0..seat.plan.clients)
            .map(|index| (lanes.lane(index), 1))
            .collect();
        let mut private = vec![0; seat.plan.payload_bytes];
        let inline = private.len() <= INLINE_BYTES;
        seat.ready();
        loop {
            let mut found = false;
            for (lane, next) in &mut lanes {
                if !lane.request.has(*next) {
                    continue;
                }
                found = true;
                if inline {
                    lane.request.get(&mut private);
                } else {
                    lane.request_bytes.copy_out(&mut private);
                }
                let len = handler(&mut private);
                if len <= INLINE_BYTES {
                    lane.reply.put(&private[..len]);
                } else {
                    lane.reply_bytes.copy_in(&private[..len]);
                }
                lane.reply.publish(*next);
                *next += 1;
                waiter.wake(lane.client_bed)?;
            }
            if found {
                waiter.found();
            } else {
                let ready = || lanes.iter().any(|(lane, next)| lane.request.has(*next));
                waiter.pass(server_bed, ready)?;
            }
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<Self::Caller> {
        let lanes = Lanes::map(seat)?;
        Ok(PairCaller {
            lane: lanes.lane(seat.index),
            lanes,
            waiter: W::new(seat, &seat.fds[1..])?,
            sequence: 0,
        })
    }
}

/// One client's end.
pub(crate) struct PairCaller<W> {
    lane: Lane,
    lanes: Lanes,
    waiter: W,
    sequence: u64,
}

impl<W: Waiter> PairCaller<W> {
    /// Its server has a thread for it alone.
    pub(crate) const fn sleeps_alone(&mut self) {
        self.lanes.server_bed = self.lane.server_bed;
    }

    /// Publishes what is in the lane and receives the reply.
    #[inline]
    fn exchange(&mut self, reply: &mut [u8]) -> io::Result<()> {
        self.sequence += 1;
        self.lane.request.publish(self.sequence);
        self.waiter.wake(self.lanes.server_bed)?;
        let (cell, sequence) = (self.lane.reply, self.sequence);
        while !cell.has(sequence) {
            self.waiter
                .pass(self.lane.client_bed, || cell.has(sequence))?;
        }
        self.waiter.found();
        if reply.len() <= INLINE_BYTES {
            cell.get(reply);
        } else {
            self.lane.reply_bytes.copy_out(reply);
        }
        Ok(())
    }
}

impl<W: Waiter> Caller for PairCaller<W> {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        if request.len() <= INLINE_BYTES {
            self.lane.request.put(request);
        } else {
            // Made in place: only the counter changes from call to call.
            self.lane.request_bytes.copy_in(&request[..8]);
        }
        self.exchange(reply)
    }

    #[inline]
    fn call_made(
        &mut self,
        make: impl Fn(usize) -> Piece,
        scratch: &mut [u8],
        reply: &mut [u8],
    ) -> io::Result<()> {
        for index in 0..scratch.len() / size_of::<Piece>() {
            self.lane.request_bytes.put(index, make(index));
        }
        self.exchange(reply)
    }

    #[inline]
    fn call_returned(
        &mut self,
        make: impl Fn(usize) -> Piece,
        scratch: &mut [u8],
        reply: &mut [u8],
    ) -> io::Result<u64> {
        // The reply stays where it is.
        self.call_made(make, scratch, &mut [])?;
        Ok(self.lane.reply_bytes.sum(reply.len() / size_of::<Piece>()))
    }
}
