//! Wait sets: several ports and ordinary descriptors, waited on in one call.

use crate::error::{Misuse, ReceiveError, Resource, SetError};
use crate::lifecycle;
use crate::options::Options;
use crate::polling;
use crate::polling::waits;
use crate::process::Process;
use crate::receive_right::ReceiveRight;
use crate::request::Request;
use core::time::Duration;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::Kind;
use handfast_sys::poll::{Flag, Interest, Poll, Trigger};
use handfast_sys::{AsFd, OwnedFd, clock};
use handfast_wait::{Ended, Strategy, Waiter};
use sleep::Waiting;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

mod sleep;

/// Ports and descriptors that one thread waits on together, by one strategy.
///
/// While everything is busy a message costs about as much as at a single port, and descriptors are looked at
/// every 128 looks at the ports, or with the first message served later than a millisecond after the last time.
/// A set of ports alone sleeps as a port does and is woken by one system call of the sender; with a descriptor
/// in it, a sender's wake-up goes through this process's control thread, which costs a second switch.
///
/// A peer's death is no event: its sent messages are received, and its calls need no reply. For ports of
/// others, [`SendRight::notify_death`](crate::SendRight::notify_death) reports a death by a notice at a port of
/// the set.
///
/// Ports are served in turn, and so are ready descriptors, so a busy one delays another by one message or
/// event; neither kind keeps the other waiting.
pub struct WaitSet {
    process: Arc<Process>,
    members: Vec<Member>,
    /// Tokens of the ports, in the order in which they are looked at.
    ports: Vec<Token>,
    descriptors: u32,
    /// Place in `ports` at which the next look starts.
    next: usize,
    looks: u32,
    /// When the descriptors were last looked at, by [`clock::ticks_ns`].
    asked_ns: u64,
    /// Events so far of descriptors.
    turns: u64,
    /// The last event.
    last: Last,
    /// The result of the last look.
    found: Option<Event>,
    /// Descriptors that were ready when last asked.
    ready: VecDeque<Event>,
    poll: Poll,
    /// Raised by the keeper when a peer rings through a socket, or a list has changed.
    flag: Arc<Flag>,
    waiter: Option<Box<Waiter>>,
}

/// Names a member of one set. Used again for another member once its own has been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u32);

/// An event: a message at a port, or a ready descriptor.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message for the port with this token.
    Message(Token, Request),
    /// The descriptor with this token is ready; it is reported again as long as it is.
    Descriptor(Token, Readiness),
}

/// The operations a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Something can be read, or a connection accepted.
    pub readable: bool,
    /// Something can be written.
    pub writable: bool,
    /// The other end has gone, or the descriptor has failed.
    pub hung_up: bool,
}

enum Member {
    Free,
    Port(ReceiveRight),
    /// And the number of its last event.
    Descriptor(OwnedFd, u64),
}

/// The member a set served last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Message,
    Descriptor,
}

/// Looks at the ports between two at the descriptors, which cost a system call.
const LOOKS_PER_POLL: u32 = 128;
/// The longest between two looks at the descriptors, besides the serving of one message.
const POLL_EVERY_NS: u64 = 1_000_000;
/// Looks before the strategy is asked, as a port makes them.
const FIRST_LOOKS: u32 = 64;
/// Words the kernel waits on at once; past it a set sleeps in its descriptors.
const WORDS_MAX: usize = 128;
/// Token of the flag in the set of descriptors.
const FLAG: u64 = u64::MAX;

impl WaitSet {
    /// An empty set with default options.
    ///
    /// # Errors
    /// As [`Self::with`].
    pub fn new() -> Result<Self, SetError> {
        Self::with(Options::new())
    }

    /// An empty set that waits by `options`; the options of its ports play no role while they are in it. Takes
    /// two descriptors, and three system calls.
    ///
    /// # Errors
    /// [`SetError::Exhausted`] without descriptors.
    pub fn with(options: Options) -> Result<Self, SetError> {
        Self::of(lifecycle::current()?, options)
    }

    /// For ports of this node.
    pub(crate) fn of(process: Arc<Process>, options: Options) -> Result<Self, SetError> {
        process.check()?;
        let os = |call| move |errno| Resource::of(call, errno);
        let poll = Poll::new().map_err(os("epoll_create1"))?;
        let flag = Arc::new(Flag::new().map_err(os("eventfd"))?);
        poll.add(&*flag, FLAG, Trigger::Level)
            .map_err(os("epoll_ctl"))?;
        process.add_set(&flag);
        let (strategy, cap) = process.configuration.resolve(options);
        Ok(Self {
            process,
            members: Vec::new(),
            ports: Vec::new(),
            descriptors: 0,
            next: 0,
            looks: 0,
            asked_ns: 0,
            turns: 0,
            last: Last::Nothing,
            found: None,
            ready: VecDeque::new(),
            poll,
            flag,
            waiter: Some(Box::new(Waiter::new(strategy, cap))),
        })
    }

    /// Changes how the set waits, from the next wait on.
    pub fn set_options(&mut self, options: Options) {
        let (strategy, cap) = self.process.configuration.resolve(options);
        self.waiter = Some(Box::new(Waiter::new(strategy, cap)));
    }

    /// Adds a port. Until it is removed, messages are received from it through the set only. No system call.
    ///
    /// # Panics
    /// If the port is of another [node](crate::Node) than the set.
    pub fn add(&mut self, port: ReceiveRight) -> Token {
        assert!(
            Arc::ptr_eq(&port.port().process, &self.process),
            "a port of another node: make the set by that node (Node::wait_set)"
        );
        let token = self.free_token();
        self.members[token.0 as usize] = Member::Port(port);
        self.ports.push(token);
        token
    }

    /// Adds a descriptor: anything that can be polled, but not plain files. The set keeps a duplicate, so the
    /// descriptor itself may be closed; its peer sees the end of the connection once the descriptor has been
    /// removed here too. Two system calls.
    ///
    /// # Errors
    /// [`SetError::Unpollable`] for a plain file; [`SetError::Exhausted`] without descriptors.
    pub fn add_descriptor(
        &mut self,
        descriptor: impl AsFd,
        interest: Interest,
    ) -> Result<Token, SetError> {
        let own =
            handfast_sys::duplicate(descriptor).map_err(|errno| Resource::of("dup", errno))?;
        let token = self.free_token();
        self.poll
            .add_for(&own, token.0.into(), Trigger::Level, interest)
            .map_err(|errno| Resource::of("epoll_ctl", errno))?;
        self.members[token.0 as usize] = Member::Descriptor(own, 0);
        self.descriptors += 1;
        Ok(token)
    }

    /// Removes a member. Returns the port, if it was one; messages queued for the port wait there. One system call
    /// for a descriptor, and its close.
    pub fn remove(&mut self, token: Token) -> Option<ReceiveRight> {
        let member = self.members.get_mut(token.0 as usize)?;
        match core::mem::replace(member, Member::Free) {
            Member::Free => None,
            Member::Port(port) => {
                self.ports.retain(|of| *of != token);
                self.next = 0;
                // Its descriptor was not looked after here.
                waits::call_takers(&port.port().at);
                Some(port)
            }
            Member::Descriptor(descriptor, _) => {
                self.poll.remove(&descriptor);
                self.descriptors -= 1;
                self.ready.retain(|event| event.token() != token);
                None
            }
        }
    }

    /// Waits for the next message or ready descriptor by the set's strategy. An empty set waits
    /// for ever.
    ///
    /// # Errors
    /// As [`ReceiveRight::receive`].
    pub fn receive(&mut self) -> Result<Event, ReceiveError> {
        self.receive_by(None)
    }

    /// As [`Self::receive`], at the longest for `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] then.
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Event, ReceiveError> {
        self.receive_by(Some(clock::deadline_ns(timeout)))
    }

    /// As [`Self::receive_timeout`], until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn receive_deadline(&mut self, deadline: Instant) -> Result<Event, ReceiveError> {
        self.receive_by(Some(clock::instant_ns(deadline)))
    }

    /// Takes what is there. Never blocks; one system call if the set has descriptors.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when nothing is.
    pub fn try_receive(&mut self) -> Result<Event, ReceiveError> {
        self.check()?;
        if self.descriptors > 0 {
            self.ask_descriptors(Some(0));
        }
        for token in &self.ports {
            if let Member::Port(port) = &self.members[token.0 as usize] {
                let port = port.port();
                waits::resume(&port.at, &mut polling::lock(&port.at));
            }
        }
        let over = self.process.check();
        self.sweep()
            .ok_or_else(|| over.err().map_or(ReceiveError::Empty, ReceiveError::Misuse))
    }

    /// Replies to `request` and waits for the next event, in one operation; see
    /// [`ReceiveRight::reply_and_receive`].
    ///
    /// # Errors
    /// As [`Self::receive`]. A caller that has died in the meantime is no error; nor is a reply that is too long, whose call ends as
    /// dropped.
    pub fn reply_and_receive(
        &mut self,
        request: Request,
        bytes: &[u8],
    ) -> Result<Event, ReceiveError> {
        self.check()?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            let _ = request.reply(bytes);
        } else if let Some(reply) = request.reply_right() {
            let receiver = reply.receiver;
            let port = self.ports().find(|port| port.port().receiver == receiver);
            if let Some(port) = port {
                let mut poller = polling::lock(&port.port().at);
                if poller.answer(reply, bytes) {
                    port.port().at.woke_caller();
                }
                if let Some(received) = request.answered() {
                    poller.give_back(received);
                }
            } else {
                reply.answer(Kind::Message, bytes);
                drop(request.answered());
            }
        }
        self.receive_by(None)
    }

    fn receive_by(&mut self, deadline_ns: Option<u64>) -> Result<Event, ReceiveError> {
        self.check()?;
        let looks = match &self.waiter {
            Some(waiter) if waiter.is_eager() => FIRST_LOOKS,
            _ => 1,
        };
        for _ in 0..looks {
            if let Some(event) = self.sweep() {
                return Ok(event);
            }
        }
        if crate::guest::is_control() {
            return Err(ReceiveError::Misuse(Misuse::ControlThread));
        }
        loop {
            // Only missing while a wait is under way.
            let fresh = || Box::new(Waiter::new(Strategy::default(), None));
            let mut waiter = self.waiter.take().unwrap_or_else(fresh);
            let (ended, _) = waiter.wait(&mut Waiting(self), deadline_ns, false);
            self.waiter = Some(waiter);
            if let Some(event) = self.found.take() {
                return Ok(event);
            }
            self.process.check()?;
            if ended == Ended::TimedOut {
                return Err(ReceiveError::TimedOut);
            }
        }
    }

    /// Looks at every port once, in turn, and now and then at the descriptors.
    fn sweep(&mut self) -> Option<Event> {
        if self.descriptors == 0 {
            return self.sweep_ports();
        }
        self.looks = self.looks.wrapping_add(1);
        // Looks that find nothing are many and soon over; only those between messages are timed.
        let is_late = || clock::ticks_ns().saturating_sub(self.asked_ns) > POLL_EVERY_NS;
        if self.looks.is_multiple_of(LOOKS_PER_POLL) || self.last == Last::Message && is_late() {
            self.ask_descriptors(Some(0));
        }
        let event = if self.last == Last::Descriptor {
            self.sweep_ports().or_else(|| self.next_ready())
        } else {
            self.next_ready().or_else(|| self.sweep_ports())
        };
        self.last = match event {
            None => Last::Nothing,
            Some(Event::Message(..)) => Last::Message,
            Some(Event::Descriptor(..)) => Last::Descriptor,
        };
        event
    }

    fn sweep_ports(&mut self) -> Option<Event> {
        for step in 0..self.ports.len() {
            let place = (self.next + step) % self.ports.len();
            let token = self.ports[place];
            let Member::Port(right) = &self.members[token.0 as usize] else {
                continue;
            };
            let port = right.port();
            if let Some(request) = polling::try_take(&mut polling::lock(&port.at)) {
                self.next = place + 1;
                return Some(Event::Message(token, request));
            }
        }
        None
    }

    fn next_ready(&mut self) -> Option<Event> {
        let event = self.ready.pop_front()?;
        self.turns += 1;
        if let Member::Descriptor(_, turn) = &mut self.members[event.token().0 as usize] {
            *turn = self.turns;
        }
        Some(event)
    }

    /// Asks the kernel which descriptors are ready; sleeps until one is, or the deadline.
    fn ask_descriptors(&mut self, deadline_ns: Option<u64>) {
        let mut events = Vec::new();
        self.poll.wait(deadline_ns, &mut events);
        // A descriptor is still ready if it was and has not been read; never queue it twice.
        self.ready.clear();
        for event in events {
            if event.token == FLAG {
                self.flag.lower();
                continue;
            }
            let readiness = Readiness {
                readable: event.readable,
                writable: event.writable,
                hung_up: event.hung_up,
            };
            self.ready
                .push_back(Event::Descriptor(Token(event.token as u32), readiness));
        }
        // The kernel names them in an order of its own, each time the same.
        let members = &self.members;
        let turn = |event: &Event| match members[event.token().0 as usize] {
            Member::Descriptor(_, turn) => turn,
            Member::Free | Member::Port(_) => 0,
        };
        self.ready.make_contiguous().sort_by_key(turn);
        self.asked_ns = clock::ticks_ns();
    }

    fn ports(&self) -> impl Iterator<Item = &ReceiveRight> {
        self.members.iter().filter_map(|member| match member {
            Member::Port(port) => Some(port),
            Member::Free | Member::Descriptor(..) => None,
        })
    }

    fn free_token(&mut self) -> Token {
        let is_free = |member: &Member| matches!(member, Member::Free);
        let place = self.members.iter().position(is_free);
        let place = place.unwrap_or_else(|| {
            self.members.push(Member::Free);
            self.members.len() - 1
        });
        Token(place as u32)
    }

    fn check(&self) -> Result<(), ReceiveError> {
        if self.process.epoch == handfast_sys::process::fork_epoch() {
            Ok(())
        } else {
            Err(ReceiveError::Misuse(Misuse::Forked))
        }
    }
}

impl Event {
    /// The member it came from.
    #[must_use]
    pub const fn token(&self) -> Token {
        match self {
            Self::Message(token, _) | Self::Descriptor(token, _) => *token,
        }
    }
}

impl core::fmt::Debug for WaitSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("WaitSet")
            .field("ports", &self.ports.len())
            .field("descriptors", &self.descriptors)
            .finish_non_exhaustive()
    }
}
