//! Receive rights that travel: a port moves to another process with its waiting messages, and its senders
//! follow it (paper 004, section 2.5; `handfast_proto::moves`).
//!
//! ```text
//! old home -> new home     message with the receive right: token
//! new home -> old home     arrived(token): its right to the port   (or not)
//! old home -> senders      moved(right): new home, number          `redirect`
//! sender   -> old home     mark(number), in each lane
//! old home -> new home     provide(number), in order with what it passes on
//! ```
//!
//! Between the first two lines no thread receives; sent messages wait in their lanes. Then a thread of the old
//! home, the *trail*, passes on the messages that come there, until no process has a right there any more.

use crate::error::{Misuse, RightError};
use crate::link::Link;
use crate::link::held::Held;
use crate::member::MemberPort;
use crate::poller::diverted;
use crate::port::{ONCE_MOVED_MAX, Port, ports};
use crate::process::Process;
use crate::receive_right::ReceiveRight;
use crate::right::Right;
use crate::send::{SendRight, route};
use crate::tables::{Table, Which};
use crate::{links, rank};
pub(crate) use arrival::{is_unread, refuse, settle_beside, settle_in};
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_layout::bell::RECEIVERS;
use handfast_layout::part::{Part, is_member, receiver_of};
use handfast_proto::rights::{Handle, Meaning};
use handfast_ring::{Fault, Rule};
use handfast_sys::sync::{Condvar, Mutex, MutexGuard};
use handfast_sys::{clock, thread};
pub(crate) use home::Home;
use source::TrailSource;
use std::collections::HashMap;
use std::sync::Arc;

mod arrival;
pub(crate) mod home;
mod once;
mod source;

/// Old home: the ports on their way out, and those that have gone and still have senders here.
#[derive(Default)]
struct Moves {
    leaving: Mutex<Leaving, rank::Leaving>,
    left: Condvar,
}

impl Table for Moves {
    const WHICH: Which = Which::Moves;
}

/// The longest that a thread may take from its post to the end of the sending of a receive right within the process.
const HANDED_NS: u64 = 10_000_000_000;
/// Trails with unused send-once rights, which wait for what their new homes make for those. The lanes of a link, 16, are shared by the
/// trails that lead through it: where a port has gone round, and all are taken by such, each may wait for another for ever.
const TRAILS_ONCE_MAX: usize = 8;
/// Trails that lead through one link, of ports with receivers of their own: each needs a lane there, and a block for long messages. Where a port
/// has gone to and fro, the first of them waits for the last.
const TRAILS_LINK_MAX: usize = 8;
/// Trails of ports that shared receivers: each has a thread.
const TRAILS_MEMBERS_MAX: usize = 64;

fn moves(process: &Process) -> &Moves {
    process.tables.get()
}

#[derive(Default)]
struct Leaving {
    last: u32,
    departures: HashMap<u32, Departure>,
    /// The ports that have moved, and have a thread that passes on what comes for them; and the links by which they went.
    followed: Vec<(Arc<Port>, u32)>,
    /// The ones of ports with send-once rights that are not used.
    with_once: usize,
    /// The node was shut down while a port needed it.
    is_lost: bool,
}

impl Leaving {
    /// Enters a port that is about to be sent through a link, and whether it has unused send-once rights; its number. Under the lock: the
    /// link's end takes out what has departed (`end_moves`), once.
    fn enter(
        &mut self,
        link: &Link,
        held: Held,
        (port, has_once): (&Arc<Port>, bool),
    ) -> Result<u32, RightError> {
        if link.is_down() {
            return Err(RightError::Gone);
        }
        self.last = self.last.wrapping_add(1);
        let departure = Departure {
            link: held,
            port: port.clone(),
            source: None,
            arrived: None,
            has_once,
        };
        self.departures.insert(self.last, departure);
        Ok(self.last)
    }

    /// How many ports that shared receivers have left, or are about to.
    fn members(&self) -> usize {
        self.left().filter(|(port, _)| is_member(port.id)).count()
    }

    /// How many others have left by this link, or are about to.
    fn others_by(&self, link: &Link) -> usize {
        let is_one = |(port, by): &(&Arc<Port>, u32)| !is_member(port.id) && *by == link.serial;
        self.left().filter(is_one).count()
    }

    /// The ports that have left, or are about to, and by which links.
    fn left(&self) -> impl Iterator<Item = (&Arc<Port>, u32)> {
        let leaving = self.departures.values();
        let leaving = leaving.filter(|departure| !departure.link.is_loop());
        let leaving = leaving.map(|departure| (&departure.port, departure.link.serial));
        let left = self.followed.iter().map(|(port, link)| (port, *link));
        left.chain(leaving)
    }

    /// Whether a port that was given away needs the node still.
    fn is_busy(&self) -> bool {
        let leaves = |departure: &Departure| !departure.link.is_loop();
        !self.followed.is_empty() || self.departures.values().any(leaves)
    }

    /// How many ports have left, or are about to, with unused send-once rights.
    fn with_once(&self) -> usize {
        let departures = self.departures.values();
        self.with_once + departures.filter(|departure| departure.has_once).count()
    }
}

/// A receive right under way.
struct Departure {
    /// The link stays until the port's trail has a right through it: the application may have dropped its own by then.
    link: Held,
    port: Arc<Port>,
    /// Once its message has been sent.
    source: Option<TrailSource>,
    /// Once it has arrived: the way to where it is.
    arrived: Option<SendRight>,
    /// It has send-once rights that are not used.
    has_once: bool,
}

/// A trail that is counted as one with unused send-once rights.
struct WithOnce(Arc<Process>);

impl Drop for WithOnce {
    fn drop(&mut self) {
        moves(&self.0).leaving().with_once -= 1;
    }
}

impl Departure {
    /// The port has not left yet, and does not.
    fn stays(&self) {
        // Release: as in `depart`.
        self.port.is_leaving.store(false, Ordering::Release);
    }
}

impl Moves {
    fn leaving(&self) -> MutexGuard<'_, Leaving, rank::Leaving> {
        self.leaving.lock()
    }
}

/// Waits until a node's ports that were given away do not need it any more.
pub(crate) fn wait_moved_at(process: &Process, timeout: Duration) -> bool {
    // There a thread that the child does not have may hold the lock.
    if process.check() == Err(Misuse::Forked) {
        return false;
    }
    // The control thread is the one that hears of their ends.
    let timeout = match crate::guest::is_control() {
        true => Duration::ZERO,
        false => timeout,
    };
    let moves = moves(process);
    let is_busy = |leaving: &mut Leaving| leaving.is_busy();
    let leaving = moves
        .left
        .wait_timeout_while(moves.leaving(), timeout, is_busy);
    !leaving.is_busy() && !leaving.is_lost
}

/// Describes a port that shares a receiver, and is to be sent through `link`.
pub(crate) fn depart_member(
    process: &Process,
    link: &Arc<Link>,
    member: &MemberPort,
) -> Result<(Part, u32), RightError> {
    if !member.is_there() {
        return Err(RightError::Dead);
    }
    let held = links::hold(&link.process, link).ok_or(RightError::Gone)?;
    let mut leaving = moves(process).leaving();
    if !link.is_loop() && leaving.members() >= TRAILS_MEMBERS_MAX {
        return Err(RightError::Trails {
            limit: TRAILS_MEMBERS_MAX as u32,
        });
    }
    let token = leaving.enter(link, held, (member.port(), false))?;
    let asks = member.port().notices.asks();
    Ok((Part::Member { token, asks }, token))
}

/// Describes a receive right that is to be sent through `link`.
pub(crate) fn depart(
    process: &Process,
    link: &Arc<Link>,
    receive: &ReceiveRight,
) -> Result<(Part, u32), RightError> {
    // The port belongs to another process.
    if receive.check().is_err() {
        return Err(RightError::Dead);
    }
    // Acquire: pairs with the Release in `add_member`.
    if receive.port().at.is_shared.load(Ordering::Acquire) {
        return Err(RightError::Shared);
    }
    let once = ports::unused_once(receive.port()).len();
    if once > ONCE_MOVED_MAX as usize {
        return Err(RightError::SendOnce {
            limit: ONCE_MOVED_MAX,
        });
    }
    let held = links::hold(&link.process, link).ok_or(RightError::Gone)?;
    let mut leaving = moves(process).leaving();
    let is_leaving = !link.is_loop();
    let has_once = once > 0 && is_leaving;
    if has_once && leaving.with_once() >= TRAILS_ONCE_MAX {
        return Err(RightError::SendOnceTrails {
            limit: TRAILS_ONCE_MAX as u32,
        });
    }
    if is_leaving && leaving.others_by(link) >= TRAILS_LINK_MAX {
        return Err(RightError::Trails {
            limit: TRAILS_LINK_MAX as u32,
        });
    }
    let token = leaving.enter(link, held, (receive.port(), has_once))?;
    // Before the new home can listen: a process that connects from now on is told to come again. Release: pairs with the Acquire
    // of the control thread.
    (receive.port().is_leaving).store(is_leaving, Ordering::Release);
    let part = Part::Receive {
        token,
        number: 0,
        name_bytes: (receive.moving_name()).map_or(0, |bound| bound.name.len() as u8),
        asks: receive.port().notices.asks(),
    };
    Ok((part, token))
}

/// The message was not sent.
pub(crate) fn stays(process: &Process, token: u32) {
    let departure = moves(process).leaving().departures.remove(&token);
    moves(process).left.notify_all();
    departure.inspect(Departure::stays);
}

/// The message has been sent, through `link`.
pub(crate) fn departed(process: &Arc<Process>, link: &Link, (token, right): (u32, Right)) {
    let stays_here = link.is_loop();
    let Some(source) = TrailSource::of(right, stays_here) else {
        return;
    };
    let mut leaving = moves(process).leaving();
    match leaving.departures.get_mut(&token) {
        Some(departure) => departure.source = Some(source),
        None => {
            drop(leaving);
            // Refused by now, or its process is gone.
            return drop(source);
        }
    }
    if !stays_here {
        follow(process, leaving, token);
    }
}

/// Takes up a receive right that has been sent within the process: nothing of it has changed. The thread that has sent it may not be
/// done yet, and is waited for, unless it has come to an end there. Where its link has ended meanwhile, the port has, too.
pub(crate) fn take_here(process: &Process, token: u32) -> Right {
    let until_ns = clock::now_ns() + HANDED_NS;
    loop {
        let mut leaving = moves(process).leaving();
        let Some(departure) = leaving.departures.get(&token) else {
            return Right::Dead;
        };
        if departure.source.is_some() || clock::now_ns() >= until_ns {
            let departure = leaving.departures.remove(&token);
            drop(leaving);
            let source = departure.and_then(|departure| departure.source);
            return source.map_or(Right::Dead, TrailSource::into_right);
        }
        drop(leaving);
        clock::nap();
    }
}

/// Control thread: the peer, to which a port was sent, has no room for it.
pub(crate) fn hear_not_arrived(process: &Process, link: &Arc<Link>, token: u32) {
    drop(take_departure(process, link, token));
}

/// Control thread: a port that was sent has arrived; the peer gives a right to it.
pub(crate) fn hear_arrived(
    process: &Arc<Process>,
    link: &Arc<Link>,
    token: u32,
    (port, handle): (u32, u32),
) -> Result<(), Fault> {
    let fault = Rule::Introduction.broken();
    if receiver_of(port) >= RECEIVERS {
        return Err(fault);
    }
    let right = crate::imported::import(process, link, (handle, port))?;
    route::pin(&right);
    let mut leaving = moves(process).leaving();
    let departure = leaving.departures.get_mut(&token);
    match departure.filter(|departure| Arc::ptr_eq(&departure.link, link)) {
        Some(departure) => departure.arrived = Some(right),
        None => {
            drop(leaving);
            drop(right);
            return Ok(());
        }
    }
    follow(process, leaving, token);
    Ok(())
}

fn take_departure(process: &Process, link: &Arc<Link>, token: u32) -> Option<Departure> {
    let mut leaving = moves(process).leaving();
    let departure = leaving.departures.get(&token)?;
    let is_its = Arc::ptr_eq(&departure.link, link);
    let departure = is_its.then(|| leaving.departures.remove(&token)).flatten();
    moves(process).left.notify_all();
    departure
}

/// Starts the trail of a port that has been sent and has arrived.
fn follow(process: &Arc<Process>, mut leaving: MutexGuard<'_, Leaving, rank::Leaving>, token: u32) {
    let is_there =
        |departure: &&mut Departure| departure.source.is_some() && departure.arrived.is_some();
    if leaving
        .departures
        .get_mut(&token)
        .filter(is_there)
        .is_none()
    {
        return;
    }
    let departure = leaving.departures.remove(&token);
    let followed = (departure.as_ref()).map(|left| (left.port.clone(), left.link.serial));
    leaving.followed.extend(followed);
    let has_once = departure
        .as_ref()
        .is_some_and(|departure| departure.has_once);
    leaving.with_once += usize::from(has_once);
    drop(leaving);
    let with_once = has_once.then(|| WithOnce(process.clone()));
    let Some(Departure {
        source: Some(source),
        arrived: Some(to),
        ..
    }) = departure
    else {
        return;
    };
    let home = Arc::new(Home::new(process.clone(), to));
    let port = source.port().clone();
    let _ = port.home.set(home.clone());
    let (node, of) = (process.clone(), port.clone());
    let work = move || {
        handfast_sys::signal::block_all();
        // The trail has lanes of its own, shared by all trails: its provisions lie behind no message that waits for
        // them.
        handfast_sys::lock::number_apart();
        home.serve(source, with_once);
        drop(home);
        trail_ended(&node, &of);
    };
    if let Err(error) = thread::spawn("handfast-trail", 256 * 1024, work) {
        crate::guest::tell!(warn, %error, "no thread to follow a port: its senders lose it");
        trail_ended(process, &port);
    }
}

/// Control thread: tells the peers that have got a right to a port since it moved.
pub(crate) fn tell_new_holders(process: &Process) {
    for port in followed(process) {
        if let Some(home) = port.home.get() {
            home.tell_new_holders(&port);
        }
    }
}

/// The ports that have moved and have a trail.
fn followed(process: &Process) -> Vec<Arc<Port>> {
    let leaving = moves(process).leaving();
    let followed = leaving.followed.iter().map(|(port, _)| port.clone());
    followed.collect()
}

fn trail_ended(process: &Process, port: &Arc<Port>) {
    let mut leaving = moves(process).leaving();
    leaving.followed.retain(|(of, _)| !Arc::ptr_eq(of, port));
    drop(leaving);
    moves(process).left.notify_all();
}

/// The node is being shut down: ports that need it are lost.
pub(crate) fn lose_moves(process: &Process) {
    let mut leaving = moves(process).leaving();
    leaving.is_lost = leaving.is_busy();
}

/// The node was shut down.
pub(crate) fn end_all_moves(process: &Process) {
    let departures = core::mem::take(&mut moves(process).leaving().departures);
    moves(process).left.notify_all();
    drop(departures);
    diverted::end_all(process);
}

/// Control thread: a link has ended, and with it the ports that were on their way through it.
pub(crate) fn end_moves(process: &Process, link: &Arc<Link>) {
    let lost: Vec<_> = {
        let mut leaving = moves(process).leaving();
        let is_its = |_: &u32, departure: &mut Departure| Arc::ptr_eq(&departure.link, link);
        leaving.departures.extract_if(is_its).collect()
    };
    moves(process).left.notify_all();
    // Their messages may not have been sent: then the ports are still here.
    let lost: Vec<_> = lost.into_iter().map(|(_, departure)| departure).collect();
    let unsent = lost.iter().filter(|departure| departure.source.is_none());
    unsent.for_each(Departure::stays);
    drop(lost);
    for port in followed(process) {
        if let Some(home) = port.home.get() {
            home.link_ended(link.serial);
        }
    }
}

/// Control thread: the peer has given back what it has got by this handle, and more is under way.
pub(crate) fn is_under_way(link: &Link, process: &Process, handle: Handle) {
    if let Some(Meaning::To(target)) = link.exports().resolve(handle)
        && let Some(port) = ports::by_id(process, target.port)
        && let Some(home) = port.home.get()
        && home.tell_again((link.serial, handle))
    {
        home.exported();
    }
}

#[cfg(test)]
mod tests;
