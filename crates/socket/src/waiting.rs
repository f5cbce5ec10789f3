//! A thread that waits at one side of a ring, for bytes or for room.

use crate::shared::{Shared, Side, Until};
use handfast_proto::streams::{Broken, Pending};
use handfast_sys::BorrowedFd;
use handfast_wait::place::{Parked, Place, Sleep, Start};
use handfast_wait::{Strategy, Waiter};

/// How one side waits.
#[derive(Debug)]
pub(crate) struct Waits {
    side: Side,
    waiter: Waiter,
    /// As far as is known: whether the peer has gone, and whether the kernel's socket, which is watched, has an end.
    pending: Pending,
}

impl Waits {
    pub(crate) fn new(side: Side, strategy: Strategy) -> Self {
        Self {
            side,
            waiter: Waiter::new(strategy, None),
            pending: Pending::Nothing,
        }
    }

    /// Whether the peer's process has gone, or has closed its end.
    pub(crate) fn is_gone(&self) -> bool {
        self.pending == Pending::Gone
    }

    pub(crate) const fn note_gone(&mut self) {
        self.pending = Pending::Gone;
    }

    /// Waits by the strategy until a look finds something, or until the deadline; one of 0 is a look alone. The look is told whether the peer has gone, or the
    /// kernel's socket has an end: the bytes written before are there by then.
    pub(crate) fn wait<T>(
        &mut self,
        shared: &Shared,
        until: Until<'_>,
        find: impl FnMut(Pending) -> Result<Option<T>, Broken>,
    ) -> Result<Option<T>, Broken> {
        let mut waiting = Waiting {
            shared,
            side: self.side,
            kernel: until.0,
            pending: &mut self.pending,
            find,
            found: Ok(None),
        };
        if !waiting.look() && until.1 != Some(0) {
            let woke_peer = self.side == Side::Reader && shared.has_woken();
            self.waiter.wait(&mut waiting, until.1, woke_peer);
        }
        waiting.found
    }
}

struct Waiting<'a, T, F> {
    shared: &'a Shared,
    side: Side,
    kernel: Option<BorrowedFd<'a>>,
    pending: &'a mut Pending,
    find: F,
    found: Result<Option<T>, Broken>,
}

impl<T, F: FnMut(Pending) -> Result<Option<T>, Broken>> Place for Waiting<'_, T, F> {
    fn look(&mut self) -> bool {
        self.found = (self.find)(*self.pending);
        !matches!(self.found, Ok(None))
    }

    fn shares_processor(&mut self) -> bool {
        self.shared.shares_processor(self.side)
    }

    fn park(&mut self, _: Sleep, deadline_ns: Option<u64>, _: Option<Start>) -> Parked {
        let (shared, side) = (self.shared, self.side);
        let woken = shared.sleep(side, (self.kernel, deadline_ns), || self.look());
        if woken.is_gone {
            *self.pending = Pending::Gone;
        } else if woken.by_kernel {
            // Bytes there come after a change of the state, which the next look finds.
            *self.pending = Pending::End;
        }
        Parked {
            ready: self.look(),
            posted_after_ns: None,
        }
    }
}
