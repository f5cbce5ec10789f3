//! Rights that cannot be claimed when they come, though there is a link: for want of a lane, mostly. They go by the vine; one that
//! is used is claimed when there is a lane.

use crate::introduce::claim_freely;
use crate::link::Link;
use crate::process::Process;
use crate::send::{self, Origin, SendRight, Upgrade};
use crate::{door, links};
use core::sync::atomic::Ordering;
use handfast_proto::timers::Timer;
use std::sync::Arc;

/// How soon the control thread looks whether a lane that has come is one for these.
const CAME_NS: u64 = 1_000;

/// Recipient: a right by the vine to `port` of a process with a link, which becomes a direct one when it has been used.
pub(crate) fn later(
    process: &Arc<Process>,
    link: &Arc<Link>,
    vine: SendRight,
    (exporter, number, port): ([u8; 20], u64, u32),
) -> SendRight {
    let upgrade = Upgrade::new(process, link, (exporter, number), door::leave);
    waits_for_lane(process, &upgrade, port);
    send::with_origin(vine, Origin::Vine(Some(upgrade)))
}

/// Recipient: a right by the vine that has been claimed on the word of another user, and becomes the direct one when the exporter has
/// confirmed it.
pub(crate) fn on_word(
    process: &Arc<Process>,
    link: &Arc<Link>,
    vine: SendRight,
    (exporter, number, direct): ([u8; 20], u64, SendRight),
) -> SendRight {
    let upgrade = Upgrade::new(process, link, (exporter, number), door::leave);
    upgrade.becomes(direct);
    send::with_origin(vine, Origin::Vine(Some(upgrade)))
}

/// Recipient: this right is claimed when it has been used; or stays on the vine, where there are too many.
pub(super) fn waits_for_lane(process: &Process, upgrade: &Arc<Upgrade>, port: u32) {
    let Some(charge) = door::charge_stranger(process, &upgrade.introducer) else {
        return upgrade.decline();
    };
    door::doors(process).waiting.for_lane(upgrade, port, charge);
    // Relaxed: a use that does not see it is not the last one, or the right is of no use.
    upgrade.is_late.store(true, Ordering::Relaxed);
}

/// Control thread: claims those that have been used. They ask for lanes where there are none. Returns whether some are left that
/// could not be claimed yet.
pub(crate) fn claim_late(process: &Arc<Process>) -> bool {
    let mut late = door::doors(process).waiting.take_late();
    late.retain(|_, stranger| {
        let upgrade = stranger.upgrade.upgrade();
        upgrade.is_some_and(|upgrade| !has_claimed(process, &upgrade, stranger.port))
    });
    // Relaxed: as where it is set.
    let is_used = |upgrade: Arc<Upgrade>| upgrade.is_used.load(Ordering::Relaxed);
    let mut left = late.values();
    let is_left = left.any(|stranger| stranger.upgrade.upgrade().is_some_and(is_used));
    door::doors(process).waiting.put_back(late);
    is_left
}

/// Whether a right has been claimed, or waits for something else now.
fn has_claimed(process: &Arc<Process>, upgrade: &Arc<Upgrade>, port: u32) -> bool {
    // Relaxed: as where it is set.
    if !upgrade.is_used.load(Ordering::Relaxed) {
        return false;
    }
    match links::hold_link(process, |link| link.is_with(upgrade.exporter)) {
        Some(with) => {
            let number = (&*upgrade.introducer, upgrade.number);
            let Some(right) = claim_freely(process, &with, port, number) else {
                return false;
            };
            upgrade.is_late.store(false, Ordering::Relaxed);
            upgrade.becomes(right);
        }
        // The link has ended since.
        None => {
            // Before the question: an answer may have it wait for a lane again.
            upgrade.is_late.store(false, Ordering::Relaxed);
            match process.configuration.meets_strangers {
                true => door::ask_where(process, upgrade, port),
                false => upgrade.decline(),
            }
        }
    }
    true
}

/// Control thread: a lane has come.
pub(crate) fn has_lane(process: &Process) {
    if door::doors(process).waiting.is_for_lanes() {
        process.schedule_in(Timer::Claims, CAME_NS);
    }
}
