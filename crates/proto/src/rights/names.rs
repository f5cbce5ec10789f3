//! A table by names that a peer chooses.

use super::{Handle, index};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Slots of a page; pages of a branch.
const SLOTS: u32 = 16;
const PAGES: u32 = 256;

/// Entries by name, whose place is the name's index: honest peers give the lowest ones. None is ever moved, so that no thread waits
/// while a table grows, and whatever names a peer chooses, none collide for longer than a look in a tree takes. A name alone in its
/// branch takes the memory of a page and a branch, 3 KiB; all branches and pages that there can be, 66 MiB.
#[derive(Debug)]
pub(super) struct Names<T> {
    branches: Vec<Option<Box<Branch<T>>>>,
    /// The names whose place another name has: other generations of an index, and claims.
    others: BTreeMap<Handle, T>,
    len: usize,
}

#[derive(Debug)]
struct Branch<T> {
    used: u32,
    pages: [Option<Box<Page<T>>>; PAGES as usize],
}

#[derive(Debug)]
struct Page<T> {
    used: u32,
    slots: [Option<(Handle, T)>; SLOTS as usize],
}

impl<T> Default for Branch<T> {
    fn default() -> Self {
        let pages = [const { None }; PAGES as usize];
        Self { used: 0, pages }
    }
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        let slots = [const { None }; SLOTS as usize];
        Self { used: 0, slots }
    }
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self {
            branches: Vec::new(),
            others: BTreeMap::new(),
            len: 0,
        }
    }
}

/// The branch, the page in the branch, the slot in the page.
const fn place(name: Handle) -> (usize, usize, usize) {
    let index = index(name);
    let (page, slot) = (index / SLOTS, index % SLOTS);
    let (branch, page) = (page / PAGES, page % PAGES);
    (branch as usize, page as usize, slot as usize)
}

impl<T> Names<T> {
    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of this name's place: its share in its page, and of that in its branch.
    pub(super) fn bytes_of(&self, name: Handle) -> usize {
        let (at, page, _) = place(name);
        let branch = self.branches.get(at).and_then(Option::as_deref);
        let page = branch.and_then(|branch| Some((branch, branch.pages[page].as_deref()?)));
        page.map_or(0, |(branch, page)| {
            let of_page =
                size_of::<Page<T>>() + size_of::<Branch<T>>() / branch.used.max(1) as usize;
            of_page / page.used.max(1) as usize
        })
    }

    #[inline]
    pub(super) fn get(&self, name: Handle) -> Option<&T> {
        match self.slot(name) {
            Some((of, entry)) if *of == name => Some(entry),
            _ => self.others.get(&name),
        }
    }

    /// The content of the place of the name's index.
    #[inline]
    fn slot(&self, name: Handle) -> Option<&(Handle, T)> {
        let (branch, page, slot) = place(name);
        let branch = self.branches.get(branch)?.as_deref()?;
        branch.pages[page].as_deref()?.slots[slot].as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, name: Handle) -> Option<&mut T> {
        match Self::slot_mut(&mut self.branches, name) {
            Some((of, entry)) if *of == name => Some(entry),
            _ => self.others.get_mut(&name),
        }
    }

    #[inline]
    fn slot_mut(branches: &mut [Option<Box<Branch<T>>>], name: Handle) -> Option<&mut (Handle, T)> {
        let (branch, page, slot) = place(name);
        let branch = branches.get_mut(branch)?.as_deref_mut()?;
        branch.pages[page].as_deref_mut()?.slots[slot].as_mut()
    }

    /// Enters one in the place of any with this name.
    pub(super) fn insert(&mut self, name: Handle, entry: T) -> &mut T {
        self.remove(name);
        self.len += 1;
        let (branch, page, slot) = place(name);
        if branch >= self.branches.len() {
            self.branches.resize_with(branch + 1, || None);
        }
        let branch = self.branches[branch].get_or_insert_default();
        branch.used += u32::from(branch.pages[page].is_none());
        let page = branch.pages[page].get_or_insert_default();
        let slot = &mut page.slots[slot];
        if slot.is_some() {
            return self.others.entry(name).or_insert(entry);
        }
        page.used += 1;
        &mut slot.insert((name, entry)).1
    }

    pub(super) fn remove(&mut self, name: Handle) -> Option<T> {
        let (at, page, slot) = place(name);
        let removed = match self.branches.get_mut(at).and_then(Option::as_deref_mut) {
            Some(branch) => branch.remove(page, slot, |(of, _)| *of == name),
            None => None,
        };
        let removed = match removed {
            Some((_, entry)) => Some(entry),
            None => self.others.remove(&name),
        };
        self.len -= usize::from(removed.is_some());
        self.trim(at);
        removed
    }

    /// Gives up a branch without pages, but for the first, which a peer with few rights fills and empties all the time.
    fn trim(&mut self, branch: usize) {
        let branch = self.branches.get_mut(branch).filter(|_| branch > 0);
        if let Some(branch) = branch {
            branch.take_if(|branch| branch.used == 0);
        }
    }

    /// Takes out all entries but those for which `keep` is true.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Handle, &mut T) -> bool) {
        let len = &mut self.len;
        let mut keep = |name: Handle, entry: &mut T| {
            let is_kept = keep(name, entry);
            *len -= usize::from(!is_kept);
            is_kept
        };
        self.others.retain(|name, entry| keep(*name, entry));
        for branch in self.branches.iter_mut().flatten() {
            for page in 0..PAGES as usize {
                for slot in 0..SLOTS as usize {
                    if branch.pages[page].is_none() {
                        break;
                    }
                    branch.remove(page, slot, |(name, entry)| !keep(*name, entry));
                }
            }
        }
        (0..self.branches.len()).for_each(|branch| self.trim(branch));
    }
}

impl<T> Branch<T> {
    /// Takes out the entry, if `is_it`, and the page, if the entry was the last in it.
    #[inline]
    fn remove(
        &mut self,
        at: usize,
        slot: usize,
        is_it: impl FnOnce(&mut (Handle, T)) -> bool,
    ) -> Option<(Handle, T)> {
        let page = self.pages[at].as_deref_mut()?;
        let removed = page.slots[slot].take_if(is_it)?;
        page.used -= 1;
        if page.used == 0 {
            self.pages[at] = None;
            self.used -= 1;
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map() {
        let mut names = Names::default();
        let mut map = BTreeMap::new();
        let mut seed = 1u32;
        for turn in 0..20_000u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Indexes at both ends, four generations, claims.
            let name = (seed >> 10 & 0xff).wrapping_sub(128) & 0xf_ffff | seed >> 29 << 29;
            match seed >> 8 & 3 {
                0 => {
                    assert_eq!(names.remove(name), map.remove(&name));
                }
                1 => {
                    assert_eq!(names.get(name), map.get(&name));
                    assert_eq!(names.get_mut(name), map.get_mut(&name));
                }
                _ => {
                    assert_eq!(*names.insert(name, turn), turn);
                    map.insert(name, turn);
                }
            }
            if turn % 1_000 == 0 {
                names.retain(|name, entry| !(name ^ *entry).is_multiple_of(3));
                map.retain(|name, entry| !(name ^ *entry).is_multiple_of(3));
            }
            assert_eq!((names.len(), names.is_empty()), (map.len(), map.is_empty()));
        }
        names.retain(|_, _| false);
        let pages = names.branches.iter().flatten().map(|branch| branch.used);
        assert_eq!((pages.sum::<u32>(), names.others.len()), (0, 0));
    }

    #[test]
    fn names_that_lie_alone_count_with_their_pages() {
        let bytes_of = |step: u32| -> usize {
            let mut names = Names::default();
            let all = (0..96).map(|index| index * step);
            all.clone()
                .for_each(|name| _ = names.insert(name, [0u64; 7]));
            all.map(|name| names.bytes_of(name)).sum::<usize>() / 96
        };
        assert!((64..128).contains(&bytes_of(1)), "{}", bytes_of(1));
        assert!((1024..1200).contains(&bytes_of(SLOTS)));
        assert!(bytes_of(SLOTS * PAGES) > 3 * 1024);
    }
}
