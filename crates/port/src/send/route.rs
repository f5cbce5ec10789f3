//! The route of a right's messages, resolved in one place:
//!
//! * to a port that is served in this process, without a message ([`shortcut`]);
//! * by the link with the port's process, directly;
//! * through the process that introduced the right, until there is a link with the port's (`door`);
//! * to the new home of a port that has moved (`redirect`);
//! * to the receiver of this thread's CPU, where the port has one for each (`spread`).
//!
//! [`best`] follows all of the last four. A message that is posted at once does not ask: it goes where the last one went, as long as
//! nothing has happened to the link since ([`successor`] looks what has).

use super::ended::is_revoked;
use super::{Origin, SendRight, aside, claimed, spread};
use crate::error::{Gone, SendError};
use crate::link::redirects::{self, Moved};
use crate::options::Waiting;
use crate::port::NoRight;
use crate::port::local::Shortcut;
use crate::port::own::OwnRight;
use crate::seal::Seal;
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// This right, or what it has become since it came (see `door` and `redirect`), or is on this CPU (see
/// `spread`).
#[inline]
pub(crate) fn best(right: &SendRight) -> &SendRight {
    let best = match next(right) {
        Some(next) => newest(right, next),
        None => right,
    };
    spread::here(best)
}

/// The right by which this thread may call where it cannot by `full`, the [best]: there are no reply slots (see `spread`).
#[cold]
pub(crate) fn elsewhere<'a>(right: &'a SendRight, full: &SendRight) -> Option<&'a SendRight> {
    let head = next(right).map_or(right, |next| newest(right, next));
    spread::elsewhere(head, full)
}

/// Steps after which the right that they lead to is noted.
const STEPS: u32 = 16;

/// The last right that a right has become which has become `next`.
#[cold]
fn newest<'a>(right: &'a SendRight, next: &'a Arc<SendRight>) -> &'a SendRight {
    let (newest, steps) = walk(right, next);
    if steps >= STEPS {
        aside::is_newest(right, newest);
    }
    newest
}

/// The same, and the steps that lead there: few, however often its port has moved, where a thread has looked before.
fn walk<'a>(right: &'a SendRight, next: &'a Arc<SendRight>) -> (&'a Arc<SendRight>, u32) {
    let mut newest = aside::newest(right).unwrap_or(next);
    let mut steps = 0;
    // By a loop: others say how often the port has moved.
    while let Some(next) = self::next(newest) {
        newest = next;
        steps += 1;
    }
    (newest, steps)
}

/// How many steps the next message by this right takes to its new home.
#[cfg(test)]
pub(crate) fn steps(right: &SendRight) -> u32 {
    next(right).map_or(0, |next| walk(right, next).1)
}

#[inline]
pub(crate) fn next(right: &SendRight) -> Option<&Arc<SendRight>> {
    let direct = match &right.origin {
        Origin::Vine(Some(upgrade)) => upgrade.direct(),
        _ => None,
    };
    direct.or_else(|| moved_to(right))
}

/// The right it has become since its port moved.
#[inline]
pub(super) fn moved_to(right: &SendRight) -> Option<&Arc<SendRight>> {
    if right.link.rights.redirects.has_moved() {
        look_moved(right)
    } else {
        None
    }
}

#[cold]
fn look_moved(right: &SendRight) -> Option<&Arc<SendRight>> {
    if let Some(moved) = aside::known_moved(right) {
        return moved.as_ref();
    }
    let mut moved = redirects::direct(&right.link, right.handle)?;
    // Where its port has moved several times since, one step is for all.
    while let Some(next) = next_of(&moved) {
        moved = next;
    }
    let direct = super::again(direct(&moved)?, aside::waiting(right));
    let moved = aside::aside(right)
        .moved
        .get_or_init(|| Some(Arc::new(direct)));
    moved.as_ref()
}

/// The next one, that such a right has become in its turn.
fn next_of(moved: &Moved) -> Option<Arc<Moved>> {
    let right = direct(moved)?;
    redirects::direct(&right.link, right.handle)
}

/// The right that a right has become whose port has moved.
fn direct(moved: &Moved) -> Option<&SendRight> {
    moved.direct.get()?.downcast_ref()
}

/// The right that the message goes through, if that is not this one any more. `trouble` is the link's count of troubles from
/// before.
#[inline(always)]
pub(crate) fn successor(right: &SendRight, trouble: u32) -> Result<Option<&SendRight>, SendError> {
    // After the count was read: a thread that finds the count of a switch also finds the right's successor.
    if let Some(next) = moved_to(right) {
        return Ok(Some(best(next)));
    }
    if let Some(failure) = right.link.failure(right.port) {
        return Err(failure);
    }
    // Relaxed: the count is all that is said. With the same one it was good.
    if right.calm.load(Ordering::Relaxed) != trouble {
        if is_revoked(right) {
            return Err(SendError::Gone(Gone::Right));
        }
        // The port may have got a receiver for each CPU since the look that led here: no other look
        // follows.
        let here = spread::here(right);
        if !core::ptr::eq(here, right) {
            return Ok(Some(here));
        }
        // For rights of others the exporter has not said which ports they are to.
        if matches!(right.origin, Origin::Exporter) {
            right.link.sends_to(right.port);
        }
    }
    if !matches!(right.origin, Origin::Vine(Some(_))) && !claimed::is_held(right) {
        // Relaxed: the count is all that is said. One that may become another, or wait, is asked that
        // each time.
        right.calm.store(trouble, Ordering::Relaxed);
    }
    Ok(None)
}

/// Whether it is another right now.
pub(crate) fn has_moved(right: &SendRight) -> bool {
    // One step, however often its port has moved: a caller holds a lane.
    match aside::known_moved(right) {
        Some(moved) => moved.is_some(),
        None => redirects::direct(&right.link, right.handle).is_some(),
    }
}

/// The right stays where it is when its port moves.
pub(crate) fn pin(right: &SendRight) {
    let _ = aside::aside(right).moved.set(None);
    redirects::stays(&right.link, right.handle);
}

/// A right on the word of another user becomes direct when its exporter has confirmed it, and not once a message has gone
/// through the introducer, which may overtake none: so the first use waits for a moment. A user who lets this process wait
/// in vain is not waited for again soon.
#[cold]
pub(crate) fn await_word(right: &SendRight, waiting: Waiting) {
    let Origin::Vine(Some(upgrade)) = &right.origin else {
        return;
    };
    if !matches!(waiting, Waiting::Never) && !crate::guest::is_control() {
        upgrade.await_word();
    }
}

/// The same, of one of this process's own.
pub(crate) fn with_shortcut(mut right: SendRight, shortcut: Option<Box<Shortcut>>) -> SendRight {
    right.shortcut = shortcut;
    right
}

#[inline(always)]
pub(crate) fn shortcut(right: &SendRight) -> Option<&Shortcut> {
    right.shortcut.as_deref()
}

/// The right to its port's new home that a right of this process stands for; `None` where the port has not moved. See
/// [`NewHome::right`].
pub(crate) fn moved(own: &OwnRight, may_wait: bool) -> Option<Result<Arc<SendRight>, NoRight>> {
    let home = own.port().home.get()?;
    let right = match own.is_good() {
        true => home.right(Seal::of(own.target()), may_wait),
        false => Err(NoRight::Over),
    };
    Some(right.and_then(|right| right.downcast().map_err(|_| NoRight::Over)))
}
