//! Rights of a link that were revoked: the peer's, which it is told of, and those of this process.

use super::{Link, UNSAID_MAX, backlog, connection};
use crate::rank;
use core::sync::atomic::{AtomicBool, Ordering};
use handfast_layout::control::ControlMessage;
use handfast_proto::introductions::Claim;
use handfast_proto::rights::{Handle, Revoked as Ended};
use handfast_proto::timers::{Left, Timer};
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
    /// Handles that have been told of. The peer's other words for them are looked up as it is told of those: it chooses how many.
    handles: VecDeque<Handle>,
    /// The words of the first of them that are below are told of.
    first: u32,
    /// Words by which nothing could be claimed.
    in_vain: VecDeque<u32>,
}

impl Untold {
    fn has_more(&self) -> bool {
        !(self.revoked.is_empty() && self.in_vain.is_empty() && self.handles.is_empty())
    }
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
        let mut untold = untold(link);
        untold.revoked.extend(&revoked.handles);
        untold.handles.extend(revoked.handles);
        drop(untold);
        if tell(link) != Left::Nothing {
            link.process.schedule(Timer::Revocations);
        }
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
        // The caller may be redeeming: words are looked up later.
        if tell_some(link) != Some(false) {
            link.process.schedule(Timer::Revocations);
        }
    }
}

fn untold(link: &Link) -> MutexGuard<'_, Untold, rank::Revoked> {
    link.rights.revoked.untold.lock()
}

/// Tells the peer which of its rights were revoked: so many of them at most, and what is left is told of by the control thread, also to
/// a peer that does not read, or is not there yet.
#[must_use]
pub(crate) fn tell(link: &Link) -> Left {
    for _ in 0..MESSAGES_MAX {
        look_up(link);
        match tell_some(link) {
            Some(true) => {}
            Some(false) => return Left::Nothing,
            None => return Left::for_peer(!link.is_down()),
        }
    }
    Left::In(PAUSE_NS)
}

/// Looks up the peer's words for handles that were revoked, for the next message.
fn look_up(link: &Link) {
    if untold(link).handles.is_empty() {
        return;
    }
    // A right that is being redeemed at present has its word after that.
    let _one = link.redeeming();
    let tables = link.introductions();
    let mut untold = untold(link);
    let Untold {
        revoked,
        handles,
        first,
        ..
    } = &mut *untold;
    for _ in 0..WORDS_MAX {
        let room = WORDS_MAX.saturating_sub(revoked.len());
        let Some(handle) = handles.front().filter(|_| room > 0) else {
            return;
        };
        let before = revoked.len();
        revoked.extend(tables.claims.words_of(*handle, *first).take(room));
        let has_all = revoked.len() - before < room;
        let next = revoked.back().and_then(|last| last.checked_add(1));
        *first = next.filter(|_| !has_all).unwrap_or(0);
        if *first == 0 {
            handles.pop_front();
        }
    }
}

/// One message, if there is something to tell. Whether there is more; `None`: the peer does not read, or is not there yet.
fn tell_some(link: &Link) -> Option<bool> {
    let mut untold = untold(link);
    let in_vain = untold.revoked.is_empty();
    let words = match in_vain {
        true => &mut untold.in_vain,
        false => &mut untold.revoked,
    };
    if words.is_empty() {
        return Some(untold.has_more());
    }
    if !backlog::is_welcomed(link) {
        return None;
    }
    let count = words.len().min(WORDS_MAX);
    let names: Vec<_> = words.iter().take(count).copied().collect();
    let names = names[..].into();
    let revoked = ControlMessage::Revoked { in_vain, names };
    connection::send_bytes(link, &revoked.encode()).ok()?;
    words.drain(..count);
    Some(untold.has_more())
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
/// Messages that a thread sends before others have a turn, and the pause after them.
const MESSAGES_MAX: usize = 32;
const PAUSE_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::tests::link;
    use crate::link_end;
    use crate::port::exported;
    use handfast_proto::rights::Target;
    use handfast_sys::socket;
    use std::collections::HashMap;
    use std::os::fd::OwnedFd;

    /// Words of one of the rights; each other has one.
    const MANY: u32 = 10_000;
    const RIGHTS: u32 = 300;

    /// The names that the peer is told of; it reads all there is. How many messages that were.
    fn told(peer: &OwnedFd, seen: &mut HashMap<u32, u32>) -> usize {
        socket::set_nonblocking(peer, true).unwrap();
        let (mut bytes, mut messages) = ([0; 1024], 0);
        while let Ok((len_bytes, _)) = socket::receive(peer, &mut bytes, 0) {
            let said = ControlMessage::parse(&bytes[..len_bytes]);
            if let Ok(Some(ControlMessage::Revoked { names, .. })) = said {
                assert!(names.len() <= WORDS_MAX);
                names
                    .iter()
                    .for_each(|name| *seen.entry(name).or_default() += 1);
                messages += 1;
            }
        }
        messages
    }

    #[test]
    fn a_peer_with_many_words_for_a_right_is_told_of_each_once_in_turns() {
        let (process, link, peer) = link();
        let port = crate::anonymous().unwrap();
        let (id, port) = (port.port().id, port.port());
        let mut words = Vec::new();
        for badge in 0..RIGHTS {
            let target = Target::full(id, u64::from(badge) % 2).attenuated(badge as u16);
            let handle = exported::export(&link, port, target).unwrap();
            let count = if badge == 7 { MANY } else { 1 };
            for _ in 0..count {
                let word = words.len() as u32 + 1;
                let claim = Claim::Granted(handle);
                assert!(link.introductions().claims.claim(word, claim));
                words.push(word);
            }
            words.push(handle);
        }
        revoke_all(&link, &HashSet::from([id]));
        let mut seen = HashMap::new();
        let mut turns = vec![told(&peer, &mut seen)];
        while tell(&link) != Left::Nothing {
            turns.push(told(&peer, &mut seen));
        }
        turns.push(told(&peer, &mut seen));
        assert!(
            turns.iter().all(|messages| *messages <= MESSAGES_MAX),
            "{turns:?}"
        );
        assert!(turns.len() > 2, "{turns:?}");
        let missing = words
            .iter()
            .filter(|word| seen.remove(word) != Some(1))
            .count();
        assert_eq!((missing, seen.len()), (0, 0));
        link_end::end_link(&process, &link);
    }
}
