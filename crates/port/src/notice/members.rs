//! The notices of ports that share a receiver.

use super::{Notice, Unheard};
use crate::ports;
use crate::process::Process;
use crate::rank;
use handfast_sys::sync::Mutex;
use std::collections::VecDeque;

/// The ports of a receiver that have notices, beside its own, by their numbers: each is there once.
#[derive(Default)]
pub(crate) struct MembersDue(Mutex<VecDeque<u32>, rank::MembersDue>);

impl MembersDue {
    /// The next notice, and the number of its port. Ports that have ended meanwhile are passed over.
    ///
    /// # Errors
    /// As [`Notices::take`], of the first port that has one.
    #[cold]
    pub(crate) fn take(
        &self,
        process: &Process,
        has_heard: impl Fn(u32) -> bool,
    ) -> Result<Option<(Notice, u32)>, Unheard> {
        loop {
            let Some(id) = self.0.lock().pop_front() else {
                return Ok(None);
            };
            let Some(port) = ports::by_id(process, id) else {
                continue;
            };
            match port.notices.take(&has_heard) {
                Ok(None) => {}
                Ok(Some(notice)) => {
                    // There may be more.
                    self.0.lock().push_back(id);
                    return Ok(Some((notice, id)));
                }
                Err(Unheard) => {
                    self.0.lock().push_front(id);
                    return Err(Unheard);
                }
            }
        }
    }

    /// This port has notices, for the first time since it had none.
    pub(super) fn add(&self, id: u32) {
        self.0.lock().push_back(id);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether there may be one that can be told now.
    pub(crate) fn has_any(&self, process: &Process, has_heard: impl Fn(u32) -> bool) -> bool {
        let first = self.0.lock().front().copied();
        let port = first.map(|id| ports::by_id(process, id));
        port.is_some_and(|port| port.is_none_or(|port| port.notices.has_any(has_heard)))
    }
}
