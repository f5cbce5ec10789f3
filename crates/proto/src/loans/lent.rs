//! The lender's table.

use super::Refused;
use alloc::vec::Vec;
use handfast_layout::loan::{ARENAS, LOANS, next_number, place_of};

/// The blocks one process has lent to its peer: `T` stands for a block. Private to the lender.
#[derive(Debug)]
pub struct Lent<T> {
    arenas: [Given; ARENAS as usize],
    /// As many as have been out at once.
    loans: Vec<Loan<T>>,
    /// The initial value of the words of the others.
    start: u32,
    /// Loans that are not in use, the last one used last.
    free: Vec<u32>,
    /// The loans that have been sent.
    out: Vec<u32>,
    /// The loan that [`Self::collect_some`] looks at next.
    next: usize,
    is_over: bool,
}

/// The last arena the peer has been told of at a place.
#[derive(Debug)]
pub(super) struct Given {
    number: u32,
    key: u64,
    /// Loans sent, modulo 2^32.
    lent: u32,
    /// Loans that have been reserved and not come back.
    pub(super) out: u32,
    is_ended: bool,
}

#[derive(Debug)]
pub(super) struct Loan<T> {
    pub(super) generation: u32,
    arena: u32,
    /// The lent block; nothing while it is only reserved, or when its arena has ended.
    what: Option<T>,
}

/// The description of a loan for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The arena's number.
    pub arena: u32,
    /// The loan's place.
    pub loan: u32,
    /// Its generation.
    pub generation: u32,
}

impl<T> Default for Lent<T> {
    fn default() -> Self {
        Self::starting_at(0)
    }
}

impl<T> Lent<T> {
    /// A table whose words all hold `generation`.
    pub(super) fn starting_at(generation: u32) -> Self {
        Self {
            arenas: core::array::from_fn(|place| Given {
                number: place as u32,
                key: 0,
                lent: 0,
                out: 0,
                is_ended: true,
            }),
            loans: Vec::new(),
            start: generation,
            free: Vec::new(),
            out: Vec::new(),
            next: 0,
            is_over: false,
        }
    }

    /// The number by which the peer knows an arena.
    #[must_use]
    pub fn number_of(&self, key: u64) -> Option<u32> {
        let is_it = |given: &&Given| given.key == key && !given.is_ended;
        self.arenas.iter().find(is_it).map(|given| given.number)
    }

    /// A number for an arena of which the peer is about to be told.
    ///
    /// # Errors
    /// [`Refused::Over`]; [`Refused::Full`]: a look at what has come back ([`Self::collect`]) may help.
    pub fn free_number(&self) -> Result<u32, Refused> {
        if self.is_over {
            return Err(Refused::Over);
        }
        let is_free = |given: &&Given| given.is_ended && given.out == 0;
        let free = self.arenas.iter().find(is_free).ok_or(Refused::Full)?;
        Ok(next_number(free.number))
    }

    /// The peer has been told of it, under a number that was free.
    pub fn told(&mut self, number: u32, key: u64) {
        *self.given(number) = Given {
            number,
            key,
            lent: 0,
            out: 0,
            is_ended: false,
        };
    }

    pub(super) const fn given(&mut self, number: u32) -> &mut Given {
        &mut self.arenas[place_of(number) as usize]
    }

    /// A loan for a block of an arena the peer has been told of. [`Self::commit`] must follow, or
    /// [`Self::retract`]. `word` tells the words of loans.
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::Full`]: as for [`Self::free_number`].
    pub fn reserve(&mut self, key: u64, word: impl Fn(u32) -> u32) -> Result<Reserved, Refused> {
        if self.is_over {
            return Err(Refused::Over);
        }
        let arena = self.number_of(key).ok_or(Refused::Unknown)?;
        if self.free.is_empty() {
            self.grow()?;
        }
        let loan = *self.free.last().ok_or(Refused::Full)?;
        let entry = &mut self.loans[loan as usize];
        if word(loan) != entry.generation {
            return Err(Refused::Word(loan));
        }
        self.free.pop();
        entry.generation = entry.generation.wrapping_add(1);
        entry.arena = arena;
        let generation = entry.generation;
        self.given(arena).out += 1;
        Ok(Reserved {
            arena,
            loan,
            generation,
        })
    }

    /// One more loan than were ever out at once.
    #[cold]
    fn grow(&mut self) -> Result<(), Refused> {
        let loan = self.loans.len() as u32;
        if loan == LOANS {
            return Err(Refused::Full);
        }
        self.loans.push(Loan {
            generation: self.start,
            arena: 0,
            what: None,
        });
        self.free.push(loan);
        Ok(())
    }

    /// The message was not sent after all.
    pub fn retract(&mut self, loan: u32) {
        let entry = &mut self.loans[loan as usize];
        entry.generation = entry.generation.wrapping_sub(1);
        self.release(loan);
    }

    /// The message has been sent: it may have been given back already. Returns what was lent at once when
    /// the link has ended.
    #[must_use]
    pub fn commit(&mut self, loan: u32, what: T) -> Option<T> {
        if self.is_over {
            return Some(what);
        }
        let entry = &mut self.loans[loan as usize];
        entry.what = Some(what);
        let arena = entry.arena;
        let given = self.given(arena);
        given.lent = given.lent.wrapping_add(1);
        self.out.push(loan);
        None
    }

    /// Takes what has been given back.
    ///
    /// # Errors
    /// [`Refused::Word`].
    pub fn collect(
        &mut self,
        word: impl Fn(u32) -> u32,
        mut back: impl FnMut(T),
    ) -> Result<(), Refused> {
        let mut place = 0;
        while let Some(loan) = self.out.get(place).copied() {
            let entry = &mut self.loans[loan as usize];
            match entry.generation.wrapping_sub(word(loan)) {
                0 => {
                    if let Some(what) = entry.what.take() {
                        back(what);
                    }
                    self.out.swap_remove(place);
                    self.release(loan);
                }
                1 => place += 1,
                _ => return Err(Refused::Word(loan)),
            }
        }
        Ok(())
    }

    /// As [`Self::collect`], with a look at so many loans at most. A word with an impossible value is left to
    /// [`Self::collect`].
    pub fn collect_some(
        &mut self,
        looks: usize,
        word: impl Fn(u32) -> u32,
        mut back: impl FnMut(T),
    ) {
        for _ in 0..looks {
            if self.next >= self.out.len() {
                self.next = 0;
            }
            let Some(loan) = self.out.get(self.next).copied() else {
                return;
            };
            let entry = &mut self.loans[loan as usize];
            if entry.generation != word(loan) {
                self.next += 1;
                continue;
            }
            if let Some(what) = entry.what.take() {
                back(what);
            }
            self.out.swap_remove(self.next);
            self.release(loan);
        }
    }

    fn release(&mut self, loan: u32) {
        let arena = self.loans[loan as usize].arena;
        let given = self.given(arena);
        given.out = given.out.saturating_sub(1);
        self.free.push(loan);
    }

    /// An arena has ended, which has no block any more that is not lent. Returns its number and how many of its
    /// blocks were lent, for the peer to be told, if it knows of it. Lent blocks are dropped.
    pub fn end_arena(&mut self, key: u64) -> Option<(u32, u32)> {
        let number = self.number_of(key)?;
        let given = self.given(number);
        given.is_ended = true;
        let lent = given.lent;
        for loan in &self.out {
            let entry = &mut self.loans[*loan as usize];
            if entry.arena == number {
                entry.what = None;
            }
        }
        Some((number, lent))
    }

    /// The link has ended: everything comes back, and nothing is lent any more.
    pub fn end(&mut self, mut back: impl FnMut(T)) {
        self.is_over = true;
        for loan in self.out.drain(..) {
            if let Some(what) = self.loans[loan as usize].what.take() {
                back(what);
            }
        }
    }

    /// How many loans have not come back, as far as they have been collected.
    #[must_use]
    pub fn out(&self) -> usize {
        self.out.len()
    }

    #[cfg(test)]
    pub(super) fn generation(&self, loan: u32) -> u32 {
        let loan = self.loans.get(loan as usize);
        loan.map_or(self.start, |loan| loan.generation)
    }
}
