//! The rights of a link that are about to end.

use super::introductions::CLAIMS_STEP;
use super::{Link, redirects, spread, usage};
use crate::rank;
use crate::users::Charge;
use handfast_layout::control::Released;
use handfast_layout::link::{LANES, SLOTS};
use handfast_layout::part::receiver_of;
use handfast_proto::rights::{Handle, Use};
use handfast_proto::timers::Timer;
use handfast_proto::users::Refused;
use handfast_sys::sync::MutexGuard;
use std::collections::VecDeque;

/// The rights of a link that are about to end.
pub(crate) struct Releases {
    /// Rights of this process to be given back, as soon as the socket takes it.
    pub(crate) owed: Owed,
    /// Rights the peer has given back, until unread replies have been read.
    pub(crate) back: GivenBack,
}

impl Releases {
    /// None yet; `nothing` is charged for what a peer leaves unread, and for the rights that it has given back.
    pub(super) const fn new(unread: Charge, claims: Charge) -> Self {
        let owed = Owed {
            rights: VecDeque::new(),
            bytes: unread,
            is_over: false,
        };
        let back = GivenBack {
            after: Vec::new(),
            ending: Vec::new(),
            next: Vec::new(),
            held: claims,
            is_over: false,
        };
        Self { owed, back }
    }

    /// The link has ended: its rights end with it, and nobody is told any more, however long something holds the link.
    pub(crate) fn end(&mut self) {
        self.owed.end();
        self.back.end();
    }
}

/// A reply that lies unread: slot and generation.
pub(crate) type Unread = (u32, u32);

/// Rights that the peer has given back, and that end once the replies have been read that were unread then. One list of those for all:
/// how many replies lie unread, and which, is the peer's to say.
pub(crate) struct GivenBack {
    /// Of the replies that were unread when the rights below were the next to end, those that still are.
    after: Vec<Unread>,
    ending: Vec<Handle>,
    /// Rights that were given back since: they end after the replies that are unread when those above have ended.
    next: Vec<Handle>,
    /// The charge to the peer's user, who has given back the claims that it paid for.
    held: Charge,
    /// The link has ended.
    is_over: bool,
}

/// Rights that were given back and have not ended that are nobody's: a peer that waits for few is not cut for others of its user.
const FREE_RIGHTS: u64 = CLAIMS_STEP;

impl GivenBack {
    /// These have been given back, when `unread` finds those replies unread. Charges the peer's user, by the step; where the user
    /// has too many, they end nevertheless.
    pub(crate) fn add(
        &mut self,
        rights: Vec<Handle>,
        unread: impl FnOnce() -> Vec<Unread>,
    ) -> Result<(), Refused> {
        if self.is_over {
            return Ok(());
        }
        if self.ending.is_empty() {
            (self.ending, self.after) = (rights, unread());
        } else {
            self.next.extend(rights);
        }
        self.charge()
    }

    /// The rights that end now, by the replies that are unread still; and what the next ones wait for.
    pub(crate) fn take_ended(
        &mut self,
        is_unread: impl Fn(Unread) -> bool,
        unread: impl FnOnce() -> Vec<Unread>,
    ) -> Vec<Handle> {
        self.after.retain(|reply| is_unread(*reply));
        if !self.after.is_empty() || self.ending.is_empty() {
            return Vec::new();
        }
        let next = core::mem::take(&mut self.next);
        let ended = core::mem::replace(&mut self.ending, next);
        if !self.ending.is_empty() {
            self.after = unread();
        }
        // Fewer: that is not refused.
        let _ = self.charge();
        ended
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.ending.is_empty()
    }

    fn end(&mut self) {
        self.is_over = true;
        (self.after, self.ending, self.next) = (Vec::new(), Vec::new(), Vec::new());
        self.held.shrink(self.held.amount());
    }

    fn charge(&mut self) -> Result<(), Refused> {
        let count = (self.ending.len() + self.next.len()) as u64;
        let count = count.saturating_sub(FREE_RIGHTS);
        charge_to(&mut self.held, count.next_multiple_of(CLAIMS_STEP))
    }
}

/// Makes a charge so much.
fn charge_to(charge: &mut Charge, amount: u64) -> Result<(), Refused> {
    let before = charge.amount();
    charge.shrink(before.saturating_sub(amount));
    match amount.saturating_sub(before) {
        0 => Ok(()),
        more => charge.grow(more),
    }
}

/// Releases in one control message.
const RELEASES_MAX: usize = 62;
/// Bytes of a right that the peer is to be told of.
const OWED_BYTES: u64 = 16;
/// The part that is nobody's: a peer that reads has that much before it, whatever others of its user do.
const FREE_BYTES: u64 = 64 * 1024;

/// Rights that no thread of this process holds, with how often each was received, for a peer that may not read of them.
pub(crate) struct Owed {
    rights: VecDeque<(Handle, u32)>,
    bytes: Charge,
    /// The link has ended.
    is_over: bool,
}

impl Owed {
    pub(crate) fn add(&mut self, given: Vec<(Handle, u32)>) {
        self.rights.extend(given);
    }

    /// Tells the peer by `send`, which returns `false` when the peer does not read. Returns whether the peer has been told of all.
    pub(crate) fn say(&mut self, send: impl Fn(&[Released]) -> bool) -> bool {
        while !self.rights.is_empty() {
            let count = self.rights.len().min(RELEASES_MAX);
            let rights = self.rights.range(..count);
            let rights: Vec<_> = rights
                .map(|(name, count)| Released {
                    name: *name,
                    count: *count,
                })
                .collect();
            if !send(&rights) {
                return false;
            }
            self.rights.drain(..count);
        }
        self.rights.shrink_to(RELEASES_MAX);
        true
    }

    fn end(&mut self) {
        self.is_over = true;
        self.rights = VecDeque::new();
        self.bytes.shrink(self.bytes.amount());
    }

    /// Charges the peer's user for what the peer leaves unread: these rights, and so many bytes of rights that messages use.
    pub(crate) fn charge(&mut self, idle: u64) -> Result<(), Refused> {
        if self.is_over {
            return Ok(());
        }
        let bytes = idle + self.rights.len() as u64 * OWED_BYTES;
        charge_to(&mut self.bytes, bytes.saturating_sub(FREE_BYTES))
    }
}

impl Link {
    /// The rights that are about to end.
    pub(crate) fn releases(&self) -> MutexGuard<'_, Releases, rank::Releases> {
        self.rights.releases.lock()
    }
}

/// A right of this process to this port of the peer is dropped; messages in these lanes have used it.
#[inline]
pub(crate) fn dropped(link: &Link, handle: Handle, port: u32, lanes: u32) {
    let is_new = match lanes {
        0 => usage::change_imports(link, |imports| imports.dropped(handle, &[])),
        lanes => dropped_after(link, handle, receiver_of(port), lanes),
    };
    if is_new && !link.is_down() {
        link.process.schedule(Timer::Releases);
    }
    redirects::drop_moved(link, core::iter::once(handle));
}

/// A message that names a right to a port of the peer has been written, or will not be.
pub(crate) fn has_written(link: &Link, name: Handle) {
    if link.imports().has_written(name) {
        link.process.schedule(Timer::Releases);
    }
}

/// Messages have used it, the last of them in these lanes.
#[cold]
fn dropped_after(link: &Link, handle: Handle, receiver: u32, lanes: u32) -> bool {
    let mut uses = Vec::new();
    let mut left = lanes;
    while left != 0 {
        let lane = left.trailing_zeros();
        left &= left - 1;
        uses.extend(use_of(link, lane, receiver));
    }
    usage::change_imports(link, |imports| imports.dropped(handle, &uses))
}

/// The last message in a lane that may have used a right to a port at `receiver`: through the right, in a lane that leads
/// there; beside its bytes, in one that leads elsewhere. A process that receives elsewhere may leave messages for ever.
pub(crate) fn use_of(link: &Link, lane: u32, receiver: u32) -> Option<Use> {
    let outgoing = link.lanes[lane as usize].lock();
    let position = outgoing.producer.position();
    // A port that has a receiver for each CPU is sent to in lanes that lead to those.
    if outgoing.leads_to == receiver || spread::is_known(link) {
        let tail = position;
        return Some(Use { lane, tail });
    }
    // A message further back than a lane holds has been taken.
    let tail = outgoing.named;
    (position.wrapping_sub(tail) <= SLOTS).then_some(Use { lane, tail })
}

/// As [`use_of`], in all lanes.
pub(crate) fn uses_of(link: &Link, receiver: u32) -> Vec<Use> {
    (0..LANES)
        .filter_map(|lane| use_of(link, lane, receiver))
        .collect()
}
