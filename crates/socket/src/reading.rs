//! The direction that comes in.

use crate::shared::{Shared, Side};
use crate::waiting::Waits;
use handfast_proto::streams::{self, Broken, Pending, Take};
use handfast_ring::stream::Reader;
use handfast_sys::poll::wait_any;
use handfast_sys::{AsFd, clock, tcp};
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
    core: streams::Incoming,
    ring: Option<Ring>,
    /// How often an acceptor has looked for one that asks.
    pub(crate) looks: u32,
}

#[derive(Debug)]
struct Ring {
    reader: Reader,
    waits: Waits,
}

/// How a read ended.
pub(crate) enum Got {
    Bytes(usize),
    /// The peer has left the ring of the other direction: the kernel must be given the bytes there.
    PeerHasLeft,
}

impl Incoming {
    pub(crate) const fn new() -> Self {
        Self {
            core: streams::Incoming::new(),
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
        self.core.took_from_kernel(len_bytes);
        Ok(len_bytes)
    }

    /// Reads from wherever the stream goes on, after an upgrade.
    pub(crate) fn read(
        &mut self,
        shared: &Shared,
        (kernel, deadline_ns): (&TcpStream, Option<u64>),
        into: &mut [u8],
    ) -> io::Result<Got> {
        loop {
            let take = self.next(shared, kernel, deadline_ns).map_err(broken)?;
            if take == Take::Ring {
                return Ok(Got::Bytes(self.take(shared, into)));
            }
            if shared.has_peer_left() {
                return Ok(Got::PeerHasLeft);
            }
            let awaits = match take {
                // It was about to wait, and the peer had left just now.
                Take::AwaitRing if !has_passed(deadline_ns) => continue,
                Take::AwaitEither => true,
                // The peer may leave the ring of the other direction meanwhile.
                Take::Kernel(u64::MAX) => shared.may_be_left() && !self.is_gone(),
                Take::Kernel(_) | Take::AwaitRing | Take::Ring => false,
            };
            if awaits && !has_passed(deadline_ns) {
                let has_kernel = self.wait_for_either(shared, kernel, deadline_ns);
                if !has_kernel || take == Take::AwaitEither {
                    continue;
                }
            }
            let Take::Kernel(most) = take else {
                return Err(io::ErrorKind::WouldBlock.into());
            };
            let len_bytes = into.len().min(usize::try_from(most).unwrap_or(usize::MAX));
            let read = self.read_kernel(kernel, &mut into[..len_bytes]);
            return read.map(Got::Bytes);
        }
    }

    /// The next step, after a wait for the ring.
    fn next(
        &mut self,
        shared: &Shared,
        kernel: &TcpStream,
        deadline_ns: Option<u64>,
    ) -> Result<Take, Broken> {
        let Self { core, ring, .. } = self;
        let Some(Ring { reader, waits }) = ring else {
            return Ok(Take::Kernel(u64::MAX));
        };
        if core.is_by_kernel_for_good() {
            return Ok(Take::Kernel(u64::MAX));
        }
        let region = &shared.region;
        if !reader.has_turned(region) {
            let pending = match waits.is_gone() {
                true => Pending::Gone,
                false => pending(kernel),
            };
            return core.next(pending, reader.seen(region)?);
        }
        let until = (Some(kernel.as_fd()), deadline_ns);
        let found = waits.wait(shared, until, |pending| {
            let take = core.next(pending, reader.seen(region)?)?;
            let is_over = take != Take::AwaitRing || shared.has_peer_left();
            Ok(is_over.then_some(take))
        });
        Ok(found?.unwrap_or(Take::AwaitRing))
    }

    /// Sleeps until the kernel has something, or the peer has turned to a ring, or has left one. Returns whether the kernel has.
    fn wait_for_either(
        &mut self,
        shared: &Shared,
        kernel: &TcpStream,
        deadline_ns: Option<u64>,
    ) -> bool {
        let Self { core, ring, .. } = self;
        let Some(Ring { reader, waits }) = ring else {
            return true;
        };
        let is_by_kernel = core.is_by_kernel_for_good();
        let look = || {
            let has_turned = !is_by_kernel && reader.has_turned(&shared.region);
            has_turned || shared.has_peer_left()
        };
        let until = (Some(kernel.as_fd()), deadline_ns);
        let woken = shared.sleep(Side::Reader, until, look);
        if woken.is_gone {
            waits.note_gone();
        }
        woken.by_kernel
    }

    fn is_gone(&self) -> bool {
        self.ring.as_ref().is_none_or(|ring| ring.waits.is_gone())
    }

    fn take(&mut self, shared: &Shared, into: &mut [u8]) -> usize {
        let Some(Ring { reader, .. }) = &mut self.ring else {
            return 0;
        };
        let len_bytes = reader.peek(&shared.region, into);
        reader.taken(&shared.region, len_bytes);
        shared.note_cpu(Side::Reader);
        shared.wake(Side::Writer);
        len_bytes
    }

    /// Leaves the ring for good: all that comes comes through the kernel. Or, where the peer has left the ring before, how many bytes are still to be read.
    pub(crate) fn leave(&mut self, shared: &Shared) -> Result<Result<(), usize>, Broken> {
        let Self { core, ring, .. } = self;
        let Some(Ring { reader, .. }) = ring else {
            return Ok(Ok(()));
        };
        if core.is_by_kernel_for_good() {
            return Ok(Ok(()));
        }
        let seen = reader.leave(&shared.region)?;
        let left = core.leave(seen);
        if left.is_ok() && seen.unread > 0 {
            shared.say_left();
        }
        Ok(left)
    }
}

/// Whether a deadline is there and has passed; 0 has at all times.
pub(crate) fn has_passed(deadline_ns: Option<u64>) -> bool {
    deadline_ns.is_some_and(|at_ns| at_ns == 0 || at_ns <= clock::now_ns())
}

/// The bytes or the end that the kernel has. One system call where there are bytes, else up to three.
fn pending(kernel: &TcpStream) -> Pending {
    let unread = || tcp::unread_bytes(kernel).unwrap_or(0);
    let bytes = |unread| match unread {
        0 => Pending::End,
        len_bytes => Pending::Bytes(len_bytes),
    };
    match unread() {
        0 => match wait_any([(kernel.as_fd(), true)], Some(0)) {
            [ready] if ready.is_readable || ready.has_hung_up => bytes(unread()),
            _ => Pending::Nothing,
        },
        some => bytes(some),
    }
}
