//! The direction that goes out.

use crate::reading::broken;
use crate::shared::{Shared, Side};
use crate::waiting::{Found, Waits};
use handfast_ring::stream::Writer;
use handfast_wait::Strategy;
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
    waits: Waits,
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

    pub(crate) const fn has_turned(&self) -> bool {
        self.ring.is_some()
    }

    /// Turns to the ring.
    pub(crate) fn turn(&mut self, shared: &Shared, strategy: Strategy) {
        let writer = Writer::new(shared.outgoing());
        writer.begin(&shared.region, self.by_kernel);
        self.ring = Some(Ring {
            writer,
            waits: Waits::new(Side::Writer, strategy),
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
        let Some(Ring { writer, waits }) = &mut self.ring else {
            return Ok(0);
        };
        if self.has_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let found = waits.wait(shared, |is_gone| {
            if is_gone || writer.is_closed(&shared.region) {
                return Ok(Found::End);
            }
            Ok(match writer.room(&shared.region)? {
                0 => Found::Nothing,
                _ => Found::Some,
            })
        });
        if found.map_err(broken)? != Found::Some {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let len_bytes = writer.put(&shared.region, bytes).map_err(broken)?;
        shared.note_cpu(Side::Writer);
        shared.wake(Side::Reader);
        Ok(len_bytes)
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
