//! Return paths between this process and others (defined in `handfast_proto::paths`): its part as caller, as
//! replier and as forwarder, and the control messages between the three.

use crate::link::held::Held;
use crate::link::passing::{self, Ask, Between, Party};
use crate::link::{Link, UNSAID_MAX, backlog, doorbell};
use crate::process::Process;
use crate::{door, links, rank};
use callers::{Callers, CallersTable, WANTED_MAX};
use core::sync::atomic::AtomicBool;
use handfast_channel::reply::Slot;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::{OWN_SET, REPLIES, SETS, slot_of};
use handfast_proto::paths::{Source, Way};
use handfast_proto::timers::Timer;
use handfast_ring::{Fault, Rule};
use handfast_sys::clock;
use handfast_sys::sync::MutexGuard;
use std::sync::{Arc, OnceLock};

mod caller;
use caller::remembered;
pub(crate) use caller::{Path, expected};

mod callers;

fn callers(process: &Process) -> MutexGuard<'_, Callers, rank::Callers> {
    process.tables.get::<CallersTable>().0.lock()
}

/// Caller: the path, if outcomes of `source` may come by it. It is found at once when this thread
/// was led by it last.
pub(crate) fn path(process: &Process, number: u32, source: Source) -> Option<Arc<Path>> {
    let last = remembered(source);
    let is_it = |path: &Arc<Path>| path.number == number && path.source == source;
    if let Some(path) = last.filter(is_it) {
        return Some(path);
    }
    find_path(process, number, source)
}

#[cold]
fn find_path(process: &Process, number: u32, source: Source) -> Option<Arc<Path>> {
    let path = {
        let callers = callers(process);
        callers.core.find(number, source)?;
        let path = callers.live.iter().find(|path| path.number == number);
        path.cloned()?
    };
    path.remember();
    Some(path)
}

/// The sets of return slots in which answers with rights may come through `link`.
pub(crate) fn sets_from(process: &Process, link: &Link) -> Vec<u32> {
    let mut sets: Vec<_> = {
        let callers = callers(process);
        let its = |path: &&Arc<Path>| path.link.serial == link.serial;
        callers
            .live
            .iter()
            .filter(its)
            .map(|path| path.set)
            .collect()
    };
    if link.returns().is_used() {
        sets.push(OWN_SET);
    }
    sets
}

/// Forwarder: how the reply right of slot `index` of the calls that come through `from` goes on to
/// the peer of `to`. Asks for a path when it is time to.
pub(crate) fn way(from: &Link, index: u32, to: &Link) -> Way {
    let set = index / REPLIES;
    let link = from.serial;
    let way = (to.parts.passing.lock().asks).way(Source { link, set }, clock::ticks_ns());
    if let Way::Vine(Some(number)) = way {
        let (caller, index) = (from.identity(), from.index);
        let ask = ControlMessage::PathAsk {
            number,
            caller,
            index,
            set,
        };
        to.say(ask);
    }
    way
}

/// Control thread: a link has ended.
pub(crate) fn end_paths(process: &Process, ended: &Arc<Link>) {
    let (over, unmet) = {
        let mut callers = callers(process);
        let over = callers.core.link_ended(ended.serial);
        (callers.find(&over), callers.unwanted(ended))
    };
    end_those(process, &over);
    for wanted in unmet {
        passing::refuse_path(&wanted.forwarder, wanted.number);
    }
    for link in links::live(process) {
        let (dropped, gone) = {
            let mut passing = link.parts.passing.lock();
            let is_its = |party: &Arc<Party>| Arc::ptr_eq(&party.link, ended);
            let gone = passing.parties.drop_those(is_its);
            (passing.asks.source_ended(ended.serial), gone)
        };
        link.parts.passing.forget_ways();
        for number in dropped {
            link.say(ControlMessage::PathDrop { number });
        }
        for (number, _party) in gone {
            passing::refuse_path(&link, number);
        }
    }
}

/// The node was shut down: no thread waits for an outcome by a path any more.
pub(crate) fn end_all_paths(process: &Process) {
    let (live, wanted) = callers(process).take_all();
    live.iter().for_each(|path| path.end());
    drop((live, wanted));
}

/// The paths by which outcomes come by this link, or go.
#[cfg(all(test, feature = "simulation"))]
pub(crate) fn uses(of: &Arc<Link>) -> usize {
    let process = &of.process;
    let is_its = |path: &&Arc<Path>| path.link.serial == of.serial;
    let granted = callers(process).live.iter().filter(is_its).count();
    let parties = links::all(process).into_iter().map(|link| {
        let passing = link.parts.passing.lock();
        let numbers = passing.parties.numbers();
        let of_number = numbers.filter_map(|number| passing.parties.get(number));
        of_number
            .filter(|party| Arc::ptr_eq(&party.link, of))
            .count()
    });
    granted + parties.sum::<usize>()
}

/// Control thread: a control message of this kind.
pub(crate) fn take_path_message(
    process: &Arc<Process>,
    link: &Arc<Link>,
    message: ControlMessage<'_>,
) -> Result<(), Fault> {
    if backlog::has_unsaid(link, UNSAID_MAX, is_answer) {
        // A peer that asks reads the answer.
        return Err(Rule::Path.broken());
    }
    match message {
        ControlMessage::PathAsk {
            number,
            caller,
            index,
            set,
        } => asked(process, link, number, caller, (index, set)),
        ControlMessage::PathWant {
            token,
            forwarder,
            index,
            set,
        } => {
            let between = Between {
                forwarder,
                index,
                set,
            };
            grant(process, link, token, &between);
            Ok(())
        }
        ControlMessage::PathGranted { token, path, set } => {
            granted(process, link, token, (path, set))
        }
        ControlMessage::PathDenied { token } => {
            let wanted = callers(process).wanted(token, link);
            if let Some(wanted) = wanted {
                passing::refuse_path(&wanted.forwarder, wanted.number);
            }
            Ok(())
        }
        ControlMessage::PathReady { number, path } => {
            if !link.parts.passing.lock().asks.ready(number, path) {
                link.say(ControlMessage::PathDrop { number });
            }
            Ok(())
        }
        ControlMessage::PathRefused { number } => {
            link.parts
                .passing
                .lock()
                .asks
                .refused(number, clock::ticks_ns());
            link.parts.passing.forget_ways();
            Ok(())
        }
        ControlMessage::PathOver { path } => {
            path_over(process, link, path);
            Ok(())
        }
        ControlMessage::PathDrop { number } => {
            passing::forget_party(link, number);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Replier: the peer of `link` has calls of `caller`, whose reply rights it passes on.
fn asked(
    process: &Arc<Process>,
    link: &Arc<Link>,
    number: u32,
    caller: [u8; 20],
    (index, set): (u32, u32),
) -> Result<(), Fault> {
    let asked = link.parts.passing.lock().parties.asked(number);
    let has_room = asked.map_err(|_| Rule::Path.broken())?;
    if !has_room {
        passing::refuse_path(link, number);
        return Ok(());
    }
    let ask = Ask {
        forwarder: link.clone(),
        number,
        between: Between {
            forwarder: link.identity(),
            index,
            set,
        },
    };
    match links::hold_link(process, |link| link.is_with(caller)) {
        Some(of) => want(process, &of, ask),
        None => door::ask_by_door(process, caller, (ask, want)),
    }
    Ok(())
}

/// Replier: asks the caller behind `of`.
fn want(process: &Arc<Process>, of: &Arc<Link>, ask: Ask) {
    // A number that is dropped may be asked for again while its caller has not answered yet, or never will.
    let has_asked_enough = callers(process).wanted_by(&ask.forwarder) >= WANTED_MAX;
    // Between users it would have to make all buffers of a set beforehand: answers come by the vine there.
    if of.is_behind() || has_asked_enough || of.region.looks_for_pages() {
        return ask.refuse();
    }
    let Ask {
        forwarder,
        number,
        between,
    } = ask;
    let token = (callers(process)).want(Held::new(of), (forwarder, number));
    let want = ControlMessage::PathWant {
        token,
        forwarder: between.forwarder,
        index: between.index,
        set: between.set,
    };
    of.say(want);
    if of.is_down() {
        // The link may have ended before this was in the table.
        let wanted = callers(process).wanted(token, of);
        if let Some(wanted) = wanted {
            passing::refuse_path(&wanted.forwarder, wanted.number);
        }
    }
}

/// Caller: grants the peer of `link` a path, if `between` names reply slots of this process's.
fn grant(process: &Arc<Process>, link: &Arc<Link>, token: u32, between: &Between) {
    // Not within the lock of the callers: its end asks for that.
    let mut held = links::hold(process, link);
    let may_grant = between.set < SETS && held.is_some() && !link.region.makes_pages();
    // Between users never: not worth a look at all links.
    let source = may_grant.then(|| link_between(process, between)).flatten();
    let granted = source.and_then(|with| {
        let source = Source {
            link: with.serial,
            set: between.set,
        };
        let mut callers = callers(process);
        let root = callers.root(&with, source)?;
        let sets = OWN_SET + 1..SETS;
        let granted = callers.core.grant(source, link.serial, sets)?;
        callers.live.push(Arc::new(Path {
            link: held.take()?,
            number: granted.path,
            source,
            set: granted.to.set,
            root,
            is_over: AtomicBool::new(false),
            last: OnceLock::new(),
        }));
        Some(granted)
    });
    let Some(granted) = granted else {
        link.say(ControlMessage::PathDenied { token });
        return;
    };
    // The link may have ended before it was in the table.
    if link.is_down() {
        end_paths(process, link);
        return;
    }
    let set = granted.to.set;
    for index in 0..REPLIES {
        let slot = Slot::of(link.calls, slot_of(set, index));
        // The remains of a former use.
        slot.forget(&link.region);
    }
    let path = granted.path;
    link.say(ControlMessage::PathGranted { token, path, set });
}

/// Caller: the link that `between` names. The forwarder gives the index of a link that has ended to another link, of which
/// this process may know before it hears of the end: the latest is meant.
fn link_between(process: &Process, between: &Between) -> Option<Arc<Link>> {
    let is_it = |link: &Arc<Link>| {
        !link.is_down()
            && link.is_with(between.forwarder)
            && doorbell::peer_index(link) == between.index
    };
    let links = links::live(process).into_iter();
    links.filter(is_it).max_by_key(|link| link.serial)
}

/// Replier: the caller behind `link` has granted what was wanted.
fn granted(
    process: &Arc<Process>,
    link: &Arc<Link>,
    token: u32,
    (path, set): (u32, u32),
) -> Result<(), Fault> {
    let wanted = callers(process)
        .wanted(token, link)
        .ok_or(Rule::Path.broken())?;
    if set <= OWN_SET || set >= SETS {
        return Err(Rule::Path.broken());
    }
    for index in 0..REPLIES {
        Slot::of(link.calls.other(), slot_of(set, index)).clear(&link.region);
    }
    let party = Arc::new(Party::new(Held::new(link), set, path));
    let (forwarder, number) = (wanted.forwarder.clone(), wanted.number);
    let refused = {
        let mut passing = forwarder.parts.passing.lock();
        let refused = passing.parties.granted(number, party);
        if refused.is_ok() {
            // Under the lock: no refusal of this number is said before.
            forwarder.say(ControlMessage::PathReady { number, path });
        }
        refused
    };
    drop(refused);
    if forwarder.is_down() || link.is_down() {
        // The link may have ended before this was in its table.
        passing::refuse_path(&forwarder, number);
    }
    Ok(())
}

/// Caller: nothing more comes by `path`.
fn path_over(process: &Process, link: &Link, path: u32) {
    let over = {
        let mut callers = callers(process);
        let is_its = callers.core.over(path, link.serial);
        callers.find(&[path][..usize::from(is_its)])
    };
    end_those(process, &over);
    link.disturb();
}

fn end_those(process: &Process, over: &[Arc<Path>]) {
    over.iter().for_each(|path| path.end());
    if !over.is_empty() {
        process.schedule(Timer::Paths);
    }
}

/// Control thread: forgets the paths that are over and that no thread waits for. Returns whether some are left.
pub(crate) fn leave_paths(process: &Process) -> bool {
    let (left, rest) = {
        let mut callers = callers(process);
        let is_left = |path: &mut Arc<Path>| path.is_left();
        let left: Vec<_> = callers.live.extract_if(.., is_left).collect();
        (left, callers.live.iter().any(|path| path.is_over()))
    };
    drop(left);
    rest
}

/// Whether a control message of this kind is an answer to one of the peer's about paths.
const fn is_answer(message: ControlMessage<'_>) -> bool {
    use ControlMessage as M;
    matches!(
        message,
        M::PathDenied { .. } | M::PathRefused { .. } | M::PathDrop { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::descriptors::tests::link_in;
    use crate::give_back;
    use crate::lifecycle;
    use crate::slots::SlotState;
    use core::sync::atomic::Ordering;
    use handfast_layout::link::{Kind, Side};
    use handfast_sys::OwnedFd;

    fn linked(node: &Arc<Process>) -> (Arc<Link>, OwnedFd) {
        let (link, peer) = link_in(node, handfast_sys::process::uid(), Side::Connector);
        links::list(node).push(Some(link.clone()));
        (link, peer)
    }

    /// Between the peer of `link` and a replier, for calls to that peer.
    fn between(link: &Link) -> Between {
        Between {
            forwarder: link.identity(),
            index: doorbell::peer_index(link),
            set: 0,
        }
    }

    /// The link of a peer that had ended was once kept until another call was made in a slot whose call had been given up and
    /// then dropped by its callee (`handfast abuse`, once in 40 minutes: a link of an ended peer left).
    #[test]
    fn an_ended_path_is_forgotten_once_calls_that_were_given_up_have_been_answered() {
        let node = lifecycle::start(Configuration::new()).ok().unwrap();
        // The later one of two serial numbers is the caller's: link and replier have the same index.
        let ((caller, _one), (replier, _two)) = (linked(&node), linked(&node));
        grant(&node, &replier, 1, &between(&caller));
        let call = &caller.slots[5];
        call.generation.store(1, Ordering::Release);
        call.state.store(SlotState::ABANDONED, Ordering::Release);
        end_paths(&node, &replier);
        assert!(
            give_back::refuse_replies(&caller, &node),
            "the call is not answered"
        );
        assert!(leave_paths(&node), "its outcome is awaited");

        Slot::of(caller.calls, 5).answer(&caller.region, 1, Kind::Dropped, 0, &[]);
        assert!(!give_back::refuse_replies(&caller, &node));
        assert!(!leave_paths(&node));
        assert!(callers(&node).live.is_empty());
        lifecycle::shutdown(&node);
    }

    /// A call that was given up, on a link that has ended since, is answered by nobody: two paths that waited for one kept the links
    /// of two dead peers.
    #[test]
    fn an_ended_path_does_not_wait_for_a_call_that_was_given_up_on_an_ended_link() {
        let node = lifecycle::start(Configuration::new()).ok().unwrap();
        let ((caller, _one), (replier, _two)) = (linked(&node), linked(&node));
        grant(&node, &replier, 1, &between(&caller));
        let call = &caller.slots[5];
        call.generation.store(1, Ordering::Release);
        call.state.store(SlotState::ABANDONED, Ordering::Release);
        end_paths(&node, &replier);
        assert!(leave_paths(&node), "its outcome is awaited");
        caller.take_down();
        assert!(!leave_paths(&node));
        lifecycle::shutdown(&node);
    }

    /// A path once led from a link that had ended, when this process heard of its successor first: calls by the successor ended
    /// as gone (a call of `kills::chains`, beside other work, once in hundreds of runs).
    #[test]
    fn a_path_is_granted_to_the_latest_link_of_an_index() {
        let node = lifecycle::start(Configuration::new()).ok().unwrap();
        let link = || linked(&node);
        // Serial numbers of tests fall.
        let ((later, _one), (sooner, _two), (replier, _three)) = (link(), link(), link());
        assert!(later.serial > sooner.serial);
        // The third has the same index, too.
        assert!(replier.serial < sooner.serial);
        grant(&node, &replier, 1, &between(&later));
        let granted = callers(&node).live.first().map(|path| path.source.link);
        assert_eq!(granted, Some(later.serial));
        lifecycle::shutdown(&node);
    }
}
