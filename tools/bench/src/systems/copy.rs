//! The cost of moving the bytes without anybody to move them to: `memcpy` within the client, once
//! for each way that has a payload. Source and destination stay in its caches.

use super::{Caller, Named, System, Waits};
use crate::systems::child::Seat;
use std::hint::black_box;
use std::io;

/// A call that goes nowhere.
pub(crate) struct Copy;

impl Named for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn waits(&self) -> Waits {
        Waits::Adapts
    }
}

impl System for Copy {
    type Caller = CopyCaller;

    fn serve(&self, seat: &Seat, _: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        seat.ready();
        loop {
            std::thread::park();
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<CopyCaller> {
        Ok(CopyCaller(vec![0; seat.plan.payload_bytes]))
    }
}

/// The place where a server would have the request.
pub(crate) struct CopyCaller(Vec<u8>);

impl Caller for CopyCaller {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        black_box(&mut self.0).copy_from_slice(black_box(request));
        let answer = &self.0[..reply.len()];
        black_box(reply).copy_from_slice(answer);
        Ok(())
    }
}
