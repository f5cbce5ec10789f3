//! Messages received: private bytes, short ones without allocation.

use handfast_layout::link::INLINE_BYTES;
use handfast_ring::lane::{Inline, Sink, Target};
use std::cell::RefCell;

/// The bytes of one message, copied out of shared memory: nobody else can change them.
///
/// One pointer to a buffer that its thread reuses: receiving does not allocate once a thread has
/// seen its longest message, and moving a message moves nothing but the pointer.
#[derive(Default)]
pub struct Message {
    /// `None` for the empty message that [`Request::take_message`](crate::Request::take_message)
    /// leaves behind.
    body: Option<Box<Body>>,
}

struct Body {
    len_bytes: usize,
    is_long: bool,
    inline: Inline,
    long: Vec<u8>,
}

/// Buffers a thread keeps for its next messages.
const BUFFERS_KEPT: usize = 8;

thread_local! {
    // A vector of boxes on purpose: the boxes are what is handed out.
    #[allow(clippy::vec_box, reason = "a message is its box")]
    static BUFFERS: RefCell<Vec<Box<Body>>> = const { RefCell::new(Vec::new()) };
}

impl Message {
    /// An empty message, to be filled.
    pub(crate) const fn new() -> Self {
        Self { body: None }
    }

    #[inline]
    pub(crate) fn set_len(&mut self, len_bytes: usize) {
        if let Some(body) = &mut self.body {
            body.len_bytes = len_bytes;
        }
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Some(body) if body.is_long => &body.long,
            Some(body) => &body.inline[..body.len_bytes],
            None => &[],
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
        let body = self.body.get_or_insert_with(buffer);
        body.is_long = false;
        &mut body.inline
    }

    fn long(&mut self, _len_bytes: usize, copy: impl FnOnce(Target<'_>)) {
        let body = self.body.get_or_insert_with(buffer);
        body.is_long = true;
        copy(Target::Vector(&mut body.long));
    }
}

/// A buffer of this thread's, or a new one.
#[inline]
fn buffer() -> Box<Body> {
    BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
        let inline = [0; INLINE_BYTES];
        Box::new(Body {
            len_bytes: 0,
            is_long: false,
            inline,
            long: Vec::new(),
        })
    })
}

impl Drop for Message {
    #[inline]
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            // A thread that is ending has no pool any more; the buffer is then just freed.
            let _ = BUFFERS.try_with(|buffers| {
                let mut buffers = buffers.borrow_mut();
                if buffers.len() < BUFFERS_KEPT {
                    buffers.push(body);
                }
            });
        }
    }
}

impl core::ops::DerefMut for Message {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Some(body) = &mut self.body else {
            return &mut [];
        };
        if body.is_long {
            &mut body.long
        } else {
            &mut body.inline[..body.len_bytes]
        }
    }
}

impl core::ops::Deref for Message {
    type Target = [u8];

    #[inline]
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
