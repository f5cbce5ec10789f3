//! Trust groups: the peers of one user, which share one bell region of ours.
//!
//! A receiver sleeps in one word for each group, and the kernel takes 128. So users beyond the first [`GROUPS_MAX`] come into a
//! *crowd*: a group of many users, whose bells say that the receiver sleeps in a descriptor whenever it sleeps. Its peers ring
//! through their sockets, and the control thread ends the sleep in the receiver's own word. Peers of other users than this process's
//! only read bells, so a peer in a crowd can do no more to the others than ring, too.

use crate::error::{Exhausted, Resource};
use crate::link::Link;
use crate::link::hearing::Hearing;
use crate::process::Process;
use crate::rank;
use crate::tables::{Table, Which};
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_layout::{PAGE, bell};
use handfast_region::{Memory, Region, Tally};
use handfast_sys::OwnedFd;
use handfast_sys::memory::{Access, Mapping, create_owner_written, create_sealed};
use handfast_sys::sync::RwLock;
use handfast_wait::word;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

/// One trust group of this process.
pub(crate) struct Group {
    /// `None`: a crowd.
    pub(crate) uid: Option<u32>,
    /// Another user's: its processes only read the bells, and ring in their links.
    pub(crate) is_foreign: bool,
    pub(crate) bells: Region,
    /// The file of the bells, which links that have ended do not keep.
    fd: Weak<OwnedFd>,
    /// The counters of this process.
    pub(crate) tally: Arc<Tally>,
    links: RwLock<Vec<Entry>, rank::GroupLinks>,
    /// Changes with the links.
    version: AtomicU32,
}

enum Entry {
    Free,
    /// Taken by a handshake under way.
    Reserved,
    Link(Hearing),
}

impl Group {
    fn new(uid: Option<u32>, tally: Arc<Tally>) -> Result<(Self, Arc<OwnedFd>), Resource> {
        const NAME: &str = "handfast bells";
        let os = |call| move |errno| Resource::of(call, errno);
        let is_foreign = uid != Some(handfast_sys::process::uid());
        let (fd, mapping) = if is_foreign {
            // A peer that could write them could take their pages away, and a thread that touches them would
            // wait for that.
            create_owner_written(NAME, bell::REGION_BYTES).map_err(os("memfd_create"))?
        } else {
            let fd = create_sealed(NAME, bell::REGION_BYTES).map_err(os("memfd_create"))?;
            let mapping = Mapping::new(&fd, bell::REGION_BYTES, Access::ReadWrite);
            (fd, mapping.map_err(os("mmap"))?)
        };
        let fd = Arc::new(fd);
        let bells = Region::mapped(mapping);
        if is_foreign {
            // Its pages are this process's own: peers only look, and a page is charged to whoever comes first. Relaxed: nobody else has them yet.
            let pages = (0..bell::REGION_BYTES).step_by(PAGE);
            pages.for_each(|page| bells.store(page, word::AWAKE, Ordering::Relaxed));
        }
        let group = Self {
            uid,
            is_foreign,
            bells,
            fd: Arc::downgrade(&fd),
            tally,
            links: RwLock::default(),
            version: AtomicU32::new(0),
        };
        Ok((group, fd))
    }

    /// As made anew, for other links: nobody has announced a sleep, and no hint is given.
    fn clear(&self) {
        let words = (0..bell::REGION_BYTES).step_by(size_of::<u32>());
        // Relaxed: the peers to come have it by their handshakes.
        words.for_each(|at| self.bells.store(at, word::AWAKE, Ordering::Relaxed));
    }

    /// Where receivers sleep, in the bell of `receiver`.
    pub(crate) const fn sleep(receiver: u32) -> usize {
        bell::bell(receiver) + bell::SLEEP
    }

    /// The word in which `receiver` sleeps; `None` in a crowd, whose rings come through the socket.
    pub(crate) fn sleeps_in(&self, receiver: u32) -> Option<(&Region, usize)> {
        (self.uid.is_some()).then(|| (&self.bells, Self::sleep(receiver)))
    }

    /// Says that `receiver` is about to sleep, and how.
    pub(crate) fn announce(&self, receiver: u32, how: u32) {
        let how = match self.uid {
            Some(_) => how,
            None => word::DESCRIPTOR,
        };
        word::announce(&self.bells, Self::sleep(receiver), how);
    }

    /// Whether it has as many links as it can have.
    fn is_full(&self) -> bool {
        let links = self.links.read();
        let is_taken = |entry: &Entry| !matches!(entry, Entry::Free);
        links.len() == bell::LINKS as usize && links.iter().all(is_taken)
    }

    /// Whether there is no link, and none to come.
    fn is_empty(&self) -> bool {
        let links = self.links.read();
        links.iter().all(|entry| matches!(entry, Entry::Free))
    }

    /// Takes a free index for a link to come.
    fn reserve(&self) -> Result<u32, Resource> {
        let mut links = self.links.write();
        let free = links.iter().position(|entry| matches!(entry, Entry::Free));
        let index = free.unwrap_or(links.len());
        if index >= bell::LINKS as usize {
            let limit = bell::LINKS.into();
            return Err(Resource::Exhausted(Exhausted {
                what: "links to peers of one user",
                advice: Some("end some of those processes"),
                limit,
            }));
        }
        if free.is_none() {
            links.push(Entry::Reserved);
        } else {
            links[index] = Entry::Reserved;
        }
        Ok(index as u32)
    }

    pub(crate) fn set(&self, index: u32, link: Option<&Arc<Link>>) {
        let mut links = self.links.write();
        let Some(entry) = links.get_mut(index as usize) else {
            return;
        };
        let new = link.map_or(Entry::Free, |link| Entry::Link(Hearing::new(link)));
        let old = core::mem::replace(entry, new);
        // Release: a thread that sees the number finds the list as it is now, or later.
        self.version.fetch_add(1, Ordering::Release);
        drop(links);
        // Without the lock: its end may be the end of another link.
        drop(old);
    }

    /// A number that changes with the links.
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        // Acquire: pairs with the Release of `set`.
        self.version.load(Ordering::Acquire)
    }

    /// The present links, for a reader of their memory only.
    pub(crate) fn all_links(&self) -> Vec<(u32, Arc<Link>)> {
        let links = self.links.read();
        let links = links
            .iter()
            .zip(0..)
            .filter_map(|(entry, index)| match entry {
                Entry::Link(link) => Some((index, Arc::clone(link))),
                Entry::Free | Entry::Reserved => None,
            });
        links.collect()
    }

    pub(crate) fn link(&self, index: u32) -> Option<Hearing> {
        let links = self.links.read();
        match links.get(index as usize) {
            Some(Entry::Link(link)) => Some(link.clone()),
            _ => None,
        }
    }

    /// Whether `check` holds for any link; the scan of the truth before a sleep.
    pub(crate) fn any_link(&self, mut check: impl FnMut(u32, &Link) -> bool) -> Option<u32> {
        let links = self.links.read();
        let found = links.iter().enumerate().find(|(index, entry)| match entry {
            Entry::Link(link) => check(*index as u32, link),
            Entry::Free | Entry::Reserved => false,
        });
        found.map(|(index, _)| index as u32)
    }

    /// Some links from `first` on for which `check` holds, of at most `count` that are looked at; and where to go on, if that
    /// is not behind the last.
    pub(crate) fn some_links(
        &self,
        first: u32,
        count: u32,
        check: impl Fn(&Link) -> bool,
    ) -> (Vec<u32>, Option<u32>) {
        let links = self.links.read();
        let end = first.saturating_add(count).min(links.len() as u32);
        let found = (first..end).filter(|index| match &links[*index as usize] {
            Entry::Link(link) => check(link),
            Entry::Free | Entry::Reserved => false,
        });
        (found.collect(), (end < links.len() as u32).then_some(end))
    }

    /// Takes the announcement in `receiver`'s bell away, so that no thread falls asleep by it. A sleeping thread is nudged
    /// ([`Receiver::nudge`](crate::port::receiver::Receiver::nudge)), in a word of this process: in the bells any number of peers' threads may
    /// sleep as well.
    pub(crate) fn rouse(&self, receiver: u32) {
        // E4 wake. Store-load fence. Pairs with the fence in `announce`.
        self.bells.fence();
        // AcqRel: as in `word::taken`.
        (self.bells).swap(Self::sleep(receiver), word::AWAKE, Ordering::AcqRel);
    }
}

/// Users whose peers have a group of their own: a receiver sleeps in one word for each, and `futex_waitv` takes 128.
const GROUPS_MAX: usize = 64;
/// Groups of other users that are kept for their next links once they have none. A peer may map bells for ever, and their memory is this
/// process's: a user who connects again and again is to have the same.
pub(crate) const KEPT_MAX: usize = 16;

/// The trust groups of a node. There is always one, of this process's own user, in whose bells a receiver sleeps.
pub(crate) struct Groups {
    list: RwLock<List, rank::Groups>,
    /// Changes with the list.
    version: AtomicU32,
    /// The counters of this process.
    tally: Arc<Tally>,
}

struct List {
    groups: Arc<[Arc<Group>]>,
    /// The files of their bells.
    fds: Vec<Arc<OwnedFd>>,
    /// Groups without links, the latest last.
    kept: VecDeque<(Arc<Group>, Arc<OwnedFd>)>,
}

impl List {
    /// The others. Another user's group is kept from now on.
    fn without(&mut self, group: &Arc<Group>) -> Arc<[Arc<Group>]> {
        let place = (self.fds.iter()).position(|fd| Arc::as_ptr(fd) == group.fd.as_ptr());
        let fd = place.map(|place| self.fds.swap_remove(place));
        if let Some(fd) = fd.filter(|_| group.is_foreign) {
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back((group.clone(), fd));
        }
        let others = (self.groups.iter()).filter(|known| !Arc::ptr_eq(known, group));
        others.cloned().collect()
    }

    /// A group of this user, or a crowd, that is kept.
    fn again(&mut self, uid: Option<u32>) -> Option<(Arc<Group>, Arc<OwnedFd>)> {
        let place = self.kept.iter().position(|(group, _)| group.uid == uid)?;
        let (group, fd) = self.kept.remove(place)?;
        group.clear();
        Some((group, fd))
    }
}

/// The trust groups of a process, once it has begun.
#[derive(Default)]
struct OfProcess(OnceLock<Arc<Groups>>);

impl Table for OfProcess {
    const WHICH: Which = Which::Groups;
}

/// A process begins, with the group of its own user.
pub(crate) fn begin(process: &Process) -> Result<(), Resource> {
    let groups = Groups::new(process.counting.tally.clone())?;
    let _ = process.tables.get::<OfProcess>().0.set(groups);
    Ok(())
}

/// The trust groups of a process.
pub(crate) fn of(process: &Process) -> &Arc<Groups> {
    let groups = process.tables.get::<OfProcess>().0.get();
    groups.expect("a process begins with its groups")
}

impl Groups {
    pub(crate) fn new(tally: Arc<Tally>) -> Result<Arc<Self>, Resource> {
        let (own, fd) = Group::new(Some(handfast_sys::process::uid()), tally.clone())?;
        let list = List {
            groups: [Arc::new(own)].into(),
            fds: vec![fd],
            kept: VecDeque::new(),
        };
        Ok(Arc::new(Self {
            list: RwLock::new(list),
            version: AtomicU32::new(0),
            tally,
        }))
    }

    /// The groups there are.
    pub(crate) fn all(&self) -> Arc<[Arc<Group>]> {
        self.list.read().groups.clone()
    }

    /// A number that changes with the groups.
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        // Acquire: pairs with the Release of `set`.
        self.version.load(Ordering::Acquire)
    }

    fn set(&self, list: &mut List, groups: Arc<[Arc<Group>]>) {
        list.groups = groups;
        // Release: a thread that sees the number finds the list as it is now, or later.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Takes a place for a link to come in the trust group of `uid`, which is made if there is none; or in a crowd, if too
    /// many users have groups already.
    pub(crate) fn reserve(self: &Arc<Self>, uid: u32) -> Result<Reserved, Resource> {
        let mut list = self.list.write();
        let own = list.groups.iter().find(|group| group.uid == Some(uid));
        let is_room = list
            .groups
            .iter()
            .filter(|group| group.uid.is_some())
            .count()
            < GROUPS_MAX;
        let is_open_crowd = |group: &&Arc<Group>| group.uid.is_none() && !group.is_full();
        let known = match own {
            None if !is_room => list.groups.iter().find(is_open_crowd),
            own => own,
        };
        let group = match known.cloned() {
            Some(group) => group,
            None => {
                let uid = is_room.then_some(uid);
                let (group, fd) = match list.again(uid) {
                    Some(kept) => kept,
                    None => {
                        let (group, fd) = Group::new(uid, self.tally.clone())?;
                        (Arc::new(group), fd)
                    }
                };
                let all = list.groups.iter().chain([&group]).cloned().collect();
                self.set(&mut list, all);
                list.fds.push(fd);
                group
            }
        };
        // Under the lock: a group without any is given back.
        let index = group.reserve()?;
        let fd = (list.fds.iter()).find(|fd| Arc::as_ptr(fd) == group.fd.as_ptr());
        let fd = fd.expect("a group of the list").clone();
        drop(list);
        Ok(Reserved {
            groups: self.clone(),
            index: Some(index),
            group,
            fd,
        })
    }

    /// Frees a place in a group; a group without links goes, except the first, and other users' are kept for later. A thread that
    /// still sleeps in its bells is woken for the next change.
    pub(crate) fn free(&self, group: &Arc<Group>, index: u32) {
        group.set(index, None);
        let mut list = self.list.write();
        let place = (list.groups.iter()).position(|known| Arc::ptr_eq(known, group));
        if place.is_some_and(|place| place > 0) && group.is_empty() {
            let others = list.without(group);
            self.set(&mut list, others);
        }
    }
}

/// A place in a trust group that a link is to have.
pub(crate) struct Reserved {
    groups: Arc<Groups>,
    group: Arc<Group>,
    index: Option<u32>,
    fd: Arc<OwnedFd>,
}

impl Reserved {
    /// The file of the group's bells.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) const fn group(&self) -> &Arc<Group> {
        &self.group
    }

    pub(crate) fn index(&self) -> u32 {
        self.index.unwrap_or_default()
    }

    /// The place belongs to the link from now on.
    pub(crate) fn take(mut self) -> (Arc<Group>, u32) {
        let index = self.index.take().unwrap_or_default();
        (self.group.clone(), index)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.groups.free(&self.group, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle;

    /// Each had bells of its own, which its peer mapped for ever: another user filled the memory of a server.
    #[test]
    fn a_user_that_comes_again_has_the_same_bells_and_few_are_kept() {
        let process = lifecycle::current().ok().unwrap();
        let groups = of(&process);
        let come = |uid: u32| {
            let (group, index) = groups.reserve(uid).ok().unwrap().take();
            let ends = || groups.free(&group, index);
            let bells = handfast_sys::memory::identity(&*group.fd.upgrade().unwrap()).unwrap();
            let fd = group.fd.clone();
            group
                .bells
                .store(Group::sleep(1), word::ASLEEP, Ordering::Relaxed);
            ends();
            (bells, fd)
        };
        const FIRST: u32 = 3_000_000_127;
        let (bells, fd) = come(FIRST);
        assert!(fd.upgrade().is_some());
        let reserved = groups.reserve(FIRST).ok().unwrap();
        assert_eq!(
            handfast_sys::memory::identity(reserved.fd()).unwrap(),
            bells
        );
        let sleep = reserved
            .group()
            .bells
            .load(Group::sleep(1), Ordering::Relaxed);
        assert_eq!(sleep, word::AWAKE);
        drop(reserved);
        for other in 1..=KEPT_MAX as u32 {
            come(FIRST + other);
        }
        assert!(fd.upgrade().is_none());
    }

    #[test]
    fn the_pages_of_bells_for_other_users_are_made_by_their_owner() {
        let process = lifecycle::current().ok().unwrap();
        let reserved = of(&process).reserve(3_000_000_500).ok().unwrap();
        let pages = handfast_sys::memory::pages_in(reserved.fd(), 0, bell::REGION_BYTES);
        assert!(matches!(pages, Ok(4) | Err(_)), "{pages:?}");
    }
}
