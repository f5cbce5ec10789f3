//! Ports that shared this receiver and have moved to another process: a thread that receives here puts what still comes for such a port
//! aside, and the port's trail (`moving`) passes it on.
//!
//! There is room for what senders send before they follow. Beyond that a lane waits, so that its sender does, and messages in it for other
//! ports wait, too; not for ever, since a port that has gone round has trails that share lanes, each of which may wait for another.

use super::Poller;
use super::lane::NO_RIGHT;
use crate::link::introductions::Named;
use crate::rank;
use crate::request::Request;
use handfast_layout::link::Kind;
use handfast_layout::part::is_member;
use handfast_proto::rights::Target;
use handfast_proto::rota::Key;
use handfast_ring::lane::Header;
use handfast_sys::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages that wait for one port's trail, and their bytes: one more is taken while there are fewer.
const REQUESTS_MAX: usize = 4096;
const BYTES_MAX: usize = 2 << 20;

/// How long a lane waits for room. The new home takes nothing by then, and other messages of the lane go on.
const ROOM_NS: u64 = 10_000_000_000;

/// The messages, marks and notices that have come for a port that has moved, in the order in which they came.
#[derive(Default)]
pub(crate) struct Away {
    state: Mutex<State, rank::Away>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    bytes: usize,
    /// Nothing comes any more: the receiver has ended.
    is_over: bool,
}

impl State {
    fn is_full(&self) -> bool {
        self.requests.len() >= REQUESTS_MAX || self.bytes >= BYTES_MAX
    }
}

impl Away {
    /// The next message, mark or notice, and whether there was no room while it lay here. Blocks. `None`: nothing comes any more.
    pub(crate) fn next(&self) -> Option<(Request, bool)> {
        let is_awaited = |state: &mut State| state.requests.is_empty() && !state.is_over;
        let mut state = self.came.wait_while(self.state.lock(), is_awaited);
        let was_full = state.is_full();
        let request = state.requests.pop_front()?;
        state.bytes -= request.bytes().len();
        Some((request, was_full && !state.is_full()))
    }

    /// Puts one behind the others. It comes back where nobody passes anything on any more.
    pub(super) fn push(&self, request: Request) -> Result<(), Request> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(request);
        }
        state.bytes += request.bytes().len();
        state.requests.push_back(request);
        drop(state);
        self.came.notify_all();
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.state.lock().is_full()
    }

    /// Ends the calls that lie here: their port has ended.
    pub(crate) fn refuse_all(&self) {
        let requests = core::mem::take(&mut self.state.lock().requests);
        requests.into_iter().for_each(|request| end(request, &[]));
    }

    fn end(&self) {
        self.state.lock().is_over = true;
        self.came.notify_all();
    }
}

/// Answers a message whose port has ended, or whose right was revoked.
pub(super) fn end(request: Request, why: &[u8]) {
    if let Some(reply) = request.reply_right() {
        reply.answer(Kind::DeadPort, why);
    }
    drop(request.answered());
}

/// The ports of a receiver that have moved.
#[derive(Default)]
pub(super) struct AwayPorts(Vec<(u32, Arc<Away>)>);

impl AwayPorts {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn of(&self, port: u32) -> Option<&Arc<Away>> {
        let mut ports = self.0.iter();
        ports.find(|(of, _)| *of == port).map(|(_, away)| away)
    }

    /// The receiver ends: their trails do, too.
    pub(super) fn end(&mut self) {
        for (_, away) in self.0.drain(..) {
            away.end();
        }
    }
}

/// From now on what comes for this port is put aside; nothing comes where the receiver has ended.
pub(crate) fn add(poller: &mut Poller, port: u32, away: &Arc<Away>) {
    if poller.is_closed {
        return away.end();
    }
    for lane in poller.lanes.iter_mut().flatten() {
        // The next message is looked up.
        lane.word = NO_RIGHT;
    }
    poller.away.0.push((port, away.clone()));
}

/// The node was shut down: nothing comes any more for ports that have moved.
pub(crate) fn end_all(poller: &mut Poller) {
    poller.away.end();
}

/// The port's trail ends.
pub(crate) fn remove(poller: &mut Poller, port: u32, away: &Arc<Away>) {
    away.end();
    let is_its = |(of, its): &(u32, Arc<Away>)| *of == port && Arc::ptr_eq(its, away);
    poller.away.0.retain(|entry| !is_its(entry));
}

/// Until when the message with this header waits in its lane for room; nothing where there is room, or its port has not moved.
pub(super) fn until(poller: &Poller, key: Key, header: Header, now_ns: u64) -> Option<u64> {
    let lane = poller.lanes[key].as_ref()?;
    let port = match poller.named(&lane.link, header.port, now_ns) {
        Named::To(Target { port, .. }) if is_member(port) => port,
        _ => return None,
    };
    let is_full = poller.away.of(port)?.is_full();
    is_full.then(|| {
        lane.until_ns
            .unwrap_or_else(|| now_ns.saturating_add(ROOM_NS))
    })
}
