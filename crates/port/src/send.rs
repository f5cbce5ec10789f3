//! Send rights: sending and calling.
//!
//! A call passes through [`SendRight::call`], [`SendRight::post`], `Producer::post`,
//! [`Link::ring`] and [`Answer`]'s looks on this side; `ARCHITECTURE.md` follows one.

use crate::connect;
use crate::error::{Exhausted, Gone, Misuse, SendError};
use crate::link::{Link, SlotState};
use crate::message::{Buffer, Message};
use crate::options::Options;
use crate::process::Process;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use handfast_channel::reply::Slot;
use handfast_channel::{bell, stamped_after};
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::{Kind, LANES, REPLIES};
use handfast_region::Memory;
use handfast_ring::lane::{Header, Place as LanePlace, Producer, Refused, Sink};
use handfast_sys::lock::Guard;
use handfast_sys::{clock, cpu};
use handfast_wait::waiter::{Parked, Place, Sleep};
use handfast_wait::{Ended, FIRST_LOOKS, Strategy, Waiter, word};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

/// The right to send to a port. Any number of threads may use it at once; each gets its own lane
/// (16 to a link; more threads share), and messages of one thread to one port arrive in order.
///
/// Dropping the last right of a process to another ends their link.
pub struct SendRight {
    process: Arc<Process>,
    link: Arc<Link>,
    receiver: u32,
    port: u32,
    epoch: u32,
    /// Changes with the options, so that each thread makes its waiter anew.
    version: AtomicU64,
    waiting: Mutex<(Strategy, Option<Duration>)>,
    /// What the waiters of this right say of [`Waiter::is_eager`].
    eager: AtomicBool,
}

/// A call in flight. Its reply is taken with [`Call::wait`] and its forms; dropping it gives the
/// reply up.
pub struct Call<'a> {
    right: &'a SendRight,
    index: u32,
    slot: Slot,
    generation: u32,
    trouble: u32,
    woke_peer: bool,
    done: bool,
}

/// Reply slots of one lane.
const SLOTS_PER_LANE: u32 = REPLIES / LANES;

static VERSIONS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// What this thread has learned of waiting, per right and version.
    static WAITERS: RefCell<Vec<(u64, Waiter)>> = const { RefCell::new(Vec::new()) };
}

/// Waiters a thread remembers.
const WAITERS_MAX: usize = 64;

impl SendRight {
    pub(crate) fn new(
        process: Arc<Process>,
        link: Arc<Link>,
        (receiver, port): (u32, u32),
        options: Options,
    ) -> Self {
        // AcqRel: pairs with the last drop.
        link.rights.fetch_add(1, Ordering::AcqRel);
        let epoch = process.epoch;
        // Relaxed: a number.
        let version = AtomicU64::new(VERSIONS.fetch_add(1, Ordering::Relaxed));
        let (strategy, cap) = options.resolve();
        let eager = AtomicBool::new(Waiter::new(strategy, cap).is_eager());
        let waiting = Mutex::new((strategy, cap));
        Self {
            process,
            link,
            receiver,
            port,
            epoch,
            version,
            waiting,
            eager,
        }
    }

    /// Changes how callers of this right wait for replies, from the next wait on.
    pub fn set_options(&self, options: Options) {
        let (strategy, cap) = options.resolve();
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = (strategy, cap);
        // Relaxed: a hint.
        self.eager
            .store(Waiter::new(strategy, cap).is_eager(), Ordering::Relaxed);
        // Relaxed: a number; the options are behind the lock.
        self.version
            .store(VERSIONS.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The process that holds the receive right, as the kernel vouched for it.
    #[must_use]
    pub fn peer(&self) -> handfast_sys::socket::Peer {
        self.link.peer
    }

    /// Sends a one-way message; waits by the strategy while the queue is full. One copy; one
    /// system call if the receiver sleeps, none otherwise.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub fn send(&self, bytes: &[u8]) -> Result<(), SendError> {
        self.send_by(bytes, Waiting::Always)
    }

    /// As [`Self::send`], waiting for room at the longest for `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] then.
    pub fn send_until(&self, bytes: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.send_by(bytes, Waiting::Until(clock::deadline_ns(timeout)))
    }

    /// As [`Self::send`], without waiting: a full queue is [`SendError::Full`].
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub fn try_send(&self, bytes: &[u8]) -> Result<(), SendError> {
        self.send_by(bytes, Waiting::Never)
    }

    fn send_by(&self, bytes: &[u8], waiting: Waiting) -> Result<(), SendError> {
        self.post(bytes, Kind::Message, waiting).map(|_| ())
    }

    /// Calls: sends `bytes` and waits for the reply by the strategy. Two copies in all, one each
    /// way; no system call while both sides are awake.
    ///
    /// # Errors
    /// [`SendError`]. When the peer dies meanwhile, [`SendError::Gone`] within milliseconds; the
    /// call may or may not have been served.
    #[inline]
    pub fn call(&self, bytes: &[u8]) -> Result<Message, SendError> {
        self.start(bytes, Waiting::Always)?.message_by(None)
    }

    /// As [`Self::call`], with the reply copied straight into `reply`. Returns its length.
    ///
    /// # Errors
    /// As [`Self::call`]; [`SendError::TooLong`] when the reply is longer than `reply`, which is
    /// then not defined beyond its old content.
    #[inline]
    pub fn call_into(&self, bytes: &[u8], reply: &mut [u8]) -> Result<usize, SendError> {
        let call = self.start(bytes, Waiting::Always)?;
        let room = reply.len();
        let mut buffer = Buffer {
            bytes: reply,
            short: None,
        };
        let len_bytes = call.wait_by(None, &mut buffer)?;
        if len_bytes > room {
            return Err(SendError::TooLong { len_bytes });
        }
        if let Some(short) = buffer.short {
            buffer.bytes[..len_bytes].copy_from_slice(&short[..len_bytes]);
        }
        Ok(len_bytes)
    }

    /// As [`Self::call`], at the longest for `timeout` in all.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] then; a reply that still comes is dropped.
    pub fn call_until(&self, bytes: &[u8], timeout: Duration) -> Result<Message, SendError> {
        let deadline_ns = clock::deadline_ns(timeout);
        self.start(bytes, Waiting::Until(deadline_ns))?
            .message_by(Some(deadline_ns))
    }

    /// Starts a call without waiting for anything: neither for room nor for the reply.
    ///
    /// # Errors
    /// [`SendError::Full`] without room in the queue or a free reply slot.
    pub fn try_call(&self, bytes: &[u8]) -> Result<Call<'_>, SendError> {
        self.start(bytes, Waiting::Never)
    }

    /// Starts a call, waiting for room if there is none, and returns without its reply.
    #[inline]
    fn start(&self, bytes: &[u8], waiting: Waiting) -> Result<Call<'_>, SendError> {
        // Acquire: pairs with the addition in `disturb`; what came before it is checked below.
        let trouble = self.link.trouble.load(Ordering::Acquire);
        let posted = self.post(bytes, Kind::Call, waiting)?;
        let slot = Slot::of(self.link.calls, posted.reply);
        let generation = posted.generation;
        let woke_peer = posted.woke_peer;
        let (index, right) = (posted.reply, self);
        Ok(Call {
            right,
            index,
            slot,
            generation,
            trouble,
            woke_peer,
            done: false,
        })
    }

    /// Posts one message on this thread's lane and rings if the callee does not poll it.
    #[inline]
    fn post(&self, bytes: &[u8], kind: Kind, waiting: Waiting) -> Result<Posted, SendError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(SendError::TooLong {
                len_bytes: bytes.len(),
            });
        }
        if self.epoch != handfast_sys::process::fork_epoch() {
            return Err(SendError::Misuse(Misuse::Forked));
        }
        let Some(lane) = self.link.map.lane(self.receiver) else {
            let limit = LANES.into();
            return Err(SendError::Exhausted(Exhausted {
                what: "lanes of the link",
                limit,
            }));
        };
        loop {
            if let Some(failure) = self.link.failure(self.receiver) {
                return Err(failure);
            }
            let mut producer = self.lock(lane);
            let (reply, generation) = match kind {
                Kind::Call => match self.claim(lane, &mut producer) {
                    Some(claimed) => claimed,
                    None => {
                        drop(producer);
                        self.wait_for_slot(waiting)?;
                        continue;
                    }
                },
                _ => (0, 0),
            };
            let position = producer.position();
            let header = Header {
                kind,
                port: self.port,
                reply,
                generation,
                cpu: cpu::current(),
            };
            match producer.post(&self.link.region, header, bytes) {
                Ok(()) => {
                    if kind == Kind::Call {
                        // Relaxed: read by the next claim, under the lane's lock.
                        self.link.slots[reply as usize]
                            .position
                            .store(position, Ordering::Relaxed);
                    }
                    drop(producer);
                    let woke_peer = self.link.ring(lane, self.receiver);
                    return Ok(Posted {
                        reply,
                        generation,
                        woke_peer,
                    });
                }
                Err(refused) => {
                    if kind == Kind::Call {
                        self.free(reply);
                    }
                    drop(producer);
                    match refused {
                        Refused::Fault(fault) => {
                            return Err(SendError::Fault(self.poison(fault)));
                        }
                        Refused::Full => self.wait_for_room(lane, bytes.len(), waiting)?,
                    }
                }
            }
        }
    }

    fn lock(&self, lane: u32) -> Guard<'_, Producer> {
        self.link.lanes[lane as usize].lock()
    }

    /// Takes a reply slot of the lane; the caller holds the lane's lock.
    #[inline]
    fn claim(&self, lane: u32, producer: &mut Producer) -> Option<(u32, u32)> {
        let first = lane * SLOTS_PER_LANE;
        for index in first..first + SLOTS_PER_LANE {
            let state = &self.link.slots[index as usize];
            // Relaxed: this slot's last user has stored it before it freed the slot.
            let generation = state.generation.load(Ordering::Relaxed);
            // E8 slot, load half. Acquire: the last user is done with the slot. Store half:
            // `free`.
            match state.state.load(Ordering::Acquire) {
                SlotState::FREE => {}
                SlotState::ABANDONED => {
                    let slot = Slot::of(self.link.calls, index);
                    if !slot.is_answered(&self.link.region, generation) {
                        continue;
                    }
                }
                _ => continue,
            }
            if generation != 0 {
                // The reply to its last message frees that message's place.
                producer.taken_through(state.position.load(Ordering::Relaxed));
            }
            // Zero is what an unused slot's generation word holds.
            let generation = generation.wrapping_add(1).max(1);
            // Relaxed, both: claims happen under the lane's lock.
            state.generation.store(generation, Ordering::Relaxed);
            state.state.store(SlotState::BUSY, Ordering::Relaxed);
            return Some((index, generation));
        }
        None
    }

    /// Gives a reply slot back.
    #[inline]
    fn free(&self, index: u32) {
        // E8 slot, store half. Release: the copy out of the slot is done before its next use.
        // Load half: `claim`.
        self.link.slots[index as usize]
            .state
            .store(SlotState::FREE, Ordering::Release);
    }

    fn poison(&self, fault: handfast_ring::Fault) -> crate::error::PeerFault {
        let fault = self.link.poison(fault);
        self.process.attention.raise();
        fault
    }

    /// Waits until some call of the link has ended. Rare: 16 calls of one lane are outstanding.
    #[cold]
    fn wait_for_slot(&self, waiting: Waiting) -> Result<(), SendError> {
        let deadline_ns = waiting.deadline()?;
        if deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns) {
            return Err(SendError::TimedOut);
        }
        let (waiters, freed) = &self.link.slot_freed;
        let guard = waiters.lock().unwrap_or_else(PoisonError::into_inner);
        // Slots are freed without a look at waiters, which keeps the fast path free of fences;
        // so this rare wait looks again every so often.
        drop(freed.wait_timeout(guard, SLOT_LOOK_EVERY));
        Ok(())
    }

    /// Whether a caller looks for its reply before it asks its strategy: see
    /// [`Waiter::is_eager`]. Not when the callee was last seen on this processor.
    #[inline]
    fn looks_first(&self) -> bool {
        // Relaxed, both: hints.
        self.eager.load(Ordering::Relaxed)
            && self.link.peer_cpu.load(Ordering::Relaxed) != cpu::current()
    }

    #[cold]
    fn wait_for_room(
        &self,
        lane: u32,
        len_bytes: usize,
        waiting: Waiting,
    ) -> Result<(), SendError> {
        let deadline_ns = waiting.deadline()?;
        let mut place = Room {
            right: self,
            lane,
            len_bytes,
        };
        let (ended, _) = self.with_waiter(|waiter| waiter.wait(&mut place, deadline_ns, false));
        match ended {
            Ended::Ready => Ok(()),
            Ended::TimedOut => Err(SendError::TimedOut),
        }
    }

    /// Runs `wait` with this thread's waiter for this right.
    #[inline]
    fn with_waiter<T>(&self, wait: impl FnOnce(&mut Waiter) -> T) -> T {
        // Relaxed: a number; the options are behind the lock.
        let version = self.version.load(Ordering::Relaxed);
        WAITERS.with_borrow_mut(|waiters| {
            let known = waiters.iter().position(|(of, _)| *of == version);
            let place = known.unwrap_or_else(|| {
                let (strategy, cap) = *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if waiters.len() == WAITERS_MAX {
                    waiters.remove(0);
                }
                waiters.push((version, Waiter::new(strategy, cap)));
                waiters.len() - 1
            });
            wait(&mut waiters[place].1)
        })
    }

    pub(crate) const fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(crate) fn is_down(&self) -> bool {
        self.link.is_down()
    }
}

const SLOT_LOOK_EVERY: Duration = Duration::from_millis(1);

impl Drop for SendRight {
    fn drop(&mut self) {
        if self.epoch == handfast_sys::process::fork_epoch() {
            connect::release(&self.process, &self.link);
        }
    }
}

/// What a posted message was given.
struct Posted {
    reply: u32,
    generation: u32,
    woke_peer: bool,
}

#[derive(Clone, Copy)]
enum Waiting {
    Never,
    Until(u64),
    Always,
}

impl Waiting {
    const fn deadline(self) -> Result<Option<u64>, SendError> {
        match self {
            Self::Never => Err(SendError::Full),
            Self::Until(deadline_ns) => Ok(Some(deadline_ns)),
            Self::Always => Ok(None),
        }
    }
}

impl Call<'_> {
    /// Waits for the reply by the right's strategy.
    ///
    /// # Errors
    /// As [`SendRight::call`].
    pub fn wait(self) -> Result<Message, SendError> {
        self.message_by(None)
    }

    /// Waits for the reply, at the longest for `timeout`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] then; the call is given up.
    pub fn wait_until(self, timeout: Duration) -> Result<Message, SendError> {
        self.message_by(Some(clock::deadline_ns(timeout)))
    }

    /// Takes the reply if it is there; never blocks. `Err(self)` gives the call back when not.
    ///
    /// # Errors
    /// The call itself, still in flight.
    pub fn try_wait(mut self) -> Result<Result<Message, SendError>, Self> {
        if self
            .slot
            .is_answered(&self.right.link.region, self.generation)
        {
            let mut message = Message::new();
            let taken = self.take(&mut message);
            return Ok(taken.map(|len_bytes| {
                message.set_len(len_bytes);
                message
            }));
        }
        match self.right.link.failure(self.right.receiver) {
            Some(failure) => Ok(Err(failure)),
            None => Err(self),
        }
    }

    #[inline]
    fn message_by(self, deadline_ns: Option<u64>) -> Result<Message, SendError> {
        let mut message = Message::new();
        let len_bytes = self.wait_by(deadline_ns, &mut message)?;
        message.set_len(len_bytes);
        Ok(message)
    }

    #[inline]
    fn wait_by(
        mut self,
        deadline_ns: Option<u64>,
        sink: &mut impl Sink,
    ) -> Result<usize, SendError> {
        if self.right.looks_first() {
            for _ in 0..FIRST_LOOKS {
                if self
                    .slot
                    .is_answered(&self.right.link.region, self.generation)
                {
                    return self.take(sink);
                }
            }
        }
        self.wait_long(deadline_ns, sink)
    }

    #[cold]
    fn wait_long(
        mut self,
        deadline_ns: Option<u64>,
        sink: &mut impl Sink,
    ) -> Result<usize, SendError> {
        let right = self.right;
        loop {
            let woke_peer = self.woke_peer;
            let mut place = Answer(&mut self);
            let (ended, _) =
                right.with_waiter(|waiter| waiter.wait(&mut place, deadline_ns, woke_peer));
            if self.slot.is_answered(&right.link.region, self.generation) {
                return self.take(sink);
            }
            // Before the look at what it was: trouble that comes after the look must be seen.
            // Acquire: pairs with the addition in `disturb`.
            self.trouble = right.link.trouble.load(Ordering::Acquire);
            if let Some(failure) = right.link.failure(right.receiver) {
                return Err(failure);
            }
            if ended == Ended::TimedOut {
                return Err(SendError::TimedOut);
            }
            // Something else happened on the link: not our business.
        }
    }

    #[inline]
    fn take(&mut self, sink: &mut impl Sink) -> Result<usize, SendError> {
        let right = self.right;
        let taken = self.slot.take(&right.link.region, sink);
        self.done = true;
        right.free(self.index);
        match taken {
            Ok((Kind::Dropped, ..)) => Err(SendError::Gone(Gone::Reply)),
            Ok((Kind::DeadPort, ..)) => Err(SendError::Gone(Gone::Port)),
            Ok((_, len_bytes, callee_cpu)) => {
                // Relaxed, both: a hint. Stored only when it changes, to keep the line shared.
                if right.link.peer_cpu.load(Ordering::Relaxed) != callee_cpu {
                    right.link.peer_cpu.store(callee_cpu, Ordering::Relaxed);
                }
                Ok(len_bytes)
            }
            Err(fault) => Err(SendError::Fault(right.poison(fault))),
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        // The slot is used again only once its reply has come: a late reply writes nowhere else.
        // Release: as in `free`.
        let state = &self.right.link.slots[self.index as usize].state;
        state.store(SlotState::ABANDONED, Ordering::Release);
    }
}

/// What a caller waits at: its reply slot.
struct Answer<'a, 'b>(&'a mut Call<'b>);

impl Place for Answer<'_, '_> {
    #[inline]
    fn look(&mut self) -> bool {
        let link = &self.0.right.link;
        self.0.slot.is_answered(&link.region, self.0.generation)
            // Acquire: pairs with the addition in `disturb`.
            || link.trouble.load(Ordering::Acquire) != self.0.trouble
    }

    fn is_put_off(&mut self) -> bool {
        self.0
            .slot
            .is_deferred(&self.0.right.link.region, self.0.generation)
    }

    fn asked_limit_ns(&mut self) -> Option<u64> {
        bell::load_hint(&self.0.right.link.peer_bells, self.0.right.receiver)
            .map(|(spin_ns, _)| u64::from(spin_ns).min(ASKED_LIMIT_MAX_NS))
    }

    fn shares_processor(&mut self) -> bool {
        // Relaxed: a hint.
        self.0.right.link.peer_cpu.load(Ordering::Relaxed) == cpu::current()
    }

    fn park(&mut self, how: Sleep, deadline_ns: Option<u64>, start_ns: u64) -> Parked {
        let _ = how;
        let link = &self.0.right.link;
        let (slot, region) = (self.0.slot, &link.region);
        // AcqRel: the keeper wakes again while this is not zero.
        link.parked.fetch_add(1, Ordering::AcqRel);
        word::announce(region, slot.wait(), word::ASLEEP);
        let deadline_ns = if bell::fence_for_sleep(&link.peer_bells, self.0.right.receiver) {
            deadline_ns
        } else {
            let soon = clock::deadline_ns(UNFENCED_SLEEP);
            Some(deadline_ns.map_or(soon, |deadline_ns| deadline_ns.min(soon)))
        };
        let start_mono = clock::now_ns().saturating_sub(clock::ticks_ns().saturating_sub(start_ns));
        // Doubling: a slow server is not worn out by patient callers.
        let slice_ns = NUDGE_NS.max(clock::ticks_ns().saturating_sub(start_ns));
        let slice_end_ns = clock::now_ns().saturating_add(slice_ns);
        let until_ns = deadline_ns.map_or(slice_end_ns, |end_ns| end_ns.min(slice_end_ns));
        if !self.look() {
            region.park(slot.wait(), word::ASLEEP, Some(until_ns));
        }
        word::withdraw(region, slot.wait());
        if clock::now_ns() >= slice_end_ns && !self.look() {
            let right = self.0.right;
            right
                .link
                .nudge(self.0.index / SLOTS_PER_LANE, right.receiver);
        }
        let link = &self.0.right.link;
        link.parked.fetch_sub(1, Ordering::AcqRel);
        let hint = bell::load_hint(&link.peer_bells, self.0.right.receiver);
        if let Some((_, server_cpu)) = hint
            && server_cpu == cpu::current()
        {
            cpu::leave(server_cpu);
        }
        let posted_after_ns = Some(stamped_after(&link.region, slot.stamp(), start_mono))
            .filter(|after_ns| *after_ns > 0);
        Parked {
            ready: self.look(),
            posted_after_ns,
        }
    }
}

/// How long a caller sleeps at a time where it cannot make the server fence.
const UNFENCED_SLEEP: Duration = Duration::from_millis(1);
/// A sleeping caller without a reply for this long rings again, whatever the bell says: another
/// peer of its trust group may have taken the server's announcement away. This bounds what such a
/// peer can delay a call.
const NUDGE_NS: u64 = 100_000_000;

/// A server may ask for spinning, not for burning.
const ASKED_LIMIT_MAX_NS: u64 = 100_000;

/// What a sender waits at while its lane is full.
struct Room<'a> {
    right: &'a SendRight,
    lane: u32,
    len_bytes: usize,
}

impl Place for Room<'_> {
    fn look(&mut self) -> bool {
        let link = &self.right.link;
        link.failure(self.right.receiver).is_some()
            // A fault is found again, and reported, by the post that follows.
            || self.right.lock(self.lane).has_room(&link.region, self.len_bytes).unwrap_or(true)
    }

    fn park(&mut self, _: Sleep, deadline_ns: Option<u64>, _: u64) -> Parked {
        let link = &self.right.link;
        let space = LanePlace::of(link.calls, self.lane).space();
        link.parked.fetch_add(1, Ordering::AcqRel);
        word::announce(&link.region, space, word::ASLEEP);
        if !self.look() {
            link.region.park(space, word::ASLEEP, deadline_ns);
        }
        // Other threads may wait for the same lane's room: the word is left to its waker.
        link.parked.fetch_sub(1, Ordering::AcqRel);
        Parked {
            ready: self.look(),
            posted_after_ns: None,
        }
    }
}

impl core::fmt::Debug for SendRight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SendRight")
            .field("peer", &self.link.peer)
            .finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Call")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

const _: () = assert!(SLOTS_PER_LANE * LANES == REPLIES);
