//! The vine: answers to calls that were passed on without a path come back to this process, and its
//! control thread passes them on.

use crate::awaited::{Awaited, Outcome};
use crate::error::{DomainError, SendError};
use crate::link::Link;
use crate::link::held::Held;
use crate::link::returns::Own;
use crate::message::Message;
use crate::message::Whom;
use crate::process::Process;
use crate::rank;
use crate::reply_right::ReplyRight;
use crate::right::{Right, are_names_awaited};
use crate::send::SETTLE_NS;
use crate::tables::{Table, Which};
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_proto::timers::Timer;
use handfast_region::Memory;
use handfast_ring::Fault;
use handfast_sys::clock;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_wait::word;
use std::sync::Arc;

/// An answer that is to come here and go on.
pub(crate) struct Relay {
    awaited: Awaited,
    own: Own,
    /// The right to answer; `None` when the waiting caller has given up.
    right: Option<ReplyRight>,
    /// The answer has come, and does not go on yet.
    came: Option<Came>,
    /// That the caller has given up was passed on.
    is_given_up: bool,
    /// The right that the call was passed on through may be dropped before the answer comes.
    _held: Option<Held>,
}

/// An answer that has come.
enum Came {
    /// Some of its rights are known later, or by then not at all.
    Piece(Message, u64),
    /// The homes of some of its rights have not said their names, which have been awaited since then.
    Whole(Message, u64),
}

/// How long answers are looked at in one go: the control thread serves others, too.
const RELAYS_NS: u64 = 1_000_000;

/// The result of a look at a relay.
enum Seen {
    Nothing,
    Answer(Message),
    /// None will come; the domain that was to answer has gone wrong so.
    Lost(Option<DomainError>),
}

impl Relay {
    pub(crate) fn new(own: Own, right: ReplyRight) -> Self {
        let held = Held::new(&own.link);
        // A give-up of the caller is passed on, too.
        right.slot().watch();
        Self {
            awaited: Awaited::new(own.link.clone(), own.index, own.generation),
            own,
            right: Some(right),
            came: None,
            is_given_up: false,
            _held: Some(held),
        }
    }

    /// The answer is awaited no more; its slot is in use until it has come.
    pub(crate) fn forsaken(awaited: Awaited, own: Own) -> Self {
        Self::announce_at(&awaited);
        Self {
            awaited,
            own,
            right: None,
            came: None,
            is_given_up: false,
            _held: None,
        }
    }

    /// Has the answer to `own` ring the control thread. Before anybody can answer, or with a look after it.
    pub(crate) fn announce(own: &Own) {
        let slot = Slot::of(own.link.calls, own.index);
        word::announce(&own.link.region, slot.wait(), word::DESCRIPTOR);
    }

    fn announce_at(awaited: &Awaited) {
        word::announce(
            &awaited.link().region,
            awaited.slot().wait(),
            word::DESCRIPTOR,
        );
    }

    /// Whether the answer is there. If not, its arrival rings the control thread: the waker of the slot's former answer may be
    /// late, and take the announcement for this one (E15 late).
    fn is_answered(&self) -> bool {
        let (region, wait) = (&self.awaited.link().region, self.awaited.slot().wait());
        // Relaxed: a waker that takes the announcement after this look rings after it, too.
        self.awaited.is_answered()
            || region.load(wait, Ordering::Relaxed) == word::AWAKE && {
                Self::announce_at(&self.awaited);
                self.awaited.is_answered()
            }
    }

    fn look(&mut self, process: &Arc<Process>) -> Seen {
        let whom = self.right.as_ref().map(ReplyRight::link).cloned();
        let whom = whom.as_deref().map_or(Whom::Nobody, Whom::Relay);
        match self.came.take() {
            Some(Came::Piece(message, until_ns)) => {
                return self.take_rest(process, (message, until_ns), whom);
            }
            Some(Came::Whole(message, since_ns)) => return self.settle(message, since_ns),
            None => {}
        }
        loop {
            // First: an answer that came before the end is there nevertheless.
            let failure = self.awaited.failure();
            if !self.is_answered() {
                if self.right.as_ref().is_some_and(ReplyRight::is_cancelled) {
                    self.is_given_up = true;
                    self.awaited.cancel();
                    // A caller that has gone is not kept until the answer comes, perhaps from another user's process.
                    let is_gone = |right: &mut ReplyRight| right.link().is_down();
                    drop(self.right.take_if(is_gone));
                }
                return failure.map_or(Seen::Nothing, |_| Seen::Lost(None));
            }
            let mut message = Message::new();
            match self.awaited.take(process, &mut message, whom) {
                Ok(Outcome::Reply(_)) => return self.settle(message, clock::now_ns()),
                Ok(Outcome::Piece) => {
                    self.came = Some(Came::Piece(message, clock::now_ns() + SETTLE_NS));
                    return Seen::Nothing;
                }
                Ok(Outcome::Error(SendError::Domain(error))) => return Seen::Lost(Some(error)),
                Ok(Outcome::Error(_)) => return Seen::Lost(None),
                Ok(Outcome::Moved) => Self::announce_at(&self.awaited),
                Err(fault) => return self.poison(process, fault),
            }
        }
    }

    /// Takes up the rights of an answer that are known by now.
    fn take_rest(
        &mut self,
        process: &Arc<Process>,
        (mut message, until_ns): (Message, u64),
        whom: Whom<'_>,
    ) -> Seen {
        let now_ns = clock::now_ns();
        let whom = match now_ns < until_ns {
            true => whom,
            false => Whom::Nobody,
        };
        match self.awaited.take_rest(process, &mut message, whom) {
            Ok(true) if message.lost().is_some() => Seen::Lost(None),
            Ok(true) => self.settle(message, now_ns),
            Ok(false) => {
                self.came = Some(Came::Piece(message, until_ns));
                Seen::Nothing
            }
            Err(fault) => self.poison(process, fault),
        }
    }

    /// Whether the answer goes on. One with rights that go home does once the home has said their names, or has not in time: the control
    /// thread passes it on, and does not wait for that.
    fn settle(&mut self, mut message: Message, since_ns: u64) -> Seen {
        let right = self.right.as_ref().filter(|right| !right.link().is_down());
        let rights = message.rights_mut();
        let are_awaited = |rights: &[Right]| {
            right.is_some_and(|right| are_names_awaited(rights, right.link(), since_ns))
        };
        if rights.is_some_and(|rights| are_awaited(rights)) {
            self.came = Some(Came::Whole(message, since_ns));
            return Seen::Nothing;
        }
        Seen::Answer(message)
    }

    /// As [`Self::look`], and what there is to pass on. Has the control thread look again soon where an answer has come and does not go on yet.
    fn seen(&mut self, process: &Arc<Process>) -> Option<Result<Message, Option<DomainError>>> {
        match self.look(process) {
            Seen::Nothing => {
                if self.came.is_some() {
                    process.schedule(Timer::Relays);
                }
                None
            }
            Seen::Answer(message) => Some(Ok(message)),
            Seen::Lost(why) => Some(Err(why)),
        }
    }

    /// Whether [`Self::look`] may see something.
    fn is_due(&self) -> bool {
        let is_cancelled = || self.right.as_ref().is_some_and(ReplyRight::is_cancelled);
        self.is_answered()
            || self.awaited.failure().is_some()
            || !self.is_given_up && is_cancelled()
    }

    fn poison(&self, process: &Process, fault: Fault) -> Seen {
        self.awaited.link().poison(fault);
        process.attention.raise();
        Seen::Lost(None)
    }

    /// Passes on the answer that was seen. A right that is dropped here tells its caller so.
    fn end(self, answer: Result<Message, Option<DomainError>>) {
        self.own.free();
        match (self.right, answer) {
            (Some(right), Ok(mut message)) => {
                // This is the control thread: it closes none of them last.
                let _held = message.hold_descriptors();
                let rights = message.take_rights();
                // The caller may be gone.
                let _ = right.reply_with(&message, rights);
            }
            (Some(right), Err(Some(error))) => right.fail(error),
            _ => {}
        }
    }
}

#[derive(Default)]
struct RelaysTable(Mutex<Relays, rank::Relays>);

impl Table for RelaysTable {
    const WHICH: Which = Which::Relays;
}

/// The relays of a process.
#[derive(Default)]
pub(crate) struct Relays {
    waiting: Vec<Relay>,
    /// A thread looks at them, without the lock: taking an answer may drop rights, and that may end a
    /// link or add a relay.
    is_looking: bool,
    /// The relay has to look once more.
    again: bool,
}

pub(crate) fn relays(process: &Process) -> MutexGuard<'_, Relays, rank::Relays> {
    process.tables.get::<RelaysTable>().0.lock()
}

/// The node was shut down: nothing is passed on any more.
pub(crate) fn end_all(process: &Process) {
    let relays = core::mem::take(&mut *relays(process));
    // Without the lock.
    drop(relays);
}

/// Waits for an answer from here on. Looks at no other relay: calls of many users may wait.
pub(crate) fn add_relay(process: &Arc<Process>, mut relay: Relay) {
    match relay.seen(process) {
        Some(answer) => relay.end(answer),
        None => {
            let mut relays = relays(process);
            // Since the look, before the control thread knew of the relay.
            let is_due = relay.is_due();
            let link = relay.awaited.link().clone();
            relays.waiting.push(relay);
            drop(relays);
            if is_due {
                relay_by(process, &link);
            }
        }
    }
}

/// Passes on the answers that have come, unless another thread is at it: then that does, or the
/// control thread.
pub(crate) fn relay(process: &Arc<Process>) {
    relay_those(process, |_| true);
}

/// As [`relay`], of the answers that come by a link, and of the calls whose callers may have given up there.
pub(crate) fn relay_by(process: &Arc<Process>, link: &Arc<Link>) {
    let is_by = |of: &Arc<Link>| Arc::ptr_eq(of, link);
    relay_those(process, |relay| {
        is_by(relay.awaited.link())
            || (relay.right.as_ref()).is_some_and(|right| is_by(right.link()))
    });
}

fn relay_those(process: &Arc<Process>, is_one: impl Fn(&Relay) -> bool) {
    let mut waiting = {
        let mut relays = relays(process);
        if relays.is_looking {
            relays.again = true;
            return;
        }
        relays.is_looking = true;
        core::mem::take(&mut relays.waiting)
    };
    let mut ended = Vec::new();
    let (mut place, mut seen_at) = (0, None);
    while let Some(relay) = waiting.get_mut(place) {
        if !is_one(relay) {
            place += 1;
            continue;
        }
        let now_ns = clock::ticks_ns();
        if now_ns.saturating_sub(*seen_at.get_or_insert(now_ns)) >= RELAYS_NS {
            // Others of the control thread's have their turn, and those that were not looked at come first the next time.
            process.schedule(Timer::Relays);
            waiting.rotate_left(place);
            break;
        }
        match relay.seen(process) {
            Some(answer) => ended.push((waiting.swap_remove(place), answer)),
            None => place += 1,
        }
    }
    let again = {
        let mut relays = relays(process);
        waiting.append(&mut relays.waiting);
        relays.waiting = waiting;
        relays.is_looking = false;
        core::mem::take(&mut relays.again)
    };
    if again {
        process.attention.raise();
    }
    for (relay, answer) in ended {
        relay.end(answer);
    }
}

#[cfg(test)]
mod tests;
