//! The exporter's table.

use super::hash::{self, Map};
use super::target::{ALL_PERMISSIONS, Target};
use super::trail::Trail;
use super::{EXPORTS_MAX, Handle, Refused, handle, index, is_handle};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use hashbrown::HashTable;

/// The meaning of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It stands for this.
    To(Target),
    /// For nothing any more: its right was revoked.
    Revoked,
    /// For this port, as the right of its old home: see [`Exports::export_trail`].
    Trail(u32),
}

/// The result of a revocation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Handles that the peer may still hold, and is to be told of.
    pub handles: Vec<Handle>,
    /// Rights that have ended by it.
    pub ended: u64,
    /// How many of them were watched.
    pub watched: u32,
}

/// Rights that have ended with their link.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many to each port.
    pub ports: Vec<(u32, u64)>,
    /// The targets that were watched.
    pub watched: Vec<Target>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    badge: u64,
    port: u32,
    /// Times it was sent and not given back.
    wire: u32,
    generation: u16,
    permissions: u16,
    state: State,
    standing: Standing,
    /// Its end is counted by badge.
    is_watched: bool,
}

const _: () = assert!(size_of::<Entry>() == 24, "a million of them are to be had");

impl Entry {
    const fn target(&self) -> Target {
        Target {
            port: self.port,
            badge: self.badge,
            permissions: self.permissions,
        }
    }

    /// Whether the peer has it, as this.
    #[inline]
    fn stands_for(&self, target: Target) -> bool {
        self.target() == target && self.state == State::Live
    }

    fn is_revoked(&self) -> bool {
        self.standing == Standing::Revoked
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Granted,
    /// The end of its right has been told, and the right is not found any more. The entry stays, and its index with it, until
    /// the peer has given it back, and no message names it.
    Revoked,
    /// The right of an old home, which is not found by a target.
    Trail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Live,
    /// Given back as often as it was sent; messages that were sent before may still name it.
    Ending,
}

/// In two words: each is a multiplication that waits for the one before.
#[inline]
fn hash(target: Target) -> u64 {
    let small = u64::from(target.port) << 16 | u64::from(target.permissions);
    hash::hash((target.badge, small))
}

/// Rights given to one peer. Private to the exporter.
#[derive(Debug, Default)]
pub struct Exports {
    pub(super) entries: Vec<Entry>,
    /// In the order in which they fell free, so that an index rests as long as possible.
    free: VecDeque<u32>,
    /// Places of entries in use that were not revoked, found by what they stand for.
    by_target: HashTable<u32>,
    /// The place that was exported last: mostly it is again.
    last: u32,
    /// The permissions of the targets that have not all permissions, by port and badge.
    attenuated: Map<(u32, u64), BTreeSet<u16>>,
    /// How many of them are live.
    live: usize,
    is_over: bool,
    /// The rights of the peer as the old home of ports: few.
    pub(super) trails: Vec<Trail>,
}

impl Exports {
    /// The handle to send for `target`: the one the peer has, if it has one. Counts it as sent.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::Over`].
    pub fn export(&mut self, target: Target) -> Result<Handle, Refused> {
        self.export_within(target, EXPORTS_MAX)
    }

    /// As [`Self::export`], with a limit to how many the peer has: rights revoked and not given back count, too.
    ///
    /// # Errors
    /// As there.
    pub fn export_within(&mut self, target: Target, limit: u32) -> Result<Handle, Refused> {
        match self.export_known(target) {
            Some(known) => known,
            None => self.export_new(target, limit),
        }
    }

    /// As [`Self::export`], of what the peer has. `None`: it has not.
    #[inline(always)]
    pub fn export_known(&mut self, target: Target) -> Option<Result<Handle, Refused>> {
        if self.is_over {
            return Some(Err(Refused::Over));
        }
        let is_last =
            |entry: &Entry| entry.stands_for(target) && entry.standing == Standing::Granted;
        let place = match self.entries.get(self.last as usize) {
            Some(entry) if is_last(entry) => self.last,
            _ => self.find_live(target)?,
        };
        self.last = place;
        let entry = &mut self.entries[place as usize];
        let Some(wire) = entry.wire.checked_add(1) else {
            return Some(Err(Refused::Full));
        };
        entry.wire = wire;
        Some(Ok(handle(place, entry.generation.into())))
    }

    fn find_live(&self, target: Target) -> Option<u32> {
        let is_it = |place: &u32| self.entries[*place as usize].stands_for(target);
        self.by_target.find(hash(target), is_it).copied()
    }

    /// As [`Self::export_within`], of what the peer has not.
    ///
    /// # Errors
    /// As there.
    pub fn export_new(&mut self, target: Target, limit: u32) -> Result<Handle, Refused> {
        let (place, handle) = self.enter(target, Standing::Granted, limit)?;
        let entries = &self.entries;
        let rehash = |place: &u32| hash(entries[*place as usize].target());
        self.by_target.insert_unique(hash(target), place, rehash);
        if target.permissions != ALL_PERMISSIONS {
            let of = (target.port, target.badge);
            self.attenuated
                .entry(of)
                .or_default()
                .insert(target.permissions);
        }
        Ok(handle)
    }

    /// Takes a place for what has not been sent before.
    pub(super) fn enter(
        &mut self,
        target: Target,
        standing: Standing,
        limit: u32,
    ) -> Result<(u32, Handle), Refused> {
        if self.is_over {
            return Err(Refused::Over);
        }
        if self.used() >= limit as usize {
            return Err(Refused::Full);
        }
        let place = match self.free.pop_front() {
            Some(place) => place,
            None if self.entries.len() < EXPORTS_MAX as usize => {
                self.entries.push(Entry {
                    badge: 0,
                    port: 0,
                    wire: 0,
                    generation: 0,
                    permissions: 0,
                    state: State::Free,
                    standing,
                    is_watched: false,
                });
                self.entries.len() as u32 - 1
            }
            None => return Err(Refused::Full),
        };
        let entry = &mut self.entries[place as usize];
        (entry.badge, entry.port) = (target.badge, target.port);
        entry.permissions = target.permissions;
        (entry.wire, entry.state) = (1, State::Live);
        (entry.standing, entry.is_watched) = (standing, false);
        let handle = handle(place, entry.generation.into());
        self.live += 1;
        Ok((place, handle))
    }

    /// The target of a handle; nothing, if the peer has not got the handle or has given it back.
    #[must_use]
    #[inline]
    pub fn resolve(&self, of: Handle) -> Option<Meaning> {
        let entry = self.entry(of)?;
        Some(match entry.standing {
            Standing::Granted => Meaning::To(entry.target()),
            Standing::Revoked => Meaning::Revoked,
            Standing::Trail => Meaning::Trail(entry.port),
        })
    }

    /// The peer's rights to `port` with this badge, whatever their permissions, are revoked, also those the
    /// peer holds or that are under way: handles it has got so far stand for nothing, and a right exported
    /// after this is another right. `None`: it has none.
    pub fn revoke(&mut self, port: u32, badge: u64) -> Option<Revoked> {
        let mut revoked = None;
        for target in self.variants(port, badge) {
            while let Some(place) = self.take(target) {
                self.revoke_at(place, revoked.get_or_insert_default());
            }
        }
        // All of them are gone.
        self.attenuated.remove(&(port, badge));
        if !self.trails.is_empty() {
            self.refuse_trail(port, badge, &mut revoked);
        }
        revoked
    }

    /// As [`Self::revoke`], of all rights to ports for which `is_one` holds, those of old homes among them. Looks at all rights.
    pub fn revoke_all(&mut self, is_one: impl Fn(u32) -> bool) -> Option<Revoked> {
        let entries = &self.entries;
        let is_its = |place: &mut u32| is_one(entries[*place as usize].port);
        let mut places: Vec<_> = self.by_target.extract_if(is_its).collect();
        self.attenuated.retain(|(port, _), _| !is_one(*port));
        places.extend(self.end_trails(&is_one));
        let mut revoked = Revoked::default();
        for place in &places {
            self.revoke_at(*place, &mut revoked);
        }
        (!places.is_empty()).then_some(revoked)
    }

    /// The right at `place`, which is not found any more, is revoked.
    fn revoke_at(&mut self, place: u32, revoked: &mut Revoked) {
        let entry = &mut self.entries[place as usize];
        entry.standing = Standing::Revoked;
        if self.is_over {
            // Told of with the link.
            return;
        }
        revoked.ended += 1;
        revoked.watched += u32::from(entry.is_watched);
        // Nobody holds a handle that has been given back.
        if entry.state == State::Live {
            self.live -= 1;
            let handle = handle(place, entry.generation.into());
            revoked.handles.push(handle);
        }
    }

    /// The targets that the peer may have rights to, to `port` with this badge.
    fn variants(&self, port: u32, badge: u64) -> Vec<Target> {
        let full = Target::full(port, badge);
        let attenuated = self.attenuated.get(&(port, badge)).into_iter().flatten();
        let attenuated = attenuated.map(|permissions| full.attenuated(*permissions));
        core::iter::once(full).chain(attenuated).collect()
    }

    /// An entry that stands for `target`, live or not.
    fn find(&self, target: Target) -> Option<u32> {
        let is_it = |place: &&u32| self.entries[**place as usize].target() == target;
        self.by_target.iter_hash(hash(target)).find(is_it).copied()
    }

    /// An entry that stands for `target`, live or not, which is not to be found any more.
    fn take(&mut self, target: Target) -> Option<u32> {
        let is_it = |place: &u32| self.entries[*place as usize].target() == target;
        let found = self.by_target.find_entry(hash(target), is_it);
        found.ok().map(|found| found.remove().0)
    }

    /// An entry is not to be found any more by its target.
    fn lose(&mut self, place: u32) {
        let target = self.entries[place as usize].target();
        let found = self
            .by_target
            .find_entry(hash(target), |found| *found == place);
        let Ok(found) = found else {
            return;
        };
        found.remove();
        let of = (target.port, target.badge);
        if target.permissions != ALL_PERMISSIONS
            && self.find(target).is_none()
            && let Some(variants) = self.attenuated.get_mut(&of)
        {
            variants.remove(&target.permissions);
            if variants.is_empty() {
                self.attenuated.remove(&of);
            }
        }
    }

    /// As [`Self::watch`], of one that has just come.
    pub fn watch_new(&mut self, of: Handle) -> u32 {
        let entry = self.entries.get_mut(index(of) as usize);
        match entry {
            None => 0,
            Some(entry) if entry.standing == Standing::Trail => {
                let (port, badge) = (entry.port, entry.badge);
                u32::from(self.watch_trail(port, badge))
            }
            Some(entry) => {
                entry.is_watched = true;
                1
            }
        }
    }

    /// From now on it is told when one of the peer's rights to `port` with this badge ends. Returns of how many
    /// that was not so before.
    pub fn watch(&mut self, port: u32, badge: u64) -> u32 {
        if self.is_over {
            return 0;
        }
        let mut count = 0;
        for target in self.variants(port, badge) {
            for place in self.by_target.iter_hash(hash(target)) {
                let entry = &mut self.entries[*place as usize];
                if entry.target() == target && !core::mem::replace(&mut entry.is_watched, true) {
                    count += 1;
                }
            }
        }
        count + u32::from(self.watch_trail(port, badge))
    }

    #[inline]
    fn entry(&self, of: Handle) -> Option<&Entry> {
        let entry = self.entries.get(index(of) as usize)?;
        let is_named = is_handle(of) && handle(index(of), entry.generation.into()) == of;
        (is_named && entry.state != State::Free).then_some(entry)
    }

    /// The peer gives back `count` of the times it received the handle; or, with one, what was
    /// about to be sent was not. Returns whether that was the last: [`Self::finish`] must follow.
    ///
    /// # Errors
    /// [`Refused::Unknown`], [`Refused::Release`]; nothing has changed then.
    pub fn release(&mut self, of: Handle, count: u32) -> Result<bool, Refused> {
        if self
            .entry(of)
            .is_none_or(|entry| entry.state != State::Live)
        {
            return Err(Refused::Unknown);
        }
        let entry = &mut self.entries[index(of) as usize];
        if count == 0 || count > entry.wire {
            return Err(Refused::Release);
        }
        entry.wire -= count;
        if entry.wire > 0 {
            return Ok(false);
        }
        entry.state = State::Ending;
        if !entry.is_revoked() && !self.is_over {
            self.live -= 1;
        }
        Ok(true)
    }

    /// No message names a handle any more that has been given back: returns its target, if that has
    /// not been told of by [`Self::end`] or [`Self::revoke`], and whether it was watched. Its index is used again.
    pub fn finish(&mut self, of: Handle) -> Option<(Target, bool)> {
        if self.entry(of)?.state != State::Ending {
            return None;
        }
        let entry = &mut self.entries[index(of) as usize];
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        let (target, is_revoked) = (entry.target(), entry.is_revoked());
        let is_watched = entry.is_watched;
        self.free.push_back(index(of));
        match entry.standing {
            Standing::Granted => self.lose(index(of)),
            Standing::Revoked => {}
            Standing::Trail => self.trails.retain(|trail| trail.place != index(of)),
        }
        (!self.is_over && !is_revoked).then_some((target, is_watched))
    }

    /// The link has ended, and with it the peer's rights, returned the first time. Handles in messages it left
    /// behind can still be resolved.
    pub fn end(&mut self) -> Ended {
        if core::mem::replace(&mut self.is_over, true) {
            return Ended::default();
        }
        self.live = 0;
        let mut watched = Vec::new();
        let mut ended: Map<u32, u64> = Map::default();
        for entry in &self.entries {
            if entry.state != State::Free && !entry.is_revoked() {
                *ended.entry(entry.port).or_default() += 1;
                if entry.is_watched {
                    watched.push(entry.target());
                }
            }
        }
        for trail in &mut self.trails {
            watched.extend(trail.take_watched());
        }
        let ports = ended.into_iter().collect();
        Ended { ports, watched }
    }

    /// The rights to `port` that the peer has and that were not revoked: handles, and their badges.
    pub fn handles_of(&self, port: u32) -> impl Iterator<Item = (Handle, u64)> {
        let live = move |entry: &Entry| {
            entry.state == State::Live && entry.port == port && !entry.is_revoked()
        };
        let entries = self.entries.iter().zip(0..);
        let own = entries.filter(move |(entry, _)| live(entry));
        own.map(|(entry, place)| (handle(place, entry.generation.into()), entry.badge))
    }

    /// How many places the peer's rights take up, revoked ones included.
    #[must_use]
    pub fn used(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// How many rights the peer has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }
}
