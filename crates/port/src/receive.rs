//! Receive rights: binding a name, receiving, replying.

use crate::error::{BindError, Misuse, ReceiveError, ReplyError, Resource};
use crate::link::{Link, control};
use crate::message::Message;
use crate::options::Options;
use crate::poller::{Poller, Taken, wake_caller};
use crate::process::{self, Process, token};
use crate::rendezvous;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use handfast_channel::reply::Slot;
use handfast_channel::stamped_after;
use handfast_layout::bell as bell_layout;
use handfast_layout::counters;
use handfast_layout::link::Kind;
use handfast_region::{Memory, park_any};
use handfast_sys::lock::{OwnedGuard as Guard, OwnedLock};
use handfast_sys::poll::Trigger;
use handfast_sys::{OwnedFd, clock, cpu, futex};
use handfast_wait::waiter::{Parked, Place, Sleep};
use handfast_wait::{Ended, FIRST_LOOKS, Strategy, Waiter, word};
use std::sync::{Arc, PoisonError};

/// A bound port: what its receive right and the keeper share.
pub(crate) struct Port {
    pub(crate) receiver: u32,
    /// Index that messages name: the receiver and a generation.
    pub(crate) id: u32,
    pub(crate) name: String,
    process: Arc<Process>,
    poller: OwnedLock<Poller>,
    /// Threads that sleep, or are about to, while another may hold the poller.
    followers: AtomicU32,
    /// The last reply had to wake its caller (for the adaptive strategy).
    woke: AtomicBool,
}

/// The right to receive from a port. One port has one; threads may share it by reference.
///
/// Dropping it unbinds the name; calls in flight end with
/// [`Gone::Port`](crate::error::Gone::Port) at their callers.
pub struct ReceiveRight {
    port: Arc<Port>,
    listener: Arc<OwnedFd>,
    epoch: u32,
}

/// A received message and, for a call, the right to reply to it once.
///
/// Dropping a call's request without a reply ends the call at its caller as
/// [`Gone::Reply`](crate::error::Gone::Reply).
pub struct Request {
    message: Message,
    /// `None` once used, and for one-way messages.
    reply: Option<ReplyRight>,
}

/// Where a call's one outcome goes.
pub(crate) struct ReplyRight {
    link: Arc<Link>,
    slot: Slot,
    generation: u32,
    key: usize,
}

/// Binds `name` with default options. See [`bind_with`].
///
/// # Errors
/// As [`bind_with`].
pub fn bind(name: &str) -> Result<ReceiveRight, BindError> {
    bind_with(name, Options::new())
}

/// Binds `name` and returns the right to receive what is sent to it.
///
/// A socket file appears in the [rendezvous directory](rendezvous::directory); one left by a dead
/// server is replaced silently. The first use of the library in a process starts its keeper thread
/// and measures the machine (about 5 ms). Blocks at most about a second, for other binders.
///
/// # Errors
/// Each failure of [`BindError`] says what to do.
pub fn bind_with(name: &str, options: Options) -> Result<ReceiveRight, BindError> {
    let listener = Arc::new(rendezvous::listen(name)?);
    let process = process::current()?;
    let (strategy, cap) = options.resolve();
    let port = process.add_port(|receiver, generation| {
        let waiter = Waiter::new(strategy, cap);
        Arc::new(Port {
            receiver,
            id: receiver | generation << 8,
            name: name.to_owned(),
            poller: OwnedLock::new(Poller::new(receiver, process.clone(), waiter)),
            process: process.clone(),
            followers: AtomicU32::new(0),
            woke: AtomicBool::new(false),
        })
    })?;
    let right = ReceiveRight {
        port: port.clone(),
        listener: listener.clone(),
        epoch: process.epoch,
    };
    right.publish_name(true);
    let mut listeners = process
        .listeners
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    listeners.push((port.receiver, listener.clone()));
    drop(listeners);
    process
        .poll
        .add(
            &*listener,
            token::LISTENER | u64::from(port.receiver),
            Trigger::Level,
        )
        .map_err(|errno| Resource::of("epoll_ctl", errno))?;
    tracing::info!(name, "bound");
    Ok(right)
}

impl ReceiveRight {
    /// The bound name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.port.name
    }

    /// Changes how this port waits, from the next wait on.
    pub fn set_options(&self, options: Options) {
        let (strategy, cap) = options.resolve();
        self.port.lock().set_waiter(Waiter::new(strategy, cap));
    }

    /// Waits for a message by the port's strategy. Busy: no system call, one copy.
    ///
    /// # Errors
    /// [`ReceiveError::Misuse`] in a forked child. A client's death or fault is no error here:
    /// its messages end, others are not disturbed.
    pub fn receive(&self) -> Result<Request, ReceiveError> {
        self.receive_by(None)
    }

    /// As [`Self::receive`], at the longest for `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] then.
    pub fn receive_until(&self, timeout: Duration) -> Result<Request, ReceiveError> {
        self.receive_by(Some(clock::deadline_ns(timeout)))
    }

    /// Takes a message if one waits. Never blocks.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when none waits, or another thread is receiving.
    pub fn try_receive(&self) -> Result<Request, ReceiveError> {
        self.check()?;
        let Some(mut poller) = self.port.try_lock() else {
            return Err(ReceiveError::Empty);
        };
        poller.refresh();
        self.port.try_take(&mut poller).ok_or(ReceiveError::Empty)
    }

    /// Replies to `request` and waits for the next message, in one operation: the reply's
    /// wake-up, if one is needed, is the rota's to time (an overloaded server wakes few clients
    /// at once), and the port is already being polled when the client posts again.
    ///
    /// # Errors
    /// As [`Self::receive`]. A caller that has died in the meantime is no error.
    ///
    /// # Panics
    /// If `bytes` is longer than a message can be; see [`Request::reply`] for the form that
    /// returns an error.
    pub fn reply_and_receive(
        &self,
        request: Request,
        bytes: &[u8],
    ) -> Result<Request, ReceiveError> {
        self.reply_and_receive_by(request, bytes, None)
    }

    /// As [`Self::reply_and_receive`], waiting at the longest for `timeout`. The reply is sent
    /// in any case.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] then.
    ///
    /// # Panics
    /// As [`Self::reply_and_receive`].
    pub fn reply_and_receive_until(
        &self,
        request: Request,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<Request, ReceiveError> {
        self.reply_and_receive_by(request, bytes, Some(clock::deadline_ns(timeout)))
    }

    /// Replies, and takes a message if one waits. Never blocks.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when none waits.
    ///
    /// # Panics
    /// As [`Self::reply_and_receive`].
    pub fn reply_and_try_receive(
        &self,
        request: Request,
        bytes: &[u8],
    ) -> Result<Request, ReceiveError> {
        let _ = request.reply(bytes);
        self.try_receive()
    }

    fn reply_and_receive_by(
        &self,
        mut request: Request,
        bytes: &[u8],
        deadline_ns: Option<u64>,
    ) -> Result<Request, ReceiveError> {
        self.check()?;
        let mut guard = self.port.try_lock();
        if let Some(reply) = request.reply.take() {
            let woke = match &mut guard {
                Some(poller) => reply.answer_polling(bytes, poller),
                None => reply.answer(Kind::Message, bytes),
            };
            if woke {
                self.port.count(WAKES, 1);
                // Relaxed: a hint of this port to itself.
                self.port.woke.store(true, Ordering::Relaxed);
            }
            if let Some(poller) = &mut guard {
                poller.give_back(reply.key, reply.link);
            }
        }
        self.port.wait(guard, deadline_ns)
    }

    fn receive_by(&self, deadline_ns: Option<u64>) -> Result<Request, ReceiveError> {
        self.check()?;
        let guard = self.port.try_lock();
        self.port.wait(guard, deadline_ns)
    }

    fn check(&self) -> Result<(), ReceiveError> {
        if self.epoch == handfast_sys::process::fork_epoch() {
            Ok(())
        } else {
            Err(ReceiveError::Misuse(Misuse::Forked))
        }
    }

    fn publish_name(&self, bound: bool) {
        let tally = &self.port.process.tally;
        let mut name = [0; counters::NAME_BYTES];
        if bound {
            name[..self.port.name.len()].copy_from_slice(self.port.name.as_bytes());
        }
        for (word, bytes) in name.chunks_exact(8).enumerate() {
            let value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            tally.store(counters::port_name(self.port.receiver) + word * 8, value);
        }
        for column in 0..counters::ROW_WORDS {
            let in_use = u64::from(bound && column == 0);
            tally.store(counters::port_word(self.port.receiver, column), in_use);
        }
    }
}

impl Drop for ReceiveRight {
    fn drop(&mut self) {
        if self.epoch != handfast_sys::process::fork_epoch() {
            return;
        }
        let process = &self.port.process;
        let _ = std::fs::remove_file(rendezvous::path_of(&self.port.name));
        process.poll.remove(&*self.listener);
        let mut listeners = process
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|(receiver, _)| *receiver != self.port.receiver);
        drop(listeners);
        // First the word to the peers, so that no new call waits; then the calls that do.
        let links = process.links.lock().unwrap_or_else(PoisonError::into_inner);
        for link in links.iter().flatten() {
            link.tell(control::CLOSED, self.port.receiver as u8);
        }
        drop(links);
        self.port.lock().close();
        self.publish_name(false);
        process.remove_port(self.port.receiver);
        tracing::info!(name = self.port.name, "unbound");
    }
}

impl Port {
    fn lock(&self) -> Guard<'_, Poller> {
        self.poller.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<Guard<'_, Poller>> {
        self.poller.try_lock()
    }

    /// The straight path: look, and only then ask the strategy.
    #[inline]
    fn wait<'a>(
        &'a self,
        guard: Option<Guard<'a, Poller>>,
        deadline_ns: Option<u64>,
    ) -> Result<Request, ReceiveError> {
        if let Some(mut poller) = guard {
            if poller.looks_first() {
                for _ in 0..FIRST_LOOKS {
                    if poller.look()
                        && let Some(request) = self.try_take(&mut poller)
                    {
                        self.leave(poller);
                        return Ok(request);
                    }
                }
            }
            return self.wait_long(poller, deadline_ns);
        }
        let poller = self.follow(deadline_ns).ok_or(ReceiveError::TimedOut)?;
        self.wait_long(poller, deadline_ns)
    }

    #[cold]
    fn wait_long<'a>(
        &'a self,
        mut guard: Guard<'a, Poller>,
        deadline_ns: Option<u64>,
    ) -> Result<Request, ReceiveError> {
        // Relaxed: a hint of this port to itself.
        let woke_peer = self.woke.load(Ordering::Relaxed);
        if woke_peer {
            self.woke.store(false, Ordering::Relaxed);
        }
        loop {
            let mut waiter = guard.waiter.take();
            let strategy_gone = waiter.is_none();
            let mut place = Receiving {
                port: self,
                guard: Some(guard),
            };
            let (ended, cost) = match &mut waiter {
                Some(waiter) => waiter.wait(&mut place, deadline_ns, woke_peer),
                None => Waiter::new(Strategy::Block, None).wait(&mut place, deadline_ns, false),
            };
            let Some(mut held) = place.guard.take() else {
                return Err(ReceiveError::TimedOut);
            };
            // Another thread, or `set_options`, may have put a newer one there meanwhile.
            if !strategy_gone && held.waiter.is_none() {
                held.waiter = waiter;
            }
            if cost.parks > 0 || cost.spun {
                self.count(PARKS, u64::from(cost.parks));
                self.count(SPINS, u64::from(cost.spun));
            }
            if ended == Ended::TimedOut {
                self.leave(held);
                return Err(ReceiveError::TimedOut);
            }
            if let Some(request) = self.try_take(&mut held) {
                self.leave(held);
                return Ok(request);
            }
            guard = held;
        }
    }

    /// Takes what the last look found, or looks once. Answers messages for dead ports itself.
    #[inline]
    fn try_take(&self, poller: &mut Poller) -> Option<Request> {
        while poller.look() {
            let Some(taken) = poller.take() else {
                continue;
            };
            let Taken {
                message,
                header,
                link,
                key,
            } = taken;
            let reply = (header.kind == Kind::Call).then(|| ReplyRight {
                slot: Slot::of(link.calls.other(), header.reply),
                link,
                generation: header.generation,
                key,
            });
            if header.port != self.id {
                if let Some(reply) = reply {
                    reply.answer(Kind::DeadPort, &[]);
                }
                continue;
            }
            return Some(Request { message, reply });
        }
        None
    }

    fn count(&self, column: usize, amount: u64) {
        self.process
            .tally
            .add(counters::port_word(self.receiver, column), amount);
    }

    /// Gives the poller up. If other threads sleep meanwhile, arranges that the next post wakes
    /// one of them.
    #[inline]
    fn leave(&self, guard: Guard<'_, Poller>) {
        drop(guard);
        // E7 hand-over. Compiler fence. Pairs with the process-wide fence in `follow`, which acts
        // as a full one here: either this load sees the follower, or its attempt at the lock sees
        // the lock free.
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        if self.followers.load(Ordering::Relaxed) > 0 {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&self) {
        let Some(mut poller) = self.try_lock() else {
            return;
        };
        let quiet = poller.prepare_sleep(word::ASLEEP);
        let groups = poller.groups();
        drop(poller);
        if !quiet && let Some(group) = groups.first() {
            group
                .bells
                .wake(bell_layout::bell(self.receiver) + bell_layout::SLEEP, 1);
        }
    }

    /// Waits until no other thread polls, asleep in the bells meanwhile; then polls.
    fn follow(&self, deadline_ns: Option<u64>) -> Option<Guard<'_, Poller>> {
        // Relaxed: ordered by the fence below.
        self.followers.fetch_add(1, Ordering::Relaxed);
        let got = loop {
            let groups = self.process.groups();
            let sleep = bell_layout::bell(self.receiver) + bell_layout::SLEEP;
            // Acquire: pairs with the exchange of a waker.
            let words: Vec<_> = groups
                .iter()
                .map(|group| {
                    (
                        &group.bells,
                        sleep,
                        group.bells.load(sleep, Ordering::Acquire),
                    )
                })
                .collect();
            // E7 hand-over. Fence of all threads of this process. Pairs with the compiler fence in
            // `leave`, which every message passes and which therefore must cost nothing.
            futex::fence_own_threads();
            if let Some(mut guard) = self.try_lock() {
                guard.withdraw();
                break Some(guard);
            }
            if deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns) {
                break None;
            }
            let _ = park_any(&words, deadline_ns);
        };
        // Relaxed: a thread that leaves wrongly seen as a follower costs one arming.
        self.followers.fetch_sub(1, Ordering::Relaxed);
        got
    }
}

/// What a receiving thread waits at: the poller while it looks, the bells while it sleeps.
struct Receiving<'a> {
    port: &'a Port,
    guard: Option<Guard<'a, Poller>>,
}

impl Place for Receiving<'_> {
    #[inline]
    fn look(&mut self) -> bool {
        self.guard.as_mut().is_some_and(|poller| poller.look())
    }

    fn shares_processor(&mut self) -> bool {
        self.guard
            .as_ref()
            .is_some_and(|poller| poller.shares_processor())
    }

    fn park(&mut self, how: Sleep, deadline_ns: Option<u64>, start_ns: u64) -> Parked {
        const NOTHING: Parked = Parked {
            ready: false,
            posted_after_ns: None,
        };
        let Some(mut poller) = self.guard.take() else {
            return NOTHING;
        };
        let how = match how {
            Sleep::Notify if crate::notify::is_active() => word::DESCRIPTOR,
            // Without a handler no signal would end the sleep.
            Sleep::Notify | Sleep::Block => word::ASLEEP,
        };
        let notified = crate::notify::epoch();
        if !poller.prepare_sleep(how) {
            let ready = poller.look();
            self.guard = Some(poller);
            return Parked {
                ready,
                posted_after_ns: None,
            };
        }
        let groups = poller.groups();
        drop(poller);
        let start_mono = clock::now_ns().saturating_sub(clock::ticks_ns().saturating_sub(start_ns));
        let bell = bell_layout::bell(self.port.receiver);
        let words: Vec<_> = groups
            .iter()
            .map(|group| (&group.bells, bell + bell_layout::SLEEP, how))
            .collect();
        // E7 hand-over: an announced sleeper counts as a follower from here on.
        self.port.followers.fetch_add(1, Ordering::Relaxed);
        if how == word::ASLEEP {
            let _ = park_any(&words, deadline_ns);
        } else {
            crate::notify::wait(notified, deadline_ns);
        }
        self.port.followers.fetch_sub(1, Ordering::Relaxed);
        self.guard = match self.port.try_lock() {
            Some(guard) => Some(guard),
            None => self.port.follow(deadline_ns),
        };
        let Some(poller) = self.guard.as_mut() else {
            return NOTHING;
        };
        poller.withdraw();
        poller.refresh();
        let ready = poller.look();
        let posted_after_ns = groups
            .iter()
            .map(|group| stamped_after(&group.bells, bell + bell_layout::STAMP, start_mono))
            .filter(|after_ns| *after_ns > 0)
            .min();
        Parked {
            ready,
            posted_after_ns,
        }
    }
}

impl Request {
    /// The message's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.message.bytes()
    }

    /// Takes the message out, so that it can be worked on, and even be the reply, without a copy:
    /// `let mut message = request.take_message();` then `port.reply_and_receive(request,
    /// &message)`. The request is empty afterwards.
    #[must_use]
    pub fn take_message(&mut self) -> Message {
        core::mem::take(&mut self.message)
    }

    /// Whether the sender waits for a reply.
    #[must_use]
    pub const fn is_call(&self) -> bool {
        self.reply.is_some()
    }

    /// The message alone; a call's reply right is dropped, which ends the call.
    #[must_use]
    pub fn into_message(mut self) -> Message {
        self.take_message()
    }

    /// The process and user that sent it, as the kernel vouched when the link was made. `None`
    /// for one-way messages.
    #[must_use]
    pub fn peer(&self) -> Option<handfast_sys::socket::Peer> {
        self.reply.as_ref().map(|reply| reply.link.peer)
    }

    /// Replies. Never blocks: the caller has reserved the room. One copy; one system call if the
    /// caller sleeps, none otherwise.
    ///
    /// # Errors
    /// See [`ReplyError`]. With [`ReplyError::TooLong`] the call ends as dropped.
    pub fn reply(mut self, bytes: &[u8]) -> Result<(), ReplyError> {
        if bytes.len() > handfast_layout::MESSAGE_BYTES_MAX {
            return Err(ReplyError::TooLong {
                len_bytes: bytes.len(),
            });
        }
        let Some(reply) = self.reply.take() else {
            return Err(ReplyError::NotACall);
        };
        if reply.link.is_down() {
            return Err(ReplyError::Gone);
        }
        reply.answer(Kind::Message, bytes);
        Ok(())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            reply.answer(Kind::Dropped, &[]);
        }
    }
}

impl core::fmt::Debug for Request {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Request")
            .field("message", &self.message)
            .field("is_call", &self.is_call())
            .finish()
    }
}

impl ReplyRight {
    /// Publishes the outcome and wakes the caller if it sleeps. Returns whether it did.
    fn answer(&self, kind: Kind, bytes: &[u8]) -> bool {
        self.slot.answer(
            &self.link.region,
            self.generation,
            kind,
            cpu::current(),
            bytes,
        );
        wake_caller(&self.link, self.slot)
    }

    /// As [`Self::answer`], leaving the time of the wake-up to the rota (its rule 4).
    #[inline]
    fn answer_polling(&self, bytes: &[u8], poller: &mut Poller) -> bool {
        let region = &self.link.region;
        self.slot.answer(
            region,
            self.generation,
            Kind::Message,
            cpu::current(),
            bytes,
        );
        if !poller.is_fenceless() {
            // E4 wake: the fence of `fence_then_taken`, before the look at the wait word.
            region.fence();
        }
        if !self.slot.is_asleep(region) {
            poller.awake_at_reply(self.key);
            return false;
        }
        poller.asleep_at_reply(self.key, &self.link, self.slot)
            && wake_caller(&self.link, self.slot)
    }
}

const SPINS: usize = 8;
const PARKS: usize = 9;
const WAKES: usize = 10;
