//! The importer's table.

use super::names::Names;
use super::{EXPORTS_MAX, Early, Handle, IS_HANDLE, Refused, is_handle};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A message that used a handle: it was posted to this lane, before this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The lane.
    pub lane: u32,
    /// The lane's tail after the post.
    pub tail: u32,
}

/// Bytes of a right that waits to be given back beside its place in the table: the messages that used it, and the list.
const IDLE_BYTES: usize = 128;

#[derive(Debug)]
struct Held {
    port: u32,
    /// Times it was received and not given back.
    received: u32,
    /// Rights of this process to it.
    rights: u32,
    /// It is in the list of handles without rights.
    is_idle: bool,
    /// The peer has said that it stands for nothing any more.
    is_revoked: bool,
    /// The rights with this name are others now: it is given back although there are some.
    is_moved: bool,
    /// Messages that are being written and name it: it is not given back meanwhile.
    written: u32,
    /// One of the rights is kept for an introducer: by whom, and its number.
    kept: Option<Box<(u32, u64)>>,
    /// It is in the list of handles that may be unused.
    is_unused: bool,
    /// Messages that used it and may not have been consumed.
    uses: Vec<Use>,
}

impl Held {
    const fn new(port: u32) -> Self {
        Self {
            port,
            received: 0,
            rights: 0,
            is_idle: false,
            is_revoked: false,
            is_moved: false,
            written: 0,
            kept: None,
            is_unused: false,
            uses: Vec::new(),
        }
    }

    fn used(&mut self, uses: &[Use]) {
        for used in uses {
            match self.uses.iter_mut().find(|known| known.lane == used.lane) {
                Some(known) if known.tail.wrapping_sub(used.tail).cast_signed() >= 0 => {}
                Some(known) => known.tail = used.tail,
                None => self.uses.push(*used),
            }
        }
    }
}

/// Rights got from one peer. Private to the importer.
#[derive(Debug, Default)]
pub struct Imports {
    held: Names<Held>,
    /// Rights of this process, of all names.
    rights: u64,
    idle: Vec<Handle>,
    /// The handles of which only kept rights may be left.
    unused: Vec<Handle>,
    last_claim: u32,
    /// Handles that were revoked and are not here: still on their way, or given back by now.
    early: Early<()>,
    /// The peer is gone.
    is_over: bool,
}

impl Imports {
    /// The handle came in a message, for a port of the peer: one more right to it.
    ///
    /// # Errors
    /// [`Refused::Unknown`] for what is no handle, [`Refused::Port`], [`Refused::Full`].
    #[inline(always)]
    pub fn arrive(&mut self, handle: Handle, port: u32) -> Result<(), Refused> {
        if !is_handle(handle) {
            return Err(Refused::Unknown);
        }
        self.add(handle, port)?;
        if self.early.arrived(handle).is_some() {
            self.revoke(handle);
        }
        Ok(())
    }

    /// The peer has revoked what a handle, or the word of a claim, stands for. Returns whether that is
    /// news of something that is here.
    pub fn revoke(&mut self, word: u32) -> bool {
        match self.held.get_mut(word) {
            Some(held) => !core::mem::replace(&mut held.is_revoked, true),
            None => {
                self.early.hear(word, ());
                false
            }
        }
    }

    /// Whether the peer has said that it has revoked what this stands for.
    #[must_use]
    pub fn is_revoked(&self, word: u32) -> bool {
        self.held.get(word).is_some_and(|held| held.is_revoked)
    }

    /// A word by which to claim a right that was provided by a third process, to a port of the peer:
    /// one right to it. It is given back as a handle is.
    ///
    /// # Errors
    /// [`Refused::Full`].
    pub fn claim(&mut self, port: u32) -> Result<u32, Refused> {
        let used = self.held.len() as u32 + 1;
        for _ in 0..=used {
            self.last_claim = self.last_claim % (IS_HANDLE - 1) + 1;
            if self.held.get(self.last_claim).is_none() {
                self.add(self.last_claim, port)?;
                return Ok(self.last_claim);
            }
        }
        Err(Refused::Full)
    }

    /// The peer has not been told of the claim.
    pub fn unclaim(&mut self, word: u32) {
        if let Some(held) = self.held.remove(word) {
            self.rights -= u64::from(held.rights);
        }
    }

    /// Whether this process has a right.
    #[must_use]
    pub const fn has_rights(&self) -> bool {
        self.rights > 0
    }

    #[inline(always)]
    fn add(&mut self, handle: Handle, port: u32) -> Result<(), Refused> {
        let held = match self.held.get_mut(handle) {
            Some(held) => held,
            None => Self::first(&mut self.held, handle, port)?,
        };
        if held.port != port {
            return Err(Refused::Port);
        }
        held.received = held.received.checked_add(1).ok_or(Refused::Full)?;
        if held.is_moved && !core::mem::replace(&mut held.is_idle, true) {
            self.idle.push(handle);
        }
        held.rights = held.rights.checked_add(1).ok_or(Refused::Full)?;
        self.rights += 1;
        Ok(())
    }

    #[cold]
    fn first(held: &mut Names<Held>, handle: Handle, port: u32) -> Result<&mut Held, Refused> {
        // An honest exporter has no more places than that.
        if held.len() >= EXPORTS_MAX as usize {
            return Err(Refused::Full);
        }
        Ok(held.insert(handle, Held::new(port)))
    }

    /// The port that a right of this process is to, which was received, or claimed, under this name.
    #[must_use]
    pub fn port_of(&self, handle: Handle) -> Option<u32> {
        self.held.get(handle).map(|held| held.port)
    }

    /// All rights of this process with this name, and rights that still come, are others from now on: the name is
    /// given back as if all had been dropped. These messages used it. Known until the last of them has been
    /// dropped. Returns as [`Self::dropped`].
    pub fn moved(&mut self, handle: Handle, uses: &[Use]) -> bool {
        let Some(held) = self.held.get_mut(handle) else {
            return false;
        };
        held.is_moved = true;
        held.used(uses);
        let is_new = !core::mem::replace(&mut held.is_idle, true);
        if is_new {
            self.idle.push(handle);
        }
        is_new
    }

    /// A message that is being written names it, which keeps the name until [`Self::has_written`]. `false`: the rights with this
    /// name are others.
    #[must_use]
    pub fn writes(&mut self, handle: Handle) -> bool {
        let held = self.held.get_mut(handle).filter(|held| !held.is_moved);
        held.map(|held| held.written += 1).is_some()
    }

    /// The message has been written, or will not be. Returns whether [`Self::give_back`] has something to look at.
    pub fn has_written(&mut self, handle: Handle) -> bool {
        let Some(held) = self.held.get_mut(handle) else {
            return false;
        };
        held.written = held.written.saturating_sub(1);
        held.written == 0 && held.is_idle
    }

    /// A right was copied.
    pub fn copied(&mut self, handle: Handle) {
        if let Some(held) = self.held.get_mut(handle) {
            held.rights += 1;
            self.rights += 1;
        }
    }

    /// A right was dropped; these messages used it. Returns whether [`Self::give_back`] has
    /// something new to look at.
    #[inline(always)]
    pub fn dropped(&mut self, handle: Handle, uses: &[Use]) -> bool {
        let Some(held) = self.held.get_mut(handle) else {
            return false;
        };
        if held.rights > 0 {
            held.rights -= 1;
            self.rights -= 1;
        }
        held.used(uses);
        if held.rights > 1 || held.rights == 1 && held.kept.is_none() {
            return false;
        }
        self.nearly_last(handle)
    }

    /// The last right was dropped, or all but what is kept.
    #[cold]
    fn nearly_last(&mut self, handle: Handle) -> bool {
        let Some(held) = self.held.get_mut(handle) else {
            return false;
        };
        let is_over = self.is_over || held.is_moved && held.received == 0;
        let (list, is_listed) = match held.rights {
            0 if is_over => {
                self.held.remove(handle);
                return false;
            }
            0 => (&mut self.idle, &mut held.is_idle),
            _ => (&mut self.unused, &mut held.is_unused),
        };
        let is_new = !core::mem::replace(is_listed, true);
        if is_new {
            list.push(handle);
        }
        is_new
    }

    /// Takes out what nobody here holds any more, with how often it was received, as far as all
    /// messages that used it have been consumed.
    pub fn give_back(&mut self, mut is_consumed: impl FnMut(Use) -> bool) -> Vec<(Handle, u32)> {
        let mut given = Vec::new();
        let (held, early) = (&mut self.held, &mut self.early);
        self.idle.retain(|handle| {
            let Some(entry) = held.get_mut(*handle) else {
                return false;
            };
            if entry.rights > 0 && !entry.is_moved {
                entry.is_idle = false;
                return false;
            }
            entry.uses.retain(|used| !is_consumed(*used));
            if !entry.uses.is_empty() || entry.written > 0 {
                return true;
            }
            let received = core::mem::take(&mut entry.received);
            if received > 0 {
                given.push((*handle, received));
            }
            entry.is_idle = false;
            if entry.is_revoked {
                // It may have been sent once more before it was revoked.
                early.hear(*handle, ());
            }
            if entry.rights == 0 {
                held.remove(*handle);
            }
            false
        });
        self.idle.shrink_to((2 * self.idle.len()).max(64));
        given
    }

    /// The peer is gone: nothing is given back any more, and names that nobody here has are forgotten at once. Returns the names
    /// that nobody has now.
    pub fn end(&mut self) -> Vec<Handle> {
        self.is_over = true;
        self.idle.clear();
        let mut unused = Vec::new();
        self.held.retain(|handle, held| {
            let is_used = held.rights > 0;
            if !is_used {
                unused.push(handle);
            }
            is_used
        });
        unused
    }

    /// One of the rights is kept for an introducer, by whom this is, under its number; or not any more.
    pub fn keep(&mut self, handle: Handle, by: Option<(u32, u64)>) {
        if let Some(held) = self.held.get_mut(handle) {
            held.kept = by.map(Box::new);
        }
    }

    /// Has [`Self::unused`] look at it. Returns whether it is kept.
    pub fn may_be_unused(&mut self, handle: Handle) -> bool {
        match self.held.get_mut(handle) {
            Some(held) if held.kept.is_some() => {
                if !core::mem::replace(&mut held.is_unused, true) {
                    self.unused.push(handle);
                }
                true
            }
            _ => false,
        }
    }

    /// Takes out the rights that are kept, and for whom, which nobody uses: among the rights dropped since the last
    /// time.
    pub fn unused(&mut self) -> Vec<(Handle, (u32, u64))> {
        let unused = core::mem::take(&mut self.unused);
        let found = unused.into_iter().filter_map(|handle| {
            let held = self.held.get_mut(handle)?;
            held.is_unused = false;
            (held.rights == 1).then_some((handle, **held.kept.as_ref()?))
        });
        found.collect()
    }

    /// How many wait to be given back.
    #[must_use]
    pub const fn idle(&self) -> usize {
        self.idle.len()
    }

    /// The bytes that they take.
    #[must_use]
    pub fn idle_bytes(&self) -> usize {
        let places = self.idle.iter().map(|name| self.held.bytes_of(*name));
        self.idle.len() * IDLE_BYTES + places.sum::<usize>()
    }

    /// How many of the peer's rights this process has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_being_written_is_not_given_back_when_its_right_becomes_another() {
        let (mut imports, name) = (Imports::default(), IS_HANDLE | 7);
        imports.arrive(name, 1).unwrap();
        assert!(imports.writes(name));
        assert!(imports.moved(name, &[]));
        assert_eq!(imports.give_back(|_| true), []);
        assert!(!imports.writes(name));
        assert!(imports.has_written(name));
        assert_eq!(imports.give_back(|_| true), [(name, 1)]);
    }

    #[test]
    fn a_right_that_was_revoked_before_it_comes_is_known_after_a_flood_of_others() {
        let mut imports = Imports::default();
        for index in 0..EXPORTS_MAX {
            assert!(!imports.revoke(IS_HANDLE | index));
        }
        // The last ones are still known.
        let last = IS_HANDLE | (EXPORTS_MAX - 1);
        imports.arrive(last, 1).unwrap();
        assert!(imports.is_revoked(last));
    }
}
