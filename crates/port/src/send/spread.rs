//! Rights to ports that are served on every CPU: the one for the CPU this thread runs on.
//!
//! A thread's messages stay in order: it turns to another CPU's receiver once all it has sent to the others has been
//! taken there.

use super::aside::{self, Spread};
use super::{Origin, SendRight};
use crate::link::lanes::{self, NOBODY, Sent, sent};
use crate::link::spread::{self, Entry};
use crate::options::Options;
use crate::send;
use crate::slots::Ticket;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;
use handfast_layout::bell::RECEIVERS;
use handfast_layout::link::Kind;
use handfast_sys::cpu;
use handfast_wait::Strategy;
use std::cell::RefCell;

thread_local! {
    /// Where this thread has sent to last.
    static LAST: RefCell<Vec<Last>> = const { RefCell::new(Vec::new()) };
}

/// Ports that a thread remembers. Messages to a forgotten port may overtake each other when the thread moves.
const LAST_MAX: usize = 64;

/// The place a thread last sent to at one port; nothing it sent is under way to another of the port's
/// receivers.
struct Last {
    /// Link and port.
    key: u64,
    /// In [`Spread`].
    place: u8,
    sent: Sent,
}

/// Whether a caller looks for its reply before it asks its strategy: see
/// `Waiter::is_eager`. Not when the callee was last seen on this processor.
#[inline(always)]
pub(crate) fn looks_first(right: &SendRight) -> bool {
    // Relaxed, both: hints.
    right.eager.load(Ordering::Relaxed) && right.peer_cpu.load(Ordering::Relaxed) != cpu::current()
}

#[inline(always)]
pub(crate) const fn peer_cpu(right: &SendRight) -> &AtomicU32 {
    &right.peer_cpu
}

/// This right, or the one for the CPU that this thread runs on.
#[inline]
pub(super) fn here(right: &SendRight) -> &SendRight {
    if !spread::is_known(&right.link) {
        return right;
    }
    look_here(right)
}

fn look_here(right: &SendRight) -> &SendRight {
    let Some(spread) = spread(right) else {
        return right;
    };
    let (key, wanted) = (key(right), spread.place(cpu::current()));
    let place = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        if let Some(known) = last.iter().position(|last| last.key == key) {
            // At the next look it is found at once.
            last.swap(0, known);
            let last = &mut last[0];
            if last.place != wanted {
                last.place = turn(right, spread, (last.place, last.sent), wanted);
            }
            last.sent = Sent::Something;
            return last.place;
        }
        // The thread may have sent to the port's own receiver, before it knew of the others.
        let place = turn(right, spread, (0, Sent::Something), wanted);
        last.truncate(LAST_MAX - 1);
        let sent = Sent::Something;
        last.insert(0, Last { key, place, sent });
        place
    });
    // A thread that is ending remembers nothing.
    spread.right(place.unwrap_or_default()).unwrap_or(right)
}

/// The receiver of another CPU that has room for calls, for a thread that finds none at its own: its lanes there are full, and a crowd on one CPU gets no more
/// while a few threads on another have the rest. None while something that this thread has sent may be overtaken.
#[cold]
pub(super) fn elsewhere<'a>(head: &'a SendRight, full: &SendRight) -> Option<&'a SendRight> {
    if !spread::is_known(&head.link) {
        return None;
    }
    let (spread, key) = (spread(head)?, key(head));
    let find = |last: &mut Last| {
        let before = (last.place, last.sent);
        let (place, right) = spread.others(full.receiver).find(|(place, right)| {
            lanes::has_slots(&right.link, right.receiver)
                && turn(head, spread, before, *place) == *place
        })?;
        last.place = place;
        Some(right)
    };
    let found = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        last.iter_mut().find(|last| last.key == key).and_then(find)
    });
    found.ok().flatten()
}

/// No lane is taken for it, by which nothing is to be sent yet.
pub(crate) fn posts_to_nobody(right: &SendRight) {
    // Relaxed: no other thread has the right yet.
    right.posts_to.store(NOBODY, Ordering::Relaxed);
}

/// The lanes of its receiver, unless its port has one for each CPU.
#[cold]
pub(crate) fn post_to_receiver(right: &SendRight) {
    if spread(right).is_none() {
        // Relaxed: a number; the lanes themselves are behind locks.
        right.posts_to.store(right.receiver, Ordering::Relaxed);
    }
}

fn key(right: &SendRight) -> u64 {
    u64::from(right.link.serial) << 32 | u64::from(right.port)
}

/// Notes the item this thread has sent, just after [`here`] has chosen the place.
pub(crate) fn sent(right: &SendRight, kind: Kind, ticket: Ticket) {
    if !spread::is_known(&right.link) {
        return;
    }
    let sent = match kind {
        Kind::Call => Sent::Call(ticket),
        _ => Sent::Message(ticket.generation),
    };
    let key = key(right);
    let _ = LAST.try_with(|last| {
        if let Some(last) = last.borrow_mut().first_mut()
            && last.key == key
        {
            last.sent = sent;
        }
    });
}

/// The rights for each CPU, if there are such.
fn spread(right: &SendRight) -> Option<&Spread> {
    if send::is_forked(right) {
        // The lanes that are to be looked at are not here.
        return None;
    }
    if let Some(known) = right.aside.get().and_then(|aside| aside.spread.get()) {
        return known.as_deref();
    }
    if !matches!(right.origin, Origin::Exporter | Origin::Claimed(_)) {
        return None;
    }
    let entries = spread::of(&right.link, right.port)?;
    let make = || Some(Box::new(Spread::new(&entries, |entry| on(right, entry))));
    let spread = aside::aside(right).spread.get_or_init(make);
    // Relaxed: a number. A thread that reads the old one posts to the port's own receiver once more.
    right.posts_to.store(NOBODY, Ordering::Relaxed);
    spread.as_deref()
}

/// The same right, through the lanes of another receiver. It does not spin: a thread that spins for an answer
/// keeps the worker on its own CPU from giving it.
fn on(this: &SendRight, (cpu, receiver): Entry) -> SendRight {
    this.link.imports().copied(this.handle);
    let options = Options::new().strategy(Strategy::Block);
    let waiting = this.process().configuration.resolve(options);
    let link = this.link.clone();
    let mut right = super::with_origin(
        super::of_handle(this.process(), link, this.port, this.handle, waiting),
        this.origin.clone(),
    );
    right.receiver = receiver;
    right.posts_to = receiver.into();
    right.peer_cpu = cpu.into();
    let _ = aside::aside(&right).spread.set(None);
    right
}

/// Where this thread sends now: to the `wanted` place, once what it has sent to the other has been taken there.
#[cold]
fn turn(right: &SendRight, spread: &Spread, (from, sent): (u8, Sent), wanted: u8) -> u8 {
    let receiver = |place| spread.right(place).unwrap_or(right).receiver;
    let lane = right.link.map.known(receiver(from));
    let is_taken = lane.is_none_or(|lane| sent::is_taken(&right.link, lane, sent));
    // All lanes may be other receivers'.
    match is_taken.then(|| lanes::to(&right.link, receiver(wanted))) {
        None => from,
        Some(None) => 0,
        Some(Some(_)) => wanted,
    }
}

const _: () = assert!(RECEIVERS <= 256, "places fit a byte");

/// A right that is not held any more posts at once from now on.
#[inline]
pub(crate) fn posts_at_once(right: &SendRight) {
    if super::claim(right).is_some_and(|claimed| claimed.is_on_word()) {
        post_to_receiver(right);
    }
}
