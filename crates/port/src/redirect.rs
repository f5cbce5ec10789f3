//! Senders follow a port that has moved (`moving`, `handfast_proto::moves`): the keeper gets a direct right at
//! its new home and, in one step for all threads, says in each lane to the old home that nothing more comes
//! there.

use crate::door;
use crate::give_back;
use crate::introduce::claim_freely;
use crate::link::held::Held;
use crate::link::{Link, Outgoing};
use crate::loops;
use crate::process::Process;
use crate::rank;
use crate::send::SendRight;
use crate::unused;
use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};
use handfast_layout::PARTS_MAX;
use handfast_layout::bell::RECEIVERS;
use handfast_layout::lane_control::{LANE_CONTROL_BYTES, LaneControl};
use handfast_layout::link::{ANSWERS, Kind, LANES, SLOTS};
use handfast_layout::part::receiver_of;
use handfast_proto::moves::Early;
use handfast_proto::rights::{Handle, Imports};
use handfast_proto::timers::Timer;
use handfast_region::Region;
use handfast_ring::lane::Header;
use handfast_ring::{Fault, Rule};
use handfast_sys::cpu;
use handfast_sys::lock::OwnedGuard;
use handfast_sys::sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

/// A link's rights whose ports have moved.
#[derive(Default)]
pub(crate) struct Redirects {
    table: Mutex<RedirectTable, rank::Redirects>,
    /// Whether there are any.
    has_any: AtomicBool,
    /// Whether any are others now.
    has_moved: AtomicBool,
}

impl Redirects {
    /// Whether there may be any: they are looked for under the lock then.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        // Relaxed: set before rights with other names are there.
        self.has_any.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, RedirectTable, rank::Redirects> {
        self.table.lock()
    }

    /// Locks the table, which will have one.
    fn lock_to_add(&self) -> MutexGuard<'_, RedirectTable, rank::Redirects> {
        let table = self.table.lock();
        // Relaxed, and before the look for its owners: a thread to which it comes after that look has passed
        // the lock of that table, too, and looks here.
        self.has_any.store(true, Ordering::Relaxed);
        table
    }

    /// Whether any right is another now.
    #[inline]
    pub(crate) fn has_moved(&self) -> bool {
        // Acquire: pairs with the Release of the switch.
        self.has_moved.load(Ordering::Acquire)
    }
}

/// The present state of a link's rights whose ports have moved, by the names that they have there.
struct RedirectTable {
    of: HashMap<Handle, Redirect>,
    /// By names that no thread here has, or has yet.
    early: Early<Moved>,
    /// By receiver: the last port that has moved from there, and whether its old home has said since that it is gone. No
    /// other comes there before the old home is done with it.
    gone: HashMap<u32, (u32, Arc<AtomicBool>)>,
}

impl Default for RedirectTable {
    fn default() -> Self {
        Self {
            of: HashMap::new(),
            early: Early::new(UNDER_WAY_MAX),
            gone: HashMap::new(),
        }
    }
}

impl RedirectTable {
    /// The right with this name, to that port of the old home, becomes another.
    fn insert(&mut self, (name, old_port): (Handle, u32), mut moved: Moved) {
        let gone = self.gone.entry(receiver_of(old_port)).or_default();
        if gone.0 != old_port {
            *gone = (old_port, Arc::default());
        }
        moved.is_gone = gone.1.clone();
        self.of.insert(name, Redirect::To(Arc::new(moved)));
    }
}

/// Rights that can be under way to one process in the lanes and answers of one link.
const UNDER_WAY_MAX: usize = (LANES * SLOTS + ANSWERS) as usize * PARTS_MAX;

enum Redirect {
    /// The right stays where it is: it is a trail's, behind which others keep their order.
    Stays,
    To(Arc<Moved>),
}

/// Where the port of a right is now.
pub(crate) struct Moved {
    exporter: [u8; 20],
    port: u32,
    number: u64,
    /// Set once nothing more goes the old way.
    direct: OnceLock<SendRight>,
    /// The old home has said that the port is gone, not another one at its receiver.
    is_gone: Arc<AtomicBool>,
}

/// Switches of rights to ports that have moved: one at a time, and those to be tried again.
#[derive(Default)]
struct Switches {
    one: Mutex<(), rank::Switching>,
    later: Mutex<Vec<Later>, rank::Switches>,
}

/// A switch that has found no room.
struct Later {
    link: Weak<Link>,
    name: Handle,
}

/// The result of an attempt to switch.
#[derive(PartialEq, Eq)]
enum Switched {
    Done,
    /// There was no room for the message.
    Full,
}

/// A right of this process that stays where it is.
pub(crate) fn stays(link: &Link, name: Handle) {
    let mut redirects = link.redirects.lock_to_add();
    redirects.of.insert(name, Redirect::Stays);
}

/// The right that a right of this process has become since its port moved.
pub(crate) fn direct(link: &Link, name: Handle) -> Option<Arc<Moved>> {
    match link.redirects.lock().of.get(&name)? {
        Redirect::To(moved) if moved.direct.get().is_some() => Some(moved.clone()),
        _ => None,
    }
}

/// The peer has said that its `port` is gone: also calls end that were made there before it moved.
pub(crate) fn end_moved(link: &Link, port: u32) {
    if !link.redirects.has_any() {
        return;
    }
    if let Some((of, is_gone)) = link.redirects.lock().gone.get(&receiver_of(port))
        && *of == port
    {
        // Relaxed: under the lock.
        is_gone.store(true, Ordering::Relaxed);
        link.map.passes_no_more(receiver_of(port));
    }
}

/// Whether calls by this name, to a port that has moved, may be answered still although another port at that receiver
/// is gone.
#[cold]
pub(crate) fn outlives(link: &Link, name: Handle) -> bool {
    match link.redirects.lock().of.get(&name) {
        // Relaxed: under the lock.
        Some(Redirect::To(moved)) => !moved.is_gone.load(Ordering::Relaxed),
        _ => false,
    }
}

/// A right with this name has come. The name of a right that is another now is given back at once; a right
/// whose move was heard of before becomes another soon.
#[cold]
pub(crate) fn arrived_moved(link: &Arc<Link>, process: &Process, name: Handle) {
    // Held until it is known to be one: the last of the others may be dropped meanwhile.
    let mut redirects = link.redirects.lock();
    match redirects.of.get(&name) {
        Some(Redirect::To(moved)) if moved.direct.get().is_some() => {
            // Given back at once, whether it was to be already or has come since.
            link.imports().moved(name, &[]);
            process.schedule(Timer::Releases);
        }
        Some(_) => {}
        None => {
            let port = link.imports().port_of(name);
            if let Some(port) = port
                && let Some(moved) = redirects.early.arrived(name)
            {
                redirects.insert((name, port), moved);
                drop(redirects);
                // The keeper's: this thread may hold a lane or a poller.
                switch_later(process, link, name);
            }
        }
    }
}

/// Rights with these names were dropped or given back: nothing is kept for names without owners.
#[inline]
pub(crate) fn drop_moved(link: &Link, names: impl Iterator<Item = Handle>) {
    if link.redirects.has_any() {
        drop_redirects(link, names);
    }
}

#[cold]
fn drop_redirects(link: &Link, names: impl Iterator<Item = Handle>) {
    let mut redirects = link.redirects.lock();
    let is_over = |name: &Handle| link.imports().port_of(*name).is_none();
    let mut over = Vec::new();
    for name in names.filter(is_over) {
        match redirects.of.remove(&name) {
            // The right may be under way once more.
            Some(Redirect::To(moved)) if let Some(moved) = moved.unused() => {
                redirects.early.hear(name, moved);
            }
            redirect => over.extend(redirect),
        }
    }
    drop(redirects);
    // Outside of the lock: a right of another link may be the last one there.
    drop_all(over);
}

/// Drops these and what becomes of no use by that, one after the other and not one within the other: others say how often
/// a port moves.
fn drop_all(over: Vec<Redirect>) {
    thread_local! {
        /// The redirects to drop; `None` while no thread drops.
        static OVER: RefCell<Option<Vec<Redirect>>> = const { RefCell::new(None) };
    }
    if over.is_empty() {
        return;
    }
    let is_one_of_others = OVER.with_borrow_mut(|queue| {
        let is_there = queue.is_some();
        queue.get_or_insert_default().extend(over);
        is_there
    });
    if is_one_of_others {
        return;
    }
    while let Some(next) = OVER.with_borrow_mut(|queue| queue.as_mut().and_then(Vec::pop)) {
        drop(next);
    }
    OVER.set(None);
}

impl Moved {
    fn new((exporter, port): ([u8; 20], u32), number: u64) -> Self {
        Self {
            exporter,
            port,
            number,
            direct: OnceLock::new(),
            is_gone: Arc::default(),
        }
    }

    /// The redirect as it was heard, if no mark with the number has been said.
    fn unused(&self) -> Option<Self> {
        let is_unused = self.direct.get().is_none();
        is_unused.then(|| Self::new((self.exporter, self.port), self.number))
    }

    pub(crate) fn direct(&self) -> Option<&SendRight> {
        self.direct.get()
    }
}

/// Keeper: the port of the right with this name has moved to another process.
pub(crate) fn hear_moved(
    process: &Arc<Process>,
    link: &Arc<Link>,
    name: Handle,
    (port, number, exporter): (u32, u64, [u8; 20]),
) -> Result<(), Fault> {
    if receiver_of(port) >= RECEIVERS {
        return Err(Rule::Introduction.broken());
    }
    if link.is_with(exporter) {
        return Ok(());
    }
    let moved = Moved::new((exporter, port), number);
    {
        let mut redirects = link.redirects.lock_to_add();
        let old_port = link.imports().port_of(name);
        match (redirects.of.get(&name), old_port) {
            (Some(Redirect::Stays), _) => return Ok(()),
            (None, Some(old_port)) => redirects.insert((name, old_port), moved),
            // It may be under way; of one that is another by now, once more.
            _ => {
                redirects.early.hear(name, moved);
                return Ok(());
            }
        }
    }
    match way_to(process, exporter, port) {
        Some(with) => redirect(process, (link, name), &with),
        None => door::seek(process, link, exporter, name),
    }
    Ok(())
}

/// The link with the new home of a port, if there is one. To this process itself there always is.
fn way_to(process: &Arc<Process>, exporter: [u8; 20], port: u32) -> Option<Held> {
    if exporter[..16] == process.incarnation {
        return loops::loop_to(process, receiver_of(port)).ok();
    }
    unused::hold_link(process, |with| with.is_with(exporter))
}

/// There is a link with the new home: messages sent by a right go there from now on, or soon.
pub(crate) fn redirect(
    process: &Arc<Process>,
    (link, name): (&Arc<Link>, Handle),
    with: &Arc<Link>,
) {
    if switch(process, (link, name), with) == Switched::Full {
        switch_later(process, link, name);
    }
}

/// Has the keeper do that.
fn switch_later(process: &Process, link: &Arc<Link>, name: Handle) {
    put_off(process, link, name);
    process.schedule(Timer::Switches);
}

fn put_off(process: &Process, link: &Arc<Link>, name: Handle) {
    let link = Arc::downgrade(link);
    switches(process).push(Later { link, name });
}

fn switches(process: &Process) -> MutexGuard<'_, Vec<Later>, rank::Switches> {
    process.tables.get::<Switches>().later.lock()
}

/// The node was shut down: no right becomes another any more.
pub(crate) fn end_all(process: &Process) {
    let switches = core::mem::take(&mut *switches(process));
    // Without the lock.
    drop(switches);
}

/// Keeper: once more for those that found no room. Returns whether there are some left.
pub(crate) fn switch_again(process: &Arc<Process>) -> bool {
    let later = core::mem::take(&mut *switches(process));
    for Later { link, name } in later {
        let Some(link) = link.upgrade().filter(|link| !link.is_down()) else {
            continue;
        };
        let (exporter, port) = match link.redirects.lock().of.get(&name) {
            Some(Redirect::To(moved)) => (moved.exporter, moved.port),
            _ => continue,
        };
        match way_to(process, exporter, port) {
            Some(with) => {
                if switch(process, (&link, name), &with) == Switched::Full {
                    put_off(process, &link, name);
                }
            }
            None => door::seek(process, &link, exporter, name),
        }
    }
    !switches(process).is_empty()
}

fn switch(
    process: &Arc<Process>,
    (link, name): (&Arc<Link>, Handle),
    with: &Arc<Link>,
) -> Switched {
    let moved = match link.redirects.lock().of.get(&name) {
        Some(Redirect::To(moved)) if moved.direct.get().is_none() => moved.clone(),
        _ => return Switched::Done,
    };
    // As one of the rights with this name: the keeper, which may be another thread, gives the name back when
    // the last of them is dropped, and behind that no mark may come.
    let take_up = |imports: &mut Imports| {
        imports.copied(name);
        imports.port_of(name)
    };
    let Some(old_port) = link.change_imports(take_up) else {
        return Switched::Done;
    };
    let switched = switch_to(process, &moved, (link, name, old_port), with);
    give_back::dropped(link, process, name, 0);
    switched
}

fn switch_to(
    process: &Arc<Process>,
    moved: &Moved,
    (link, name, old_port): (&Arc<Link>, Handle, u32),
    with: &Arc<Link>,
) -> Switched {
    let receiver = receiver_of(old_port);
    // One at a time: two switches that lock each other's lanes would wait for ever.
    let one = process.tables.get::<Switches>().one.lock();
    // So that there is one.
    if link.lane(receiver).is_none() {
        return Switched::Full;
    }
    #[cfg(test)]
    crate::link::lanes::tests::between();
    let lanes = link.map.hold(receiver);
    if lanes.iter().len() == 0 {
        // The right has been let go of since: nothing would tell the old home.
        return Switched::Full;
    }
    let lock = |lane: &u32| link.lanes[*lane as usize].lock();
    let mut held: Vec<_> = one.nest(|| lanes.iter().map(lock).collect());
    let region = &link.region;
    let has_room = held.iter_mut().all(|lane| {
        lane.producer
            .has_room(region, LANE_CONTROL_BYTES)
            .unwrap_or(false)
    });
    if !has_room {
        return Switched::Full;
    }
    let number = (&**link, moved.number);
    // In a lane of another link.
    let claimed = one.nest(|| claim_freely(process, with, moved.port, number));
    let Some(direct) = claimed else {
        return Switched::Full;
    };
    let has_posted = post_marks(region, &mut held, (name, moved.number));
    if !has_posted {
        // Without the locks: a subscriber is told.
        drop((held, lanes));
        // There was room: the peer says something else now, and is cut.
        link.poison(Rule::HeadDistance.broken());
        process.attention.raise();
        return Switched::Done;
    }
    let new_port = direct.port();
    let _ = moved.direct.set(direct);
    // Release: a thread that sees it finds the direct right. Before the lanes are free again, as the count:
    // a thread that has locked one after that sees that something has changed.
    link.redirects.has_moved.store(true, Ordering::Release);
    link.trouble.fetch_add(1, Ordering::AcqRel);
    drop(held);
    for lane in lanes.iter() {
        link.ring(*lane, receiver);
    }
    // Wakers of the application may run in what follows.
    drop((lanes, one));
    link.disturb();
    link.move_deaths(old_port, (with, new_port));
    // Messages to other ports there may have it in them, too. After the count: a thread that posts one after
    // this look finds the right's successor.
    let uses = give_back::uses_of(link, receiver);
    if link.imports().moved(name, &uses) {
        process.schedule(Timer::Releases);
    }
    Switched::Done
}

/// Posts in all these lanes that nothing more comes there by the right of this name.
fn post_marks(
    region: &Region,
    lanes: &mut [OwnedGuard<'_, Outgoing, rank::Lane>],
    (name, number): (Handle, u64),
) -> bool {
    let said = LaneControl::Mark {
        lanes: lanes.len() as u32,
        number,
    };
    let header = Header {
        kind: Kind::CONTROL,
        port: name,
        reply: 0,
        generation: 0,
        units: 0,
        cpu: cpu::recent(),
    };
    lanes.iter_mut().all(|outgoing| {
        let posted = outgoing.producer.post(region, header, &said.encode());
        posted.is_ok()
    })
}

#[cfg(test)]
mod tests;
