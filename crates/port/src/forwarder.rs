//! The thread of a process's vine: it passes on the messages that come to the hidden port (`vine`).

use crate::error::{ReceiveError, SendError};
use crate::onward::Onward;
use crate::options::Waiting;
use crate::port::notices::Notice;
use crate::receive_right::ReceiveRight;
use crate::request::Request;
use crate::right::wait_for_word;
use crate::send::SendRight;
use crate::vine::Vine;
use core::time::Duration;
use handfast_layout::link::SLOTS;
use handfast_sys::clock;
use std::collections::VecDeque;
use std::sync::Arc;

/// How long a message waits for room at the port it goes on to before it is dropped: others for that
/// port wait behind it.
const PASS_TIMEOUT_NS: u64 = 1_000_000_000;
/// How soon those that wait are tried again.
const PASS_AGAIN: Duration = Duration::from_millis(1);
/// Messages that wait for one port, as many as a lane holds, and for all. Further ones are dropped.
const WAITING_MAX: usize = SLOTS as usize;
const WAITING_ALL_MAX: usize = 4 * WAITING_MAX;

/// Passes on messages as they come. Messages to one port stay in order; a message that has to wait there holds
/// up no other. A message that cannot be passed on is dropped, which ends a call at its caller.
pub(crate) fn serve(vine: &Vine, receive: &ReceiveRight) {
    handfast_sys::signal::block_all();
    let mut waiting = Waits::default();
    loop {
        let received = match waiting.is_empty() {
            true => receive.receive(),
            false => receive.receive_timeout(PASS_AGAIN),
        };
        match received {
            Ok(request) => match request.notice() {
                Some(Notice::NoSendersOf(badge)) => vine.ended(badge),
                Some(_) => {}
                None => {
                    if let Some((target, _)) = vine.target(request.badge()) {
                        waiting.add(vine, OnItsWay::new(target, request));
                    }
                }
            },
            Err(ReceiveError::TimedOut) => {}
            Err(_) => return,
        }
        waiting.pass_on(vine);
    }
}

/// A message that is to go on.
struct OnItsWay {
    target: Arc<SendRight>,
    badge: u64,
    onward: Onward,
    until_ns: u64,
}

impl OnItsWay {
    fn new(target: Arc<SendRight>, request: Request) -> Self {
        Self {
            target,
            badge: request.badge(),
            onward: Onward::of(request),
            until_ns: clock::now_ns() + PASS_TIMEOUT_NS,
        }
    }

    /// The key of messages that have to arrive in order: a lane.
    fn port(&self) -> (u32, u32) {
        (self.target.link().serial, self.target.receiver())
    }

    /// Passes it on, or drops it. Returns it when there is no room yet.
    fn pass_on(mut self, vine: &Vine) -> Option<Self> {
        let is_late = clock::now_ns() >= self.until_ns;
        // Waiting for a word holds up the messages of all others.
        let goes = || {
            vine.is_next(self.badge, self.target.link())
                && !wait_for_word(self.onward.rights(), &self.target)
        };
        if !is_late && !goes() {
            return Some(self);
        }
        let sent = self.onward.send(&self.target, Waiting::Never);
        (sent == Err(SendError::Full) && !is_late).then_some(self)
    }
}

/// Messages that wait for room, by port, in the order in which they came.
#[derive(Default)]
struct Waits(Vec<((u32, u32), VecDeque<OnItsWay>)>);

impl Waits {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Passes a message on, if none waits before it; else it waits.
    fn add(&mut self, vine: &Vine, passed: OnItsWay) {
        let port = passed.port();
        let all: usize = self.0.iter().map(|(_, queue)| queue.len()).sum();
        if let Some((_, queue)) = self.0.iter_mut().find(|(of, _)| *of == port) {
            if queue.len() < WAITING_MAX && all < WAITING_ALL_MAX {
                queue.push_back(passed);
            }
            return;
        }
        if let Some(passed) = passed.pass_on(vine)
            && all < WAITING_ALL_MAX
        {
            self.0.push((port, VecDeque::from([passed])));
        }
    }

    /// Passes on the messages that there is room for by now.
    fn pass_on(&mut self, vine: &Vine) {
        self.0.retain_mut(|(_, queue)| {
            while let Some(passed) = queue.pop_front() {
                if let Some(passed) = passed.pass_on(vine) {
                    queue.push_front(passed);
                    return true;
                }
            }
            false
        });
    }
}
