//! A client's loop.

use crate::control::{Phase, Slot};
use crate::{Result, Seat};
use handfast_sys::clock;
use hdrhistogram::Histogram;
use std::error::Error;
use std::io::{self, Write};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

/// The calls of one client, as many as the phases say.
///
/// ```ignore
/// let mut calls = Calls::new(seat)?;
/// while let Some(number) = calls.next() {
///     request[..8].copy_from_slice(&number.to_le_bytes());
///     let reply = calls.check(socket.call(&request))?;
///     calls.done(&reply)?;
/// }
/// calls.report()
/// ```
pub struct Calls<'a> {
    seat: &'a Seat,
    slot: &'a Slot,
    latencies: Histogram<u64>,
    number: u64,
    start_ns: u64,
}

impl<'a> Calls<'a> {
    /// Tells the lab that this client is connected, and sleeps until the first phase.
    pub fn new(seat: &'a Seat) -> Result<Self> {
        let slot = seat.control.slot(seat.index);
        if seat.think_ns > 0 {
            // Pauses are to be as long as asked, not 50 us longer.
            rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        }
        slot.ready.store(1, Release);
        seat.control.sleep_while(Phase::Hold);
        let offset = clock::now_ns().cast_signed() - clock::ticks_ns().cast_signed();
        slot.clock_offset.store(offset, Relaxed);
        Ok(Self {
            seat,
            slot,
            latencies: Histogram::new_with_bounds(1, 100_000_000_000, 3)?,
            number: 0,
            start_ns: 0,
        })
    }

    /// The number that the first eight bytes of the next request are to be, as its time begins; nothing at the end.
    #[expect(
        clippy::should_implement_trait,
        reason = "each is ended by done before the next"
    )]
    #[inline]
    pub fn next(&mut self) -> Option<u64> {
        loop {
            match self.seat.control.phase() {
                Phase::Warm | Phase::Measure => break,
                asleep @ (Phase::Hold | Phase::Idle) => self.seat.control.sleep_while(asleep),
                Phase::Stop => return None,
            }
        }
        if self.seat.think_ns > 0 {
            std::thread::sleep(Duration::from_nanos(self.seat.think_ns));
        }
        self.number += 1;
        self.start_ns = clock::ticks_ns();
        self.slot.open_since.store(self.start_ns, Relaxed);
        Some(self.number)
    }

    /// Passes a call's outcome through, and notes the time when it failed.
    #[inline]
    pub fn check<T, E: Into<Box<dyn Error>>>(
        &self,
        outcome: std::result::Result<T, E>,
    ) -> Result<T> {
        outcome.map_err(|error| {
            self.slot.set_failed();
            error.into()
        })
    }

    /// The reply is there: its time ends. It must be as long as asked and begin with the number.
    #[inline]
    pub fn done(&mut self, reply: &[u8]) -> Result {
        let taken_ns = clock::ticks_ns() - self.start_ns;
        let is_own =
            reply.len() == self.seat.payload_bytes && reply[..8] == self.number.to_le_bytes();
        self.ended(taken_ns, is_own)
    }

    /// As [`Calls::done`], of a payload that was made of [`line()`]s and whose sum came back.
    #[inline]
    pub fn done_sum(&mut self, sum: u64) -> Result {
        let taken_ns = clock::ticks_ns() - self.start_ns;
        let lines = (self.seat.payload_bytes / LINE) as u64;
        let of_indices = lines * lines.saturating_sub(1) / 2;
        let expected = self
            .number
            .wrapping_mul(lines)
            .wrapping_add(of_indices)
            .wrapping_mul(8);
        self.ended(taken_ns, sum == expected)
    }

    #[inline]
    fn ended(&mut self, taken_ns: u64, is_own: bool) -> Result {
        if !is_own {
            return Err(format!("call {}: the reply is another's", self.number).into());
        }
        self.slot.open_since.store(0, Relaxed);
        self.slot.calls.store(self.number, Relaxed);
        if self.seat.control.phase() == Phase::Measure {
            self.latencies.saturating_record(taken_ns);
        }
        Ok(())
    }

    /// Writes what was recorded to standard output.
    pub fn report(self) -> Result {
        let steps = self.latencies.iter_recorded();
        let counted: Vec<(u64, u64)> = steps
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect();
        Ok(io::stdout().write_all(&serde_json::to_vec(&counted)?)?)
    }
}

/// Bytes of a line.
pub const LINE: usize = 64;

/// Line `index` of the payload of call `number`: eight equal words.
#[must_use]
#[inline]
pub fn line(number: u64, index: usize) -> [u8; LINE] {
    let word = number.wrapping_add(index as u64).to_le_bytes();
    let mut line = [0; LINE];
    for place in line.as_chunks_mut::<8>().0 {
        *place = word;
    }
    line
}

/// What the words of a payload add up to.
#[must_use]
#[inline]
pub fn sum(payload: &[u8]) -> u64 {
    let words = payload.as_chunks::<8>().0.iter();
    words.fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}
