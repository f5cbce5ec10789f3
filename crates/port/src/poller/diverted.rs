//! Ports that shared a receiver and have moved to another process: a thread that receives there diverts the messages that still come for
//! such a port to the port's trail (`moving`), which passes them on.
//!
//! Each user has room for what its processes send before they follow, and the trail takes from the users in turn. Beyond that the lanes of
//! the user wait, so that its senders do, and messages in them for other ports wait, too; not for ever, since the new home may take nothing.
//! Messages that the port's old home before this one passes on never wait: the trail there would hold up its other ports, and where ports go to
//! and fro, each of two trails would wait for the other.

use super::Poller;
use super::state::{Awaits, PassesOn};
use crate::link::Link;
use crate::link::introductions::Named;
use crate::port::Port;
use crate::process::Process;
use crate::request::{Request, is_mark, memory_bytes};
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

/// Messages of one user that wait for one port's trail, and their memory: one more is taken while there are fewer.
const ROOM: Room = Room {
    requests: 1024,
    bytes: 2 << 20,
};
/// The same where no lane waits: further ones are lost.
const ROOM_UPSTREAM: Room = Room {
    requests: 1 << 16,
    bytes: 64 << 20,
};

/// How long a lane waits for room while the trail takes nothing of its user. Messages that do not fit are lost then, until the trail does.
const ROOM_NS: u64 = 10_000_000_000;

struct Room {
    requests: usize,
    bytes: usize,
}

/// The sender of a message or a mark.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    uid: u32,
    link: u32,
}

impl Sender {
    pub(super) fn of(link: &Link) -> Self {
        Self {
            uid: link.peer.uid,
            link: link.serial,
        }
    }
}

/// The messages, marks and notices that have come for a port that has moved: of each sender in the order in which they came.
pub(crate) struct Diverted {
    /// The link by which the port had come.
    upstream: Option<u32>,
    state: Mutex<State, rank::Diverted>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    /// By users, the next one first.
    queues: VecDeque<(u32, Queue)>,
    /// Each with the number of what had come before, which is taken before it.
    notices: VecDeque<(u64, Request)>,
    /// So many messages have come.
    count: u64,
    /// Nothing comes any more: the receiver has ended.
    is_over: bool,
}

/// The messages and marks of one user's processes.
#[derive(Default)]
struct Queue {
    /// Each with its number.
    requests: VecDeque<(u64, Request)>,
    bytes: usize,
    /// A lane has waited in vain since the trail last took one.
    is_stuck: bool,
}

impl Queue {
    fn has(&self, room: &Room) -> bool {
        self.requests.len() < room.requests && self.bytes < room.bytes
    }
}

impl State {
    fn queue(&mut self, uid: u32) -> &mut Queue {
        let place = self.queues.iter().position(|(of, _)| *of == uid);
        let place = place.unwrap_or_else(|| {
            self.queues.push_back((uid, Queue::default()));
            self.queues.len() - 1
        });
        &mut self.queues[place].1
    }

    fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.notices.is_empty()
    }

    /// The next one, and whether there was no room while it lay here.
    fn next(&mut self) -> Option<(Request, bool)> {
        let fronts = self
            .queues
            .iter()
            .filter_map(|(_, queue)| queue.requests.front());
        let first = fronts.map(|(number, _)| *number).min();
        let is_next = |(before, _): &mut (u64, Request)| first.is_none_or(|first| first >= *before);
        if let Some((_, notice)) = self.notices.pop_front_if(is_next) {
            return Some((notice, false));
        }
        let (uid, mut queue) = self.queues.pop_front()?;
        let was_full = !queue.has(&ROOM);
        let (_, request) = queue.requests.pop_front()?;
        queue.bytes -= memory_bytes(&request);
        queue.is_stuck = false;
        let has_room = was_full && queue.has(&ROOM);
        if !queue.requests.is_empty() {
            self.queues.push_back((uid, queue));
        }
        Some((request, has_room))
    }
}

impl Diverted {
    /// Of a port that came by this link, if it was not made here.
    pub(crate) fn new(upstream: Option<u32>) -> Self {
        Self {
            upstream,
            state: Mutex::default(),
            came: Condvar::default(),
        }
    }

    /// The next message, mark or notice, and whether its user has room since. Blocks. `None`: nothing comes any more.
    pub(crate) fn next(&self) -> Option<(Request, bool)> {
        let is_awaited = |state: &mut State| state.is_empty() && !state.is_over;
        self.came.wait_while(self.state.lock(), is_awaited).next()
    }

    /// Puts one behind those of its sender, or a notice. It comes back where nobody passes anything on any more, or its lane has waited for
    /// room in vain. Marks need no room of their own: a right is lost with its mark.
    pub(super) fn push(&self, request: Request, sender: Option<Sender>) -> Result<(), Request> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(request);
        }
        let number = state.count;
        if let Some(sender) = sender {
            let waits = Some(sender.link) != self.upstream && !is_mark(&request);
            let room = if waits { &ROOM } else { &ROOM_UPSTREAM };
            let queue = state.queue(sender.uid);
            if !queue.has(room) {
                queue.is_stuck = true;
                return Err(request);
            }
            queue.bytes += memory_bytes(&request);
            queue.requests.push_back((number, request));
            state.count += 1;
        } else {
            state.notices.push_back((number, request));
        }
        drop(state);
        self.came.notify_all();
        Ok(())
    }

    /// Whether a message of this sender waits in its lane.
    fn has_to_wait(&self, sender: Sender) -> bool {
        let state = self.state.lock();
        let queue = state.queues.iter().find(|(uid, _)| *uid == sender.uid);
        Some(sender.link) != self.upstream
            && queue.is_some_and(|(_, queue)| !queue.has(&ROOM) && !queue.is_stuck)
    }

    fn end(&self) {
        self.state.lock().is_over = true;
        self.came.notify_all();
    }
}

/// Answers a message whose port has ended, or whose right was revoked.
pub(super) fn end(request: Request, why: &[u8]) {
    if let Some(reply) = request.reply_right() {
        reply.refuse(why);
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
    let queues = core::mem::take(&mut diverted.state.lock().queues);
    let requests = queues.into_iter().flat_map(|(_, queue)| queue.requests);
    requests.for_each(|(_, request)| end(request, &[]));
}

/// Once no port that shared a receiver is away, messages for such ports have arrived by being received, as before.
pub(super) fn rest(poller: &mut Poller) {
    if poller.passes_on == PassesOn::Diverted && poller.diverted.is_empty() {
        poller.passes_on = PassesOn::Nothing;
        say_passes_on(poller, false);
    }
}

/// Whether messages that are taken from the lanes go on elsewhere.
pub(super) fn say_passes_on(poller: &Poller, does: bool) {
    for lane in poller.lanes.iter().flatten() {
        lane.consumer.passes_on(&lane.link.region, does);
    }
}

/// Until when the message with this header waits in its lane for room; nothing where there is room, or its port has not moved.
pub(super) fn until(poller: &Poller, key: Key, header: Header, now_ns: u64) -> Option<u64> {
    let lane = poller.lanes[key].as_ref()?;
    // A mark, mostly.
    if header.kind == Kind::CONTROL {
        return None;
    }
    let port = match poller.named(&lane.link, header.port, now_ns) {
        Named::To(Target { port, .. }) if is_member(port) => port,
        _ => return None,
    };
    let diverted = of_port(&poller.process, port)?;
    let has_to_wait = diverted.has_to_wait(Sender::of(&lane.link));
    let until_ns = lane.until_ns.filter(|_| lane.awaits == Awaits::Room);
    has_to_wait.then(|| until_ns.unwrap_or_else(|| now_ns.saturating_add(ROOM_NS)))
}

#[cfg(test)]
mod tests;
