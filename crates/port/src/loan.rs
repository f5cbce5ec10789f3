//! Loans: blocks of a peer's arena that came with messages.

use crate::error::{LoanError, Misuse, Os};
use crate::link::Link;
use crate::pool::{Pool, Pooled};
use crate::users::ForeignMemory;
use core::fmt;
use handfast_channel::loan;
use handfast_region::Lent;
use handfast_sys::{AsFd, Errno};
use std::sync::Arc;

/// A block of a peer's arena, lent with a message ([`Right::Loan`](crate::Right::Loan)), until it is dropped.
///
/// The peer can still write the block. So its bytes are copied out before anybody looks at them, in parts if
/// that is enough ([`Self::copy_to`]), or handed on unseen ([`Self::write_to`]). An honest peer does not write
/// the block meanwhile; a block that the peer has taken back, since the link has ended, is detected. When the peer's process
/// dies the bytes stay as they are.
///
/// A loan holds the memory of its link and of the whole arena. It cannot be sent on. One pointer, so that
/// moving it moves nothing else.
pub struct Loan {
    /// Always present, except in a loan that is being dropped or has been taken out.
    held: Option<Box<Held>>,
}

/// The contents of a loan. Reused by its thread.
struct Held {
    from: Option<Lender>,
    at: usize,
    len_bytes: usize,
    /// The number and generation by which it is given back.
    loan: u32,
    generation: u32,
    /// The next one in its thread's pool, while it lies there.
    next: Option<Box<Self>>,
}

/// The lender's link and memory.
struct Lender {
    link: Arc<Link>,
    memory: Arc<ForeignMemory<Lent>>,
}

thread_local! {
    static POOL: Pool<Held> = const { Pool::new() };
}

impl Pooled for Held {
    #[inline(always)]
    fn next(&mut self) -> &mut Option<Box<Self>> {
        &mut self.next
    }
}

impl Loan {
    /// A loan that has just come.
    pub(crate) fn new(
        link: &Arc<Link>,
        (memory, at, len_bytes): (Arc<ForeignMemory<Lent>>, usize, usize),
        (loan, generation): (u32, u32),
    ) -> Self {
        loan::prefetch(&link.region, link.calls.other(), loan);
        let held = POOL.try_with(Pool::take).ok().flatten();
        let mut held = held.unwrap_or_else(Held::allocate);
        let link = link.clone();
        held.from = Some(Lender { link, memory });
        held.at = at;
        held.len_bytes = len_bytes;
        held.loan = loan;
        held.generation = generation;
        Self { held: Some(held) }
    }

    /// The remains of a loan that was taken out.
    pub(crate) const fn none() -> Self {
        Self { held: None }
    }

    /// Length in bytes, as given by the sender.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.len_bytes)
    }

    /// Whether the loan has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `from` on. One copy, no system call. Two copies of the same bytes agree only if the
    /// peer is honest: check the copy, not the block.
    ///
    /// # Errors
    /// [`LoanError::Outside`]; [`LoanError::Gone`], and then the content of `bytes` is unspecified.
    #[inline]
    pub fn copy_to(&self, from: usize, bytes: &mut [u8]) -> Result<(), LoanError> {
        let (at, lender) = self.place(from, bytes.len())?;
        lender.memory.get().copy_out(at, bytes);
        lender.still_lent()
    }

    /// As [`Self::copy_to`], also when the link has ended: bytes of a message, which its sender does not write again.
    pub(crate) fn copy_left(&self, from: usize, bytes: &mut [u8]) -> Result<(), LoanError> {
        let (at, lender) = self.place(from, bytes.len())?;
        lender.memory.get().copy_out(at, bytes);
        match lender.memory.get().is_forked() {
            true => Err(LoanError::Misuse(Misuse::Forked)),
            false => Ok(()),
        }
    }

    /// Copies all bytes out in pieces of 64, which need not go through memory again: as little-endian words, the last
    /// piece filled up with zeros. For uses that look at each byte once and keep none, such as a sum: as fast as reading
    /// in place.
    ///
    /// # Errors
    /// [`LoanError::Gone`]; `each` has been given unspecified bytes then.
    #[inline]
    pub fn for_each_line(&self, mut each: impl FnMut([u64; 8])) -> Result<(), LoanError> {
        let (at, lender) = self.place(0, self.len())?;
        let epoch = handfast_sys::process::fork_epoch();
        lender.memory.get().for_each_line(at, self.len(), |line| {
            each(line);
            // `each` may have forked: the child goes on without this memory.
            handfast_sys::process::fork_epoch() == epoch
        });
        lender.still_lent()
    }

    /// A copy of all bytes.
    ///
    /// # Errors
    /// [`LoanError::Gone`].
    pub fn to_vec(&self) -> Result<Vec<u8>, LoanError> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes the bytes from `from` on to a descriptor, which copies them for its reader unseen by this process. One
    /// `write`, which blocks as that descriptor does; returns how many bytes it took.
    ///
    /// # Errors
    /// [`LoanError::Outside`]; [`LoanError::Os`]; [`LoanError::Gone`], and then unspecified bytes may have been
    /// written.
    pub fn write_to(&self, to: impl AsFd, from: usize) -> Result<usize, LoanError> {
        let len_bytes = self.len().saturating_sub(from);
        let (at, lender) = self.place(from, len_bytes)?;
        let written = lender.memory.get().write_to(to.as_fd(), at, len_bytes);
        lender.still_lent()?;
        let call = "write";
        written.map_err(|errno: Errno| {
            LoanError::Os(Os {
                call,
                errno: errno.into(),
            })
        })
    }

    /// The place of bytes in the arena.
    #[inline]
    fn place(&self, from: usize, len_bytes: usize) -> Result<(usize, &Lender), LoanError> {
        let held = self.held.as_deref();
        let held = held.and_then(|held| Some((held, held.from.as_ref()?)));
        let (held, lender) = held.ok_or(LoanError::Gone)?;
        if lender.memory.get().is_forked() {
            return Err(LoanError::Misuse(Misuse::Forked));
        }
        let end = from.saturating_add(len_bytes);
        if end > held.len_bytes {
            let len_bytes = held.len_bytes;
            return Err(LoanError::Outside { end, len_bytes });
        }
        Ok((held.at + from, lender))
    }
}

impl Lender {
    /// Checks that bytes copied before this are the lent ones.
    #[inline]
    fn still_lent(&self) -> Result<(), LoanError> {
        if self.memory.get().is_forked() {
            return Err(LoanError::Misuse(Misuse::Forked));
        }
        if loan::has_ended(&self.link.region, self.link.calls.other()) {
            return Err(LoanError::Gone);
        }
        Ok(())
    }
}

impl Held {
    #[cold]
    fn allocate() -> Box<Self> {
        Box::new(Self {
            from: None,
            at: 0,
            len_bytes: 0,
            loan: 0,
            generation: 0,
            next: None,
        })
    }
}

impl Drop for Loan {
    #[inline]
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else {
            return;
        };
        // A forked child has its parent's loans by accident, and not the memory.
        if let Some(lender) = held.from.take()
            && !lender.memory.get().is_forked()
        {
            let (link, calls) = (&lender.link, lender.link.calls.other());
            loan::give_back(&link.region, calls, held.loan, held.generation);
        }
        // A thread that is ending has no pool any more; the box is then just freed.
        let _ = POOL.try_with(|pool| pool.give(held));
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan")
            .field("len_bytes", &self.len())
            .finish_non_exhaustive()
    }
}
