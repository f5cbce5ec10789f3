//! The page every process of a measurement maps: the phase all follow and what each reports.
//!
//! The parent writes the phase; the server and each client write their own lines and nobody
//! else's. All processes are ours, so this memory is trusted, unlike handfast's own.

use crate::shared::{Shared, Words};
use handfast_sys::{OwnedFd, clock, futex};
use rustix::io::Errno;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The clients' present activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Phase {
    /// Connected or connecting; sleep until the phase changes.
    Hold = 0,
    /// Call, do not record.
    Warm = 1,
    /// Call and record.
    Measure = 2,
    /// Stay connected and sleep until the phase changes.
    Idle = 3,
    /// Report and end.
    Stop = 4,
}

impl Phase {
    const fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Hold,
            1 => Self::Warm,
            2 => Self::Measure,
            3 => Self::Idle,
            _ => Self::Stop,
        }
    }
}

/// The start of the page.
#[repr(C, align(128))]
pub(crate) struct Header {
    phase: Line<AtomicU32>,
    servers_ready: Line<AtomicU32>,
    /// The server's work so far: messages, and nanoseconds of asked-for work (`wait` only).
    pub(crate) served: Line<Served>,
    pub(crate) tally: Line<Tally>,
}

/// The server's counters.
#[repr(C)]
pub(crate) struct Served {
    pub(crate) messages: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    /// When it noticed that a client had died, by the monotonic clock; 0 before.
    pub(crate) noticed_ns: AtomicU64,
}

/// One client's line.
#[repr(C, align(128))]
pub(crate) struct Slot {
    pub(crate) ready: AtomicU32,
    _pad: AtomicU32,
    /// Calls finished so far.
    pub(crate) calls: AtomicU64,
    /// When the open call began, by the client's own tick clock; 0 between calls.
    pub(crate) open_since: AtomicU64,
    /// Monotonic clock minus the client's tick clock.
    pub(crate) clock_offset: AtomicI64,
    pub(crate) tally: Tally,
    /// When a call of it failed, by the monotonic clock; 0 before.
    pub(crate) failed_ns: AtomicU64,
    /// Nanoseconds of asked-for work so far.
    pub(crate) busy_ns: AtomicU64,
}

impl Slot {
    /// A call has failed just now.
    pub(crate) fn set_failed(&self) {
        // Relaxed: read by the parent for statistics.
        self.failed_ns.store(clock::now_ns(), Ordering::Relaxed);
    }
}

/// A process's steps to wait and to wake, where its system counts them.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Tally {
    /// System calls it made for that.
    pub(crate) syscalls: Count,
    /// Waits that ended asleep.
    pub(crate) sleeps: Count,
    /// Looks of a limited spin that found nothing.
    pub(crate) polls: Count,
}

/// A counter of one process.
#[repr(transparent)]
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        // Relaxed, both: one process writes, the parent reads a statistic.
        let sum = self.0.load(Ordering::Relaxed) + amount;
        self.0.store(sum, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}

/// A value on cache lines of its own (two: the neighbour is fetched with it on many machines).
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub(crate) T);

// SAFETY: atomic integers and padding only.
unsafe impl Words for Header {}
// SAFETY: atomic integers and padding only.
unsafe impl Words for Slot {}

/// Differs where programs that were built at different times would not understand each other's page (`peers/`).
pub const LAYOUT: [usize; 5] = [
    size_of::<Header>(),
    size_of::<Slot>(),
    offset_of!(Header, served),
    offset_of!(Served, noticed_ns),
    offset_of!(Slot, busy_ns),
];

/// The mapped page.
pub(crate) struct Control {
    shared: Shared,
    clients: usize,
}

impl Control {
    /// Makes the page for `clients` clients.
    pub(crate) fn create(clients: usize) -> Result<(OwnedFd, Self), Errno> {
        let (fd, shared) = Shared::create("handfast-bench-control", Self::len_bytes(clients))?;
        Ok((fd, Self { shared, clients }))
    }

    /// Maps the page the parent made.
    pub(crate) fn open(fd: &OwnedFd, clients: usize) -> Result<Self, Errno> {
        let shared = Shared::open(fd, Self::len_bytes(clients))?;
        Ok(Self { shared, clients })
    }

    const fn len_bytes(clients: usize) -> usize {
        size_of::<Header>() + clients * size_of::<Slot>()
    }

    pub(crate) fn header(&self) -> &Header {
        self.shared.at(0)
    }

    /// Client `index`'s line.
    pub(crate) fn slot(&self, index: usize) -> &Slot {
        assert!(index < self.clients);
        self.shared
            .at(size_of::<Header>() + index * size_of::<Slot>())
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        (0..self.clients).map(|index| self.slot(index))
    }

    /// The phase now. One load of a line that seldom changes.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        // Relaxed: the phase publishes nothing but itself.
        Phase::from_word(self.header().phase.0.load(Ordering::Relaxed))
    }

    /// Moves everybody to `phase`.
    pub(crate) fn set_phase(&self, phase: Phase) {
        // Relaxed: the phase publishes nothing but itself; the wake-up below orders the rest.
        self.header().phase.0.store(phase as u32, Ordering::Relaxed);
        // SAFETY: the word lies in a mapping that outlives the call.
        unsafe { futex::wake(NonNull::from(&self.header().phase.0).cast(), u32::MAX) };
    }

    /// Sleeps while the phase is `phase`.
    pub(crate) fn sleep_while(&self, phase: Phase) {
        while self.phase() == phase {
            let word = NonNull::from(&self.header().phase.0).cast();
            // SAFETY: the word lies in a mapping that outlives the call.
            let _ = unsafe { futex::wait(word, phase as u32, None) };
        }
    }

    /// The server has noticed just now that a client died. The first time counts.
    pub(crate) fn set_noticed(&self) {
        let noticed = &self.header().served.0.noticed_ns;
        // Relaxed: read by the parent for statistics.
        let order = Ordering::Relaxed;
        let _ = noticed.compare_exchange(0, clock::now_ns(), order, order);
    }

    /// One more server can be connected to.
    pub(crate) fn add_server_ready(&self) {
        // Release: pairs with the Acquire in `servers_ready`; what the server made (a socket
        // file) is there for whom the parent starts next.
        self.header()
            .servers_ready
            .0
            .fetch_add(1, Ordering::Release);
    }

    /// How many servers can be connected to.
    pub(crate) fn servers_ready(&self) -> usize {
        // Acquire: pairs with `add_server_ready`.
        self.header().servers_ready.0.load(Ordering::Acquire) as usize
    }
}
