//! How a hand-written side waits, one type per way.

use super::lanes::Bed;
use crate::systems::child::Seat;
use handfast_sys::{OwnedFd, clock, cpu, futex};
use std::fs::File;
use std::io::{self, Read, Write};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// One side's way of waiting for the other. Each method runs on that side.
pub(crate) trait Waiter: Sized {
    /// From the seat and the descriptors of this side (the bundle's own ones).
    fn new(seat: &Seat, own_fds: &[OwnedFd]) -> io::Result<Self>;

    /// Nothing was there: pass some time, or sleep in `bed` until something may be. `ready` looks
    /// again.
    fn pass(&mut self, bed: &Bed, ready: impl FnMut() -> bool) -> io::Result<()>;

    /// Something was there: the wait is over.
    #[inline]
    fn found(&mut self) {}

    /// Something was published for the side that sleeps in `bed`.
    #[inline]
    fn wake(&mut self, _bed: &Bed) -> io::Result<()> {
        Ok(())
    }
}

/// Looks again at once, for ever.
pub(crate) struct Spin {
    pause: bool,
}

impl Waiter for Spin {
    fn new(seat: &Seat, _: &[OwnedFd]) -> io::Result<Self> {
        Ok(Self {
            pause: seat.plan.pause,
        })
    }

    #[inline]
    fn pass(&mut self, _: &Bed, _: impl FnMut() -> bool) -> io::Result<()> {
        if self.pause {
            core::hint::spin_loop();
        }
        Ok(())
    }
}

/// Spins for the plan's spin limit, then gives its time slice away between looks.
pub(crate) struct SpinThenYield(Patience);

impl Waiter for SpinThenYield {
    fn new(seat: &Seat, _: &[OwnedFd]) -> io::Result<Self> {
        Ok(Self(Patience::new(seat)))
    }

    #[inline]
    fn pass(&mut self, _: &Bed, _: impl FnMut() -> bool) -> io::Result<()> {
        if self.0.is_over() {
            cpu::yield_now();
        }
        Ok(())
    }

    #[inline]
    fn found(&mut self) {
        self.0.start_over();
    }
}

/// Spins for the plan's spin limit, then sleeps on a futex. With a limit of zero: futex
/// ping-pong.
pub(crate) struct SpinThenSleep(Patience);

impl Waiter for SpinThenSleep {
    fn new(seat: &Seat, _: &[OwnedFd]) -> io::Result<Self> {
        Ok(Self(Patience::new(seat)))
    }

    #[inline]
    fn pass(&mut self, bed: &Bed, mut ready: impl FnMut() -> bool) -> io::Result<()> {
        if !self.0.is_over() {
            return Ok(());
        }
        // Relaxed: the fence below orders it before the look.
        bed.0.store(1, Ordering::Relaxed);
        // SeqCst fence: announce, then look. Pairs with the fence in `wake`: either the poster
        // sees the announcement or `ready` sees the message.
        fence(Ordering::SeqCst);
        if !ready() {
            let word = NonNull::from(&bed.0).cast();
            // SAFETY: the bed lies in a mapping kept for the life of the process.
            let _ = unsafe { futex::wait(word, 1, None) };
        }
        // Relaxed: a poster that still sees 1 makes one needless system call.
        bed.0.store(0, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn found(&mut self) {
        self.0.start_over();
    }

    #[inline]
    fn wake(&mut self, bed: &Bed) -> io::Result<()> {
        // SeqCst fence: publish, then look. Pairs with the fence in `pass`.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence. The swap leaves 0 behind, so a sleeper that has announced
        // itself but not slept yet does not; and of several posters one wakes.
        if bed.0.load(Ordering::Relaxed) == 1 && bed.0.swap(0, Ordering::Relaxed) == 1 {
            let word = NonNull::from(&bed.0).cast();
            // SAFETY: as in `pass`.
            unsafe { futex::wake(word, 1) };
        }
        Ok(())
    }
}

/// Sleeps in a read of an event descriptor; each message costs its sender a write.
pub(crate) struct EventFd {
    own: File,
    other: File,
}

impl Waiter for EventFd {
    fn new(_: &Seat, own_fds: &[OwnedFd]) -> io::Result<Self> {
        let [own, other] = own_fds else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(Self {
            own: own.try_clone()?.into(),
            other: other.try_clone()?.into(),
        })
    }

    #[inline]
    fn pass(&mut self, _: &Bed, _: impl FnMut() -> bool) -> io::Result<()> {
        self.own.read_exact(&mut [0; 8])
    }

    #[inline]
    fn wake(&mut self, _: &Bed) -> io::Result<()> {
        self.other.write_all(&1u64.to_ne_bytes())
    }
}

/// How long one wait has lasted, against the plan's spin limit. Reads the clock on every 16th
/// look only, so a short wait costs no clock at all.
struct Patience {
    limit_ns: u64,
    pause: bool,
    looks: u32,
    since_ns: u64,
}

impl Patience {
    fn new(seat: &Seat) -> Self {
        Self {
            limit_ns: seat.plan.spin_ns,
            pause: seat.plan.pause,
            looks: 0,
            since_ns: 0,
        }
    }

    /// Counts one look that found nothing; whether the limit has passed.
    #[inline]
    fn is_over(&mut self) -> bool {
        if self.limit_ns == 0 {
            return true;
        }
        self.looks += 1;
        if self.pause {
            core::hint::spin_loop();
        }
        if !self.looks.is_multiple_of(16) {
            return false;
        }
        let now = clock::ticks_ns();
        if self.looks == 16 {
            self.since_ns = now;
        }
        now.saturating_sub(self.since_ns) >= self.limit_ns
    }

    #[inline]
    fn start_over(&mut self) {
        self.looks = 0;
    }
}
