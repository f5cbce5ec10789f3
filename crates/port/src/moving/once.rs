//! Old home: its send-once rights that were not used when the port moved. Each has one at the new home, by which its message goes, and
//! which ends with it.

use super::WithOnce;
use crate::seal::Seal;
use crate::send::SendRight;
use core::time::Duration;
use handfast_proto::rights::Target;
use std::collections::HashMap;

pub(super) struct OnceRights {
    /// The ones that have none there yet: numbers of their ports, and badges.
    left: Vec<(u32, u64)>,
    there: HashMap<u32, SendRight>,
    /// The ones of which the new home has not said yet that it has made them.
    asked: Vec<u32>,
    pause: Duration,
    /// While some are not used.
    counted: Option<WithOnce>,
}

/// Asked for at once: each takes a slot for the answer, of which a link has 256, and there may be a trail for each of 64 receivers.
const ASKED_MAX: usize = 2;
/// How soon the new home is looked at again: at first, and when nothing comes.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);

/// The seal of the right that the new home makes for the one with this number.
pub(super) fn seal(id: u32, badge: u64) -> Seal {
    Seal::of_once(Target::full(id, badge))
}

impl OnceRights {
    pub(super) fn of(left: Vec<(u32, u64)>, counted: Option<WithOnce>) -> Self {
        Self {
            left,
            there: HashMap::new(),
            asked: Vec::new(),
            pause: PAUSE_MIN,
            counted,
        }
    }

    /// Has the new home make one for each, as many as may be asked for now. Returns when to look again, where some are left.
    pub(super) fn make(&mut self, mint: impl Fn(Seal) -> Option<SendRight>) -> Option<Duration> {
        if self.is_empty() {
            drop(self.counted.take());
        }
        let is_awaited = |right: &SendRight| !right.origin().is_settled();
        let there = &self.there;
        let before = self.asked.len();
        self.asked
            .retain(|id| there.get(id).is_some_and(is_awaited));
        self.pause = match self.asked.len() < before {
            true => PAUSE_MIN,
            false => (self.pause * 2).min(PAUSE_MAX),
        };
        while let Some((id, badge)) = self.left.last().copied() {
            if self.asked.len() == ASKED_MAX {
                return Some(self.pause);
            }
            let Some(right) = mint(seal(id, badge)) else {
                return Some(self.pause);
            };
            self.there.insert(id, right);
            self.asked.push(id);
            self.left.pop();
        }
        None
    }

    /// The right there in the place of the one with this number, whose message has come, or which has ended. `None`: there is none
    /// yet.
    pub(super) fn take(&mut self, id: u32) -> Option<SendRight> {
        self.left.retain(|(of, _)| *of != id);
        self.there.remove(&id)
    }

    /// Whether all have been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.there.is_empty()
    }
}
