//! The server of a port inside this process, as the port and the rights to it know the server (`served`).

use crate::error::SendError;
use crate::port::own::OwnRight;
use crate::process::Process;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use handfast_proto::timers::Timer;
use handfast_sys::deadline;
use handfast_sys::lock::thread_number;
use std::sync::Arc;

/// A server of a port inside this process.
pub trait Serve: Send + Sync + 'static {
    /// Serves one message on this thread, and returns how many bytes of `reply` are its reply. Several threads may do
    /// so at once, and one within another.
    ///
    /// # Errors
    /// The error that the caller gets.
    fn serve(&self, message: Incoming<'_>, reply: &mut [u8]) -> Result<usize, SendError>;

    /// As [`Self::serve`], until this time of the monotonic clock at the latest.
    ///
    /// # Errors
    /// As there; [`DomainError::Deadline`](crate::error::DomainError::Deadline) then, [`DomainError::NoDeadline`](crate::error::DomainError::NoDeadline) where it cannot be ended.
    fn serve_until(
        &self,
        message: Incoming<'_>,
        reply: &mut [u8],
        deadline_ns: u64,
    ) -> Result<usize, SendError>;
}

/// A message to be served.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The message's bytes, private.
    pub bytes: &'a [u8],
    /// The badge of the right that the message came through.
    pub badge: u64,
    /// The permissions of that right.
    pub permissions: u16,
    /// Whether a caller waits for a reply.
    pub is_call: bool,
}

/// Threads that count each in a place of its own; others share those by a locked addition.
const CELLS: usize = 64;

/// The part of a served port that callers in this process use.
pub(crate) struct Local {
    pub(crate) by: Arc<dyn Serve>,
    cells: Box<[Count; CELLS]>,
    /// The number of these calls that is in the counters. Under the poller's lock.
    published: AtomicU64,
    /// There is something in them that the control thread is to publish, and knows of.
    is_due: AtomicBool,
}

/// Calls of one thread, or of the threads that have no place of their own.
#[derive(Default)]
#[repr(align(64))]
struct Count {
    own: AtomicU64,
    others: AtomicU64,
}

/// The way of a right to a port served here.
pub(crate) struct Shortcut {
    pub(crate) own: OwnRight,
    pub(crate) local: Arc<Local>,
}

impl Local {
    /// Nothing has been called yet.
    pub(crate) fn new(by: Arc<dyn Serve>) -> Self {
        Self {
            by,
            cells: Box::new(core::array::from_fn(|_| Count::default())),
            published: AtomicU64::new(0),
            is_due: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn count(&self, process: &Process) {
        let number = thread_number() as usize;
        match self.cells.get(number) {
            Some(count) => {
                // Relaxed, both: this thread's alone.
                let calls = count.own.load(Ordering::Relaxed);
                count.own.store(calls + 1, Ordering::Relaxed);
            }
            None => {
                // Relaxed: a count.
                self.cells[number % CELLS]
                    .others
                    .fetch_add(1, Ordering::Relaxed);
            }
        }
        // Relaxed: a hint; it changes twenty times a second at most.
        if !self.is_due.load(Ordering::Relaxed) {
            self.publish_soon(process);
        }
    }

    #[cold]
    fn publish_soon(&self, process: &Process) {
        let _shield = deadline::shield();
        // Relaxed: as above; the control thread finds what was counted until its timer fires.
        self.is_due.store(true, Ordering::Relaxed);
        process.schedule(Timer::DomainCalls);
    }

    /// The number of calls that is not in the counters yet. Under the poller's lock.
    pub(crate) fn new_calls(&self) -> u64 {
        // Relaxed, all: counts.
        let of = |count: &Count| {
            count.own.load(Ordering::Relaxed) + count.others.load(Ordering::Relaxed)
        };
        let total: u64 = self.cells.iter().map(of).sum();
        total - self.published.swap(total, Ordering::Relaxed)
    }

    /// Whether there was something in them to publish; there is not any more.
    pub(crate) fn was_due(&self) -> bool {
        // Relaxed: as above.
        self.is_due.swap(false, Ordering::Relaxed)
    }
}

impl Shortcut {
    /// Where there is one from this right.
    pub(crate) fn of(own: &OwnRight) -> Option<Box<Self>> {
        let local = own.port().served.get()?.clone();
        let own = own.clone();
        Some(Box::new(Self { own, local }))
    }

    pub(crate) fn again(&self) -> Box<Self> {
        Box::new(Self {
            own: self.own.clone(),
            local: self.local.clone(),
        })
    }

    pub(crate) const fn own(&self) -> &OwnRight {
        &self.own
    }
}
