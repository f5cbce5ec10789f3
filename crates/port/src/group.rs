//! Trust groups: the peers of one user, who share one bell region of ours.

use crate::error::{Exhausted, Resource};
use crate::hearing::Hearing;
use crate::link::Link;
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_layout::bell;
use handfast_region::{Memory, Region, Tally};
use handfast_sys::OwnedFd;
use handfast_sys::memory::{Access, Mapping, create_owner_written, create_sealed};
use handfast_wait::word;
use std::sync::{Arc, PoisonError, RwLock};

/// One trust group of this process.
pub(crate) struct Group {
    pub(crate) uid: u32,
    /// Another user's: its processes only read the bells, and ring in their links.
    pub(crate) is_foreign: bool,
    pub(crate) bells: Region,
    pub(crate) fd: OwnedFd,
    /// The counters of this process.
    pub(crate) tally: Arc<Tally>,
    links: RwLock<Vec<Entry>>,
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
    pub(crate) fn new(uid: u32, tally: Arc<Tally>) -> Result<Self, Resource> {
        const NAME: &str = "handfast bells";
        let os = |call| move |errno| Resource::of(call, errno);
        let is_foreign = uid != handfast_sys::process::uid();
        let (fd, mapping) = if is_foreign {
            // Who could write them could take their pages away, and whoever touches them would wait for that.
            create_owner_written(NAME, bell::REGION_BYTES).map_err(os("memfd_create"))?
        } else {
            let fd = create_sealed(NAME, bell::REGION_BYTES).map_err(os("memfd_create"))?;
            let mapping = Mapping::new(&fd, bell::REGION_BYTES, Access::ReadWrite);
            (fd, mapping.map_err(os("mmap"))?)
        };
        Ok(Self {
            uid,
            is_foreign,
            bells: Region::mapped(mapping),
            fd,
            tally,
            links: RwLock::default(),
            version: AtomicU32::new(0),
        })
    }

    /// Whether there is no link, and none to come.
    pub(crate) fn is_empty(&self) -> bool {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        links.iter().all(|entry| matches!(entry, Entry::Free))
    }

    /// Takes a free index for a link to come.
    pub(crate) fn reserve(&self) -> Result<u32, Resource> {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        let free = links.iter().position(|entry| matches!(entry, Entry::Free));
        let index = free.unwrap_or(links.len());
        if index >= bell::LINKS as usize {
            let limit = bell::LINKS.into();
            return Err(Resource::Exhausted(Exhausted {
                what: "links to peers of one user; end some of those processes",
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
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = links.get_mut(index as usize) else {
            return;
        };
        let new = link.map_or(Entry::Free, |link| Entry::Link(Hearing::new(link)));
        let old = core::mem::replace(entry, new);
        // Release: who sees the number finds the list as it is now, or later.
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

    /// The links there are, for who only looks at their memory.
    pub(crate) fn all_links(&self) -> Vec<(u32, Arc<Link>)> {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
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
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        match links.get(index as usize) {
            Some(Entry::Link(link)) => Some(link.clone()),
            _ => None,
        }
    }

    /// Whether `check` holds for any link; the scan of the truth before a sleep.
    pub(crate) fn any_link(&self, mut check: impl FnMut(u32, &Link) -> bool) -> Option<u32> {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
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
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        let end = first.saturating_add(count).min(links.len() as u32);
        let found = (first..end).filter(|index| match &links[*index as usize] {
            Entry::Link(link) => check(link),
            Entry::Free | Entry::Reserved => false,
        });
        (found.collect(), (end < links.len() as u32).then_some(end))
    }

    /// Wakes whoever sleeps in `receiver`'s bell, whatever the bell says: a peer may have died
    /// after it took the announcement away and before it woke the sleeper.
    pub(crate) fn rouse(&self, receiver: u32) {
        let sleep = bell::bell(receiver) + bell::SLEEP;
        // E4 wake. Store-load fence. Pairs with the fence in `announce`.
        self.bells.fence();
        // AcqRel: as in `word::taken`.
        self.bells.swap(sleep, word::AWAKE, Ordering::AcqRel);
        self.bells.wake(sleep, u32::MAX);
    }
}
