//! The rights of a link that are about to end.

use super::Link;
use super::lanes::NOBODY;
use crate::rank;
use handfast_layout::link::{LANES, SLOTS};
use handfast_layout::part::receiver_of;
use handfast_proto::rights::{Handle, Use};
use handfast_proto::timers::Timer;
use handfast_sys::sync::Mutex;
use std::collections::VecDeque;

/// Rights a peer has given back, which end once these calls' replies have been read.
pub(crate) struct GivenBack {
    pub(crate) after: Vec<(u32, u32)>,
    pub(crate) ending: Vec<Handle>,
}

/// The rights of a link that are about to end.
#[derive(Default)]
pub(crate) struct Releases {
    /// Rights of this process to be given back, as soon as the socket takes it.
    pub(crate) owed: Mutex<VecDeque<(Handle, u32)>, rank::Owed>,
    /// Rights the peer has given back, until unread replies have been read.
    pub(crate) back: Mutex<VecDeque<GivenBack>, rank::GivenBack>,
}

impl Link {
    /// A right of this process to a port of the peer is dropped.
    #[inline]
    pub(crate) fn dropped(&self, handle: Handle, lanes: u32) {
        let is_new = match lanes {
            0 => self.change_imports(|imports| imports.dropped(handle, &[])),
            lanes => self.dropped_after(handle, lanes),
        };
        if is_new && !self.is_down() {
            self.process.schedule(Timer::Releases);
        }
        self.drop_moved(core::iter::once(handle));
    }

    /// Messages have used it, the last of them in these lanes.
    #[cold]
    fn dropped_after(&self, handle: Handle, lanes: u32) -> bool {
        let port = self.imports().port_of(handle);
        let receiver = port.map_or(NOBODY, receiver_of);
        let mut uses = Vec::new();
        let mut left = lanes;
        while left != 0 {
            let lane = left.trailing_zeros();
            left &= left - 1;
            uses.extend(self.use_of(lane, receiver));
        }
        self.change_imports(|imports| imports.dropped(handle, &uses))
    }

    /// The last message in a lane that may have used a right to a port at `receiver`: through the right, in a lane that leads
    /// there; beside its bytes, in one that leads elsewhere. A process that receives elsewhere may leave messages for ever.
    pub(crate) fn use_of(&self, lane: u32, receiver: u32) -> Option<Use> {
        let outgoing = self.lanes[lane as usize].lock();
        let position = outgoing.producer.position();
        // A port that has a receiver for each CPU is sent to in lanes that lead to those.
        if outgoing.leads_to == receiver || self.has_spread() {
            let tail = position;
            return Some(Use { lane, tail });
        }
        // A message further back than a lane holds has been taken.
        let tail = outgoing.named;
        (position.wrapping_sub(tail) <= SLOTS).then_some(Use { lane, tail })
    }

    /// As [`Self::use_of`], in all lanes.
    pub(crate) fn uses_of(&self, receiver: u32) -> Vec<Use> {
        (0..LANES)
            .filter_map(|lane| self.use_of(lane, receiver))
            .collect()
    }
}
