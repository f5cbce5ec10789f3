//! handfast's calls with a header and a body that lie in two places, as one message.

use super::handfast::{self, By, Usage};
use super::{Caller, System};
use crate::shared::Piece;
use crate::systems::child::Seat;
use ::handfast::SendRight;
use std::io::{self, IoSlice};

pub(crate) const SPIN: By<Pieces> = By(handfast::SPIN, "pieces-spin", Pieces);
pub(crate) const DEFAULT: By<Pieces> = By(handfast::DEFAULT, "pieces-default", Pieces);

/// See the module text.
pub(crate) struct Pieces;

impl Usage for Pieces {}

impl System for By<Pieces> {
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
