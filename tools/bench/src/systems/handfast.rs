//! handfast through its public API, with one strategy on both sides: its default, and the seven of paper 001.

use super::sleep_wake::POLL_NS;
use super::{Caller, Named, System, Waits};
use crate::systems::child::Seat;
use handfast::{Options, ReceiveRight, SendRight, Strategy};
use std::io;
use std::time::Duration;

pub(crate) const SPIN: Handfast = Handfast {
    name: "handfast-spin",
    key: "handfast-spin",
    strategy: Strategy::Spin,
    waits: Waits::Spins,
};
pub(crate) const DEFAULT: Handfast = Handfast {
    name: "handfast-default",
    key: "handfast-default",
    strategy: Strategy::Adaptive,
    waits: Waits::Adapts,
};
pub(crate) const BLOCK: Handfast = Handfast {
    name: "handfast-block",
    key: "handfast-block",
    strategy: Strategy::Block,
    waits: Waits::Blocks,
};
/// As long a spin as `MAX_SPIN` of 20 is for `bsls`, then sleep.
pub(crate) const BSLS: Handfast = Handfast {
    name: "handfast-bsls",
    key: "handfast-bsls",
    strategy: Strategy::SpinBlock {
        limit: Some(Duration::from_nanos(20 * POLL_NS)),
    },
    waits: Waits::Adapts,
};
pub(crate) const SCHED: Handfast = Handfast {
    name: "handfast-sched",
    key: "handfast-sched",
    strategy: Strategy::Sched,
    waits: Waits::Adapts,
};
pub(crate) const NOTIFY: Handfast = Handfast {
    name: "handfast-notify",
    key: "handfast-notify",
    strategy: Strategy::Notify,
    waits: Waits::Blocks,
};
pub(crate) const SPIN_SCHED: Handfast = Handfast {
    name: "handfast-spin-sched",
    key: "handfast-spin-sched",
    strategy: Strategy::SpinSched { limit: None },
    waits: Waits::Adapts,
};
pub(crate) const SPIN_BLOCK: Handfast = Handfast {
    name: "handfast-spin-block",
    key: "handfast-spin-block",
    strategy: Strategy::SpinBlock { limit: None },
    waits: Waits::Adapts,
};
pub(crate) const SPIN_NOTIFY: Handfast = Handfast {
    name: "handfast-spin-notify",
    key: "handfast-spin-notify",
    strategy: Strategy::SpinNotify { limit: None },
    waits: Waits::Adapts,
};

/// One strategy, at server and client alike.
pub(crate) struct Handfast {
    name: &'static str,
    key: &'static str,
    strategy: Strategy,
    waits: Waits,
}

impl Handfast {
    pub(super) fn bind(&self, seat: &Seat) -> io::Result<ReceiveRight> {
        let options = Options::new().strategy(self.strategy);
        handfast::bind_with(&seat.server(seat.index), options).map_err(io::Error::other)
    }

    pub(super) fn port(&self, seat: &Seat) -> io::Result<SendRight> {
        self.port_of(seat, 0)
    }

    /// The right to call server `number`.
    pub(super) fn port_of(&self, seat: &Seat, number: usize) -> io::Result<SendRight> {
        let options = Options::new().strategy(self.strategy);
        handfast::connect_with(&seat.server(number), options).map_err(io::Error::other)
    }
}

impl Named for Handfast {
    fn name(&self) -> &'static str {
        self.name
    }

    fn key(&self) -> &'static str {
        self.key
    }

    fn waits(&self) -> Waits {
        self.waits
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
        let len = self.0.call_into(request, reply).map_err(io::Error::other)?;
        if len != reply.len() {
            return Err(io::Error::other("the reply has another length"));
        }
        Ok(())
    }
}
