//! Many one-way messages in one operation, at both ends.
//!
//! A message costs its ring slot and its copy; the lock, the doorbell and the question whether a receiver
//! sleeps are paid once per batch.

use crate::error::{ReceiveError, SendError, Unsent};
use crate::link::doorbell;
use crate::message::Message;
use crate::options::Waiting;
use crate::poller::{Gathers, gather};
use crate::polling;
use crate::receive_right::ReceiveRight;
use crate::request::Request;
use crate::seal::Seal;
use crate::send::{self, SendRight, life, route};
use crate::sending::plain;
use core::time::Duration;
use handfast_layout::link::{Kind, SLOTS};
use handfast_ring::lane::Header;
use handfast_sys::socket::Peer;
use handfast_sys::{clock, cpu};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

/// Most messages that a [`Batch`] holds: the capacity of a lane's ring.
pub const BATCH_MESSAGES_MAX: usize = SLOTS as usize;

/// One-way messages of one sender, in the order of sending. The next [`ReceiveRight::receive_many`]
/// reuses its buffers: receiving allocates nothing once they have grown.
#[derive(Default, Debug)]
pub struct Batch {
    /// The first `len` are filled.
    messages: Vec<Message>,
    len: usize,
    peer: Option<Peer>,
    seal: Seal,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            messages: Vec::new(),
            len: 0,
            peer: None,
            seal: Seal::NONE,
        }
    }

    /// The messages.
    #[must_use]
    #[inline]
    pub fn messages(&self) -> &[Message] {
        self.messages.get(..self.len).unwrap_or_default()
    }

    /// The process and user that sent the messages, as the kernel vouched when the link was made. `None`
    /// when there are no messages.
    #[must_use]
    pub const fn peer(&self) -> Option<Peer> {
        self.peer
    }

    /// The badge of the right that the messages came through, as [`Request::badge`].
    #[must_use]
    pub const fn badge(&self) -> u64 {
        self.seal.badge
    }

    /// The permissions of the right that the messages came through, as [`Request::permissions`].
    #[must_use]
    pub const fn permissions(&self) -> u16 {
        self.seal.permissions
    }

    /// The port that the messages came to, as [`Request::member`].
    #[must_use]
    pub fn member(&self) -> Option<u32> {
        self.seal.member()
    }

    const fn clear(&mut self) {
        self.len = 0;
        self.seal = Seal::NONE;
        self.peer = None;
    }
}

impl Gathers for Batch {
    fn start(&mut self, message: Message, (peer, seal): (Peer, Seal)) {
        self.messages.resize_with(BATCH_MESSAGES_MAX, Message::new);
        self.messages[0] = message;
        self.len = 1;
        self.peer = Some(peer);
        self.seal = seal;
    }

    fn places(&mut self) -> &mut [Message] {
        &mut self.messages[self.len..]
    }

    fn add(&mut self, count: usize) {
        self.len += count;
    }
}

impl SendRight {
    /// Sends one-way messages in order, waiting by the strategy while the queue is full. Each is
    /// copied once; the receiver may take the first while the last is on its way. At most one
    /// system call for every filled ring (64 messages), and none while the receiver is awake.
    ///
    /// # Errors
    /// [`Unsent`] says how many were sent and why the next was not.
    pub fn send_many(&self, messages: &[impl AsRef<[u8]>]) -> Result<(), Unsent> {
        send_many_by(self, messages, Waiting::Always)
    }

    /// Like [`Self::send_many`], for at most `timeout` in all. The clock is read once for up to 64
    /// messages, also while there is room for all of them.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] then, after the messages that found room.
    pub fn send_many_timeout(
        &self,
        messages: &[impl AsRef<[u8]>],
        timeout: Duration,
    ) -> Result<(), Unsent> {
        send_many_by(self, messages, Waiting::Until(clock::deadline_ns(timeout)))
    }

    /// As [`Self::send_many_timeout`], until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn send_many_deadline(
        &self,
        messages: &[impl AsRef<[u8]>],
        deadline: Instant,
    ) -> Result<(), Unsent> {
        send_many_by(self, messages, Waiting::Until(clock::instant_ns(deadline)))
    }

    /// Like [`Self::send_many`], without waiting.
    ///
    /// # Errors
    /// [`SendError::Full`] after the messages that found room.
    pub fn try_send_many(&self, messages: &[impl AsRef<[u8]>]) -> Result<(), Unsent> {
        send_many_by(self, messages, Waiting::Never)
    }
}

fn send_many_by(
    right: &SendRight,
    messages: &[impl AsRef<[u8]>],
    waiting: Waiting,
) -> Result<(), Unsent> {
    let mut sent = 0;
    let mut slices: [&[u8]; BATCH_MESSAGES_MAX] = [&[]; BATCH_MESSAGES_MAX];
    while sent < messages.len() {
        // Before its lane is locked: the application's code may use this right, or panic.
        let mut count = 0;
        let collected = catch_unwind(AssertUnwindSafe(|| {
            for (place, message) in slices.iter_mut().zip(&messages[sent..]) {
                *place = message.as_ref();
                count += 1;
            }
        }));
        let sending = send_slices(right, &slices[..count], sent, waiting);
        if let Err(panic) = collected {
            // The messages before it have been sent.
            resume_unwind(panic);
        }
        sending?;
        sent += count;
        if sent < messages.len() && waiting.is_over() {
            let error = SendError::TimedOut;
            return Err(Unsent { sent, error });
        }
    }
    Ok(())
}

/// Sends `slices`, of a batch of which `before` come before.
fn send_slices(
    this: &SendRight,
    slices: &[&[u8]],
    before: usize,
    waiting: Waiting,
) -> Result<(), Unsent> {
    let mut sent = 0;
    loop {
        let right = route::best(this);
        sent += post_many(right, &slices[sent..]);
        let Some(next) = slices.get(sent) else {
            return Ok(());
        };
        let unsent = |error| Unsent {
            sent: before + sent,
            error,
        };
        if waiting.is_over() {
            return Err(unsent(SendError::TimedOut));
        }
        // `send_by` sends this message alone: it finds out the obstacle, or waits for it to go.
        plain::send_by(right, next, waiting).map_err(unsent)?;
        sent += 1;
    }
}

/// Posts messages until one cannot be posted. Returns how many were.
#[inline]
fn post_many(right: &SendRight, messages: &[&[u8]]) -> usize {
    let Some((lane, outgoing, _)) = send::lane_now(right) else {
        return 0;
    };
    // Dropped last: once the lane is free.
    let _rings = Rings { right, lane };
    let mut outgoing = outgoing;
    let header = Header {
        kind: Kind::Message,
        port: right.handle(),
        reply: 0,
        generation: 0,
        units: 0,
        cpu: cpu::recent(),
    };
    life::uses(right, lane);
    let region = right.link().region.view();
    outgoing.producer.post_many(&region, header, messages)
}

/// Rings for a lane at the end of a batch.
struct Rings<'a> {
    right: &'a SendRight,
    lane: u32,
}

impl Drop for Rings<'_> {
    #[inline]
    fn drop(&mut self) {
        doorbell::ring(self.right.link(), self.lane, self.right.receiver());
    }
}

impl ReceiveRight {
    /// Waits for a message by the port's strategy and takes the messages that its sender has sent by then. One-way
    /// messages go into `batch`. The first message of another kind is returned: a call, a message with rights, or one that came through a
    /// right with another badge or to another port.
    /// The messages in `batch` come before it. Senders take turns, a batch each.
    ///
    /// One copy per message; no system call while senders are busy.
    ///
    /// # Errors
    /// The errors of [`Self::receive`]; `batch` is empty then.
    pub fn receive_many(&self, batch: &mut Batch) -> Result<Option<Request>, ReceiveError> {
        receive_many_by(self, batch, None)
    }

    /// Like [`Self::receive_many`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] then.
    pub fn receive_many_timeout(
        &self,
        batch: &mut Batch,
        timeout: Duration,
    ) -> Result<Option<Request>, ReceiveError> {
        receive_many_by(self, batch, Some(clock::deadline_ns(timeout)))
    }

    /// As [`Self::receive_many_timeout`], until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn receive_many_deadline(
        &self,
        batch: &mut Batch,
        deadline: Instant,
    ) -> Result<Option<Request>, ReceiveError> {
        receive_many_by(self, batch, Some(clock::instant_ns(deadline)))
    }

    /// Like [`Self::receive_many`], without waiting.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when no message waits, or another thread is receiving.
    pub fn try_receive_many(&self, batch: &mut Batch) -> Result<Option<Request>, ReceiveError> {
        batch.clear();
        self.try_receive_then(|poller, first| gather::gather(poller, first, batch))
    }
}

fn receive_many_by(
    right: &ReceiveRight,
    batch: &mut Batch,
    deadline_ns: Option<u64>,
) -> Result<Option<Request>, ReceiveError> {
    batch.clear();
    right.check()?;
    let port = right.port();
    polling::wait(
        &port.at,
        polling::try_lock(&port.at),
        deadline_ns,
        |poller, first| gather::gather(poller, first, batch),
    )
}
