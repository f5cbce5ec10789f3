//! Looking at lanes of several users, or of an overloaded server: users in turn, each user's lanes in turn.

use super::Poller;
use crate::message::Message;
use crate::request::Request;
use handfast_proto::rota::Verdict;
use handfast_ring::lane::Unusual;
use handfast_sys::clock;

/// Lanes whose messages wait for the rights they name, looked at between two looks at the bells: each takes as long as
/// a message does.
const PARKED_PER_BELL: u32 = 16;

impl Poller {
    /// As [`Poller::next`], of whatever lanes there are.
    #[inline(never)]
    pub(super) fn next_of_any(&mut self) -> Option<Request> {
        match self.next_in_turn() {
            None => self.next_other(),
            request => request,
        }
    }

    /// The next message of an active lane.
    #[inline]
    pub(super) fn next_in_turn(&mut self) -> Option<Request> {
        if !self.spare.has_buffer() {
            self.spare = Message::new();
        }
        let mut parked = 0;
        self.active.begin();
        while let Some(key) = self.active.look() {
            let Some(lane) = self.lanes[key].as_mut() else {
                continue;
            };
            let region = lane.link.region.view();
            if !self.rota.is_calm() {
                if !lane.consumer.is_ready(&region) {
                    continue;
                }
                if self.rota.request(key, clock::ticks_ns()) == Verdict::Defer {
                    self.defer(key);
                    self.active.found();
                    // The next look goes on.
                    return self.admit();
                }
            }
            let usual = lane.usual();
            let Some(taken) = lane.consumer.poll(&region, &mut self.spare, usual) else {
                continue;
            };
            let request = match taken {
                Ok((header, len_bytes)) => self.taken(key, header, len_bytes),
                Err(Unusual) => match self.take(key) {
                    None if self.has_parked() => {
                        parked += 1;
                        if parked % PARKED_PER_BELL == 0 {
                            // However many there are.
                            self.look_around();
                        }
                        continue;
                    }
                    taken => taken,
                },
            };
            self.active.found();
            let (lanes, next) = self.active.front();
            let next = lanes.get(next).and_then(|next| self.lanes[*next].as_ref());
            if let Some(next) = next.filter(|_| self.active.len() > 1) {
                // The next lane's line comes while this one's message is worked on.
                next.consumer.prefetch(&next.link.region);
            }
            return request;
        }
        None
    }
}
