//! Senders follow a port that has moved (`moving`, `handfast_proto::moves`): the control thread gets a direct right at
//! its new home and, in one step for all threads, says in each lane to the old home that nothing more comes
//! there.

use crate::introduce::{OF_MOVED, claim_freely};
use crate::link::held::Held;
use crate::link::redirects::{Moved, Redirect, RedirectTable};
use crate::link::{Link, Outgoing, deaths, doorbell, lanes, releases, usage};
use crate::process::Process;
use crate::tables::{Table, Which};
use crate::users::Charge;
use crate::{asked, door, links, loops, rank};
use core::sync::atomic::Ordering;
use handfast_layout::bell::RECEIVERS;
use handfast_layout::lane_control::{LANE_CONTROL_BYTES, LaneControl};
use handfast_layout::link::Kind;
use handfast_layout::part::receiver_of;
use handfast_proto::rights::{Handle, Imports};
use handfast_proto::timers::Timer;
use handfast_proto::users::Quota;
use handfast_region::Region;
use handfast_ring::lane::Header;
use handfast_ring::{Fault, Rule};
use handfast_sys::cpu;
use handfast_sys::lock::OwnedGuard;
use handfast_sys::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Switches of rights to ports that have moved: one at a time, and those to be tried again.
#[derive(Default)]
struct Switches {
    one: Mutex<(), rank::Switching>,
    later: Mutex<VecDeque<Later>, rank::Switches>,
}

impl Table for Switches {
    const WHICH: Which = Which::Switches;
}

/// Switches that are tried at one look.
const SWITCHES_AT_ONCE: usize = 64;

/// A switch that has found no room.
struct Later {
    link: Weak<Link>,
    name: Handle,
    /// To the user on whose word the port has moved.
    _charge: Charge,
}

/// The result of an attempt to switch.
#[derive(PartialEq, Eq)]
enum Switched {
    Done,
    /// There was no room for the message.
    Full,
}

/// A right with this name has come. The name of a right that is another now is given back at once; a right
/// whose move was heard of before becomes another soon.
#[cold]
pub(crate) fn arrived_moved(link: &Arc<Link>, process: &Process, name: Handle) {
    // Held until it is known to be one: the last of the others may be dropped meanwhile.
    let mut redirects = link.rights.redirects.lock();
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
                let may_move = enter(process, link, &mut redirects, ((name, port), moved));
                drop(redirects);
                if may_move {
                    // The control thread's: this thread may hold a lane or a poller.
                    switch_later(process, link, name);
                }
            }
        }
    }
}

/// Control thread: the port of the right with this name has moved to another process.
pub(crate) fn hear_moved(
    process: &Arc<Process>,
    link: &Arc<Link>,
    name: Handle,
    (port, number, exporter): (u32, u64, [u8; 20]),
) -> Result<(), Fault> {
    if receiver_of(port) >= RECEIVERS || number & OF_MOVED == 0 {
        return Err(Rule::Introduction.broken());
    }
    if link.is_with(exporter) {
        return Ok(());
    }
    let moved = Moved::new((exporter, port), number);
    {
        let mut redirects = link.rights.redirects.lock_to_add();
        let old_port = link.imports().port_of(name);
        match (redirects.of.get(&name), old_port) {
            (Some(Redirect::Stays), _) => return Ok(()),
            (None, Some(old_port)) => {
                let moved = ((name, old_port), moved);
                if !enter(process, link, &mut redirects, moved) {
                    return Ok(());
                }
            }
            // It may be under way; of one that is another by now, once more.
            _ => {
                redirects.early.hear(name, moved);
                return Ok(());
            }
        }
    }
    match way_to(process, exporter, port) {
        Some(with) => redirect(process, (link, name), &with),
        None => door::seek(process, link, exporter, (name, redirect)),
    }
    Ok(())
}

/// Notes that the port of a right has moved. `false`: rights have followed too many moves on the word of the peer's user, and
/// this one stays where it is. Its messages go by the old home, in their order, as those of a sender without a link with the new
/// home.
fn enter(
    process: &Process,
    link: &Link,
    redirects: &mut RedirectTable,
    ((name, old_port), moved): ((Handle, u32), Moved),
) -> bool {
    let charge = match link.is_of_others() {
        true => match process.users.charge(link.peer.uid, Quota::Moves, 1) {
            Ok(charge) => Some(charge),
            Err(_) => {
                redirects.of.insert(name, Redirect::Stays);
                return false;
            }
        },
        false => None,
    };
    redirects.insert((name, old_port), moved.charged(charge));
    true
}

/// The link with the new home of a port, if there is one. To this process itself there always is.
fn way_to(process: &Arc<Process>, exporter: [u8; 20], port: u32) -> Option<Held> {
    if exporter[..16] == process.incarnation {
        return loops::loop_to(process, receiver_of(port)).ok();
    }
    links::hold_link(process, |with| with.is_with(exporter))
}

/// There is a link with the new home: messages sent by a right go there from now on, or soon.
fn redirect(process: &Arc<Process>, (link, name): (&Arc<Link>, Handle), with: &Arc<Link>) {
    if switch(process, (link, name), with) == Switched::Full {
        switch_later(process, link, name);
    }
}

/// Has the control thread do that.
fn switch_later(process: &Process, link: &Arc<Link>, name: Handle) {
    put_off(process, link, name);
    process.schedule(Timer::Switches);
}

/// Where the user has too many of them, the right goes on by the old home.
fn put_off(process: &Process, link: &Arc<Link>, name: Handle) {
    let Some(charge) = door::charge_stranger(process, link) else {
        return;
    };
    switches(process).push_back(Later {
        link: Arc::downgrade(link),
        name,
        _charge: charge,
    });
}

fn switches(process: &Process) -> MutexGuard<'_, VecDeque<Later>, rank::Switches> {
    process.tables.get::<Switches>().later.lock()
}

/// The node was shut down: no right becomes another any more.
pub(crate) fn end_all(process: &Process) {
    let switches = core::mem::take(&mut *switches(process));
    // Without the lock.
    drop(switches);
}

/// Control thread: once more for those that found no room. Returns whether there are some left.
pub(crate) fn switch_again(process: &Arc<Process>) -> bool {
    // The others at the next look: the control thread has others to look after.
    let later: Vec<_> = {
        let mut switches = switches(process);
        let count = switches.len().min(SWITCHES_AT_ONCE);
        switches.drain(..count).collect()
    };
    for Later {
        link,
        name,
        _charge,
    } in later
    {
        let Some(link) = link.upgrade().filter(|link| !link.is_down()) else {
            continue;
        };
        let (exporter, port) = match link.rights.redirects.lock().of.get(&name) {
            Some(Redirect::To(moved)) => (moved.exporter, moved.port),
            _ => continue,
        };
        match way_to(process, exporter, port) {
            Some(with) => {
                if switch(process, (&link, name), &with) == Switched::Full {
                    put_off(process, &link, name);
                }
            }
            None => door::seek(process, &link, exporter, (name, redirect)),
        }
    }
    !switches(process).is_empty()
}

fn switch(
    process: &Arc<Process>,
    (link, name): (&Arc<Link>, Handle),
    with: &Arc<Link>,
) -> Switched {
    let moved = match link.rights.redirects.lock().of.get(&name) {
        Some(Redirect::To(moved)) if moved.direct.get().is_none() => moved.clone(),
        _ => return Switched::Done,
    };
    // As one of the rights with this name: the control thread, which may be another thread, gives the name back when
    // the last of them is dropped, and behind that no mark may come.
    let take_up = |imports: &mut Imports| {
        imports.copied(name);
        imports.port_of(name)
    };
    let Some(old_port) = usage::change_imports(link, take_up) else {
        return Switched::Done;
    };
    let switched = switch_to(process, &moved, (link, name, old_port), with);
    releases::dropped(link, name, old_port, 0);
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
    if lanes::to(link, receiver).is_none() {
        return Switched::Full;
    }
    #[cfg(test)]
    lanes::tests::between();
    let lanes = link.map.hold(receiver);
    if lanes.iter().len() == 0 {
        // The right has been let go of since: nothing would tell the old home.
        return Switched::Full;
    }
    let lock = |lane: &u32| link.lanes[*lane as usize].lock();
    let mut held: Vec<_> = one.nest(|| lanes.iter().map(lock).collect());
    let region = &link.region;
    if !held.iter_mut().all(|lane| has_room_for_mark(region, lane)) {
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
    let _ = moved.direct.set(Box::new(direct.clone()));
    // Release: a thread that sees it finds the direct right. Before the lanes are free again, as the count:
    // a thread that has locked one after that sees that something has changed.
    link.rights
        .redirects
        .has_moved
        .store(true, Ordering::Release);
    link.trouble.fetch_add(1, Ordering::AcqRel);
    drop(held);
    for lane in lanes.iter() {
        doorbell::ring(link, *lane, receiver);
    }
    // Wakers of the application may run in what follows.
    drop((lanes, one));
    link.disturb();
    let new = (&**direct.link(), direct.port(), direct.handle());
    deaths::move_to((link, old_port, name), new);
    // Before the look, as in `notify_death`.
    asked::tell_death(&direct);
    // Messages to other ports there may have it in them, too. After the count: a thread that posts one after
    // this look finds the right's successor.
    let uses = releases::uses_of(link, receiver);
    if link.imports().moved(name, &uses) {
        process.schedule(Timer::Releases);
    }
    Switched::Done
}

fn has_room_for_mark(region: &Region, lane: &mut Outgoing) -> bool {
    let has_room = lane.producer.has_room(region, LANE_CONTROL_BYTES);
    has_room.unwrap_or(false)
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
