//! handfast through its public API, with one strategy on both sides: its default, the seven of paper 001, and the four of paper 000.

use super::{Caller, Named, System, Waits, fill_made};
use crate::plan::Plan;
use crate::shared::Piece;
use crate::systems::child::{self, Seat};
use handfast::{MESSAGE_BYTES_MAX, Options, ReceiveRight, SendRight, Strategy};
use handfast_sys::cpu;
use std::io;
use std::time::Duration;

pub(crate) const SPIN: Handfast = Handfast::new("handfast-spin", Strategy::Spin, Waits::Spins);
pub(crate) const DEFAULT: Handfast =
    Handfast::new("handfast-default", Strategy::Adaptive, Waits::Adapts);
pub(crate) const BLOCK: Handfast = Handfast::new("handfast-block", Strategy::Block, Waits::Blocks);
/// The four of paper 000.
pub(crate) const PROTOCOLS: [Handfast; 4] = [
    Handfast::new("handfast-bss", Strategy::Bss, Waits::Adapts),
    Handfast::new("handfast-bsw", Strategy::Bsw, Waits::Blocks),
    Handfast::new("handfast-bswy", Strategy::Bswy, Waits::Adapts),
    Handfast::new(
        "handfast-bsls",
        Strategy::Bsls { max_spin: 20 },
        Waits::Adapts,
    ),
];
pub(crate) const SCHED: Handfast = Handfast::new("handfast-sched", Strategy::Sched, Waits::Adapts);
pub(crate) const NOTIFY: Handfast =
    Handfast::new("handfast-notify", Strategy::Notify, Waits::Blocks);
pub(crate) const SPIN_SCHED: Handfast = Handfast::new(
    "handfast-spin-sched",
    Strategy::SpinSched { limit: None },
    Waits::Adapts,
);
pub(crate) const SPIN_BLOCK: Handfast = Handfast::new(
    "handfast-spin-block",
    Strategy::SpinBlock { limit: None },
    Waits::Adapts,
);
pub(crate) const SPIN_NOTIFY: Handfast = Handfast::new(
    "handfast-spin-notify",
    Strategy::SpinNotify { limit: None },
    Waits::Adapts,
);

/// One strategy, at server and client alike.
pub(crate) struct Handfast {
    name: &'static str,
    strategy: Strategy,
    waits: Waits,
}

impl Handfast {
    const fn new(name: &'static str, strategy: Strategy, waits: Waits) -> Self {
        Self {
            name,
            strategy,
            waits,
        }
    }

    /// Its strategy, with the plan's limit if that has one.
    pub(super) fn strategy_of(&self, seat: &Seat) -> Strategy {
        let spin_ns = seat.plan.spin_ns;
        let limit = (spin_ns > 0).then(|| Duration::from_nanos(spin_ns));
        match self.strategy {
            Strategy::SpinSched { .. } => Strategy::SpinSched { limit },
            Strategy::SpinBlock { .. } => Strategy::SpinBlock { limit },
            Strategy::SpinNotify { .. } => Strategy::SpinNotify { limit },
            other => other,
        }
    }

    pub(super) fn bind(&self, seat: &Seat) -> io::Result<ReceiveRight> {
        let options = Options::new().strategy(self.strategy_of(seat));
        handfast::bind_with(&seat.server(seat.index), options).map_err(io::Error::other)
    }

    /// A port of a client's.
    pub(super) fn bind_back(&self, seat: &Seat) -> io::Result<ReceiveRight> {
        let options = Options::new().strategy(self.strategy_of(seat));
        handfast::bind_with(&format!("{}-back", seat.address), options).map_err(io::Error::other)
    }

    pub(super) fn port(&self, seat: &Seat) -> io::Result<SendRight> {
        self.port_of(seat, 0)
    }

    /// The right to call server `number`.
    pub(super) fn port_of(&self, seat: &Seat, number: usize) -> io::Result<SendRight> {
        let options = Options::new().strategy(self.strategy_of(seat));
        handfast::connect_with(&seat.server(number), options).map_err(io::Error::other)
    }
}

impl Named for Handfast {
    fn name(&self) -> &'static str {
        self.name
    }

    fn key(&self) -> &'static str {
        self.name
    }

    fn waits(&self) -> Waits {
        self.waits
    }
}

/// A strategy, the key of a system, and what that system does with handfast.
pub(crate) struct By<U>(pub(super) Handfast, pub(super) &'static str, pub(super) U);

/// The use that a system makes of handfast, apart from its strategy.
pub(crate) trait Usage {
    /// As [`Named::supports`], of a system that waits like that.
    fn supports(&self, _waits: Waits, _plan: &Plan) -> Result<(), String> {
        Ok(())
    }
}

/// Whether so many processes that wait like that have a CPU each, if they need one.
pub(super) fn has_cpus(waits: Waits, processes: usize) -> Result<(), String> {
    match waits == Waits::Spins && (cpu::available() as usize) < processes {
        true => Err(format!("{processes} that spin need as many CPUs")),
        false => Ok(()),
    }
}

impl<U: Usage> Named for By<U> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn key(&self) -> &'static str {
        self.1
    }

    fn waits(&self) -> Waits {
        self.0.waits()
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        self.2.supports(self.waits(), plan)
    }
}

impl System for Handfast {
    type Caller = HandfastCaller;

    fn serve(&self, seat: &Seat, mut handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let port = self.bind(seat)?;
        seat.ready();
        let mut request = port.receive().map_err(io::Error::other)?;
        if seat.plan.watches {
            port.notify_no_senders();
        }
        loop {
            if request.notice().is_some() {
                seat.set_noticed();
                request = port.receive().map_err(io::Error::other)?;
                continue;
            }
            let mut message = request.take_message();
            let len = handler(&mut message);
            request = port
                .reply_and_receive(request, &message[..len])
                .map_err(io::Error::other)?;
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<HandfastCaller> {
        Ok(HandfastCaller(self.port(seat)?))
    }
}

pub(crate) struct HandfastCaller(SendRight);

impl Caller for HandfastCaller {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        call(&self.0, request, reply)
    }

    #[inline]
    fn call_returned(
        &mut self,
        make: impl Fn(usize) -> Piece,
        scratch: &mut [u8],
        reply: &mut [u8],
    ) -> io::Result<u64> {
        if reply.len() <= MESSAGE_BYTES_MAX {
            self.call_made(make, scratch, reply)?;
            return Ok(child::checksum(reply));
        }
        fill_made(make, scratch);
        // `call_into` would copy a long reply once more.
        let answer = self.0.call(scratch).map_err(io::Error::other)?;
        is_whole(answer.len(), reply)?;
        Ok(child::checksum(&answer))
    }
}

/// A call whose reply has the length of `reply`.
#[inline]
pub(super) fn call(right: &SendRight, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
    let len = right.call_into(request, reply).map_err(io::Error::other)?;
    is_whole(len, reply)
}

/// Copies an answer of the length of `reply`.
#[inline]
pub(super) fn fill(reply: &mut [u8], answer: &[u8]) -> io::Result<()> {
    is_whole(answer.len(), reply)?;
    reply.copy_from_slice(answer);
    Ok(())
}

fn is_whole(len: usize, reply: &[u8]) -> io::Result<()> {
    match len == reply.len() {
        true => Ok(()),
        false => Err(io::Error::other("the reply has another length")),
    }
}
