//! Rights of a link that were revoked: the peer's, which it is told of, and those of this process.

use super::{Link, UNSAID_MAX, backlog, connection};
use crate::rank;
use core::sync::atomic::{AtomicBool, Ordering};
use handfast_layout::control::ControlMessage;
use handfast_proto::introductions::Claim;
use handfast_proto::rights::Revoked as Ended;
use handfast_proto::timers::Timer;
use handfast_sys::sync::{Mutex, MutexGuard};
use std::collections::{HashSet, VecDeque};

/// All that a link knows of rights that were revoked.
#[derive(Default)]
pub(crate) struct Revoked {
    /// Rights of this process have been.
    has_any: AtomicBool,
    /// Rights the peer has, to be told as soon as the socket takes it.
    untold: Mutex<Untold, rank::Revoked>,
}

#[derive(Default)]
struct Untold {
    revoked: VecDeque<u32>,
    /// Words by which nothing could be claimed.
    in_vain: VecDeque<u32>,
}

/// Revokes the peer's rights to a port with a badge, and tells it. Returns how many have ended, and how many of them
/// were watched.
pub(crate) fn revoke(link: &Link, (port, badge): (u32, u64)) -> (u64, u32) {
    // Bound first: the lock of the exports ends with this statement.
    let revoked = link.exports().revoke(port, badge);
    revoked.map_or((0, 0), |revoked| ended(link, revoked))
}

/// Revokes all rights of the peer to some ports, as above.
pub(crate) fn revoke_all(link: &Link, ports: &HashSet<u32>) {
    let revoked = link.exports().revoke_all(|port| ports.contains(&port));
    if let Some(revoked) = revoked {
        ended(link, revoked);
    }
}

fn ended(link: &Link, revoked: Ended) -> (u64, u32) {
    // Release: pairs with the Acquire of receivers that know what it stood for.
    link.rights.ended.fetch_add(1, Ordering::Release);
    if !revoked.handles.is_empty() {
        // A right that is being redeemed at present has its word after that.
        let one = link.redeeming();
        let words = link.introductions().claims.words_of(&revoked.handles);
        drop(one);
        say_revoked(link, revoked.handles.into_iter().chain(words));
    }
    (revoked.ended, revoked.watched)
}

/// Tells the peer what it has claimed in vain; one that does not read finds out by using it.
pub(crate) fn tell_if_in_vain(link: &Link, word: u32, claim: Claim) {
    let mut untold = untold(link);
    let of = match claim {
        Claim::Revoked => &mut untold.revoked,
        Claim::Dead => &mut untold.in_vain,
        Claim::Granted(_) | Claim::Waiting { .. } => return,
    };
    if of.len() < UNSAID_MAX {
        of.push_back(word);
        drop(untold);
        say_untold(link);
    }
}

fn untold(link: &Link) -> MutexGuard<'_, Untold, rank::Revoked> {
    link.rights.revoked.untold.lock()
}

fn say_revoked(link: &Link, words: impl IntoIterator<Item = u32>) {
    let mut untold = untold(link);
    untold.revoked.extend(words);
    drop(untold);
    say_untold(link);
}

fn say_untold(link: &Link) {
    if !tell(link) {
        link.process.schedule(Timer::Revocations);
    }
}

/// Tells the peer which of its rights were revoked. `false`: it does not read, or is not there yet; the control thread
/// tells it later.
#[must_use]
pub(crate) fn tell(link: &Link) -> bool {
    let mut untold = untold(link);
    let Untold { revoked, in_vain } = &mut *untold;
    let has_none = revoked.is_empty() && in_vain.is_empty();
    if !(has_none || backlog::is_welcomed(link)) {
        return link.is_down();
    }
    for (words, in_vain) in [(revoked, false), (in_vain, true)] {
        while !words.is_empty() {
            let count = words.len().min(WORDS_MAX);
            let names: Vec<_> = words.iter().take(count).copied().collect();
            let names = names[..].into();
            let revoked = ControlMessage::Revoked { in_vain, names };
            if connection::send_bytes(link, &revoked.encode()).is_err() {
                return link.is_down();
            }
            words.drain(..count);
        }
    }
    true
}

/// Notes that rights of this process, to ports of the peer, were revoked. The ones of which that was not known.
pub(super) fn note(link: &Link, words: &[u32]) -> Vec<u32> {
    let mut imports = link.imports();
    let is_one = |word: &u32| imports.revoke(*word);
    let news = words.iter().copied().filter(is_one).collect();
    drop(imports);
    // Release: also what is still on its way here comes as revoked.
    link.rights.revoked.has_any.store(true, Ordering::Release);
    news
}

/// Whether a right of this process is known to be revoked.
pub(crate) fn is_revoked(link: &Link, handle: u32) -> bool {
    // Acquire: pairs with the store in `note`.
    link.rights.revoked.has_any.load(Ordering::Acquire) && link.imports().is_revoked(handle)
}

/// Rights in one control message.
const WORDS_MAX: usize = 124;
