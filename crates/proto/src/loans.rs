//! The two tables of a link for blocks of arenas that are lent with messages: what a process has lent to
//! its peer, and which arenas of the peer's it knows.
//!
//! The lender names each loan by its place in a table, with a generation. The borrower gives it back by
//! writing that generation into the place's word of the link's region, which nobody else writes; so
//! a late word, or one made up, stands for no other loan. The lender looks at the words when it wants blocks.
//!
//! Arenas are told of through a socket, messages travel in lanes. An arena is told of before the first message
//! with a block of it, and a receiver that misses one reads on. The end of an arena is told with the number of its
//! loans: once the borrower has taken so many, none is on its way. The lender uses the arena's number
//! again once all have been given back.

mod borrowed;
mod lent;

#[cfg(test)]
mod simulation;

pub use borrowed::{Borrowed, Missed, Taken};
pub use lent::{Lent, Reserved};

/// A violation by a peer that no honest peer commits, or a limit of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The peer knows of no such arena.
    Unknown,
    /// There are as many as there can be.
    Full,
    /// The link has ended.
    Over,
    /// The word of this loan says what nobody was told.
    Word(u32),
}
