//! Rights that are named by words which the exporter learns by them: claimed, minted, attenuated.

use crate::introduce::provide;
use crate::link::returns::{For, Own};
use crate::link::{IsAwaited, Link, lanes, redirects, usage};
use crate::process::Process;
use crate::seal::Seal;
use crate::send::{self, Claimed, Origin, SendRight, life, route, spread};
use handfast_layout::lane_control::LaneControl;
use handfast_layout::part::receiver_of;
use std::sync::{Arc, Weak};

/// As many as there are slots for their answers, and some that are over.
const AWAITED_MAX: usize = 512;

/// Recipient: a right to `port` of the exporter behind `link`, which the introducer has told of it under
/// `number`; usable at once. `None`: there was no room to claim it.
pub(crate) fn claim(
    process: &Arc<Process>,
    link: &Arc<Link>,
    port: u32,
    (by, number): (&Link, u64),
) -> Option<SendRight> {
    let receiver = receiver_of(port);
    if by.is_of_others() {
        return claim_on_word(process, link, port, (by, number));
    }
    let lane = lanes::to_claim(link, receiver, by.serial.into())?;
    let at = (lane, receiver);
    let said = claim_of(by, number);
    claim_as(process, link, (port, 0, at, None), said, || true)
}

/// As [`claim`], of a right that is used here, or to a port that has moved: for that any lane may be taken.
pub(crate) fn claim_freely(
    process: &Arc<Process>,
    link: &Arc<Link>,
    port: u32,
    (by, number): (&Link, u64),
) -> Option<SendRight> {
    if by.is_of_others() {
        return claim_on_word(process, link, port, (by, number));
    }
    // The control thread asks, for other threads.
    let receiver = receiver_of(port);
    let at = (lanes::any(link, receiver)?, receiver);
    let said = claim_of(by, number);
    claim_as(process, link, (port, 0, at, None), said, || true)
}

/// As [`claim`], on the word of another user.
fn claim_on_word(
    process: &Arc<Process>,
    link: &Arc<Link>,
    port: u32,
    (by, number): (&Link, u64),
) -> Option<SendRight> {
    let user = by.peer.uid;
    let at = lanes::to_claim_on_word(link, receiver_of(port), user)?;
    let said = claim_of(by, number);
    claim_as(process, link, (port, 0, at, Some(user)), said, || true)
}

/// Makes the statement that claims the right `by` has provided under a number.
fn claim_of(by: &Link, number: u64) -> impl Fn(u32) -> LaneControl {
    let introducer = by.identity();
    move |word| LaneControl::Claim {
        word,
        number,
        introducer,
    }
}

/// Old home: a right like this one to a port that has moved, which a right of ours there is to; usable at
/// once. It goes that way for ever. `None`: there was no room to ask for it.
pub(crate) fn mint(process: &Arc<Process>, to: &SendRight, seal: Seal) -> Option<SendRight> {
    let (badge, permissions, is_once) = (seal.badge, seal.permissions, seal.is_once());
    let said = |word| {
        // Before the peer knows of it: it may say at once that the port has moved on.
        redirects::stays(to.link(), word);
        LaneControl::Mint {
            word,
            badge,
            permissions,
            is_once,
        }
    };
    let right = claim_by(process, to, said)?;
    route::pin(&right);
    Some(right)
}

/// As [`claim`]: for statements made by the right `by`, if that is not another by then.
pub(crate) fn claim_by(
    process: &Arc<Process>,
    by: &SendRight,
    said: impl FnOnce(u32) -> LaneControl,
) -> Option<SendRight> {
    let link = by.link();
    let at = (lanes::to(link, by.receiver())?, by.receiver());
    // Behind a mark its name may mean nothing any more.
    let stays = || !route::has_moved(by);
    let named = (by.port(), by.handle(), at, None);
    let right = claim_as(process, link, named, said, stays)?;
    // Asked for by that one, in the same lane.
    life::uses_as(by, &right);
    Some(right)
}

fn claim_as(
    process: &Arc<Process>,
    link: &Arc<Link>,
    (port, by, (lane, receiver), of): (u32, u32, (u32, u32), Option<u32>),
    said: impl FnOnce(u32) -> LaneControl,
    may: impl FnOnce() -> bool,
) -> Option<SendRight> {
    let own = Own::take_for(link, of.map(For::Claim))?;
    let Ok(word) = usage::change_imports(link, |imports| imports.claim(port)) else {
        own.free();
        return None;
    };
    let named = (by, own.word(), own.generation);
    if provide::say_in_lane(link, (lane, receiver), named, said(word), may).is_none() {
        usage::change_imports(link, |imports| imports.unclaim(word));
        redirects::drop_moved(link, core::iter::once(word));
        own.free();
        return None;
    }
    #[cfg(test)]
    super::tests::between();
    let waiting = process.defaults.waiting;
    let right = send::of_handle(process, link.clone(), port, word, waiting);
    if of.is_some() {
        spread::posts_to_nobody(&right);
    }
    life::uses(&right, lane);
    let claimed = Arc::new(Claimed::new(process, own, of.is_some()));
    awaits(link, &claimed);
    Some(send::with_origin(right, Origin::Claimed(claimed)))
}

/// Recipient: something was claimed.
fn awaits(link: &Link, claimed: &Arc<Claimed>) {
    let awaited = &mut link.introductions().awaited;
    awaited.push(Arc::downgrade(claimed) as Weak<dyn IsAwaited>);
    if awaited.len() > AWAITED_MAX {
        awaited.retain(|claimed| claimed.upgrade().is_some_and(|claimed| !claimed.is_over()));
    }
}
