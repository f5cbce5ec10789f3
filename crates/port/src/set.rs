//! Wait sets: ports, calls in flight, timers and ordinary descriptors, waited on in one call.

use crate::call::Call;
use crate::error::{Misuse, ReceiveError, SetError};
use crate::lifecycle;
use crate::options::Options;
use crate::owned_call::OwnedCall;
use crate::polling::{self, waits};
use crate::port::receiver::Receiver;
use crate::process::Process;
use crate::receive::{self, NotReceived};
use crate::receive_right::ReceiveRight;
use crate::request::Request;
use crate::right::Right;
use core::time::Duration;
use descriptors::Descriptors;
pub use event::{Event, Readiness, Token};
use handfast_sys::poll::Interest;
use handfast_sys::{AsFd, clock};
use handfast_wait::{Ended, Strategy, Waiter};
use sleep::Waiting;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

mod descriptors;
mod event;
mod sleep;

/// Ports, calls in flight, timers and descriptors that one thread waits on together, by one strategy: "any of several flags" of
/// paper 001, sections 2.2 and 5.2, replies to its own calls among them.
///
/// While everything is busy a message costs about as much as at a single port, and descriptors are looked at
/// every 128 looks at the ports, or with the first message served later than a millisecond after the last time.
/// A set without descriptors sleeps as a port or a caller does, in one system call, and one system call of the sender, or of the
/// server that answers, wakes it; with a descriptor in it, their wake-ups go through this process's control thread, which costs a second switch.
///
/// ```no_run
/// use handfast_port::{Event, WaitSet};
/// use std::time::{Duration, Instant};
///
/// let stores = [handfast_port::connect("store-1")?, handfast_port::connect("store-2")?];
/// let mut set = WaitSet::new()?;
/// let calls = [
///     set.add_call(stores[0].try_call(b"get")?),
///     set.add_call(stores[1].try_call(b"get")?),
/// ];
/// set.add_timer(Instant::now() + Duration::from_secs(1));
/// match set.receive()? {
///     Event::Reply(token, reply) => println!("store {} said {:?}", 1 + usize::from(token == calls[1]), reply?),
///     _ => println!("neither has answered within a second"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A peer's death is no event of a port: the peer's sent messages are received, and its calls need no reply. A call in the set ends then, as
/// [`Call::wait`] says. For ports of
/// other processes, [`SendRight::notify_death`](crate::SendRight::notify_death) reports a death by a notice at a port of
/// the set.
///
/// Ports are served in turn, and so are ready descriptors; calls as they were added. A busy member delays another by one message or
/// event, and no kind keeps the others waiting.
///
/// Dropping the set drops its members: receive rights, so that their ports end, and calls, which are given up. [`Self::remove`] gives a receive
/// right back before. Descriptors that were added stay open at the program; the set closes its duplicates.
pub struct WaitSet {
    process: Arc<Process>,
    members: Vec<Member>,
    /// Places among the members that are free.
    free: Vec<Token>,
    /// Tokens of the ports, in the order in which they are looked at.
    ports: Vec<Token>,
    /// Tokens of the calls, in the order in which they were added.
    calls: Vec<Token>,
    /// When each timer ends.
    timers: BTreeSet<(u64, Token)>,
    descriptors: Descriptors,
    /// Place in `ports` at which the next look starts.
    next: usize,
    looks: u32,
    /// The kind of the last event, if the last look found one.
    last: Option<Turn>,
    /// The result of the last look.
    found: Option<Event>,
    waiter: Option<Box<Waiter>>,
}

enum Member {
    Free,
    Port(ReceiveRight),
    Descriptor,
    Call(Box<OwnedCall>),
    /// And when it ends.
    Timer(u64),
}

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Descriptor,
    Message,
    Reply,
    Timer,
}

/// The order in which kinds have their turns.
const TURNS: [Turn; 4] = [Turn::Descriptor, Turn::Message, Turn::Reply, Turn::Timer];

/// Looks at the ports between two at the descriptors, which cost a system call.
const LOOKS_PER_POLL: u32 = 128;
/// Looks before the strategy is asked, as a port makes them.
const FIRST_LOOKS: u32 = 64;
/// Words the kernel waits on at once; past it a set sleeps in its descriptors.
const WORDS_MAX: usize = 128;

impl WaitSet {
    /// An empty set with default options.
    ///
    /// # Errors
    /// The errors of [`Self::with`].
    pub fn new() -> Result<Self, SetError> {
        Self::with(Options::new())
    }

    /// An empty set that waits by `options`; the options of ports have no effect while they are in the set. Takes
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
        let descriptors = Descriptors::new()?;
        process.add_set(descriptors.flag());
        let (strategy, cap) = process.configuration.resolve(options);
        Ok(Self {
            process,
            members: Vec::new(),
            free: Vec::new(),
            ports: Vec::new(),
            calls: Vec::new(),
            timers: BTreeSet::new(),
            descriptors,
            next: 0,
            looks: 0,
            last: None,
            found: None,
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
        let token = self.insert(Member::Port(port));
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
        let token = self.insert(Member::Descriptor);
        let added = self.descriptors.add(token, descriptor, interest);
        if added.is_err() {
            self.release(token);
        }
        added.map(|()| token)
    }

    /// Adds a call in flight, whose end is an [`Event::Reply`]. The set keeps a clone of the right that the call was made by. No system call.
    ///
    /// # Panics
    /// If the call was made by a right of another [node](crate::Node) than the set's.
    pub fn add_call(&mut self, call: Call<'_>) -> Token {
        assert!(
            Arc::ptr_eq(call.right().process(), &self.process),
            "a call of another node: make the set by that node (Node::wait_set)"
        );
        let token = self.insert(Member::Call(Box::new(OwnedCall::new(call))));
        self.calls.push(token);
        token
    }

    /// Adds a timer, whose end at `at` is an [`Event::Timer`], once. No system call; a set with a timer reads the clock with
    /// each look, some 20 ns.
    pub fn add_timer(&mut self, at: Instant) -> Token {
        let at_ns = clock::instant_ns(at);
        let token = self.insert(Member::Timer(at_ns));
        self.timers.insert((at_ns, token));
        token
    }

    /// Removes a member. Returns the port, if the member was one; messages queued for the port wait there. One system call
    /// for a descriptor, and its close. A call is given up, as a dropped call. The token of a call or timer whose event has come names no member.
    pub fn remove(&mut self, token: Token) -> Option<ReceiveRight> {
        let member = match self.members.get(token.0 as usize)? {
            Member::Free => return None,
            _ => self.release(token),
        };
        match member {
            Member::Free => None,
            Member::Port(port) => {
                self.ports.retain(|of| *of != token);
                self.next = 0;
                // Its descriptor was not looked after here.
                waits::call_takers(&port.port().at);
                Some(port)
            }
            Member::Descriptor => {
                self.descriptors.remove(token);
                None
            }
            Member::Call(_) => {
                self.calls.retain(|of| *of != token);
                None
            }
            Member::Timer(at_ns) => {
                self.timers.remove(&(at_ns, token));
                None
            }
        }
    }

    /// Waits for the next event by the set's strategy. An empty set waits forever.
    ///
    /// # Errors
    /// The errors of [`ReceiveRight::receive`].
    pub fn receive(&mut self) -> Result<Event, ReceiveError> {
        self.receive_by(None)
    }

    /// Like [`Self::receive`], for at most `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] then.
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Event, ReceiveError> {
        self.receive_by(Some(clock::deadline_ns(timeout)))
    }

    /// Like [`Self::receive_timeout`], until `deadline`.
    ///
    /// # Errors
    /// The errors of [`Self::receive_timeout`].
    pub fn receive_deadline(&mut self, deadline: Instant) -> Result<Event, ReceiveError> {
        self.receive_by(Some(clock::instant_ns(deadline)))
    }

    /// Takes an event that is there. Never blocks; one system call if the set has descriptors.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when no event is there.
    pub fn try_receive(&mut self) -> Result<Event, ReceiveError> {
        self.check()?;
        if !self.descriptors.is_empty() {
            self.descriptors.ask(Some(0));
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
    /// [`ReceiveRight::reply_and_receive`]. A timer in the set bounds the wait.
    ///
    /// # Errors
    /// The errors of [`Self::receive`], and no others, as there.
    pub fn reply_and_receive(
        &mut self,
        request: Request,
        bytes: &[u8],
    ) -> Result<Event, ReceiveError> {
        self.check()?;
        receive::reply(self.receiver_of(&request), request, bytes);
        self.receive_by(None)
    }

    /// Like [`Self::reply_and_receive`], with rights beside the reply; see [`ReceiveRight::reply_with_and_receive`].
    ///
    /// # Errors
    /// The errors of that operation.
    pub fn reply_with_and_receive(
        &mut self,
        request: Request,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<Event, NotReceived> {
        let rights = rights.into_iter().collect();
        self.check()?;
        receive::reply_with(self.receiver_of(&request), request, bytes, rights)?;
        Ok(self.receive_by(None)?)
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
            let timer_ns = self.timers.first().map(|(at_ns, _)| *at_ns);
            let until_ns = deadline_ns.into_iter().chain(timer_ns).min();
            let (ended, _) = waiter.wait(&mut Waiting(self), until_ns, false);
            self.waiter = Some(waiter);
            if let Some(event) = self.found.take() {
                return Ok(event);
            }
            self.process.check()?;
            // Not for a timer, which the next look finds.
            if ended == Ended::TimedOut && until_ns == deadline_ns {
                // Where the time was too short for a look at the descriptors.
                return self.try_receive().map_err(|error| match error {
                    ReceiveError::Empty => ReceiveError::TimedOut,
                    error => error,
                });
            }
        }
    }

    /// Looks at every port and call once, in turn, and now and then at the descriptors.
    fn sweep(&mut self) -> Option<Event> {
        if self.descriptors.is_empty() && self.calls.is_empty() && self.timers.is_empty() {
            return self.sweep_ports();
        }
        self.looks = self.looks.wrapping_add(1);
        if !self.descriptors.is_empty() {
            // Looks that find nothing are many and soon over; only those between messages are timed.
            let is_between = self.last.is_some_and(|turn| turn != Turn::Descriptor);
            if self.looks.is_multiple_of(LOOKS_PER_POLL) || is_between && self.descriptors.is_late()
            {
                self.descriptors.ask(Some(0));
            }
        }
        // The kind of the last event comes last.
        let first = self.last.map_or(0, |last| last as usize + 1);
        for step in 0..TURNS.len() {
            let turn = TURNS[(first + step) % TURNS.len()];
            let event = match turn {
                Turn::Descriptor => self.descriptors.next(),
                Turn::Message => self.sweep_ports(),
                Turn::Reply => self.sweep_calls(),
                Turn::Timer => self.next_timer(),
            };
            if event.is_some() {
                self.last = Some(turn);
                return event;
            }
        }
        self.last = None;
        None
    }

    fn sweep_calls(&mut self) -> Option<Event> {
        for place in 0..self.calls.len() {
            let token = self.calls[place];
            let member = &mut self.members[token.0 as usize];
            if let Member::Call(call) = member
                && let Some(outcome) = call.look()
            {
                self.release(token);
                self.calls.remove(place);
                return Some(Event::Reply(token, outcome));
            }
        }
        None
    }

    fn next_timer(&mut self) -> Option<Event> {
        let (at_ns, token) = *self.timers.first()?;
        if clock::now_ns() < at_ns {
            return None;
        }
        self.timers.pop_first();
        self.release(token);
        Some(Event::Timer(token))
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

    /// The receiver of the set that a call came to.
    fn receiver_of(&self, request: &Request) -> Option<&Receiver> {
        let receiver = request.reply_right()?.receiver;
        let mut receivers = self.ports().map(|port| &**port.receiver());
        receivers.find(|at| at.index == receiver)
    }

    fn ports(&self) -> impl Iterator<Item = &ReceiveRight> {
        self.members.iter().filter_map(|member| match member {
            Member::Port(port) => Some(port),
            _ => None,
        })
    }

    fn calls(&mut self) -> impl Iterator<Item = &mut OwnedCall> {
        self.members.iter_mut().filter_map(|member| match member {
            Member::Call(call) => Some(&mut **call),
            _ => None,
        })
    }

    fn insert(&mut self, member: Member) -> Token {
        let token = self.free.pop().unwrap_or_else(|| {
            self.members.push(Member::Free);
            Token(self.members.len() as u32 - 1)
        });
        self.members[token.0 as usize] = member;
        token
    }

    /// The member of that token, whose place is free from now on.
    fn release(&mut self, token: Token) -> Member {
        self.free.push(token);
        core::mem::replace(&mut self.members[token.0 as usize], Member::Free)
    }

    fn check(&self) -> Result<(), ReceiveError> {
        let is_forked = self.process.epoch != handfast_sys::process::fork_epoch();
        let misuse = is_forked.then_some(Misuse::Forked);
        misuse.map_or(Ok(()), |misuse| Err(ReceiveError::Misuse(misuse)))
    }
}

impl core::fmt::Debug for WaitSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("WaitSet")
            .field("ports", &self.ports.len())
            .field("calls", &self.calls.len())
            .field("timers", &self.timers.len())
            .field("descriptors", &self.descriptors.len())
            .finish_non_exhaustive()
    }
}
