//! handfast's calls with a block lent beside their bytes: the payload is made where it is lent from, and
//! the server copies it out line by line.

use super::handfast::{self, By, Usage};
use super::{Caller, System, Waits};
use crate::plan::{Plan, Task};
use crate::shared::Piece;
use crate::systems::child::Seat;
use ::handfast::{Loan, SendRight, SharedArena};
use std::io;

pub(crate) const SPIN: By<Loans> = By(handfast::SPIN, "loan-spin", Loans);
pub(crate) const DEFAULT: By<Loans> = By(handfast::DEFAULT, "loan-default", Loans);

/// So many that one has come back whenever the next is made; two take turns.
const BLOCKS: usize = 4;

/// See the module text.
pub(crate) struct Loans;

impl Usage for Loans {
    fn supports(&self, _: Waits, plan: &Plan) -> Result<(), String> {
        if plan.task == Task::Consume && plan.clients == 1 {
            return Ok(());
        }
        Err("one client lends its payload".to_owned())
    }
}

/// The sum of the words of a loan.
fn sum(loan: &Loan) -> io::Result<u64> {
    let mut sums = Piece::default();
    let add = |line: Piece| {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(word);
        }
    };
    loan.for_each_line(add).map_err(io::Error::other)?;
    Ok(sums.into_iter().fold(0, u64::wrapping_add))
}

fn bytes_of(piece: Piece) -> [u8; size_of::<Piece>()] {
    let mut bytes = [0; size_of::<Piece>()];
    for (word, bytes) in piece.iter().zip(bytes.as_chunks_mut().0) {
        *bytes = word.to_le_bytes();
    }
    bytes
}

impl System for By<Loans> {
    type Caller = LoanCaller;

    /// Does the task itself, since the harness's handler wants a private copy of all.
    fn serve(&self, seat: &Seat, _: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let port = self.0.bind(seat)?;
        seat.ready();
        let mut request = port.receive().map_err(io::Error::other)?;
        loop {
            let Some(loan) = request.take_loan() else {
                return Err(io::Error::other("a call came without its loan"));
            };
            let sum = sum(&loan)?;
            drop(loan);
            request = port
                .reply_and_receive(request, &sum.to_le_bytes())
                .map_err(io::Error::other)?;
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<LoanCaller> {
        let len_bytes = seat.plan.payload_bytes;
        Ok(LoanCaller {
            server: self.0.port(seat)?,
            arena: SharedArena::create(len_bytes, BLOCKS).map_err(io::Error::other)?,
        })
    }
}

/// The client's end.
pub(crate) struct LoanCaller {
    server: SendRight,
    arena: SharedArena,
}

impl Caller for LoanCaller {
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        let mut block = self
            .arena
            .try_take(request.len())
            .map_err(io::Error::other)?;
        block.copy_from_slice(request);
        self.lend(block, reply)
    }

    #[inline]
    fn call_made(
        &mut self,
        make: impl Fn(usize) -> Piece,
        scratch: &mut [u8],
        reply: &mut [u8],
    ) -> io::Result<()> {
        let len_bytes = scratch.len();
        let mut block = self.arena.try_take(len_bytes).map_err(io::Error::other)?;
        let places = block.as_chunks_mut::<{ size_of::<Piece>() }>().0;
        for (index, place) in places.iter_mut().enumerate() {
            // As a whole: many small stores would all wait for their line, which the server has read.
            *place = bytes_of(make(index));
        }
        self.lend(block, reply)
    }
}

impl LoanCaller {
    #[inline]
    fn lend(&self, block: ::handfast::Block, reply: &mut [u8]) -> io::Result<()> {
        let lent = self.server.with([block.into()]);
        let message = lent.call(&[]).map_err(io::Error::other)?;
        if message.len() != reply.len() {
            return Err(io::Error::other("the reply has another length"));
        }
        reply.copy_from_slice(&message);
        Ok(())
    }
}
