//! Old home: its send-once rights that were not used when the port moved. Each has one at the new home, by which its message goes, and
//! which ends with it.

use crate::port::Port;
use crate::port::ports;
use crate::seal::Seal;
use crate::send::SendRight;
use handfast_proto::rights::Target;
use std::collections::HashMap;

pub(super) struct OnceRights {
    /// The ones that have none there yet: numbers of their ports, and badges.
    left: Vec<(u32, u64)>,
    there: HashMap<u32, SendRight>,
}

/// The seal of the right that the new home makes for the one with this number.
pub(super) fn seal(id: u32, badge: u64) -> Seal {
    Seal::of_once(Target::full(id, badge))
}

impl OnceRights {
    pub(super) fn of(port: &Port) -> Self {
        Self {
            left: ports::unused_once(port),
            there: HashMap::new(),
        }
    }

    /// Has the new home make one for each, as many as there is room to ask for now. Returns whether some are left.
    pub(super) fn make(&mut self, mint: impl Fn(Seal) -> Option<SendRight>) -> bool {
        while let Some((id, badge)) = self.left.last().copied() {
            let Some(right) = mint(seal(id, badge)) else {
                return true;
            };
            self.there.insert(id, right);
            self.left.pop();
        }
        false
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
