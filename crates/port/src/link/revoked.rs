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
    /// Handles that were revoked. The peer's other words for them are looked up as it is told of them: it chooses how many.
    handles: VecDeque<Handle>,
    /// Of the first of them: the word from which on the others are to be told. `None`: it has not been told itself.
    next: Option<u32>,
    /// The words of the next message.
    looked_up: VecDeque<u32>,
    /// Words for what had been revoked when it was claimed.
    late: VecDeque<u32>,
    /// Words by which nothing could be claimed.
    in_vain: VecDeque<u32>,
}

impl Untold {
    fn has_more(&self) -> bool {
        let words = [&self.handles, &self.looked_up, &self.late, &self.in_vain];
        words.iter().any(|words| !words.is_empty())
    }

    /// The words of the next message, and whether they were claimed in vain.
    fn first(&mut self) -> (&mut VecDeque<u32>, bool) {
        match (self.late.is_empty(), self.in_vain.is_empty()) {
            (false, _) => (&mut self.late, false),
            (true, false) => (&mut self.in_vain, true),
            (true, true) => (&mut self.looked_up, false),
        }
    }

    /// A peer that does not read is not told any more of handles that it has given back: `is_there` says of which it has not.
    fn add(&mut self, handles: Vec<Handle>, places: usize, is_there: impl FnMut(&Handle) -> bool) {
        self.handles.extend(handles);
        if self.handles.len() > 2 * places + UNSAID_MAX {
            let first = self.handles.front().copied();
            self.handles.retain(is_there);
            self.handles.shrink_to(2 * self.handles.len());
            // None is told of twice.
            self.next = self.next.filter(|_| self.handles.front() == first.as_ref());
        }
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
        let exports = link.exports();
        let is_there = |handle: &Handle| exports.resolve(*handle).is_some();
        untold.add(revoked.handles, exports.used(), is_there);
        drop((exports, untold));
        if tell(link) != Left::Nothing {
            link.process.schedule(Timer::Revocations);
        }
    }
    (revoked.ended, revoked.watched)
}

/// The link has ended.
pub(crate) fn end(link: &Link) {
    *untold(link) = Untold::default();
}

/// Tells the peer what it has claimed in vain; one that does not read finds out by using it.
pub(crate) fn tell_if_in_vain(link: &Link, word: u32, claim: Claim) {
    let mut untold = untold(link);
    let of = match claim {
        Claim::Revoked => &mut untold.late,
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
        handles,
        next,
        looked_up,
        ..
    } = &mut *untold;
    for _ in 0..WORDS_MAX {
        let room = WORDS_MAX.saturating_sub(looked_up.len());
        let Some(handle) = handles.front().filter(|_| room > 0) else {
            return;
        };
        let Some(first) = *next else {
            looked_up.push_back(*handle);
            *next = Some(0);
            continue;
        };
        let before = looked_up.len();
        looked_up.extend(tables.claims.words_of(*handle, first).take(room));
        let has_all = looked_up.len() - before < room;
        let last = looked_up.back().filter(|_| !has_all);
        *next = last.and_then(|last| last.checked_add(1));
        if next.is_none() {
            handles.pop_front();
        }
    }
}

/// One message, if there is something to tell. Whether there is more; `None`: the peer does not read, or is not there yet.
fn tell_some(link: &Link) -> Option<bool> {
    if link.process.is_over() {
        // Rights end with ports that the application drops after the shutdown. The end of the link tells the peer.
        return Some(false);
    }
    let mut untold = untold(link);
    let (words, in_vain) = untold.first();
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
    use crate::port::exported;
    use crate::{link_end, links};
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

    #[test]
    fn a_word_for_what_was_revoked_before_is_told_of_behind_any_number_of_handles() {
        let (process, link, peer) = link();
        let port = crate::anonymous().unwrap();
        let (id, port) = (port.port().id, port.port());
        for badge in 0..2 * UNSAID_MAX as u64 + 5000 {
            exported::export(&link, port, Target::full(id, badge)).unwrap();
        }
        revoke_all(&link, &HashSet::from([id]));
        let mut seen = HashMap::new();
        told(&peer, &mut seen);
        tell_if_in_vain(&link, 77, Claim::Revoked);
        while tell(&link) != Left::Nothing {
            told(&peer, &mut seen);
        }
        told(&peer, &mut seen);
        assert_eq!(seen.get(&77), Some(&1));
        link_end::end_link(&process, &link);
    }

    #[test]
    fn a_peer_that_reads_nothing_and_gives_its_rights_back_takes_no_memory() {
        let (process, link, _peer) = link();
        let port = crate::anonymous().unwrap();
        let (id, port) = (port.port().id, port.port());
        for badge in 0..100_000 {
            let handle = exported::export(&link, port, Target::full(id, badge)).unwrap();
            revoke(&link, (id, badge));
            assert_eq!(link.exports().release(handle, 1), Ok(true));
            assert_eq!(link.exports().finish(handle), None);
        }
        let kept = untold(&link).handles.capacity();
        assert!(kept <= 4 * UNSAID_MAX, "{kept}");
        // A right that has not been given back is told of still.
        let handle = exported::export(&link, port, Target::full(id, 0)).unwrap();
        revoke(&link, (id, 0));
        assert_eq!(untold(&link).handles.back(), Some(&handle));
        links::list(&process).push(Some(link.clone()));
        link_end::end_link(&process, &link);
        assert_eq!(untold(&link).handles.capacity(), 0);
    }

    #[test]
    fn a_handle_whose_words_are_half_told_is_not_told_of_again() {
        let purged = |is_there: fn(&Handle) -> bool| {
            let mut untold = Untold {
                handles: VecDeque::from([0]),
                next: Some(5),
                ..Untold::default()
            };
            untold.add((1..=UNSAID_MAX as u32).collect(), 0, is_there);
            (untold.handles.len(), untold.next)
        };
        assert_eq!(purged(|handle| *handle < 2), (2, Some(5)));
        assert_eq!(purged(|handle| *handle == 2), (1, None));
    }
}
