//! Introductions at a receiver: what is said about them in its lanes, and messages that wait for what they name.

use super::{Poller, wake_for_room};
use crate::introduce::{Named, UNCLAIMED_NS};
use crate::link::Link;
use crate::process::Process;
use crate::request::Request;
use handfast_channel::arm;
use handfast_layout::introduction::Said;
use handfast_layout::link::Kind;
use handfast_layout::part::is_handle;
use handfast_proto::rights::Target;
use handfast_proto::rota::Key;
use handfast_ring::lane::{Consumer, Header};
use std::sync::Arc;

impl Poller {
    /// Whether what the message in a lane names is known already. What was provided may not have come
    /// yet; the message waits for that, for a while.
    pub(super) fn is_due(&mut self, key: Key) -> bool {
        let Some(lane) = self.lanes[key].as_ref() else {
            return false;
        };
        match lane.consumer.peek(&lane.link.region) {
            Ok((header, _)) => self.is_due_by(key, header),
            // Told of when it is taken.
            Err(_) => true,
        }
    }

    /// As [`Self::is_due`], of the message with this header.
    #[cold]
    pub(super) fn is_due_by(&mut self, key: Key, header: Header) -> bool {
        let Some(lane) = self.lanes[key].as_mut() else {
            return false;
        };
        let word = header.port;
        if header.kind == Kind::CONTROL && word == 0 {
            return true;
        }
        if is_handle(word) {
            // Nothing is waited for.
            (lane.until_ns, self.parked) = (None, false);
            return true;
        }
        let now_ns = self.patience.look();
        let until_ns = match lane.link.named(&self.process, word, now_ns) {
            // The claim itself ends that.
            Named::NotYet(until_ns) => Some(until_ns),
            Named::Unclaimed => Some(lane.until_ns.unwrap_or(now_ns + UNCLAIMED_NS)),
            _ => None,
        };
        // Each might wait as long again.
        let ends_ns = (lane.link.is_down()).then(|| {
            *lane
                .ends_ns
                .get_or_insert(now_ns.saturating_add(UNCLAIMED_NS))
        });
        let until_ns = until_ns.map(|until_ns| until_ns.min(ends_ns.unwrap_or(until_ns)));
        lane.until_ns = until_ns.filter(|until_ns| now_ns <= *until_ns);
        self.parked = lane.until_ns.is_some();
        !self.parked
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

    pub(crate) const fn port(&self) -> u32 {
        self.port
    }

    /// What `word` stands for there, if that is a right to this port.
    pub(crate) fn target_of(&self, link: &Arc<Link>, word: u32) -> Option<Target> {
        match link.named(&self.process, word, 0) {
            Named::To(target) if target.port == self.port => Some(target),
            _ => None,
        }
    }

    /// What was said in a lane about introductions.
    pub(super) fn said(&mut self, key: Key, header: Header) -> Option<Request> {
        let now_ns = self.patience.look();
        let lane = self.lanes[key].as_mut()?;
        if let Some(Said::Mark { lanes, number }) = Said::parse(self.spare.bytes()) {
            let mark = (lane.link).marked(&self.process, (header, self.port), (lanes, number));
            if lane.consumer.publish_due(&lane.link.region) {
                wake_for_room(&lane.link, lane.consumer.place());
            }
            return match mark {
                Ok(Some(mark)) => Some(Request::mark(mark)),
                Ok(None) => {
                    self.again = true;
                    None
                }
                Err(fault) => self.poison(key, fault),
            };
        }
        let heard = lane
            .link
            .hear_said(&self.process, (header, self.spare.bytes()), Some(now_ns));
        if lane.consumer.publish_due(&lane.link.region) {
            wake_for_room(&lane.link, lane.consumer.place());
        }
        self.again = true;
        match heard {
            Ok(()) => None,
            Err(fault) => self.poison(key, fault),
        }
    }

    /// How long the receiver may sleep, once it is prepared to: a message that waits is due then.
    pub(crate) fn sleep_ns_max(&self) -> Option<u64> {
        let lanes = self
            .asleep
            .iter()
            .filter_map(|key| self.lanes[*key].as_ref());
        let times = lanes.filter_map(|lane| lane.until_ns);
        times.min().map(|until_ns| self.patience.left_ns(until_ns))
    }

    /// Arms a lane whose first message waits: for what comes after that it rings.
    pub(super) fn leave_waiting(&mut self, key: Key) {
        self.parked = false;
        if let Some(lane) = &self.lanes[key] {
            arm::leave_armed(&lane.link.region, lane.consumer.place());
            self.asleep.push(key);
        }
    }

    /// Before the look of a task or a loop that has slept; `called` says when it was called.
    pub(crate) fn resume(&mut self, called: impl FnOnce() -> Option<u64>) {
        if !self.asleep.is_empty() {
            self.patience.slept_until(called());
            self.unpark();
        }
    }

    /// Looks at lanes again whose messages wait, after a sleep.
    pub(super) fn unpark(&mut self) {
        if self.asleep.is_empty() {
            return;
        }
        for key in core::mem::take(&mut self.asleep) {
            if let Some(lane) = &self.lanes[key] {
                let (link, index) = (lane.link.clone(), lane.index);
                self.answer_lane(&link, index);
            }
        }
    }
}
