//! handfast's calls with a header and a body that lie in two places, as one message.

use super::handfast::{self, Handfast};
use super::{Caller, Named, System, Waits};
use crate::shared::Piece;
use crate::systems::child::Seat;
use ::handfast::SendRight;
use std::io::{self, IoSlice};

pub(crate) const SPIN: Pieces = Pieces(handfast::SPIN, "pieces-spin");
pub(crate) const DEFAULT: Pieces = Pieces(handfast::DEFAULT, "pieces-default");

/// A strategy and its key.
pub(crate) struct Pieces(Handfast, &'static str);

impl Named for Pieces {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn key(&self) -> &'static str {
        self.1
    }

    fn waits(&self) -> Waits {
        self.0.waits()
    }
}

impl System for Pieces {
    type Caller = PiecesCaller;

    fn serve(&self, seat: &Seat, handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        self.0.serve(seat, handler)
    }

    fn connect(&self, seat: &Seat) -> io::Result<PiecesCaller> {
        Ok(PiecesCaller(self.0.port(seat)?))
    }
}

pub(crate) struct PiecesCaller(SendRight);

/// The length of the header.
const HEADER_BYTES: usize = size_of::<Piece>();

impl Caller for PiecesCaller {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        let (header, body) = request.split_at(HEADER_BYTES.min(request.len()));
        let pieces = [IoSlice::new(header), IoSlice::new(body)];
        let answer = self.0.call_vectored(&pieces).map_err(io::Error::other)?;
        handfast::fill(reply, &answer)
    }
}
