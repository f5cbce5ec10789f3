//! `yields`: clients that do nothing but give their CPU away (paper 000, Table 1). Nobody is called.

use super::{Caller, Named, System, Waits};
use crate::systems::child::Seat;
use handfast_sys::cpu;
use std::io;

/// Yields in one call, so that what is around a call counts for little.
pub const YIELDS: usize = 16;

pub(crate) struct Yields;

impl Named for Yields {
    fn name(&self) -> &'static str {
        "yields"
    }

    fn waits(&self) -> Waits {
        Waits::Adapts
    }
}

impl System for Yields {
    type Caller = YieldingCaller;

    fn serve(&self, seat: &Seat, _: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        seat.ready();
        loop {
            std::thread::park();
        }
    }

    fn connect(&self, _: &Seat) -> io::Result<Self::Caller> {
        Ok(YieldingCaller)
    }
}

pub(crate) struct YieldingCaller;

impl Caller for YieldingCaller {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        for _ in 0..YIELDS {
            cpu::yield_now();
        }
        reply.copy_from_slice(&request[..reply.len()]);
        Ok(())
    }
}
