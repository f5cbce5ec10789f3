//! The borrower's table.

use super::Refused;
use alloc::vec::Vec;
use handfast_layout::loan::{ARENAS, Geometry, LOANS, place_of};

/// Arenas of the peer's: `P` is what stands for the memory of one. Private to the borrower.
#[derive(Debug)]
pub struct Borrowed<P> {
    arenas: [Option<Known<P>>; ARENAS as usize],
    /// The generation with which each loan came last. Made with the first arena.
    last: Vec<u32>,
    start: u32,
}

#[derive(Debug)]
struct Known<P> {
    number: u32,
    geometry: Geometry,
    memory: P,
    /// Loans that have come, modulo 2^32.
    taken: u32,
    /// So many come in all; nothing as long as it has not ended.
    lent: Option<u32>,
}

/// A loan that has come.
#[derive(Debug)]
pub struct Taken<P> {
    /// The arena's memory.
    pub memory: P,
    /// Where its bytes begin there.
    pub at: usize,
    /// How many there are.
    pub len_bytes: usize,
}

/// Why a loan did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Its arena has not been told of; it may have been by now.
    Arena,
    /// No honest peer says this.
    Forged,
}

impl<P> Default for Borrowed<P> {
    fn default() -> Self {
        Self::starting_at(0)
    }
}

impl<P> Borrowed<P> {
    /// A table of loans that all had `generation`.
    pub(super) fn starting_at(generation: u32) -> Self {
        Self {
            arenas: [const { None }; ARENAS as usize],
            last: Vec::new(),
            start: generation,
        }
    }

    /// The peer has told of an arena.
    ///
    /// # Errors
    /// [`Refused::Unknown`] when its number is none, or another's.
    pub fn arrive(&mut self, number: u32, geometry: Geometry, memory: P) -> Result<(), Refused> {
        let place = self.arenas.get_mut(place_of(number) as usize);
        let place = place.filter(|known| known.is_none());
        let place = place.ok_or(Refused::Unknown)?;
        self.last.resize(LOANS as usize, self.start);
        *place = Some(Known {
            number,
            geometry,
            memory,
            taken: 0,
            lent: None,
        });
        Ok(())
    }

    /// The peer has said that an arena has ended, of which it has lent so many blocks.
    ///
    /// # Errors
    /// [`Refused::Unknown`] when there is no such arena, it has been said before, or more have come.
    pub fn ended(&mut self, number: u32, lent: u32) -> Result<(), Refused> {
        let place = self.arenas.get_mut(place_of(number) as usize);
        let known = place.and_then(Option::as_mut);
        let known = known.filter(|known| {
            let to_come = lent.wrapping_sub(known.taken).cast_signed();
            known.number == number && known.lent.is_none() && to_come >= 0
        });
        known.ok_or(Refused::Unknown)?.lent = Some(lent);
        self.forget_if_over(number);
        Ok(())
    }

    /// Forgets all arenas. Holders of loans keep their memory.
    pub fn clear(&mut self) {
        self.arenas = [const { None }; ARENAS as usize];
    }

    fn forget_if_over(&mut self, number: u32) {
        let place = &mut self.arenas[place_of(number) as usize];
        place.take_if(|known| known.lent == Some(known.taken));
    }
}

impl<P: Clone> Borrowed<P> {
    /// The memory of an arena, and where the first `len_bytes` bytes of a block lie there: of one that may be lent soon. `None` if
    /// there is no such block, as far as the peer has told.
    #[must_use]
    pub fn find(&self, (arena, block): (u32, u32), len_bytes: u64) -> Option<(P, usize)> {
        let known = self.arenas.get(place_of(arena) as usize)?.as_ref()?;
        let at = known.geometry.at(block, len_bytes)?;
        (known.number == arena).then(|| (known.memory.clone(), at))
    }

    /// A loan has come in a message.
    ///
    /// # Errors
    /// [`Missed`].
    pub fn take(
        &mut self,
        (arena, block): (u32, u32),
        (loan, generation): (u32, u32),
        len_bytes: u64,
    ) -> Result<Taken<P>, Missed> {
        let place = self.arenas.get_mut(place_of(arena) as usize);
        let known = place.ok_or(Missed::Forged)?.as_mut();
        // The one that was there before may have ended, which has not been told yet either.
        let known = known.filter(|known| known.number == arena);
        let known = known.ok_or(Missed::Arena)?;
        let at = known.geometry.at(block, len_bytes).ok_or(Missed::Forged)?;
        let last = self.last.get_mut(loan as usize).ok_or(Missed::Forged)?;
        // The lender uses a place again once it has been given back, which comes after this.
        if generation != last.wrapping_add(1) {
            return Err(Missed::Forged);
        }
        // Commit point.
        *last = generation;
        known.taken = known.taken.wrapping_add(1);
        let taken = Taken {
            memory: known.memory.clone(),
            at,
            len_bytes: len_bytes as usize,
        };
        self.forget_if_over(arena);
        Ok(taken)
    }
}
