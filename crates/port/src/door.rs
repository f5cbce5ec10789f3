//! Links between strangers: a process that is given a right to the port of another with which it has no link is
//! let in by the *door* of that process, a listening socket without a name, whose descriptor only introduced
//! processes get (`docs/decisions/0009-introductions.md`).
//!
//! ```text
//! recipient -> introducer  where is(exporter)      introducer -> exporter  let in(token)
//! exporter -> introducer   door(token) + descriptor, or none
//! introducer -> recipient  door of(exporter) + descriptor, or none
//! ```
//!
//! The right works meanwhile, by the vine. Once there is a link, and a lane, it goes on through those, as soon
//! as it can overtake no message under way.

use crate::introduce::claim;
use crate::link::passing::Ask;
use crate::link::{Link, backlog, introductions};
use crate::process::{Process, token};
use crate::send::{self, Origin, SendRight, Upgrade};
use crate::tables::{Table, Which};
use crate::users::{Charge, Foreign};
use crate::{links, rank, rendezvous};
use handfast_layout::bell::RECEIVERS;
use handfast_layout::control::ControlMessage;
use handfast_proto::rights::Handle;
use handfast_proto::users::Quota;
use handfast_sys::poll::Trigger;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{AsFd, Errno, OwnedFd};
use std::sync::{Arc, Weak};

pub(crate) mod later;
mod waiting;

pub(crate) use later::{later, on_word};
use waiting::{Stranger, Waiting};

/// In the place of a receiver: the door, behind which there is no port yet.
pub(crate) const DOOR: u32 = RECEIVERS;

/// Questions for doors that an introducer passes on for one recipient at once. The oldest give way, here and below, and what
/// they were asked for stays on its vine. All that waits for processes of one user is counted, too ([`Quota::Strangers`]).
const ASKED_MAX: usize = 64;
/// Of these, for one exporter. One that has not answered so often is said to have no door.
const ASKED_OF_ONE_MAX: usize = 4;
/// Paths that one forwarder waits for.
const ASKED_BY_ONE_MAX: usize = 16;
/// Doors that one peer is asked for.
const AWAITED_MAX: usize = 256;

#[derive(Default)]
struct DoorsTable(Mutex<Doors, rank::Doors>);

impl Table for DoorsTable {
    const WHICH: Which = Which::Doors;
}

/// A process's part in letting strangers in.
#[derive(Default)]
struct Doors {
    /// Exporter: by which others find this process's door.
    own: Option<Arc<OwnedFd>>,
    /// Introducer: the links that asked for a door, and whose.
    asked: Vec<Asked>,
    last_token: u32,
    /// Recipient: rights that wait for a link, and for a lane where there is one.
    waiting: Waiting,
    /// Sender: rights whose ports have moved to processes without a link.
    moved: Vec<Moved>,
    /// Replier: forwarders that ask for a path to a caller without a link.
    asks: Vec<Caller>,
    /// Processes whose doors were asked for, and the asking links; each answer is taken once.
    awaited: Vec<([u8; 20], u32)>,
}

impl Doors {
    /// The peer of `link` is asked for the door of `exporter`.
    fn awaits(&mut self, exporter: [u8; 20], link: &Link) {
        if link.is_down() {
            // Its end has looked here, or will: messages of the dead introduce no process.
            return;
        }
        let question = (exporter, link.serial);
        if self.awaited.contains(&question) {
            return;
        }
        let mut of_link = self.awaited.iter().enumerate();
        let oldest = of_link.find(|(_, (_, serial))| *serial == link.serial);
        let oldest = oldest.map(|(place, _)| place);
        if of_link
            .filter(|(_, (_, serial))| *serial == link.serial)
            .count()
            + 1
            >= AWAITED_MAX
        {
            oldest.map(|place| self.awaited.remove(place));
        }
        self.awaited.push(question);
    }

    /// Whether something waits for a link with `exporter`.
    fn is_sought(&self, exporter: [u8; 20]) -> bool {
        self.waiting.is_for_link(exporter)
            || self.moved.iter().any(|moved| moved.exporter == exporter)
            || self.asks.iter().any(|asked| asked.caller == exporter)
    }

    /// Whether it was; it has been answered then.
    fn answered(&mut self, exporter: [u8; 20], link: &Link) -> bool {
        let mut awaited = self.awaited.iter();
        let place = awaited.position(|question| *question == (exporter, link.serial));
        place.map(|place| self.awaited.remove(place)).is_some()
    }
}

/// A caller without a link, to which a forwarder asks for a path.
struct Caller {
    caller: [u8; 20],
    ask: Ask,
    /// Asks the caller, once there is a link.
    want: Want,
    _charge: Charge,
}

type Want = fn(&Arc<Process>, &Arc<Link>, Ask);

/// A right whose port has moved to a process without a link.
struct Moved {
    exporter: [u8; 20],
    link: Weak<Link>,
    serial: u32,
    name: Handle,
    /// Follows the port, once there is a link.
    follow: Follow,
    _charge: Charge,
}

type Follow = fn(&Arc<Process>, (&Arc<Link>, Handle), &Arc<Link>);

impl Moved {
    /// Whether the peer of that link has said that the port has moved to `exporter`.
    fn is_of(&self, exporter: [u8; 20], serial: u32) -> bool {
        self.serial == serial && self.exporter == exporter
    }
}

struct Asked {
    token: u32,
    /// The exporter's link.
    of: u32,
    exporter: [u8; 20],
    recipient: Weak<Link>,
    _charge: Charge,
}

/// Recipient: a right by the vine to `port` of a process without a link, which becomes a direct one when
/// the introducer behind `link` can show the way.
pub(crate) fn strange(
    process: &Arc<Process>,
    link: &Arc<Link>,
    vine: SendRight,
    (exporter, number, port): ([u8; 20], u64, u32),
) -> SendRight {
    if !process.configuration.meets_strangers {
        introductions::decline(link, exporter, number);
        return send::with_origin(vine, Origin::Vine(None));
    }
    let upgrade = Upgrade::new(process, link, (exporter, number), leave);
    ask_where(process, &upgrade, port);
    send::with_origin(vine, Origin::Vine(Some(upgrade)))
}

/// Recipient: asks for a door, behind which there is `port`.
fn ask_where(process: &Process, upgrade: &Arc<Upgrade>, port: u32) {
    let (link, exporter) = (&upgrade.introducer, upgrade.exporter);
    let Some(charge) = charge_stranger(process, link) else {
        return upgrade.decline();
    };
    let mut doors = doors(process);
    // A peer that does not read is not asked any more: rights it introduces stay on the vine.
    let may_ask = !link.is_behind();
    let asks = (doors.waiting).for_link(upgrade, (port, charge), may_ask);
    if asks {
        doors.awaits(exporter, link);
    }
    drop(doors);
    if asks {
        link.say(ControlMessage::DoorWhere { exporter });
    }
}

/// Charges one more waiter to the user of `link`'s peer; `None` when the user has too many.
pub(crate) fn charge_stranger(process: &Process, link: &Link) -> Option<Charge> {
    let charged = process.users.charge(link.peer.uid, Quota::Strangers, 1);
    charged.ok()
}

/// Sender: a port has moved to a process without a link.
pub(crate) fn seek(
    process: &Process,
    link: &Arc<Link>,
    exporter: [u8; 20],
    (name, follow): (Handle, Follow),
) {
    if !process.configuration.meets_strangers {
        return;
    }
    let mut doors = doors(process);
    (doors.moved).retain(|moved| moved.link.strong_count() > 0);
    let is_asked = (doors.moved.iter()).any(|moved| moved.is_of(exporter, link.serial));
    let Some(charge) = charge_stranger(process, link) else {
        return;
    };
    doors.moved.push(Moved {
        exporter,
        link: Arc::downgrade(link),
        serial: link.serial,
        name,
        follow,
        _charge: charge,
    });
    if is_asked {
        return;
    }
    doors.awaits(exporter, link);
    drop(doors);
    link.say(ControlMessage::DoorWhere { exporter });
}

fn doors(process: &Process) -> MutexGuard<'_, Doors, rank::Doors> {
    process.tables.get::<DoorsTable>().0.lock()
}

/// The last copy of a right is being dropped, which may wait.
fn leave(upgrade: &Upgrade) {
    let waited = doors(&upgrade.process).waiting.remove(upgrade);
    drop(waited);
}

/// The node was shut down: nobody waits at a door any more.
pub(crate) fn end_all(process: &Process) {
    let doors = core::mem::take(&mut *doors(process));
    // Without the lock.
    drop(doors);
}

/// Introducer: an exporter has answered with its door, or without; the recipient that asked is told.
pub(crate) fn pass_door_on(process: &Process, link: &Link, token: u32, fd: Option<Foreign>) {
    let asked = {
        let mut doors = doors(process);
        let is_it = |asked: &Asked| asked.token == token && asked.of == link.serial;
        let place = doors.asked.iter().position(is_it);
        place.map(|place| doors.asked.swap_remove(place))
    };
    if let Some(asked) = asked
        && let Some(recipient) = asked.recipient.upgrade()
    {
        let exporter = asked.exporter;
        let message = ControlMessage::DoorOf { exporter };
        backlog::show(&recipient, message, fd.as_ref().map(AsFd::as_fd));
    }
}

/// Replier: a path is asked for to a caller with which there is no link: as its port's right were
/// given to us.
pub(crate) fn ask_by_door(process: &Process, caller: [u8; 20], (ask, want): (Ask, Want)) {
    let forwarder = ask.forwarder.clone();
    let mut doors = doors(process);
    let mut of_it = doors
        .asks
        .iter()
        .enumerate()
        .filter(|(_, asked)| Arc::ptr_eq(&asked.ask.forwarder, &forwarder));
    let oldest = of_it.next().map(|(place, _)| place);
    let is_one_too_many = of_it.count() + 1 >= ASKED_BY_ONE_MAX;
    // Not answered for long, if ever.
    let given_up = (oldest.filter(|_| is_one_too_many)).map(|oldest| doors.asks.remove(oldest).ask);
    let charge = process
        .configuration
        .meets_strangers
        .then(|| charge_stranger(process, &forwarder));
    let refused = match charge.flatten() {
        None => Some(ask),
        Some(charge) => {
            doors.awaits(caller, &forwarder);
            doors.asks.push(Caller {
                caller,
                ask,
                want,
                _charge: charge,
            });
            None
        }
    };
    drop(doors);
    if refused.is_none() {
        forwarder.say(ControlMessage::DoorWhere { exporter: caller });
    }
    for ask in given_up.into_iter().chain(refused) {
        ask.refuse();
    }
    if forwarder.is_down() {
        // The link may have ended before this was in the table.
        end_questions(process, &forwarder);
    }
}

/// A link has ended: nothing is asked for by its peer any more, nor answered.
pub(crate) fn end_questions(process: &Process, ended: &Arc<Link>) {
    let mut doors = doors(process);
    let is_its = |asked: &mut Caller| Arc::ptr_eq(&asked.ask.forwarder, ended);
    let asks: Vec<_> = doors.asks.extract_if(.., is_its).collect();
    doors.awaited.retain(|(_, link)| *link != ended.serial);
    let is_between = |asked: &Asked| {
        asked.of == ended.serial || core::ptr::eq(asked.recipient.as_ptr(), &raw const **ended)
    };
    doors.asked.retain(|asked| !is_between(asked));
    drop(doors);
    drop(asks);
}

/// Introducer: the peer of `link` has been given a right to a port of a stranger's.
pub(crate) fn ask_for_door(process: &Process, link: &Arc<Link>, exporter: [u8; 20]) {
    let of = links::find(process, |link| link.is_with(exporter));
    // A peer that does not read would be asked without end.
    let of = of.filter(|of| !of.is_behind());
    let Some((of, charge)) = of.zip(charge_stranger(process, link)) else {
        backlog::show(link, ControlMessage::DoorOf { exporter }, None);
        return;
    };
    let mut doors = doors(process);
    let is_its = |asked: &&Asked| core::ptr::eq(asked.recipient.as_ptr(), &raw const **link);
    let its = doors.asked.iter().filter(is_its);
    if its.filter(|asked| asked.of == of.serial).count() >= ASKED_OF_ONE_MAX {
        drop(doors);
        backlog::show(link, ControlMessage::DoorOf { exporter }, None);
        return;
    }
    doors.last_token = doors.last_token.wrapping_add(1);
    let token = doors.last_token;
    if doors.asked.iter().filter(is_its).count() >= ASKED_MAX {
        let oldest = doors.asked.iter().position(|asked| is_its(&asked));
        oldest.map(|oldest| doors.asked.remove(oldest));
    }
    doors.asked.push(Asked {
        token,
        of: of.serial,
        exporter,
        recipient: Arc::downgrade(link),
        _charge: charge,
    });
    drop(doors);
    of.say(ControlMessage::DoorAsk { token });
}

/// Exporter: shows its door, which is made when it is first asked for. Making it may wait for other processes of this
/// user, which have the directory: so a thread of the peer's user does it.
pub(crate) fn show_door(process: &Arc<Process>, link: &Arc<Link>, token: u32) {
    let message = ControlMessage::Door { token };
    let own = doors(process).own.clone();
    if own.is_some() || process.users.is_backed_up(link.peer.uid) {
        return backlog::show(link, message, own.as_deref().map(AsFd::as_fd));
    }
    let (node, link) = (process.clone(), link.clone());
    process.users.expend(link.peer.uid, move || {
        let made = make_door(&node);
        if let Err(errno) = &made {
            crate::guest::tell!(debug, %errno, "no door can be made here");
        }
        backlog::show(&link, message, made.ok().as_deref().map(AsFd::as_fd));
    });
}

fn make_door(process: &Process) -> Result<Arc<OwnedFd>, Errno> {
    if !process.configuration.meets_strangers {
        return Err(Errno::PERM);
    }
    let directory = process.configuration.directory();
    let (listener, door) = rendezvous::nameless(&directory, true)?;
    let uid = handfast_sys::process::uid();
    let listener = Arc::new(Foreign::new(&process.users, uid, listener));
    let mut doors = doors(process);
    // If two threads make a door, the first keeps its own.
    if let Some(own) = &doors.own {
        return Ok(own.clone());
    }
    let mut listeners = process.listeners.lock();
    let listening = token::LISTENER | u64::from(DOOR);
    process.poll.add(&*listener, listening, Trigger::Level)?;
    listeners.push((DOOR, listener));
    let door = Arc::new(door);
    doors.own = Some(door.clone());
    Ok(door)
}

/// Recipient: the peer of a link has said where the door of `exporter` is. `None`: nobody has asked, or waits for that any more.
/// Whether a port has moved there, by what that peer has said.
pub(crate) fn answered(process: &Process, introducer: &Link, exporter: [u8; 20]) -> Option<bool> {
    let mut doors = doors(process);
    let is_answer = doors.answered(exporter, introducer) && doors.is_sought(exporter);
    let mut moved = doors.moved.iter();
    is_answer.then(|| moved.any(|moved| moved.is_of(exporter, introducer.serial)))
}

/// Rights, paths and moved ports that wait for a link with one process.
type Sought = (Vec<Stranger>, Vec<Caller>, Vec<Moved>);

/// Takes out what waits for a link with `exporter`: all, or what the peer of one link is to show the way for.
fn take_sought(process: &Process, exporter: [u8; 20], by: Option<u32>) -> Sought {
    let mut doors = doors(process);
    let is_for = |asked: &mut Caller| {
        asked.caller == exporter && by.is_none_or(|by| asked.ask.forwarder.serial == by)
    };
    let is_to = |moved: &mut Moved| {
        moved.exporter == exporter && by.is_none_or(|by| moved.is_of(exporter, by))
    };
    let waiting = doors.waiting.take(exporter, by);
    let asks = doors.asks.extract_if(.., is_for).collect();
    let moved = doors.moved.extract_if(.., is_to).collect();
    (waiting, asks, moved)
}

/// The peer of a link has shown no way to `exporter`: what waits for its answer does without.
pub(crate) fn stay_without(process: &Process, exporter: [u8; 20], by: u32) {
    let (waiting, asks, _moved) = take_sought(process, exporter, Some(by));
    asks.iter().for_each(|asked| asked.ask.refuse());
    for stranger in waiting {
        if let Some(upgrade) = stranger.upgrade.upgrade() {
            upgrade.decline();
        }
    }
}

/// There is a link with `exporter`, which all that has waited for one uses, whoever has shown the way.
pub(crate) fn meet(process: &Arc<Process>, exporter: [u8; 20], link: &Arc<Link>) {
    let (waiting, asks, moved) = take_sought(process, exporter, None);
    for moved in moved {
        if let Some(from) = moved.link.upgrade() {
            (moved.follow)(process, (&from, moved.name), link);
        }
    }
    for Caller { ask, want, .. } in asks {
        want(process, link, ask);
    }
    for Stranger { port, upgrade, .. } in waiting {
        let Some(upgrade) = upgrade.upgrade() else {
            continue;
        };
        let number = (&*upgrade.introducer, upgrade.number);
        match claim(process, link, port, number) {
            Some(right) => upgrade.becomes(right),
            None => later::waits_for_lane(process, &upgrade, port),
        }
    }
}

#[cfg(test)]
mod tests;
