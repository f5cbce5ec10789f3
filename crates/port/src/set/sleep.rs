//! How a thread sleeps until something comes to any member of a set.

use super::{WORDS_MAX, WaitSet};
use crate::announced::Announced;
use crate::link::{Link, group};
use crate::owned_call::OwnedCall;
use crate::poller::{clearing, idle, waiting};
use crate::polling;
use crate::polling::waits::note_calls;
use crate::port::receiver::park;
use crate::receive_right::ReceiveRight;
use core::sync::atomic::Ordering;
use core::task::Waker;
use handfast_channel::reply::Slot;
use handfast_channel::stamped_after;
use handfast_layout::bell as bell_layout;
use handfast_region::Region;
use handfast_sys::clock;
use handfast_wait::place::{Parked, Place, Sleep, Start};
use handfast_wait::word;
use std::sync::Arc;

/// The set at which a receiving thread waits.
pub(super) struct Waiting<'a>(pub(super) &'a mut WaitSet);

impl Waiting<'_> {
    /// Arms and announces at every port. `false`: something is there; nothing is announced then.
    fn prepare_sleep(&self, how: u32) -> bool {
        let quiet = self.0.ports().all(|port| {
            let at = &port.port().at;
            let mut poller = polling::lock(at);
            note_calls(at, &poller);
            idle::prepare_to_wait(&mut poller, how)
        });
        if !quiet {
            self.withdraw();
        }
        quiet
    }

    /// A thread that hears that a port was rung for wakes this thread.
    fn count_as_followers(&self, sleeps: bool) {
        for port in self.0.ports() {
            let followers = &port.port().at.followers;
            // Relaxed: as the counts of a thread that follows.
            match sleeps {
                true => followers.fetch_add(1, Ordering::Relaxed),
                false => followers.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }

    fn withdraw(&self) {
        for port in self.0.ports() {
            let mut poller = polling::lock(&port.port().at);
            idle::withdraw(&mut poller);
            clearing::refresh(&mut poller);
        }
    }
}

impl Waiting<'_> {
    /// Sleeps in the words that the ports' senders, other threads of this process and the servers of the calls change. One system call.
    fn sleep_in_words(
        &mut self,
        bells: &[(&Region, usize, u32)],
        handed: &[u32],
        places: &[(Arc<Link>, u32)],
        deadline_ns: Option<u64>,
    ) {
        let announced = places.iter();
        let announced: Vec<_> = announced
            .map(|(link, index)| Announced::new(link, *index, Sleep::Block, false))
            .collect();
        let calls = self.0.calls();
        let deadline_ns = calls.fold(deadline_ns, |until_ns, call| call.until(until_ns));
        // Once more: no wake-up comes for an answer before the announcement.
        if !self.0.calls().any(OwnedCall::may_have_ended) {
            // As a port's own sleepers.
            let nudges = self.0.ports().zip(handed);
            let mut words: Vec<_> = nudges
                .map(|(port, handed)| port.port().at.handed.word(*handed))
                .collect();
            words.extend(announced.iter().flat_map(Announced::words));
            words.extend(bells);
            self.count_as_followers(true);
            park(words.iter().copied(), deadline_ns);
            self.count_as_followers(false);
        }
        announced.into_iter().for_each(Announced::withdraw);
    }

    /// Sleeps in the descriptors, of which one is the flag: the control thread raises that for the ports, and for calls as for tasks.
    fn sleep_in_descriptors(&mut self, deadline_ns: Option<u64>) {
        let waker = Waker::from(self.0.descriptors.flag().clone());
        let announced: Vec<_> = self.0.calls().map(|call| call.wake(&waker)).collect();
        // Once more: no ring comes for an answer before the announcement.
        if !self.0.calls().any(OwnedCall::may_have_ended) {
            self.0.descriptors.ask(deadline_ns);
        }
        drop(announced);
    }
}

impl Place for Waiting<'_> {
    fn look(&mut self) -> bool {
        if self.0.found.is_none() {
            self.0.found = self.0.sweep();
        }
        self.0.found.is_some() || self.0.process.is_over()
    }

    fn shares_processor(&mut self) -> bool {
        let is_by_port = |port: &ReceiveRight| polling::lock(&port.port().at).shares_processor();
        self.0.ports().any(is_by_port) || self.0.calls().any(|call| call.shares_processor())
    }

    fn park(&mut self, how: Sleep, deadline_ns: Option<u64>, start: Option<Start>) -> Parked {
        let groups = group::of(&self.0.process).all();
        let in_bells = groups.iter().filter(|group| group.uid.is_some()).count();
        let words = (in_bells + 1) * self.0.ports.len() + 2 * self.0.calls.len();
        let in_words = how == Sleep::Block && self.0.descriptors.is_empty() && words <= WORDS_MAX;
        let how = if in_words && words > 0 {
            word::ASLEEP
        } else {
            word::DESCRIPTOR
        };
        let handed: Vec<_> = self
            .0
            .ports()
            .map(|port| port.port().at.handed.count())
            .collect();
        if !self.prepare_sleep(how) {
            let ready = self.look();
            return Parked {
                ready,
                posted_after_ns: None,
            };
        }
        let ports = self.0.ports();
        let sleeps =
            ports.filter_map(|port| waiting::sleep_ns_max(&polling::lock(&port.port().at)));
        let due_ns = sleeps.min().map(|sleep_ns| clock::now_ns() + sleep_ns);
        let deadline_ns = due_ns.into_iter().chain(deadline_ns).min();
        let start_ns = start.map(Start::now_ns);
        let receivers: Vec<_> = self.0.ports().map(|port| port.port().receiver).collect();
        let at_bells = || {
            groups
                .iter()
                .flat_map(|group| receivers.iter().map(move |receiver| (group, *receiver)))
        };
        let places: Vec<_> = self.0.calls().map(OwnedCall::place).collect();
        if how == word::ASLEEP {
            let bells = at_bells()
                .filter_map(|(group, receiver)| group.sleeps_in(receiver))
                .map(|(bells, sleep)| (bells, sleep, how));
            let bells: Vec<_> = bells.collect();
            self.sleep_in_words(&bells, &handed, &places, deadline_ns);
        } else {
            self.sleep_in_descriptors(deadline_ns);
        }
        self.withdraw();
        let ready = self.look();
        let posted_after_ns = start_ns.and_then(|start_ns| {
            let posted = at_bells().map(|(group, receiver)| {
                let stamp = bell_layout::bell(receiver) + bell_layout::STAMP;
                stamped_after(&group.bells, stamp, start_ns)
            });
            let answered = places.iter().map(|(link, index)| {
                stamped_after(&link.region, Slot::of(link.calls, *index).stamp(), start_ns)
            });
            let came = posted.chain(answered);
            came.filter(|after_ns| *after_ns > 0).min()
        });
        Parked {
            ready,
            posted_after_ns,
        }
    }
}
