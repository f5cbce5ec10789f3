//! Messages received: private bytes, short ones without allocation.

use crate::request::ReplyRight;
use handfast_layout::link::INLINE_BYTES;
use handfast_ring::lane::{Inline, Sink, Target};
use std::cell::RefCell;

/// The bytes of one message, copied out of shared memory: nobody else can change them.
///
/// One pointer to a buffer that its thread reuses: receiving does not allocate once a thread has
/// seen its longest message, and moving a message moves nothing but the pointer.
pub struct Message {
    /// Always there, but in a message that is being dropped.
    body: Option<Box<Body>>,
}

/// A message's bytes and, while it is a request, the right to reply to it: one buffer, so that a
/// request is one pointer too.
struct Body {
    len_bytes: usize,
    is_long: bool,
    /// Behind a pointer, so that taking the message out of its request moves only that.
    reply: Box<Option<ReplyRight>>,
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
    /// An empty message, to be filled: a buffer of this thread's, or a new one.
    #[inline]
    pub(crate) fn new() -> Self {
        let mut body = BUFFERS
            .with_borrow_mut(Vec::pop)
            .unwrap_or_else(Body::allocate);
        body.len_bytes = 0;
        body.is_long = false;
        Self { body: Some(body) }
    }

    /// The right to reply to it, in a request.
    #[inline(always)]
    pub(crate) fn reply(&mut self) -> Option<&mut Option<ReplyRight>> {
        self.body.as_mut().map(|body| &mut *body.reply)
    }

    /// Exchanges the rights to reply of two messages.
    #[inline(always)]
    pub(crate) fn swap_reply(&mut self, other: &mut Self) {
        if let (Some(own), Some(other)) = (&mut self.body, &mut other.body) {
            core::mem::swap(&mut own.reply, &mut other.reply);
        }
    }

    /// As [`Self::reply`], to look at.
    pub(crate) fn reply_right(&self) -> Option<&ReplyRight> {
        self.body.as_ref()?.reply.as_ref().as_ref()
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Some(body) if body.is_long => &body.long,
            Some(body) => body.inline.get(..body.len_bytes).unwrap_or_default(),
            None => &[],
        }
    }
}

impl Body {
    #[cold]
    fn allocate() -> Box<Self> {
        Box::new(Self {
            len_bytes: 0,
            is_long: false,
            reply: Box::default(),
            inline: [0; INLINE_BYTES],
            long: Vec::new(),
        })
    }
}

/// A caller's own buffer as the place of a reply.
pub(crate) struct Buffer<'a>(pub(crate) &'a mut [u8]);

impl Sink for Buffer<'_> {
    #[inline(always)]
    fn place(&mut self, len_bytes: usize, _: bool) -> Target<'_> {
        self.0
            .get_mut(..len_bytes)
            .map_or(Target::Nowhere, Target::Slice)
    }
}

impl Sink for Message {
    #[inline(always)]
    fn place(&mut self, len_bytes: usize, is_inline: bool) -> Target<'_> {
        let Some(body) = &mut self.body else {
            return Target::Nowhere;
        };
        body.len_bytes = len_bytes;
        body.is_long = !is_inline;
        if is_inline {
            Target::Inline(&mut body.inline)
        } else {
            Target::Vector(&mut body.long)
        }
    }
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
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let Some(body) = &mut self.body else {
            return &mut [];
        };
        if body.is_long {
            &mut body.long
        } else {
            body.inline.get_mut(..body.len_bytes).unwrap_or_default()
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
