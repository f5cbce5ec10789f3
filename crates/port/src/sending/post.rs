//! Posting a message that needs more than a look: room to wait for, rights beside its bytes.

use crate::body::Body;
use crate::describe::{Described, Load};
use crate::error::{Misuse, RightError, SendError};
use crate::link::lanes::{self, Way, leaving};
use crate::link::long::{self, Use};
use crate::link::{Outgoing, doorbell};
use crate::options::Waiting;
use crate::send::{Blocked, LaneWait, Origin, Posted, SendRight};
use crate::slots::{SlotState, Ticket};
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::{Kind, UNIT_BYTES};
use handfast_region::Bytes;
use handfast_ring::lane::{Header, Refused, Unit};
use handfast_sys::cpu;

/// The units that say where the bytes of a long message are.
const LAID_BYTES: usize = 2 * UNIT_BYTES;

impl SendRight {
    /// As [`Self::post_now`]; waits for room, and says what is wrong. Returns also the right that it
    /// went through.
    #[cold]
    pub(super) fn post(
        &self,
        bytes: Body<'_>,
        kind: Kind,
        waiting: Waiting,
    ) -> Result<(&Self, (Ticket, u32, u32)), SendError> {
        self.await_word(waiting);
        let right = self.best();
        if !core::ptr::eq(right, self)
            && let Body::One(bytes) = bytes
            && let Some(posted) = right.post_now(bytes, kind, waiting.words_of(kind))
        {
            right.sent(kind, posted.0);
            return Ok((right, posted));
        }
        let mut described = Described::new();
        let with = (&Load::default(), &mut described);
        let (right, posted) = right.post_with((bytes, kind), with, waiting)?;
        right.sent(kind, posted.0);
        if bytes.len_bytes() > MESSAGE_BYTES_MAX {
            let none = &mut Load::default();
            described.sent((right.process(), right.link()), none, Some(posted.1));
        }
        Ok((right, posted))
    }

    /// As [`Self::post`], with rights beside the bytes. Rings. Empties `load`, unless there is an
    /// error. Returns also whether this made a wake-up call.
    #[cold]
    pub(crate) fn post_loaded(
        &self,
        bytes_and_kind: (Body<'_>, Kind),
        load: &mut Load,
        waiting: Waiting,
    ) -> Result<Posted<'_>, SendError> {
        self.await_word(waiting);
        if load.has_blocks() {
            // Which nobody passes on.
            while let Origin::Vine(Some(upgrade)) = self.origin()
                && upgrade.is_held()
            {
                self.wait_for_slot(waiting)?;
            }
        }
        let mut described = Described::new();
        let with = (&*load, &mut described);
        let (right, (ticket, lane, trouble)) =
            self.best().post_with(bytes_and_kind, with, waiting)?;
        right.sent(bytes_and_kind.1, ticket);
        let woke_peer = doorbell::ring(right.link(), lane, right.receiver());
        described.sent((right.process(), right.link()), load, Some(lane));
        Ok((right, (ticket, trouble, woke_peer)))
    }

    /// Twice there, so that what it returns need not be taken apart and put together again.
    #[inline(always)]
    fn post_with(
        &self,
        (bytes, kind): (Body<'_>, Kind),
        (load, described): (&Load, &mut Described),
        waiting: Waiting,
    ) -> Result<(&Self, (Ticket, u32, u32)), SendError> {
        self.check_message(bytes, load)?;
        let mut lane_wait = LaneWait::default();
        let (mut way, mut paused_ns) = (Way::Gone, None);
        loop {
            let Some(lane) = self.take_lane(&mut lane_wait, waiting)? else {
                continue;
            };
            // Acquire: pairs with the addition in `disturb`; earlier trouble is looked at.
            let trouble = self.link().trouble.load(Ordering::Acquire);
            if let Some(next) = self.successor(trouble)? {
                drop(lane_wait);
                return next.post_with((bytes, kind), (load, described), waiting);
            }
            if matches!(waiting, Waiting::Never) {
                self.check_room(lane, (bytes.len_bytes(), kind), load)?;
            }
            let Some(body) = self.describe(described, (bytes, load), waiting)? else {
                continue;
            };
            let mut outgoing = self.lock(lane);
            let is_last = way == Way::Goes && outgoing.leads_to == self.receiver();
            if outgoing.receiver != self.receiver() && !is_last {
                // Since the look: it is another's, or others wait for it.
                drop(outgoing);
                described.take_back(self.link());
                way = leaving::give_way(self.link(), (lane, self.receiver()), &mut paused_ns);
                if way == Way::Waits {
                    self.wait_for_slot(waiting)?;
                }
                continue;
            }
            // Acquire: as above. Its port may have moved or be gone since, and what was described may have become another. A switch
            // to a port's new home counts while it holds the lanes to the old one.
            if self.link().trouble.load(Ordering::Acquire) != trouble {
                drop(outgoing);
                described.take_back(self.link());
                continue;
            }
            let ahead = (&mut *described, &load.rights[..]);
            let ahead = self.send_ahead((&mut outgoing, lane), (body, kind), ahead);
            let words = match kind {
                Kind::Call => waiting.words(),
                _ => described.passed(),
            };
            let units = described.units();
            let posted = ahead.and_then(|()| {
                self.post_described(&mut outgoing, lane, (body, kind, words), units)
            });
            drop(outgoing);
            let body_bytes = body.len_bytes() + units.len() * UNIT_BYTES;
            match posted {
                Ok(ticket) => {
                    self.goes_by_vine();
                    return Ok((self, (ticket, lane, trouble)));
                }
                Err(blocked) => {
                    described.lift(self.link());
                    self.wait_unblocked(blocked, (lane, body_bytes), waiting)?;
                }
            }
        }
    }

    /// This thread's lane. Or waits, and returns none: for one, or for the new home of a port that has moved on the word of another
    /// user, which may have no such receiver.
    #[inline(always)]
    fn take_lane<'a>(
        &'a self,
        wait: &mut LaneWait<'a>,
        waiting: Waiting,
    ) -> Result<Option<u32>, SendError> {
        if self.is_held() {
            return self.wait_for_slot(waiting).map(|()| None);
        }
        self.posts_at_once();
        match lanes::to(self.link(), self.receiver()) {
            None => wait.wait(self, waiting).map(|()| None),
            lane => Ok(lane),
        }
    }

    /// A message has gone through another process, if this right leads there.
    #[inline(always)]
    fn goes_by_vine(&self) {
        if let Origin::Vine(Some(upgrade)) = self.origin() {
            upgrade.goes();
        }
    }

    /// Whether a message may be sent at all.
    #[inline(always)]
    fn check_message(&self, bytes: Body<'_>, load: &Load) -> Result<(), SendError> {
        if bytes.len_bytes() > MESSAGE_BYTES_MAX {
            long::check(self.link(), bytes.len_bytes())?;
        }
        if self.is_forked() {
            return Err(SendError::Misuse(Misuse::Forked));
        }
        if matches!(self.origin(), Origin::Vine(_)) && load.has_blocks() {
            return Err(SendError::Right(RightError::Vine));
        }
        if self.link().is_loop() && load.has_receiver(self.receiver()) {
            return Err(SendError::Right(RightError::Home));
        }
        Ok(())
    }

    /// That there is room, and a reply slot for a call, before rights are described, or long bytes copied: exporters are told of each right that is, and that it does
    /// not come. A thread that waits tries again when there is room; one that does not might try often.
    #[cold]
    fn check_room(
        &self,
        lane: u32,
        (len_bytes, kind): (usize, Kind),
        load: &Load,
    ) -> Result<(), SendError> {
        let len_bytes = match len_bytes > MESSAGE_BYTES_MAX {
            false if load.rights.is_empty() => return Ok(()),
            false => len_bytes,
            true => LAID_BYTES,
        };
        let mut outgoing = self.lock(lane);
        if kind == Kind::Call && outgoing.claimed.is_none() {
            outgoing.claimed = self.claim(lane, &mut outgoing.producer);
            outgoing.claimed.ok_or(SendError::Full)?;
        }
        let has_room = outgoing.producer.has_room(&self.link().region, len_bytes);
        drop(outgoing);
        match has_room {
            Ok(false) => Err(SendError::Full),
            // A fault is found again, and reported, by the post that follows.
            _ => Ok(()),
        }
    }

    /// Describes the rights of a message, and its bytes where these are too many for a lane; returns those for the lane. Or waits for room
    /// for what goes ahead of it, and returns `None`.
    #[inline(always)]
    fn describe<'a>(
        &self,
        described: &mut Described,
        (bytes, load): (Body<'a>, &Load),
        waiting: Waiting,
    ) -> Result<Option<Body<'a>>, SendError> {
        let (process, link) = (self.process(), self.link());
        let body = match described.lay(link, bytes, Use::Message) {
            // They come back.
            Err(RightError::Loans { .. }) => return self.wait_for_slot(waiting).map(|()| None),
            laid => laid,
        };
        let all = body.and_then(|body| described.describe(process, link, load).map(|()| body));
        match all {
            Ok(body) => Ok(Some(body)),
            Err(RightError::Unread) => self.wait_for_slot(waiting).map(|()| None),
            Err(error) => Err(self.link().failure(self.port()).unwrap_or(error.into())),
        }
    }

    /// Waits for what the message has been refused for.
    #[cold]
    fn wait_unblocked(
        &self,
        blocked: Blocked,
        (lane, body_bytes): (u32, usize),
        waiting: Waiting,
    ) -> Result<(), SendError> {
        match blocked {
            Blocked::Right(error) => Err(error.into()),
            Blocked::Slots => self.wait_for_slot(waiting),
            Blocked::Lane(Refused::Full) => self.wait_for_room(lane, body_bytes, waiting),
            Blocked::Lane(Refused::Fault(fault)) => Err(SendError::Fault(self.poison(fault))),
        }
    }

    /// Reserves the reply slot of a call and publishes the message, with units that describe its rights. Two
    /// words: the name of the reply right it passes on, or the time until which the caller of a call waits.
    #[inline(always)]
    pub(crate) fn post_described(
        &self,
        outgoing: &mut Outgoing,
        lane: u32,
        (bytes, kind, words): (impl Bytes, Kind, (u32, u32)),
        units: &[Unit],
    ) -> Result<Ticket, Blocked> {
        let is_call = kind == Kind::Call;
        let (index, generation) = match outgoing.claimed {
            _ if !is_call => words,
            Some(claimed) => claimed,
            None => self
                .claim(lane, &mut outgoing.producer)
                .ok_or(Blocked::Slots)?,
        };
        self.uses(lane);
        if is_call && words != (0, 0) {
            let deadline_ns = u64::from(words.1) << 32 | u64::from(words.0);
            let slot = Slot::of(self.link().calls, index);
            slot.set_deadline(&self.link().region, generation, deadline_ns);
        }
        let producer = &mut outgoing.producer;
        let position = producer.position();
        let header = Header {
            kind,
            port: self.handle(),
            reply: index,
            generation,
            units: 0,
            cpu: cpu::recent(),
        };
        let region = self.link().region.view();
        if is_call {
            // Relaxed, both: read by the next claim, under the lane's lock; and before the post, so that a call
            // whose outcome a thread has seen is seen to have been made (`Root::awaited`).
            let slot = &self.link().slots[index as usize];
            slot.position.store(position, Ordering::Relaxed);
            slot.state.store(SlotState::BUSY, Ordering::Relaxed);
        }
        if let Err(refused) = producer.post_described(&region, header, (bytes, units)) {
            if is_call {
                // For the next attempt. Relaxed: as above.
                let slot = &self.link().slots[index as usize];
                slot.state.store(SlotState::CLAIMED, Ordering::Relaxed);
                outgoing.claimed = Some((index, generation));
            }
            return Err(Blocked::Lane(refused));
        }
        if !units.is_empty() {
            outgoing.named = position.wrapping_add(1);
        }
        if is_call {
            // The peer is at work now; this is done meanwhile.
            outgoing.claimed = self.claim(lane, &mut outgoing.producer);
        }
        let generation = if is_call { generation } else { position };
        Ok(Ticket { index, generation })
    }
}
