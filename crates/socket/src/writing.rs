//! The direction that goes out.

use crate::reading::broken;
use crate::shared::{Shared, Side};
use handfast_ring::stream::{Broken, Writer};
use handfast_wait::place::{Parked, Place, Sleep, Start};
use handfast_wait::{Strategy, Waiter};
use std::io::{self, Write};
use std::net::TcpStream;

/// Where the stream is, and how room is waited for.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Bytes that the kernel has taken.
    by_kernel: u64,
    ring: Option<Ring>,
    has_ended: bool,
}

#[derive(Debug)]
struct Ring {
    writer: Writer,
    waiter: Waiter,
    is_gone: bool,
}

impl Outgoing {
    pub(crate) const fn new() -> Self {
        Self {
            by_kernel: 0,
            ring: None,
            has_ended: false,
        }
    }

    pub(crate) const fn by_kernel(&self) -> u64 {
        self.by_kernel
    }

    pub(crate) const fn is_diverted(&self) -> bool {
        self.ring.is_some()
    }

    /// Turns to the ring.
    pub(crate) fn divert(&mut self, shared: &Shared, strategy: Strategy) {
        let writer = Writer::new(shared.outgoing());
        writer.begin(&shared.region, self.by_kernel);
        self.ring = Some(Ring {
            writer,
            waiter: Waiter::new(strategy, None),
            is_gone: false,
        });
    }

    pub(crate) fn write_kernel(
        &mut self,
        mut kernel: &TcpStream,
        bytes: &[u8],
    ) -> io::Result<usize> {
        let len_bytes = kernel.write(bytes)?;
        self.by_kernel += len_bytes as u64;
        Ok(len_bytes)
    }

    /// Writes into the ring, once it has turned there.
    pub(crate) fn write(&mut self, shared: &Shared, bytes: &[u8]) -> io::Result<usize> {
        let Some(ring) = &mut self.ring else {
            return Ok(0);
        };
        let mut waiting = Waiting {
            shared,
            writer: &mut ring.writer,
            is_gone: &mut ring.is_gone,
            found: Ok(Found::Nothing),
        };
        if self.has_ended || waiting.is_over() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !waiting.look() {
            ring.waiter.wait(&mut waiting, None, false);
        }
        match waiting.found.map_err(broken)? {
            Found::Room => {
                let len_bytes = ring.writer.put(&shared.region, bytes).map_err(broken)?;
                shared.note_cpu(Side::Writer);
                shared.wake(Side::Reader);
                Ok(len_bytes)
            }
            Found::End | Found::Nothing => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Nothing is written any more.
    pub(crate) fn end(&mut self, shared: &Shared) {
        if let Some(ring) = &self.ring
            && !self.has_ended
        {
            ring.writer.end(&shared.region);
            shared.wake(Side::Reader);
        }
        self.has_ended = true;
    }
}

enum Found {
    Nothing,
    Room,
    End,
}

/// A thread that waits for room in the ring.
struct Waiting<'a> {
    shared: &'a Shared,
    writer: &'a mut Writer,
    is_gone: &'a mut bool,
    found: Result<Found, Broken>,
}

impl Waiting<'_> {
    fn is_over(&self) -> bool {
        *self.is_gone || self.writer.is_closed(&self.shared.region)
    }

    fn find(&mut self) -> Result<Found, Broken> {
        if self.is_over() {
            return Ok(Found::End);
        }
        Ok(match self.writer.room(&self.shared.region)? {
            0 => Found::Nothing,
            _ => Found::Room,
        })
    }
}

impl Place for Waiting<'_> {
    fn look(&mut self) -> bool {
        self.found = self.find();
        !matches!(self.found, Ok(Found::Nothing))
    }

    fn shares_processor(&mut self) -> bool {
        self.shared.shares_processor(Side::Writer)
    }

    fn park(&mut self, _: Sleep, _: Option<u64>, _: Option<Start>) -> Parked {
        let shared = self.shared;
        let woken = shared.sleep(Side::Writer, None, || self.look());
        *self.is_gone |= woken.is_some_and(|woken| woken.is_gone);
        Parked {
            ready: self.look(),
            posted_after_ns: None,
        }
    }
}
