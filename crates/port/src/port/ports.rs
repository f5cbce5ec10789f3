//! The ports of a process, each at a receiver of its own.

use crate::error::{Exhausted, Resource};
use crate::link::Link;
use crate::link::group;
use crate::link::group::Reserved;
use crate::link::hearing::Hearing;
use crate::port::receiver::{LEFT_MAX, waits};
use crate::port::{Once, Port};
use crate::process::Process;
use crate::rank;
use crate::tables::{Table, Which};
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_channel::bell::link_rang;
use handfast_layout::bell;
use handfast_layout::part::{IS_MEMBER, is_member, receiver_of};
use handfast_proto::rights::{Entry, Map};
use handfast_proto::timers::Timer;
use handfast_sys::clock;
use handfast_sys::sync::{Mutex, MutexGuard, RwLock};
use std::sync::{Arc, OnceLock};

/// How long after the drop of a port messages are looked for from senders that had not heard of it.
const LATE_NS: u64 = 1_000_000_000;

#[derive(Default)]
struct Ports {
    list: RwLock<Vec<Option<Arc<Port>>>, rank::Ports>,
    /// Held while a port enters the list.
    binding: Mutex<(), rank::Binding>,
    /// The generation of the last one.
    generation: AtomicU32,
    /// The number of the last port that shares a receiver; and all of them.
    last_member: AtomicU32,
    members: RwLock<Members, rank::Members>,
    /// Set when the node starts.
    ends: OnceLock<&'static dyn Ends>,
}

/// Ports that share receivers.
#[derive(Default)]
struct Members {
    /// By the receiver, then by their numbers.
    at: Map<u32, Map<u32, Arc<Port>>>,
    count: usize,
}

impl Table for Ports {
    const WHICH: Which = Which::Ports;
}

fn of(process: &Process) -> &Ports {
    process.tables.get()
}

/// Held while a port enters the list.
pub(crate) fn binding(process: &Process) -> MutexGuard<'_, (), rank::Binding> {
    of(process).binding.lock()
}

/// Takes a place for a link to come, in the trust group of `uid` or in a crowd.
pub(crate) fn reserve(process: &Process, uid: u32) -> Result<Reserved, Resource> {
    let version = group::of(process).version();
    let place = group::of(process).reserve(uid)?;
    if group::of(process).version() != version {
        // Receivers have to sleep in the bells of a new group, too.
        rouse_all(process);
    }
    Ok(place)
}

/// A port has been dropped: the control thread refuses (`unbound`) what still comes for it.
pub(crate) fn watch_unbound(process: &Process) {
    let until_ns = clock::ticks_ns() + LATE_NS;
    // Relaxed: the control thread finds it at its next turn, which this asks for.
    process.unbound_until_ns.store(until_ns, Ordering::Relaxed);
    process.schedule(Timer::DroppedPorts);
}

/// Wakes every sleeping receiver of this process.
pub(crate) fn rouse_all(process: &Process) {
    let ports = those(process, |_| true);
    for group in &*group::of(process).all() {
        ports.iter().for_each(|port| group.rouse(port.receiver));
    }
    process.raise_sets();
    for port in ports {
        port.at.nudge();
        waits::call_takers(&port.at);
    }
}

/// Wakes the receivers at `receiver`.
pub(crate) fn rouse(process: &Process, receiver: u32) {
    for group in &*group::of(process).all() {
        group.rouse(receiver);
    }
    process.raise_sets();
    if let Some(port) = at(process, receiver) {
        port.at.nudge();
        waits::call_takers(&port.at);
    }
}

/// As [`rouse`], by the control thread: a thread that holds a lock wakes nobody.
pub(crate) fn rouse_later(process: &Process, receiver: u32) {
    // Release: pairs with the Acquire in `rouse_those`.
    process.to_rouse.fetch_or(1 << receiver, Ordering::Release);
    process.attention.raise();
}

/// Control thread: wakes the receivers that are to be woken.
pub(crate) fn rouse_those(process: &Process) {
    // Acquire: what has come for them is there.
    let mut receivers = process.to_rouse.swap(0, Ordering::Acquire);
    while receivers != 0 {
        rouse(process, receivers.trailing_zeros());
        receivers &= receivers - 1;
    }
}

// A bit for each.
const _: () = assert!(bell::RECEIVERS <= u64::BITS);

/// The work of the protocols above the ports of a node when one ends, and before the next at its receiver.
pub(crate) trait Ends: Send + Sync {
    /// The receive right of a port is dropped: tells those that have rights to it, but where it is quiet, ends what shares its
    /// receiver, and answers what waits there.
    fn close(&self, port: &Port, is_quiet: bool);

    /// Revokes the rights with this badge to a port that shares a receiver, and has ended; or all rights to it.
    fn revoke(&self, port: &Port, badge: u64);
    fn end_member(&self, port: &Arc<Port>);

    /// Refuses what waits for a receiver without a port: a new port is empty. The caller holds the lock of the bound ports.
    fn clear_receiver(&self, process: &Arc<Process>, receiver: u32);
}

/// A node starts: the protocols above its ports.
pub(crate) fn end_by(process: &Process, ends: &'static dyn Ends) {
    let _ = of(process).ends.set(ends);
}

pub(crate) fn ends(process: &Process) -> &'static dyn Ends {
    match of(process).ends.get() {
        Some(ends) => *ends,
        None => unreachable!("a node starts with them"),
    }
}

/// Makes a port with a free receiver.
pub(crate) fn add(
    process: &Arc<Process>,
    make: impl FnOnce((u32, u32)) -> Arc<Port>,
) -> Result<Arc<Port>, Resource> {
    crate::guest::later(|| bind_port(process, make))
}

fn bind_port(
    process: &Arc<Process>,
    make: impl FnOnce((u32, u32)) -> Arc<Port>,
) -> Result<Arc<Port>, Resource> {
    let _binding = binding(process);
    // The receiver stays free: a thread that gives it to a port has that lock. Without the lock of the
    // ports: rights end here.
    let free = unbound(process).first().copied();
    free.inspect(|receiver| ends(process).clear_receiver(process, *receiver));
    let mut ports = of(process).list.write();
    let receiver = free.map_or(ports.len(), |receiver| receiver as usize);
    if receiver >= bell::RECEIVERS as usize {
        let limit = bell::RECEIVERS.into();
        return Err(Resource::Exhausted(Exhausted {
            what: "ports of this process",
            advice: Some("drop some, or serve several objects by one port and badges"),
            limit,
        }));
    }
    if receiver == ports.len() {
        ports.push(None);
    }
    let id = (receiver as u32, next_generation(process));
    let port = make(id);
    ports[receiver] = Some(port.clone());
    Ok(port)
}

fn next_generation(process: &Process) -> u32 {
    // Relaxed: a number.
    let generation = of(process).generation.fetch_add(1, Ordering::Relaxed) + 1;
    // Bits 30 and 31 of a port's number say other things.
    generation & GENERATION_MAX
}

const GENERATION_MAX: u32 = 0x3f_ffff;

/// Ports that share receivers, in one process.
pub(crate) const MEMBERS_MAX: usize = 1 << 20;

/// Adds a port that shares the receiver of another; that of a send-once right, if it is one.
pub(crate) fn add_member(port: &Port, once: Option<Once>) -> Result<Arc<Port>, Resource> {
    let process = &port.process;
    if once.is_none() {
        // Release: pairs with the Acquire in `moving::depart`.
        port.at.is_shared.store(true, Ordering::Release);
    }
    let mut members = of(process).members.write();
    // Under the lock: those that are there are taken out after this is set. Relaxed: ordered by the lock.
    if port.is_closing.load(Ordering::Relaxed) {
        return Err(Resource::Exhausted(Exhausted {
            what: "ports at the receiver of a port that is being dropped",
            advice: Some("use another receiver"),
            limit: 0,
        }));
    }
    if members.count >= MEMBERS_MAX {
        return Err(Resource::Exhausted(Exhausted {
            what: "ports that share receivers and unused send-once rights",
            advice: Some("drop some"),
            limit: MEMBERS_MAX as u64,
        }));
    }
    members.count += 1;
    let here = members.at.entry(port.receiver).or_default();
    loop {
        // Relaxed: a number, which comes again after four million.
        let number = of(process).last_member.fetch_add(1, Ordering::Relaxed) & GENERATION_MAX;
        let id = port.receiver | number << 8 | IS_MEMBER;
        if let Entry::Vacant(place) = here.entry(id) {
            return Ok(place.insert(Arc::new(Port::member(port, id, once))).clone());
        }
    }
}

/// The next one gets this number, if nobody has it.
#[cfg(test)]
pub(crate) fn number_again(process: &Process, id: u32) {
    let number = (id & !IS_MEMBER) >> 8;
    of(process).last_member.store(number, Ordering::Relaxed);
}

/// A port is about to end, and with it those that share its receiver: takes them out.
pub(crate) fn take_members_of(port: &Port) -> Vec<Arc<Port>> {
    let mut members = of(&port.process).members.write();
    let taken = members.at.remove(&port.receiver).unwrap_or_default();
    members.count -= taken.len();
    taken.into_values().collect()
}

/// The ports of its send-once rights that are not used: numbers, and badges.
pub(crate) fn unused_once(port: &Port) -> Vec<(u32, u64)> {
    let members = of(&port.process).members.read();
    let here = members.at.get(&port.receiver).into_iter().flatten();
    let once = here.filter_map(|(id, member)| Some((*id, member.once.as_ref()?)));
    once.filter(|(_, once)| !once.is_used())
        .map(|(id, once)| (id, once.badge))
        .collect()
}

/// Takes one of them out. `false`: it has ended with the port whose receiver it shared, and its number may be another's.
pub(crate) fn remove_member(port: &Port) -> bool {
    let mut members = of(&port.process).members.write();
    let Some(here) = members.at.get_mut(&port.receiver) else {
        return false;
    };
    let is_there =
        (here.get(&port.id)).is_some_and(|known| core::ptr::eq(&raw const **known, port));
    // The caller has it, too: nothing ends under the lock.
    if is_there && here.remove(&port.id).is_some() {
        if here.is_empty() {
            members.at.remove(&port.receiver);
        }
        members.count -= 1;
    }
    is_there
}

/// The process's ports for which `check` holds. Without the lock: the caller's work on them may run wakers.
pub(crate) fn those(process: &Process, check: impl Fn(&Port) -> bool) -> Vec<Arc<Port>> {
    let ports = of(process).list.read();
    let those = ports.iter().flatten().filter(|port| check(port));
    those.cloned().collect()
}

pub(crate) fn at(process: &Process, receiver: u32) -> Option<Arc<Port>> {
    let ports = of(process).list.read();
    ports.get(receiver as usize).cloned().flatten()
}

/// All ports.
pub(crate) fn all(process: &Process) -> Vec<Arc<Port>> {
    let ports = of(process).list.read();
    ports.iter().flatten().cloned().collect()
}

/// The receivers that had a port and have none.
pub(crate) fn unbound(process: &Process) -> Vec<u32> {
    let ports = of(process).list.read();
    let receivers = ports.iter().zip(0..).filter(|(port, _)| port.is_none());
    receivers.map(|(_, receiver)| receiver).collect()
}

/// Whether a receiver had a port and has none.
pub(crate) fn is_unbound(process: &Process, receiver: u32) -> bool {
    let ports = of(process).list.read();
    ports.get(receiver as usize).is_some_and(Option::is_none)
}

/// The port of this process with this number.
pub(crate) fn by_id(process: &Process, id: u32) -> Option<Arc<Port>> {
    if is_member(id) {
        let members = of(process).members.read();
        return members.at.get(&receiver_of(id))?.get(&id).cloned();
    }
    at(process, receiver_of(id)).filter(|port| port.id == id)
}

pub(crate) fn remove(process: &Process, receiver: u32) {
    let mut ports = of(process).list.write();
    ports[receiver as usize] = None;
}

/// Whether a port is here that has not moved here.
pub(crate) fn is_native(process: &Process, port: u32) -> bool {
    by_id(process, port).is_some_and(|port| port.came_from.get().is_none())
}

/// Whether this is the hidden port of the node's vine.
pub(crate) fn is_vine(process: &Process, port: u32) -> bool {
    // Relaxed: set before any right to the port was given.
    by_id(process, port).is_some_and(|port| port.is_vine.load(Ordering::Relaxed))
}

/// A link has ended: keeps it for the poller if it has rung for this port since the last look.
pub(crate) fn keep_rung(port: &Port, link: &Arc<Link>) {
    if !link_rang(&link.region, link.calls.other(), port.receiver) {
        return;
    }
    let mut left = port.at.left.lock();
    // The oldest link of the user that has most of them, so that no user makes room at the expense of
    // others.
    let of_user = |uid| left.iter().filter(|link| link.peer.uid == uid).count();
    let most = left
        .iter()
        .map(|link| (of_user(link.peer.uid), link.peer.uid))
        .max();
    let is_its = |link: &Hearing| most.is_some_and(|(_, uid)| link.peer.uid == uid);
    let oldest = (left.len() == LEFT_MAX).then(|| left.iter().position(is_its));
    let oldest = oldest.flatten().map(|oldest| left.remove(oldest));
    left.push(Hearing::new(link));
    drop(left);
    if let Some(oldest) = oldest {
        crate::guest::tell!(
            warn,
            name = port.name,
            pid = oldest.peer.pid,
            "messages that nobody received are lost with their link"
        );
    }
    // The port may have been dropped since it was found; the dropping thread looks here after the port is
    // out of the list.
    let there = at(&port.process, port.receiver);
    if there.is_none_or(|there| there.id != port.id) {
        drop(port.at.take_rung());
    }
}
