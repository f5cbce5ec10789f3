//! A call as the functions of a domain see it.

use crate::Words;
use crate::stack::{BYTES_MAX, Descriptor, Sender};

/// A call as the domain's function sees it, in memory of the domain's group.
pub struct CallContext<'a> {
    descriptor: &'a mut Descriptor,
    /// The first byte of the stack's request area, if the call has buffers; else null.
    areas: *mut u8,
    sender: Sender,
}

impl<'a> CallContext<'a> {
    /// A call with eight words.
    #[inline]
    pub(crate) const fn with_words(descriptor: &'a mut Descriptor) -> Self {
        Self {
            descriptor,
            areas: core::ptr::null_mut(),
            sender: Sender::NOBODY,
        }
    }

    /// A call with bytes, too.
    ///
    /// # Safety
    /// `areas` are the two areas of the descriptor's stack, and its lengths are at most theirs.
    pub(crate) const unsafe fn with_bytes(
        descriptor: &'a mut Descriptor,
        areas: *mut u8,
        sender: Sender,
    ) -> Self {
        Self {
            descriptor,
            areas,
            sender,
        }
    }

    /// The port's statement about the message; empty where the domain was called directly.
    #[inline]
    #[must_use]
    pub const fn sender(&self) -> Sender {
        self.sender
    }

    /// The eight words of the call; their values at the end go back to the caller.
    #[inline]
    pub const fn words(&mut self) -> &mut Words {
        &mut self.descriptor.words
    }

    /// The bytes of the call: a copy, which the caller cannot change.
    #[inline]
    #[must_use]
    pub const fn request(&self) -> &'a [u8] {
        if self.areas.is_null() {
            return &[];
        }
        // SAFETY: the request's area, of which so many bytes were written; nobody writes it during the call.
        unsafe { core::slice::from_raw_parts(self.areas, self.descriptor.request_len as usize) }
    }

    /// Room for the bytes of the reply, [`BYTES_MAX`]; none where the caller wants no bytes. Holds bytes left by earlier
    /// calls.
    #[inline]
    pub const fn reply(&mut self) -> &mut [u8] {
        if self.areas.is_null() {
            return &mut [];
        }
        // SAFETY: the reply's area lies behind the request's, in the same stack.
        let reply = unsafe { self.areas.add(BYTES_MAX) };
        // SAFETY: this call's alone, and borrowed as long as `self` is.
        unsafe { core::slice::from_raw_parts_mut(reply, BYTES_MAX) }
    }

    /// The bytes of the request, and the room for the bytes of the reply.
    #[inline]
    pub const fn both(&mut self) -> (&'a [u8], &mut [u8]) {
        (self.request(), self.reply())
    }

    /// Sends the first `len_bytes` bytes of [`Self::reply`] back; without this call none are sent.
    #[inline]
    pub fn set_reply_len(&mut self, len_bytes: usize) {
        self.descriptor.reply_len = len_bytes.min(BYTES_MAX) as u32;
    }
}
