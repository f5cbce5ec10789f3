//! Errors of memory and blocks that are sent.

use super::{Exhausted, Misuse, Os};

/// Why memory was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The memory would have no bytes.
    #[error("memory of zero bytes cannot be made; send a message without it instead")]
    Empty,
    /// The descriptor is not one of a whole memory file that is sealed against every change.
    #[error(
        "the descriptor is not of a memory file without holes that is sealed against writing, growing, \
         shrinking and further seals; copy its bytes"
    )]
    NotSealed,
    /// It was used while it was sealed: a child that was forked meanwhile has it mapped, or the kernel uses a page of it.
    #[error(
        "the memory cannot be sealed: a child forked meanwhile has it mapped, or the kernel uses a page of \
         it; create it again"
    )]
    InUse,
    /// The memory was made before a fork, and is not there in the child.
    #[error(transparent)]
    Misuse(Misuse),
    /// Descriptors or memory ran out.
    #[error(transparent)]
    Exhausted(Exhausted),
    /// The sandbox forbids memory files.
    #[error("{0}: this sandbox forbids memory files; allow memfd_create in its filter")]
    NoMemoryFiles(Os),
    /// Anything else.
    #[error(transparent)]
    Os(Os),
}

/// Why a block was not taken, or its bytes not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoanError {
    /// The blocks of the arena are shorter.
    #[error(
        "{len_bytes} bytes do not fit a block of the arena, which has {room_bytes}; make an arena of \
         longer blocks"
    )]
    TooLong {
        /// The length asked for.
        len_bytes: usize,
        /// Length of each block.
        room_bytes: usize,
    },
    /// All blocks of the arena are in use: lent, or taken and not yet sent.
    #[error(
        "all {blocks} blocks of the arena are in use; have borrowers drop their loans, or make an arena of \
         more blocks"
    )]
    Lent {
        /// How many.
        blocks: u32,
    },
    /// The loan has fewer bytes.
    #[error("the loan has {len_bytes} bytes and ends before byte {end}; ask for fewer")]
    Outside {
        /// End of the range asked for.
        end: usize,
        /// Length of the loan.
        len_bytes: usize,
    },
    /// The link with the lender has ended, and the lender, which lives, has taken the block back: the bytes may
    /// have changed.
    #[error(
        "the link with the lender has ended and the lender has taken the block back; have the lender keep \
         its right to this process as long as it lends"
    )]
    Gone,
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
    /// Anything else.
    #[error(transparent)]
    Os(Os),
}
