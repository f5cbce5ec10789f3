//! Ports that shared a receiver and have moved to another process: a thread that receives there diverts the messages that still come for
//! such a port to the port's trail (`moving`), which passes them on.
//!
//! There is room for what senders send before they follow. Beyond that a lane waits, so that its sender does, and messages in it for other
//! ports wait, too; not for ever, since a port that has gone round has trails that share lanes, each of which may wait for another.

use super::Poller;
use crate::link::introductions::Named;
use crate::port::Port;
use crate::port::notices::Notice;
use crate::process::Process;
use crate::request::Request;
use crate::tables::{Table, Which};
use crate::{links, rank};
use core::sync::atomic::{AtomicUsize, Ordering};
use handfast_layout::link::Kind;
use handfast_layout::part::{is_member, receiver_of};
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
pub(crate) struct Diverted {
    state: Mutex<State, rank::Diverted>,
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

impl Diverted {
    /// The next message, mark or notice, and whether there was no room while it lay here. Blocks. `None`: nothing comes any more.
    pub(crate) fn next(&self) -> Option<(Request, bool)> {
        let is_awaited = |state: &mut State| state.requests.is_empty() && !state.is_over;
        let mut state = self.came.wait_while(self.state.lock(), is_awaited);
        let was_full = state.is_full();
        let request = state.requests.pop_front()?;
        state.bytes -= request.bytes().len();
        Some((request, was_full && !state.is_full()))
    }

    /// Puts one behind the others. It comes back where nobody passes anything on any more, or a lane has waited for room in vain.
    pub(super) fn push(&self, request: Request) -> Result<(), Request> {
        let mut state = self.state.lock();
        // The trail ends by these.
        let ends = matches!(request.notice(), Some(Notice::NoSenders | Notice::Dead(0)));
        if state.is_over || state.is_full() && !ends {
            return Err(request);
        }
        state.bytes += request.bytes().len();
        state.requests.push_back(request);
        drop(state);
        self.came.notify_all();
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.state.lock().is_full()
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

/// The ports of a process that shared receivers and have moved.
#[derive(Default)]
pub(super) struct DivertedPorts {
    /// So many.
    count: AtomicUsize,
    ports: Mutex<Vec<(u32, Arc<Diverted>)>, rank::DivertedPorts>,
}

#[derive(Default)]
struct DivertedTable(Arc<DivertedPorts>);

impl Table for DivertedTable {
    const WHICH: Which = Which::Diverted;
}

pub(super) fn of(process: &Process) -> &Arc<DivertedPorts> {
    &process.tables.get::<DivertedTable>().0
}

impl DivertedPorts {
    /// Whether there are none.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        // Acquire: pairs with the Release in `change`. A poller whose lane has a usual right looks after `add` has had it looked up anew.
        self.count.load(Ordering::Acquire) == 0
    }
}

/// Where messages for this port are diverted, if it has moved.
pub(super) fn of_port(process: &Process, port: u32) -> Option<Arc<Diverted>> {
    let ports = of(process).ports.lock();
    let mut ports = ports.iter().filter(|(of, _)| *of == port);
    ports.next().map(|(_, diverted)| diverted.clone())
}

fn change(process: &Process, change: impl FnOnce(&mut Vec<(u32, Arc<Diverted>)>)) {
    let mut ports = of(process).ports.lock();
    change(&mut ports);
    // Release: pairs with the Acquire in `DivertedPorts::is_empty`.
    of(process).count.store(ports.len(), Ordering::Release);
}

/// From now on messages for this port are diverted. No lock of its receiver: a thread may wait there for ever.
pub(crate) fn add(port: &Port, diverted: &Arc<Diverted>) {
    change(&port.process, |ports| {
        ports.push((port.id, diverted.clone()))
    });
    for link in links::all(&port.process) {
        // Release: pairs with the Acquire in `Lane::usual`. The next message of each lane is looked up.
        link.rights.ended.fetch_add(1, Ordering::Release);
    }
    // Acquire: pairs with the Release of a thread that ends the ports of a receiver, which ends the diversion after that (`end_at`).
    if port.is_closing.load(Ordering::Acquire) {
        diverted.end();
    }
}

/// The receiver has ended.
pub(super) fn end_at(process: &Process, receiver: u32) {
    end_those(process, |port| receiver_of(port) == receiver);
}

/// The node was shut down: nothing comes any more for ports that have moved.
pub(crate) fn end_all(process: &Process) {
    end_those(process, |_| true);
}

fn end_those(process: &Process, is_one: impl Fn(u32) -> bool) {
    let ports = of(process).ports.lock().clone();
    let ended = ports.iter().filter(|(port, _)| is_one(*port));
    ended.for_each(|(_, diverted)| diverted.end());
}

/// The port's trail ends: so do the calls that lie there.
pub(crate) fn remove(port: &Port, diverted: &Arc<Diverted>) {
    diverted.end();
    change(&port.process, |ports| {
        ports.retain(|(_, its)| !Arc::ptr_eq(its, diverted));
    });
    let requests = core::mem::take(&mut diverted.state.lock().requests);
    requests.into_iter().for_each(|request| end(request, &[]));
}

/// Until when the message with this header waits in its lane for room; nothing where there is room, or its port has not moved.
pub(super) fn until(poller: &Poller, key: Key, header: Header, now_ns: u64) -> Option<u64> {
    let lane = poller.lanes[key].as_ref()?;
    let port = match poller.named(&lane.link, header.port, now_ns) {
        Named::To(Target { port, .. }) if is_member(port) => port,
        _ => return None,
    };
    let is_full = of_port(&poller.process, port)?.is_full();
    let until_ns = lane.until_ns.filter(|_| !lane.is_claimed);
    is_full.then(|| until_ns.unwrap_or_else(|| now_ns.saturating_add(ROOM_NS)))
}
