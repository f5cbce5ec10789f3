//! A thread that waits at one side of a ring, for bytes or for room.

use crate::shared::{Shared, Side};
use handfast_ring::stream::Broken;
use handfast_wait::place::{Parked, Place, Sleep, Start};
use handfast_wait::{Strategy, Waiter};

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Some,
    /// Nothing comes any more.
    End,
}

/// How one side waits.
#[derive(Debug)]
pub(crate) struct Waits {
    side: Side,
    waiter: Waiter,
    /// The peer's process has gone, or it has closed its end.
    is_gone: bool,
}

impl Waits {
    pub(crate) fn new(side: Side, strategy: Strategy) -> Self {
        Self {
            side,
            waiter: Waiter::new(strategy, None),
            is_gone: false,
        }
    }

    /// Waits by the strategy until a look finds something. The look is told whether the peer has gone: what it had written before is there by then.
    pub(crate) fn wait(
        &mut self,
        shared: &Shared,
        find: impl FnMut(bool) -> Result<Found, Broken>,
    ) -> Result<Found, Broken> {
        let mut waiting = Waiting {
            shared,
            side: self.side,
            is_gone: &mut self.is_gone,
            find,
            found: Ok(Found::Nothing),
        };
        if !waiting.look() {
            let woke_peer = self.side == Side::Reader && shared.has_woken();
            self.waiter.wait(&mut waiting, None, woke_peer);
        }
        waiting.found
    }
}

struct Waiting<'a, F> {
    shared: &'a Shared,
    side: Side,
    is_gone: &'a mut bool,
    find: F,
    found: Result<Found, Broken>,
}

impl<F: FnMut(bool) -> Result<Found, Broken>> Place for Waiting<'_, F> {
    fn look(&mut self) -> bool {
        self.found = (self.find)(*self.is_gone);
        self.found != Ok(Found::Nothing)
    }

    fn shares_processor(&mut self) -> bool {
        self.shared.shares_processor(self.side)
    }

    fn park(&mut self, _: Sleep, _: Option<u64>, _: Option<Start>) -> Parked {
        let (shared, side) = (self.shared, self.side);
        let woken = shared.sleep(side, None, || self.look());
        *self.is_gone |= woken.is_some_and(|woken| woken.is_gone);
        Parked {
            ready: self.look(),
            posted_after_ns: None,
        }
    }
}
