//! The descriptors of a wait set.

use super::event::{Event, Readiness, Token};
use crate::error::{Resource, SetError};
use handfast_sys::poll::{Flag, Interest, Poll, Trigger};
use handfast_sys::{AsFd, OwnedFd, clock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Descriptors, and a flag by which others end a sleep in them.
pub(super) struct Descriptors {
    poll: Poll,
    /// Raised by the control thread when a peer rings through a socket, or a list has changed.
    flag: Arc<Flag>,
    /// Each with the number of its last event.
    members: BTreeMap<Token, (OwnedFd, u64)>,
    /// Events so far.
    turns: u64,
    /// Events of the descriptors that were ready when last asked.
    ready: VecDeque<Event>,
    /// When the kernel was last asked, by [`clock::ticks_ns`].
    asked_ns: u64,
}

/// The longest between two looks, besides the serving of one message.
const ASK_EVERY_NS: u64 = 1_000_000;
/// Token of the flag.
const FLAG: u64 = u64::MAX;

impl Descriptors {
    pub(super) fn new() -> Result<Self, Resource> {
        let os = |call| move |errno| Resource::of(call, errno);
        let poll = Poll::new().map_err(os("epoll_create1"))?;
        let flag = Arc::new(Flag::new().map_err(os("eventfd"))?);
        poll.add(&*flag, FLAG, Trigger::Level)
            .map_err(os("epoll_ctl"))?;
        Ok(Self {
            poll,
            flag,
            members: BTreeMap::new(),
            turns: 0,
            ready: VecDeque::new(),
            asked_ns: 0,
        })
    }

    pub(super) const fn flag(&self) -> &Arc<Flag> {
        &self.flag
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Adds a duplicate of a descriptor.
    pub(super) fn add(
        &mut self,
        token: Token,
        descriptor: impl AsFd,
        interest: Interest,
    ) -> Result<(), SetError> {
        let own =
            handfast_sys::duplicate(descriptor).map_err(|errno| Resource::of("dup", errno))?;
        self.poll
            .add_for(&own, token.0.into(), Trigger::Level, interest)
            .map_err(|errno| Resource::of("epoll_ctl", errno))?;
        self.members.insert(token, (own, 0));
        Ok(())
    }

    pub(super) fn remove(&mut self, token: Token) {
        if let Some((descriptor, _)) = self.members.remove(&token) {
            self.poll.remove(&descriptor);
            self.ready.retain(|event| event.token() != token);
        }
    }

    /// Whether it is time to ask again.
    pub(super) fn is_late(&self) -> bool {
        clock::ticks_ns().saturating_sub(self.asked_ns) > ASK_EVERY_NS
    }

    /// Asks the kernel which are ready; sleeps until one is, or the flag is raised, or the deadline.
    pub(super) fn ask(&mut self, deadline_ns: Option<u64>) {
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
        let turn = |event: &Event| self.members.get(&event.token()).map(|(_, turn)| *turn);
        self.ready.make_contiguous().sort_by_key(turn);
        self.asked_ns = clock::ticks_ns();
    }

    pub(super) fn next(&mut self) -> Option<Event> {
        let event = self.ready.pop_front()?;
        self.turns += 1;
        if let Some((_, turn)) = self.members.get_mut(&event.token()) {
            *turn = self.turns;
        }
        Some(event)
    }
}
