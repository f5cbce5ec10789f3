//! A thread that waits at one side of a ring, for bytes or for room.

use crate::shared::{Shared, Side};
use handfast_proto::streams::Broken;
use handfast_wait::place::{Parked, Place, Sleep, Start};
use handfast_wait::{Strategy, Waiter};

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

    /// Whether the peer's process has gone, or has closed its end.
    pub(crate) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    pub(crate) const fn note_gone(&mut self) {
        self.is_gone = true;
    }

    /// Waits by the strategy until a look finds something, or until the deadline; one of 0 is a look alone. The look is told whether the peer has gone: what it had written
    /// before is there by then.
    pub(crate) fn wait<T>(
        &mut self,
        shared: &Shared,
        deadline_ns: Option<u64>,
        find: impl FnMut(bool) -> Result<Option<T>, Broken>,
    ) -> Result<Option<T>, Broken> {
        let mut waiting = Waiting {
            shared,
            side: self.side,
            is_gone: &mut self.is_gone,
            find,
            found: Ok(None),
        };
        if !waiting.look() && deadline_ns != Some(0) {
            let woke_peer = self.side == Side::Reader && shared.has_woken();
            self.waiter.wait(&mut waiting, deadline_ns, woke_peer);
        }
        waiting.found
    }
}

struct Waiting<'a, T, F> {
    shared: &'a Shared,
    side: Side,
    is_gone: &'a mut bool,
    find: F,
    found: Result<Option<T>, Broken>,
}

impl<T, F: FnMut(bool) -> Result<Option<T>, Broken>> Place for Waiting<'_, T, F> {
    fn look(&mut self) -> bool {
        self.found = (self.find)(*self.is_gone);
        !matches!(self.found, Ok(None))
    }

    fn shares_processor(&mut self) -> bool {
        self.shared.shares_processor(self.side)
    }

    fn park(&mut self, _: Sleep, deadline_ns: Option<u64>, _: Option<Start>) -> Parked {
        let (shared, side) = (self.shared, self.side);
        let woken = shared.sleep(side, (None, deadline_ns), || self.look());
        *self.is_gone |= woken.is_gone;
        Parked {
            ready: self.look(),
            posted_after_ns: None,
        }
    }
}
