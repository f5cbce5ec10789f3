//! How a thread sleeps until something comes to any member of a set.

use super::{WORDS_MAX, WaitSet};
use crate::link::group;
use crate::polling;
use crate::polling::waits::note_calls;
use crate::port::receiver::park;
use core::sync::atomic::Ordering;
use handfast_channel::stamped_after;
use handfast_layout::bell as bell_layout;
use handfast_sys::clock;
use handfast_wait::waiter::{Parked, Place, Sleep, Start};
use handfast_wait::word;

/// The set at which a receiving thread waits.
pub(super) struct Waiting<'a>(pub(super) &'a mut WaitSet);

impl Waiting<'_> {
    /// Arms and announces at every port. `false`: something is there; nothing is announced then.
    fn prepare_sleep(&self, how: u32) -> bool {
        let quiet = self.0.ports().all(|port| {
            let at = &port.port().at;
            let mut poller = polling::lock(at);
            note_calls(at, &poller);
            poller.prepare_to_wait(how)
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
            poller.withdraw();
            poller.refresh();
        }
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
        self.0
            .ports()
            .any(|port| polling::lock(&port.port().at).shares_processor())
    }

    fn park(&mut self, how: Sleep, deadline_ns: Option<u64>, start: Option<Start>) -> Parked {
        let groups = group::of(&self.0.process).all();
        let in_bells = groups.iter().filter(|group| group.uid.is_some()).count();
        let words = (in_bells + 1) * self.0.ports.len();
        let in_words = how == Sleep::Block && self.0.descriptors == 0 && words <= WORDS_MAX;
        let how = if in_words && words > 0 {
            word::ASLEEP
        } else {
            word::DESCRIPTOR
        };
        let handed: Vec<_> = self.0.ports().map(|port| port.port().at.handed()).collect();
        if !self.prepare_sleep(how) {
            let ready = self.look();
            return Parked {
                ready,
                posted_after_ns: None,
            };
        }
        let ports = self.0.ports();
        let sleeps = ports.filter_map(|port| polling::lock(&port.port().at).sleep_ns_max());
        let due_ns = sleeps.min().map(|sleep_ns| clock::now_ns() + sleep_ns);
        let deadline_ns = due_ns.into_iter().chain(deadline_ns).min();
        let start_ns = start.map(Start::now_ns);
        let receivers: Vec<_> = self.0.ports().map(|port| port.port().receiver).collect();
        let at_bells = || {
            groups
                .iter()
                .flat_map(|group| receivers.iter().map(move |receiver| (group, *receiver)))
        };
        if how == word::ASLEEP {
            let words = at_bells()
                .filter_map(|(group, receiver)| group.sleeps_in(receiver))
                .map(|(bells, sleep)| (bells, sleep, how));
            // As a port's own sleepers.
            let nudges: Vec<_> = (self.0.ports().zip(&handed))
                .map(|(port, handed)| port.port().at.nudged(*handed))
                .collect();
            self.count_as_followers(true);
            park(words.chain(nudges), deadline_ns);
            self.count_as_followers(false);
        } else {
            self.0.ask_descriptors(deadline_ns);
        }
        self.withdraw();
        let ready = self.look();
        let posted_after_ns = start_ns.and_then(|start_ns| {
            at_bells()
                .map(|(group, receiver)| {
                    let stamp = bell_layout::bell(receiver) + bell_layout::STAMP;
                    stamped_after(&group.bells, stamp, start_ns)
                })
                .filter(|after_ns| *after_ns > 0)
                .min()
        });
        Parked {
            ready,
            posted_after_ns,
        }
    }
}
