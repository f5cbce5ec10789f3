//! A stack that is held for one caller.

use crate::Words;
use crate::error::CallError;
use crate::loaded::Loaded;
use crate::pool::HELD;
use crate::stack::{ENTRY_SHIFT, Sender};
use core::fmt;
use std::sync::Arc;

/// A stack of a domain's group that only calls through this handle use; given back on drop. `handfast bench ppc` measures
/// its cost and its saving.
pub struct Held {
    inner: Arc<Loaded>,
    number: u32,
}

impl Held {
    pub(crate) fn new(inner: Arc<Loaded>) -> Result<Self, CallError> {
        match inner.group().0.hold() {
            Some(number) => Ok(Self { inner, number }),
            None => Err(CallError::Stacks { limit: HELD as u32 }),
        }
    }

    /// Like [`Domain::call`](crate::Domain::call), on the held stack. A call made from within such a call (by a signal
    /// handler, or by the domain itself) finds the stack in use and takes another.
    ///
    /// # Errors
    /// The errors of [`Domain::call`](crate::Domain::call).
    #[inline]
    pub fn call(&mut self, entry: u16, words: Words) -> Result<Words, CallError> {
        let mut words = words;
        self.call_in_place(entry, &mut words)?;
        Ok(words)
    }

    /// Like [`Domain::call_in_place`](crate::Domain::call_in_place), on the held stack.
    ///
    /// # Errors
    /// The errors of [`Domain::call_in_place`](crate::Domain::call_in_place).
    #[inline]
    pub fn call_in_place(&mut self, entry: u16, words: &mut Words) -> Result<(), CallError> {
        let control = u64::from(entry) << ENTRY_SHIFT;
        self.inner.call(control, words, self.number)
    }

    /// Like [`Domain::call_bytes`](crate::Domain::call_bytes), on the held stack.
    ///
    /// # Errors
    /// The errors of [`Domain::call_bytes`](crate::Domain::call_bytes).
    #[inline]
    pub fn call_bytes(
        &mut self,
        entry: u16,
        words: &mut Words,
        request: &[u8],
        reply: &mut [u8],
    ) -> Result<usize, CallError> {
        let (control, request) = (u64::from(entry) << ENTRY_SHIFT, (request, Sender::NOBODY));
        self.inner
            .call_bytes(control, words, request, reply, self.number)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("number", &self.number)
            .finish()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inner.group().0.let_go(self.number);
    }
}
