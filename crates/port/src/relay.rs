//! The vine: answers to calls that were passed on without a path come back to this process, and its
//! keeper passes them on.

use crate::awaited::{Awaited, Outcome};
use crate::message::Message;
use crate::passing::{Own, ReplyRight};
use crate::paths::Held;
use crate::process::Process;
use handfast_channel::reply::Slot;
use handfast_wait::word;
use std::sync::{Arc, MutexGuard, PoisonError};

/// An answer that is to come here and go on.
pub(crate) struct Relay {
    awaited: Awaited,
    own: Own,
    /// Whom it is for; nobody, when who waited for it has given up.
    right: Option<ReplyRight>,
    /// The right that the call was passed on through may be dropped before the answer comes.
    _held: Option<Held>,
}

/// What a look at a relay has shown.
enum Seen {
    Nothing,
    Answer(Message),
    /// None will come.
    Lost,
}

impl Relay {
    pub(crate) fn new(process: &Arc<Process>, own: Own, right: ReplyRight) -> Self {
        let held = Held::new(process, &own.link);
        if let Some(reply) = right.request().reply_right() {
            // That the caller has given up is passed on, too.
            reply.watch();
        }
        Self {
            awaited: Awaited::new(own.link.clone(), own.index, own.generation),
            own,
            right: Some(right),
            _held: Some(held),
        }
    }

    /// Nobody waits for the answer any more; its slot is in use until it has come.
    pub(crate) fn forsaken(awaited: Awaited, own: Own) -> Self {
        Self::announce_at(&awaited);
        Self {
            awaited,
            own,
            right: None,
            _held: None,
        }
    }

    /// Has the answer to `own` ring the keeper. Before anybody can answer, or with a look after it.
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

    fn look(&mut self, process: &Arc<Process>) -> Seen {
        loop {
            // First: an answer that came before the end is there nevertheless.
            let failure = self.awaited.failure();
            if !self.awaited.is_answered() {
                if self.right.as_ref().is_some_and(ReplyRight::is_cancelled) {
                    self.awaited.cancel(process);
                }
                return failure.map_or(Seen::Nothing, |_| Seen::Lost);
            }
            let mut message = Message::new();
            match self.awaited.take(process, &mut message) {
                Ok(Outcome::Reply(_)) => return Seen::Answer(message),
                Ok(Outcome::Error(_)) => return Seen::Lost,
                Ok(Outcome::Moved) => Self::announce_at(&self.awaited),
                Err(fault) => {
                    self.awaited.link().poison(fault);
                    process.attention.raise();
                    return Seen::Lost;
                }
            }
        }
    }

    /// Passes on what was seen. A right that is dropped here tells its caller so.
    fn end(self, answer: Option<Message>) {
        self.own.free();
        if let (Some(right), Some(mut message)) = (self.right, answer) {
            let rights = message.take_rights();
            // The caller may be gone.
            let _ = right.reply_with(&message, rights);
        }
    }
}

/// The relays of a process.
#[derive(Default)]
pub(crate) struct Relays {
    waiting: Vec<Relay>,
    /// A thread looks at them, without the lock: taking an answer may drop rights, and that may end a
    /// link or add a relay.
    is_looking: bool,
    /// It has to look once more.
    again: bool,
}

impl Process {
    fn relays(&self) -> MutexGuard<'_, Relays> {
        self.relays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an answer from here on.
    pub(crate) fn add_relay(self: &Arc<Self>, relay: Relay) {
        self.relays().waiting.push(relay);
        // It may have come before the keeper knew of it.
        self.relay();
    }

    /// Passes on the answers that have come, unless another thread is at it: then that does, or the
    /// keeper.
    pub(crate) fn relay(self: &Arc<Self>) {
        let mut waiting = {
            let mut relays = self.relays();
            if relays.is_looking {
                relays.again = true;
                return;
            }
            relays.is_looking = true;
            core::mem::take(&mut relays.waiting)
        };
        let mut ended = Vec::new();
        let mut place = 0;
        while let Some(relay) = waiting.get_mut(place) {
            let answer = match relay.look(self) {
                Seen::Nothing => {
                    place += 1;
                    continue;
                }
                Seen::Answer(message) => Some(message),
                Seen::Lost => None,
            };
            ended.push((waiting.swap_remove(place), answer));
        }
        let again = {
            let mut relays = self.relays();
            relays.waiting.append(&mut waiting);
            relays.is_looking = false;
            core::mem::take(&mut relays.again)
        };
        if again {
            self.attention.raise();
        }
        for (relay, answer) in ended {
            relay.end(answer);
        }
    }
}
