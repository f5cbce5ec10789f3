//! The things that both ends of an upgraded connection hold beside the kernel's socket.

use crate::offer::Offer;
use handfast_layout::link::Side as End;
use handfast_region::{Memory, Region};
use handfast_ring::stream::Place;
use handfast_sys::poll::{Ready, wait_any};
use handfast_sys::{AsFd, BorrowedFd, OwnedFd, cpu, shared, socket};
use handfast_wait::word;
use std::sync::atomic::{AtomicBool, Ordering};

/// There are bytes, or there is room.
const RING: u8 = b'r';
/// The reader has left the ring, in which there are bytes that it has not taken.
const LEFT: u8 = b'l';

/// The memory of both, and how either wakes the other.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) region: Region,
    pub(crate) end: End,
    to_readers: OwnedFd,
    to_writers: OwnedFd,
    /// The file, until both ends map it.
    region_fd: OwnedFd,
    /// Both ends map the region, which is sealed.
    is_accepted: AtomicBool,
    /// The last bytes that went out had to wake the peer.
    has_woken: AtomicBool,
    /// The peer has left the ring that this end writes, and there were bytes.
    has_peer_left: AtomicBool,
    /// This end writes into the ring no more, and has given the kernel what the peer has left there.
    is_written: AtomicBool,
}

/// The side of a thread that waits: for bytes, or for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Reader,
    Writer,
}

/// Until when a thread waits, and the kernel's socket, if its end ends the wait as well.
pub(crate) type Until<'a> = (Option<BorrowedFd<'a>>, Option<u64>);

/// How a sleep ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Woken {
    /// The kernel's socket has something to read.
    pub(crate) by_kernel: bool,
    /// The other process has gone, or has closed its end.
    pub(crate) is_gone: bool,
}

impl Shared {
    /// Of this end.
    pub(crate) fn new(offer: Offer, end: End) -> Self {
        let region = Region::mapped(offer.mapping);
        if end == End::Connector {
            Place::of(end).note_mapped(&region);
        }
        Self {
            region,
            end,
            to_readers: offer.to_readers,
            to_writers: offer.to_writers,
            region_fd: offer.region,
            is_accepted: AtomicBool::new(end == End::Connector),
            has_woken: AtomicBool::new(false),
            has_peer_left: AtomicBool::new(false),
            is_written: AtomicBool::new(false),
        }
    }

    /// The direction that this end writes.
    pub(crate) const fn outgoing(&self) -> Place {
        Place::of(self.end)
    }

    /// The direction that this end reads.
    pub(crate) const fn incoming(&self) -> Place {
        Place::of(self.end.other())
    }

    const fn bell(&self, side: Side) -> &OwnedFd {
        match side {
            Side::Reader => &self.to_readers,
            Side::Writer => &self.to_writers,
        }
    }

    /// Whether the peer looks at the memory. One system call once it says so.
    pub(crate) fn is_accepted(&self) -> bool {
        // Relaxed, both: what is published is the peer's, in the region.
        if !self.is_accepted.load(Ordering::Relaxed)
            && self.incoming().is_mapped(&self.region)
            && shared::is_whole(&self.region_fd) == Ok(true)
        {
            self.is_accepted.store(true, Ordering::Relaxed);
        }
        self.is_accepted.load(Ordering::Relaxed)
    }

    /// By the thread whose turn it is at this side alone: another one would take what wakes that thread.
    fn hear(&self, side: Side) {
        while let Some(byte) = socket::rung(self.bell(side)) {
            if (byte, side) == (LEFT, Side::Reader) {
                // Relaxed: the state says so, too.
                self.has_peer_left.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether the peer has said that it has left the ring that this end writes. Said once: a thread that reads gives the kernel the bytes that are there.
    pub(crate) fn has_peer_left(&self) -> bool {
        self.has_peer_left.load(Ordering::Relaxed)
    }

    /// Notes that the kernel has been given those bytes.
    pub(crate) fn note_given(&self) {
        self.has_peer_left.store(false, Ordering::Relaxed);
    }

    /// Notes that nothing of this end's will be in the ring any more.
    pub(crate) fn note_written(&self) {
        self.is_written.store(true, Ordering::Relaxed);
    }

    /// Whether the peer may still leave a ring with bytes in it.
    pub(crate) fn may_be_left(&self) -> bool {
        !self.is_written.load(Ordering::Relaxed)
    }

    /// This end has left the ring that it reads, with bytes in it: wakes the peer's threads, whatever they wait for.
    pub(crate) fn say_left(&self) {
        self.wake(Side::Writer);
        socket::ring(self.bell(Side::Reader), LEFT);
    }

    /// Whether what this end wrote last had to wake the peer. Asked for once: the answer takes so much longer.
    pub(crate) fn has_woken(&self) -> bool {
        // Relaxed, as below: a hint for the strategy.
        self.has_woken.swap(false, Ordering::Relaxed)
    }

    /// Wakes the peer's thread at this side, if one sleeps. After what it waits for.
    pub(crate) fn wake(&self, side: Side) {
        let at = match side {
            Side::Reader => self.outgoing().reader(),
            Side::Writer => self.incoming().writer(),
        };
        // E4 wake.
        if word::fence_then_taken(&self.region, at).is_some() {
            if side == Side::Reader {
                self.has_woken.store(true, Ordering::Relaxed);
            }
            socket::ring(self.bell(side), RING);
        }
    }

    /// Says on which CPU this end has just read or written.
    pub(crate) fn note_cpu(&self, side: Side) {
        let at = match side {
            Side::Reader => self.incoming().reader_cpu(),
            Side::Writer => self.outgoing().writer_cpu(),
        };
        let cpu = cpu::hint().wrapping_add(1);
        // Relaxed, both: a hint.
        if self.region.load(at, Ordering::Relaxed) != cpu {
            self.region.store(at, cpu, Ordering::Relaxed);
        }
    }

    /// Whether the peer that is waited for, at this side, was last seen on the CPU of this thread.
    pub(crate) fn shares_processor(&self, side: Side) -> bool {
        let at = match side {
            Side::Reader => self.incoming().writer_cpu(),
            Side::Writer => self.outgoing().reader_cpu(),
        };
        // Relaxed: a hint.
        self.region.load(at, Ordering::Relaxed) == cpu::current().wrapping_add(1)
    }

    /// Sleeps as one that reads or writes, unless a look after the announcement finds something. One system call, and one more where the peer has rung.
    pub(crate) fn sleep(
        &self,
        side: Side,
        (kernel, deadline_ns): Until<'_>,
        look: impl FnOnce() -> bool,
    ) -> Woken {
        let at = match side {
            Side::Reader => self.incoming().reader(),
            Side::Writer => self.outgoing().writer(),
        };
        // E4 sleep.
        word::announce(&self.region, at, word::DESCRIPTOR);
        let mut woken = Woken::default();
        if !look() {
            let bell = self.bell(side).as_fd();
            let (kernel, reads) = kernel.map_or((bell, false), |kernel| (kernel, true));
            let [rung, by_kernel]: [Ready; 2] =
                wait_any([(bell, true), (kernel, reads)], deadline_ns);
            if rung.is_readable {
                self.hear(side);
            }
            woken = Woken {
                by_kernel: reads && (by_kernel.is_readable || by_kernel.has_hung_up),
                is_gone: rung.has_hung_up,
            };
        }
        word::withdraw(&self.region, at);
        woken
    }

    /// Takes no more, and says so to the peer's threads.
    pub(crate) fn close(&self) {
        self.incoming().close(&self.region);
        self.wake(Side::Writer);
    }
}
