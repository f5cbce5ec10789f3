//! Messages received: private bytes, short ones without allocation.

use handfast_layout::link::INLINE_BYTES;
use handfast_ring::lane::{Inline, Sink, Target};
use std::cell::RefCell;

/// The bytes of one message, copied out of shared memory: nobody else can change them.
///
/// Up to 40 bytes live in the value itself; longer ones in a buffer that the thread reuses, so
/// receiving does not allocate once a thread has seen its longest message.
pub struct Message {
    inline: Inline,
    len_bytes: usize,
    /// Empty (no allocation) while the bytes are inline.
    long: Vec<u8>,
    is_long: bool,
}

/// Buffers a thread keeps for its next long messages.
const BUFFERS_KEPT: usize = 4;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Message {
    pub(crate) const fn new() -> Self {
        Self {
            inline: [0; INLINE_BYTES],
            len_bytes: 0,
            long: Vec::new(),
            is_long: false,
        }
    }

    pub(crate) const fn set_len(&mut self, len_bytes: usize) {
        self.len_bytes = len_bytes;
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        if self.is_long {
            &self.long
        } else {
            &self.inline[..self.len_bytes]
        }
    }
}

/// A caller's own buffer as the place of a reply.
pub(crate) struct Buffer<'a> {
    pub(crate) bytes: &'a mut [u8],
    /// Short replies land here first: the slot's copy has a fixed size.
    pub(crate) short: Option<Inline>,
}

impl Sink for Buffer<'_> {
    #[inline]
    fn inline(&mut self, _len_bytes: usize) -> &mut Inline {
        self.short.insert([0; INLINE_BYTES])
    }

    #[inline]
    fn long(&mut self, len_bytes: usize, copy: impl FnOnce(Target<'_>)) {
        if let Some(bytes) = self.bytes.get_mut(..len_bytes) {
            copy(Target::Slice(bytes));
        }
    }
}

impl Sink for Message {
    #[inline]
    fn inline(&mut self, _len_bytes: usize) -> &mut Inline {
        self.is_long = false;
        &mut self.inline
    }

    fn long(&mut self, _len_bytes: usize, copy: impl FnOnce(Target<'_>)) {
        self.is_long = true;
        if self.long.capacity() == 0 {
            self.long = BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_default();
        }
        copy(Target::Vector(&mut self.long));
    }
}

impl Drop for Message {
    #[inline]
    fn drop(&mut self) {
        if self.long.capacity() > 0 {
            let buffer = core::mem::take(&mut self.long);
            // A thread that is ending has no pool any more; the buffer is then just freed.
            let _ = BUFFERS.try_with(|buffers| {
                let mut buffers = buffers.borrow_mut();
                if buffers.len() < BUFFERS_KEPT {
                    buffers.push(buffer);
                }
            });
        }
    }
}

impl core::ops::DerefMut for Message {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.is_long {
            &mut self.long
        } else {
            &mut self.inline[..self.len_bytes]
        }
    }
}

impl core::ops::Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl core::fmt::Debug for Message {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Message")
            .field("len_bytes", &self.bytes().len())
            .finish_non_exhaustive()
    }
}
