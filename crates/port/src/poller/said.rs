//! Introductions at a receiver: statements about them in its lanes, and messages that wait for the rights they
//! name.

use super::patience::UNCLAIMED_NS;
use super::through::beside;
use super::{Poller, wake_for_room};
use crate::link::Link;
use crate::link::introductions::Named;
use crate::process::Process;
use crate::request::{self, Request};
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::{Kind, LANES};
use handfast_layout::part::is_handle;
use handfast_proto::rights::Target;
use handfast_proto::rota::Key;
use handfast_ring::lane::{Consumer, Header};
use std::sync::Arc;

impl Poller {
    /// Until when the message in a lane waits for the right it names: the provision may not have come yet. `None`: it does not
    /// wait, or has waited for long enough.
    pub(super) fn until(&mut self, key: Key) -> Option<u64> {
        let lane = self.lanes[key].as_ref()?;
        // A fault is told of when it is taken.
        let (header, _) = lane.consumer.peek(&lane.link.region).ok()?;
        self.until_by(key, header)
    }

    /// As [`Self::until`], of the message with this header.
    #[cold]
    pub(super) fn until_by(&mut self, key: Key, header: Header) -> Option<u64> {
        let word = header.port;
        if is_handle(word) || header.kind == Kind::CONTROL && word == 0 {
            return None;
        }
        let now_ns = self.waiting.patience.look();
        let link = self.lanes[key].as_ref()?.link.clone();
        let named = self.named(&link, word, now_ns);
        let until_ns = match named {
            // The claim itself ends that.
            Named::NotYet(until_ns) => Some(until_ns),
            Named::Unclaimed => Some(self.unclaimed_until(&link, key, now_ns)),
            _ => None,
        };
        let lane = self.lanes[key].as_mut()?;
        lane.is_claimed = matches!(named, Named::NotYet(_));
        // Each might wait as long again.
        let ends_ns = (lane.link.is_down()).then(|| {
            *lane
                .ends_ns
                .get_or_insert(now_ns.saturating_add(UNCLAIMED_NS))
        });
        // Kept when it has passed: nothing begins to wait again that has been looked at twice.
        lane.until_ns = until_ns.map(|until_ns| until_ns.min(ends_ns.unwrap_or(until_ns)));
        lane.until_ns.filter(|until_ns| now_ns <= *until_ns)
    }

    /// Until when a message waits for the claim of the right it names: the claim may lie behind messages that wait in another
    /// lane of its sender.
    fn unclaimed_until(&self, link: &Arc<Link>, key: Key, now_ns: u64) -> u64 {
        let own = self.lanes[key].as_ref().and_then(|lane| lane.until_ns);
        let others = (0..LANES).filter_map(|index| self.known_key(link, index));
        let others = others.filter_map(|key| self.lanes[key].as_ref());
        let others = others.filter(|lane| lane.waits && lane.is_claimed);
        let last = others.filter_map(|lane| lane.until_ns).max();
        let behind = last.map_or(0, |until_ns| until_ns.saturating_add(UNCLAIMED_NS));
        own.unwrap_or(now_ns + UNCLAIMED_NS).max(behind)
    }

    /// Links whose lanes may hold messages for this port, and where they lie.
    pub(crate) fn open_lanes(&self) -> impl Iterator<Item = (&Arc<Link>, &Consumer)> {
        let lanes = self.lanes.iter().flatten();
        let open = lanes.filter(|lane| !lane.link.is_cut());
        open.map(|lane| (&*lane.link, &lane.consumer))
    }

    pub(crate) const fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Whether this is a right to a port whose messages come here.
    pub(crate) fn is_here(&self, target: &Target) -> bool {
        target.port == self.port || beside(&self.process, self.receiver, target.port).is_some()
    }

    /// The right that `word` stands for there, if that is one to a port whose messages come here.
    pub(crate) fn target_of(&self, link: &Arc<Link>, word: u32) -> Option<Target> {
        match self.named(link, word, 0) {
            Named::To(target) => Some(target).filter(|target| self.is_here(target)),
            _ => None,
        }
    }

    /// Handles a statement in a lane about introductions.
    pub(super) fn said(&mut self, key: Key, header: Header) -> Option<Request> {
        let now_ns = self.waiting.patience.look();
        let lane = self.lanes[key].as_mut()?;
        if let Some(LaneControl::Mark { lanes, number }) = LaneControl::parse(self.spare.bytes()) {
            let said = (&*lane.link, header, self.port);
            let mark = (self.protocols).marked(&self.process, said, (lanes, number));
            if lane.consumer.publish_due(&lane.link.region) {
                wake_for_room(&lane.link, lane.consumer.place());
            }
            return match mark {
                Ok(Some(mark)) => Some(request::marked(mark)),
                Ok(None) => {
                    self.looks.again = true;
                    None
                }
                Err(fault) => self.poison(key, fault),
            };
        }
        let said = (&*lane.link, header, self.spare.bytes());
        let heard = self.protocols.hear_said(&self.process, said, now_ns);
        if lane.consumer.publish_due(&lane.link.region) {
            wake_for_room(&lane.link, lane.consumer.place());
        }
        self.looks.again = true;
        match heard {
            Ok(()) => None,
            Err(fault) => self.poison(key, fault),
        }
    }
}
