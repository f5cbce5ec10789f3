//! One-way streams through the kernel: one write per message; the reader takes what is there.

use super::{Bundle, Named, OneWay, Producer, Waits};
use crate::plan::Plan;
use crate::systems::child::Seat;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

pub(crate) const PIPE: Writes = Writes("pipe", "pipe-stream");
pub(crate) const UNIX: Writes = Writes("unix-stream", "unix-stream-stream");

/// A byte channel by name and key.
pub(crate) struct Writes(&'static str, &'static str);

impl Named for Writes {
    fn name(&self) -> &'static str {
        self.0
    }

    fn key(&self) -> &'static str {
        self.1
    }

    fn waits(&self) -> Waits {
        Waits::Blocks
    }

    fn prepare(&self, _: &Plan) -> io::Result<Bundle> {
        let (read, written) = if self.0 == "pipe" {
            let (read, written) = io::pipe()?;
            (read.into(), written.into())
        } else {
            let (read, written) = UnixStream::pair()?;
            (read.into(), written.into())
        };
        Ok(Bundle {
            server: vec![read],
            clients: vec![vec![written]],
            ..Bundle::default()
        })
    }
}

impl OneWay for Writes {
    type Producer = WritesProducer;

    fn consume(&self, seat: &Seat, mut received: impl FnMut(u64)) -> io::Result<()> {
        let mut from = File::from(seat.fds[0].try_clone()?);
        let mut bytes = vec![0; 65_536];
        let mut sum = 0u64;
        seat.ready();
        loop {
            match from.read(&mut bytes)? {
                0 => return Ok(()),
                len => sum += len as u64,
            }
            received(sum / 24);
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<Self::Producer> {
        Ok(WritesProducer(seat.fds[0].try_clone()?.into()))
    }
}

/// The writing end.
pub(crate) struct WritesProducer(File);

impl Producer for WritesProducer {
    #[inline]
    fn send(&mut self, message: [u64; 3]) -> io::Result<()> {
        self.0
            .write_all(message.map(u64::to_le_bytes).as_flattened())
    }
}
