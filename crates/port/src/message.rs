//! Messages received: private bytes, short ones without allocation.

use crate::buffers;
use crate::error::Exhausted;
use crate::link::Link;
use crate::loan::Loan;
use crate::pool::{Pool, Pooled};
use crate::receive_right::close_apart;
use crate::reply_right::ReplyRight;
use crate::right::Right;
use crate::users::{Foreign, Users};
use handfast_layout::link::INLINE_BYTES;
use handfast_ring::lane::{Inline, Sink, Target, Unit};
use std::sync::Arc;

/// The bytes of one message, copied out of shared memory, so that no other process can change them.
///
/// One pointer to a buffer that its thread reuses: receiving does not allocate once a thread has
/// seen its longest message, and moving a message moves nothing but the pointer.
#[derive(Default)]
pub struct Message {
    /// None for a message without bytes that never had any.
    body: Option<Box<Body>>,
}

struct Body {
    len_bytes: usize,
    is_long: bool,
    inline: Inline,
    long: Vec<u8>,
    /// The description of its parts, until they have been taken up.
    units: Vec<u8>,
    rights: Vec<Right>,
    /// Where descriptors among them count, and the threads that close untaken descriptors and ports.
    from: Option<(Arc<Users>, u32)>,
    /// Parts that few messages have.
    aside: Option<Box<Aside>>,
    /// While it lies in its thread's pool: the next one there.
    next: Option<Box<Self>>,
}

#[derive(Default)]
struct Aside {
    /// Copies of the descriptors that have been taken to be used while the message is there.
    held: Vec<Foreign>,
    /// The bytes of a message that was too long for a lane.
    bytes: Vec<u8>,
    /// Why those could not be received.
    lost: Option<Exhausted>,
}

thread_local! {
    static POOL: Pool<Body> = const { Pool::new() };
}

impl Pooled for Body {
    #[inline(always)]
    fn next(&mut self) -> &mut Option<Box<Self>> {
        &mut self.next
    }
}

impl Message {
    /// A message to be filled: a buffer of this thread's with its last content, or a new one.
    #[inline]
    pub(crate) fn new() -> Self {
        let body = POOL.try_with(Pool::take).ok().flatten();
        let body = body.unwrap_or_else(Body::allocate);
        Self { body: Some(body) }
    }

    /// A message with these bytes.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut message = Self::new();
        if let Some(body) = &mut message.body {
            (body.len_bytes, body.is_long) = (bytes.len(), bytes.len() > INLINE_BYTES);
            match body.inline.get_mut(..bytes.len()) {
                Some(inline) => inline.copy_from_slice(bytes),
                None => {
                    body.long.clear();
                    body.long.extend_from_slice(bytes);
                }
            }
        }
        message.clear();
        message
    }

    /// Whether it has a buffer.
    #[inline(always)]
    pub(crate) const fn has_buffer(&self) -> bool {
        self.body.is_some()
    }

    /// Takes the rights that came with the message, in the order in which they were sent. Rights left in a
    /// message are dropped with it.
    #[must_use]
    pub fn take_rights(&mut self) -> Vec<Right> {
        let body = self.body.as_mut();
        body.map(|body| core::mem::take(&mut body.rights))
            .unwrap_or_default()
    }

    /// Like [`Self::take_rights`], for libraries that drop rights which they do not hand on. Closing a descriptor of a message may block for as
    /// long as its sender likes. While this message exists, such a close does not block: a thread of this library does it later. One
    /// system call more for each descriptor.
    #[doc(hidden)]
    #[must_use]
    pub fn take_rights_held(&mut self) -> Vec<Right> {
        let held = self.hold_descriptors();
        if let Some(body) = &mut self.body
            && !held.is_empty()
        {
            body.aside.get_or_insert_default().held = held;
        }
        self.take_rights()
    }

    /// Takes the first loan that came with the message and has not been taken, and leaves the other rights in their order.
    /// Avoids the allocation of [`Self::take_rights`].
    #[must_use]
    pub fn take_loan(&mut self) -> Option<Loan> {
        let rights = self.rights_mut()?;
        let (place, loan) = rights
            .iter_mut()
            .enumerate()
            .find_map(|right| match right {
                (place, Right::Loan(loan)) => Some((place, loan)),
                _ => None,
            })?;
        let loan = core::mem::replace(loan, Loan::none());
        if place + 1 == rights.len() {
            rights.truncate(place);
        } else {
            rights.remove(place);
        }
        Some(loan)
    }

    /// Takes the reply right of a message by which its sender waits for an answer
    /// ([`ReplyRight::call`]): the last of its rights.
    #[must_use]
    pub fn take_reply_right(&mut self) -> Option<ReplyRight> {
        match self
            .rights_mut()?
            .pop_if(|right| matches!(right, Right::Reply(_)))?
        {
            Right::Reply(right) => Some(right),
            _ => None,
        }
    }

    pub(crate) fn has_rights(&self) -> bool {
        self.body
            .as_ref()
            .is_some_and(|body| !body.rights.is_empty())
    }

    /// The description of its parts, and the place for the rights made of it.
    pub(crate) fn units_and_rights(&mut self) -> Option<(&[Unit], &mut Vec<Right>)> {
        let body = self.body.as_deref_mut()?;
        Some((body.units.as_chunks().0, &mut body.rights))
    }

    /// Copies of the descriptors that came with it, for a thread that passes them on: while there is a copy, to close another
    /// is not the last close, which may block, and the copies are closed by the threads of the user that they came from.
    pub(crate) fn hold_descriptors(&self) -> Vec<Foreign> {
        let Some((body, (users, user))) =
            (self.body.as_ref()).and_then(|body| Some((body, body.from.as_ref()?)))
        else {
            return Vec::new();
        };
        let fds = body.rights.iter().filter_map(|right| match right {
            Right::Descriptor(fd) => handfast_sys::duplicate(fd).ok(),
            _ => None,
        });
        fds.map(|fd| Foreign::new(users, *user, fd)).collect()
    }

    /// Descriptors among its rights have come from this peer.
    pub(crate) fn has_come_from(&mut self, link: &Link) {
        if let Some(body) = &mut self.body
            && body.rights.iter().any(|right| {
                matches!(
                    right,
                    Right::Descriptor(_) | Right::Receive(_) | Right::Member(_)
                )
            })
        {
            body.from = Some((link.users().clone(), link.peer.uid));
        }
    }

    /// Fills it with so many bytes, more than go through a lane, in a buffer of their own: `ahead` is one, with the number of bytes that are
    /// in it already. `fill` says whether it has, from which byte on. They are lost where there is no memory.
    pub(crate) fn fill(
        &mut self,
        len_bytes: usize,
        ahead: Option<(Vec<u8>, usize)>,
        fill: impl FnOnce(usize, &mut [u8]) -> bool,
    ) {
        const NO_MEMORY: Exhausted = Exhausted {
            what: "memory for the bytes of a long message",
            advice: Some("raise RLIMIT_AS or the memory limit of this process"),
            limit: 0,
        };
        let (buffer, from) = match ahead {
            Some((buffer, copied)) => (Some(buffer), copied),
            None => (buffers::take(len_bytes), 0),
        };
        let filled = buffer.and_then(|mut bytes| fill(from, &mut bytes[from..]).then_some(bytes));
        match (filled, &mut self.body) {
            (Some(bytes), Some(body)) => {
                body.aside.get_or_insert_default().bytes = bytes;
                (body.len_bytes, body.is_long) = (len_bytes, true);
            }
            _ => self.lose(NO_MEMORY),
        }
    }

    /// Its bytes could not be received.
    pub(crate) fn lose(&mut self, why: Exhausted) {
        if let Some(body) = &mut self.body {
            body.aside.get_or_insert_default().lost = Some(why);
        }
    }

    /// Why its bytes could not be received, if so.
    pub(crate) fn lost(&self) -> Option<Exhausted> {
        self.body.as_ref()?.aside.as_ref()?.lost
    }

    /// Whether it has a buffer of its own, or has lost its bytes.
    pub(crate) fn is_filled(&self) -> bool {
        let aside = self.body.as_ref().and_then(|body| body.aside.as_ref());
        aside.is_some_and(|aside| !aside.bytes.is_empty() || aside.lost.is_some())
    }

    fn units_mut(&mut self) -> Option<&mut Vec<u8>> {
        self.body.as_mut().map(|body| &mut body.units)
    }

    pub(crate) fn rights_mut(&mut self) -> Option<&mut Vec<Right>> {
        self.body.as_mut().map(|body| &mut body.rights)
    }

    pub(crate) fn count_rights(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.rights.len())
    }

    /// Drops what came with it, so that its buffer may hold another message.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if let Some(body) = &mut self.body
            && body.has_any()
        {
            body.drop_rights();
        }
    }

    /// The bytes.
    #[must_use]
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Some(body) if body.is_long => body.long(),
            Some(body) => body.inline.get(..body.len_bytes).unwrap_or_default(),
            None => &[],
        }
    }
}

impl Body {
    /// Whether rights lie in it, or copies of former ones.
    #[inline(always)]
    const fn has_any(&self) -> bool {
        !self.rights.is_empty() || self.aside.is_some()
    }

    /// Apart, so that the look at a short one is in line.
    #[inline(never)]
    fn long(&self) -> &[u8] {
        match &self.aside {
            Some(aside) if !aside.bytes.is_empty() => &aside.bytes,
            _ => &self.long,
        }
    }

    #[cold]
    fn drop_aside(&mut self) {
        let Some(aside) = self.aside.take() else {
            return;
        };
        buffers::keep(aside.bytes);
    }

    #[cold]
    fn drop_rights(&mut self) {
        if self
            .aside
            .as_ref()
            .is_some_and(|aside| !aside.bytes.is_empty())
        {
            (self.len_bytes, self.is_long) = (0, false);
        }
        self.drop_aside();
        let from = self.from.take();
        for right in self.rights.drain(..) {
            match (right, &from) {
                // Closing an untaken descriptor may block, and this is a thread that serves.
                (Right::Descriptor(fd), Some((users, user))) => {
                    drop(Foreign::new(users, *user, fd));
                }
                (Right::Receive(receive), Some((users, user))) => {
                    close_apart(receive, users, *user)
                }
                (Right::Member(member), Some((users, user))) => {
                    users.expend(*user, move || drop(member));
                }
                (right, _) => drop(right),
            }
        }
    }

    #[cold]
    fn allocate() -> Box<Self> {
        Box::new(Self {
            len_bytes: 0,
            is_long: false,
            inline: [0; INLINE_BYTES],
            long: Vec::new(),
            units: Vec::new(),
            rights: Vec::new(),
            from: None,
            aside: None,
            next: None,
        })
    }
}

/// Where a reply goes, and the rights in it.
pub(crate) trait ReplySink: Sink {
    /// The message that has been told of the reply's parts.
    fn parts(&mut self) -> &mut Message;

    /// The parts have been taken up, of a reply that came with so many bytes. Its length.
    ///
    /// # Errors
    /// Its bytes could not be received.
    fn adopted(&mut self, len_bytes: usize) -> Result<usize, Exhausted>;
}

impl ReplySink for Message {
    fn parts(&mut self) -> &mut Message {
        self
    }

    fn adopted(&mut self, _: usize) -> Result<usize, Exhausted> {
        self.lost().map_or_else(|| Ok(self.bytes().len()), Err)
    }
}

impl ReplySink for Buffer<'_> {
    fn parts(&mut self) -> &mut Message {
        &mut self.1
    }

    fn adopted(&mut self, len_bytes: usize) -> Result<usize, Exhausted> {
        if !self.1.is_filled() {
            return Ok(len_bytes);
        }
        let len_bytes = self.1.adopted(0)?;
        if let Some(place) = self.0.get_mut(..len_bytes) {
            place.copy_from_slice(self.1.bytes());
        }
        Ok(len_bytes)
    }
}

/// A caller's own buffer as the place of a reply; and what describes its parts.
pub(crate) struct Buffer<'a>(pub(crate) &'a mut [u8], pub(crate) Message);

impl Sink for Buffer<'_> {
    #[inline(always)]
    fn place(&mut self, len_bytes: usize, _: bool) -> Target<'_> {
        self.0
            .get_mut(..len_bytes)
            .map_or(Target::Nowhere, Target::Slice)
    }

    #[cold]
    fn units(&mut self) -> Option<&mut Vec<u8>> {
        self.1 = Message::of(&[]);
        self.1.units_mut()
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
            return Target::Inline(&mut body.inline);
        }
        if body.aside.is_some() {
            body.drop_aside();
        }
        Target::Vector(&mut body.long)
    }

    #[inline(always)]
    fn units(&mut self) -> Option<&mut Vec<u8>> {
        self.units_mut()
    }
}

impl Drop for Message {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut body) = self.body.take() {
            if body.has_any() {
                body.drop_rights();
            }
            // A thread that is ending has no pool any more; the buffer is then just freed.
            let _ = POOL.try_with(|pool| pool.give(body));
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
            match &mut body.aside {
                Some(aside) if !aside.bytes.is_empty() => &mut aside.bytes,
                _ => &mut body.long,
            }
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

/// The party for which rights are taken up.
#[derive(Clone, Copy)]
pub(crate) enum Whom<'a> {
    /// A receiver, from a lane; and its number, which ports may come to share, unless the message goes on.
    Receiver(Option<u32>),
    /// A receiver that has ended, from a lane: the rights are dropped, and a port does not even come here. A thread
    /// that refuses messages for such receivers keeps others from being made meanwhile.
    NoReceiver,
    /// A caller, whose thread this is, from an answer.
    Caller,
    /// The process behind this link, to which an answer goes on.
    Relay(&'a Link),
    /// None: the rights are dropped.
    Nobody,
}
