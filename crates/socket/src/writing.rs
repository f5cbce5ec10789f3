//! The direction that goes out.

use crate::reading::broken;
use crate::shared::{Shared, Side};
use crate::waiting::Waits;
use handfast_layout::stream::State;
use handfast_proto::streams::{self, Broken, Pending, Put};
use handfast_ring::stream::Writer;
use handfast_sys::tcp;
use handfast_wait::Strategy;
use std::io::{self, Write};
use std::net::TcpStream;

/// Bytes that the kernel is given again at once.
const AGAIN_BYTES: usize = 4096;

/// Where the stream is, and how room is waited for.
#[derive(Debug)]
pub(crate) struct Outgoing {
    core: streams::Outgoing,
    ring: Option<Ring>,
}

#[derive(Debug)]
struct Ring {
    writer: Writer,
    waits: Waits,
}

/// The result of a wait for room in the ring.
enum Room {
    Here,
    /// The reader has left the ring.
    InKernel,
    /// The reader takes no more.
    Nowhere,
}

impl Outgoing {
    pub(crate) const fn new() -> Self {
        Self {
            core: streams::Outgoing::new(),
            ring: None,
        }
    }

    pub(crate) const fn by_kernel(&self) -> u64 {
        self.core.by_kernel()
    }

    pub(crate) const fn may_turn(&self) -> bool {
        self.core.may_turn()
    }

    /// Whether nothing of this end's is in the ring, or will be.
    pub(crate) const fn is_done_with_ring(&self) -> bool {
        self.core.is_by_kernel_for_good()
    }

    /// Turns to the ring, unless the reader has left it.
    pub(crate) fn turn(&mut self, shared: &Shared, strategy: Strategy) -> Result<(), Broken> {
        let writer = Writer::new(shared.outgoing());
        self.core
            .became(writer.begin(&shared.region, self.core.by_kernel())?)?;
        self.ring = Some(Ring {
            writer,
            waits: Waits::new(Side::Writer, strategy),
        });
        Ok(())
    }

    /// Writes wherever the stream goes on.
    pub(crate) fn write(
        &mut self,
        shared: Option<&Shared>,
        (mut kernel, deadline_ns): (&TcpStream, Option<u64>),
        bytes: &[u8],
    ) -> io::Result<usize> {
        loop {
            if let Some(shared) = shared {
                self.give_again(shared, |bytes| kernel.write(bytes))?;
            }
            match (self.core.next(0).map_err(broken)?, shared) {
                (Put::Nowhere, _) => return Err(io::ErrorKind::BrokenPipe.into()),
                (Put::Ring, Some(shared)) => {
                    if let Some(len_bytes) = self.put(shared, deadline_ns, bytes)? {
                        let _ = self.give_again(shared, |bytes| Ok(tcp::send_now(kernel, bytes)?));
                        return Ok(len_bytes);
                    }
                }
                _ => {
                    let len_bytes = kernel.write(bytes)?;
                    self.core.gave_kernel(len_bytes);
                    return Ok(len_bytes);
                }
            }
        }
    }

    /// Writes into the ring. `None`: the reader has left it.
    fn put(
        &mut self,
        shared: &Shared,
        deadline_ns: Option<u64>,
        bytes: &[u8],
    ) -> io::Result<Option<usize>> {
        let Some(Ring { writer, waits }) = &mut self.ring else {
            return Ok(None);
        };
        let region = &shared.region;
        let room = waits.wait(shared, (None, deadline_ns), |pending| {
            // Before whether it has gone: a process that has left may go.
            if writer.state(region)? != State::Ring {
                return Ok(Some(Room::InKernel));
            }
            if pending == Pending::Gone || writer.is_closed(region) {
                return Ok(Some(Room::Nowhere));
            }
            Ok((writer.room(region)? > 0).then_some(Room::Here))
        });
        match room.map_err(broken)? {
            Some(Room::Here) => {}
            Some(Room::InKernel) => return Ok(None),
            Some(Room::Nowhere) => return Err(io::ErrorKind::BrokenPipe.into()),
            None => return Err(io::ErrorKind::WouldBlock.into()),
        }
        let len_bytes = writer.put(region, bytes).map_err(broken)?;
        shared.note_cpu(Side::Writer);
        // E28 left or unread: the fence before the caller's look at the state.
        shared.wake(Side::Reader);
        Ok(Some(len_bytes))
    }

    /// Where the reader has left the ring: gives the kernel the bytes that it has not taken. Comes back here after an error, as for want of room.
    pub(crate) fn give_again(
        &mut self,
        shared: &Shared,
        mut give: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let Some(Ring { writer, .. }) = &mut self.ring else {
            return Ok(());
        };
        if self.core.is_in_ring() {
            let state = writer.state(&shared.region).map_err(broken)?;
            self.core.became(state).map_err(broken)?;
        }
        if !self.core.is_giving_again() {
            return Ok(());
        }
        let unread = writer.unread(&shared.region).map_err(broken)?;
        while let Put::Again(_) = self.core.next(unread).map_err(broken)? {
            let mut bytes = [0; AGAIN_BYTES];
            let given = self.core.given_again();
            let len_bytes = writer.copy_again(&shared.region, given, &mut bytes);
            self.core.gave_again(give(&bytes[..len_bytes])?);
        }
        shared.note_given();
        Ok(())
    }

    /// Nothing is written any more.
    pub(crate) fn end(&mut self, shared: Option<&Shared>, kernel: &TcpStream) -> io::Result<()> {
        self.leave_by(shared, kernel, Writer::end)
    }

    /// All that is written goes through the kernel.
    pub(crate) fn leave(&mut self, shared: Option<&Shared>, kernel: &TcpStream) -> io::Result<()> {
        self.leave_by(shared, kernel, Writer::back)
    }

    fn leave_by(
        &mut self,
        shared: Option<&Shared>,
        mut kernel: &TcpStream,
        how: fn(&Writer, &handfast_region::Region) -> Result<State, Broken>,
    ) -> io::Result<()> {
        self.core.stay();
        let (Some(ring), Some(shared)) = (&self.ring, shared) else {
            return Ok(());
        };
        if self.core.is_in_ring() {
            let state = how(&ring.writer, &shared.region).map_err(broken)?;
            self.core.became(state).map_err(broken)?;
            shared.wake(Side::Reader);
        }
        self.give_again(shared, |bytes| kernel.write(bytes))
    }
}
