//! The direction that comes in.

use crate::shared::{Shared, Side};
use crate::waiting::{Found, Waits};
use handfast_ring::stream::{Broken, Reader};
use handfast_sys::AsFd;
use handfast_wait::Strategy;
use std::io::{self, Read};
use std::net::TcpStream;

/// Bytes that no honest peer would have written.
pub(crate) fn broken(Broken: Broken) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the peer has broken the protocol of the shared memory of a stream; the connection is of no more use",
    )
}

/// Where the stream is, and how the next bytes are waited for.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Bytes that came through the kernel.
    by_kernel: u64,
    ring: Option<Ring>,
    /// How often an acceptor has looked for one that asks.
    pub(crate) looks: u32,
}

#[derive(Debug)]
struct Ring {
    reader: Reader,
    waits: Waits,
}

/// Where the next bytes come from.
enum Source {
    /// The kernel: the peer may turn to the ring at any time.
    Either,
    /// The kernel, so many.
    Kernel(u64),
    Ring,
}

impl Incoming {
    pub(crate) const fn new() -> Self {
        Self {
            by_kernel: 0,
            ring: None,
            looks: 0,
        }
    }

    /// The connection is upgraded from here on.
    pub(crate) fn upgrade(&mut self, shared: &Shared, strategy: Strategy) {
        self.ring = Some(Ring {
            reader: Reader::new(shared.incoming()),
            waits: Waits::new(Side::Reader, strategy),
        });
    }

    /// Reads what the kernel has.
    pub(crate) fn read_kernel(
        &mut self,
        mut kernel: &TcpStream,
        into: &mut [u8],
    ) -> io::Result<usize> {
        let len_bytes = kernel.read(into)?;
        self.by_kernel += len_bytes as u64;
        Ok(len_bytes)
    }

    /// Reads from wherever the stream goes on, after an upgrade.
    pub(crate) fn read(
        &mut self,
        shared: &Shared,
        kernel: &TcpStream,
        into: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            match self.source(shared)? {
                Source::Either => {
                    if self.wait_for_either(shared, kernel) {
                        return self.read_kernel(kernel, into);
                    }
                }
                Source::Kernel(left) => {
                    let len_bytes = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    return self.read_kernel(kernel, &mut into[..len_bytes]);
                }
                Source::Ring => {
                    if let Some(len_bytes) = self.read_ring(shared, into)? {
                        return Ok(len_bytes);
                    }
                    // How it ended.
                    return self.read_kernel(kernel, into);
                }
            }
        }
    }

    fn source(&self, shared: &Shared) -> io::Result<Source> {
        let Some(ring) = &self.ring else {
            return Ok(Source::Either);
        };
        let from = ring.reader.begun(&shared.region).map_err(broken)?;
        match from {
            None => Ok(Source::Either),
            Some(from) => match from.checked_sub(self.by_kernel) {
                None => Err(broken(Broken)),
                Some(0) => Ok(Source::Ring),
                Some(left) => Ok(Source::Kernel(left)),
            },
        }
    }

    /// Sleeps until the kernel has something, or the peer has turned to the ring. Returns whether the kernel has.
    fn wait_for_either(&mut self, shared: &Shared, kernel: &TcpStream) -> bool {
        let begun = || {
            let ring = self.ring.as_ref();
            ring.is_some_and(|ring| ring.reader.begun(&shared.region) != Ok(None))
        };
        let woken = shared.sleep(Side::Reader, Some(kernel.as_fd()), begun);
        woken.is_some_and(|woken| woken.by_kernel || woken.is_gone && !begun())
    }

    /// `None`: nothing comes any more.
    fn read_ring(&mut self, shared: &Shared, into: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(Ring { reader, waits }) = &mut self.ring else {
            return Ok(None);
        };
        let found = waits.wait(shared, |is_gone| {
            // Before the last look: the bytes before the end are there by then.
            let is_over = is_gone || reader.has_ended(&shared.region);
            Ok(match reader.look(&shared.region)? {
                0 if is_over => Found::End,
                0 => Found::Nothing,
                _ => Found::Some,
            })
        });
        if found.map_err(broken)? != Found::Some {
            return Ok(None);
        }
        let len_bytes = reader.peek(&shared.region, into);
        reader.taken(&shared.region, len_bytes);
        shared.note_cpu(Side::Reader);
        shared.wake(Side::Writer);
        Ok(Some(len_bytes))
    }
}
