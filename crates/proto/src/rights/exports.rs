//! The exporter's table.

use super::hash::Map;
use super::{EXPORTS_MAX, Handle, Refused, handle, index, is_handle};
use std::collections::VecDeque;
use std::collections::hash_map::Entry as MapEntry;

/// What a handle stands for: a port of this process, and what its receiver is told of the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Number of the port.
    pub port: u32,
    /// Chosen when the right was minted.
    pub badge: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    target: Target,
    /// Times it was sent and not given back.
    wire: u32,
    generation: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Live,
    /// Given back as often as it was sent; messages that were sent before may still name it.
    Ending,
}

/// Rights given to one peer. Private to the exporter.
#[derive(Debug, Default)]
pub struct Exports {
    entries: Vec<Entry>,
    /// In the order in which they fell free, so that an index rests as long as possible.
    free: VecDeque<u32>,
    by_target: Map<Target, u32>,
    is_over: bool,
}

impl Exports {
    /// The handle to send for `target`: the one the peer has, if it has one. Counts it as sent.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::Over`].
    pub fn export(&mut self, target: Target) -> Result<Handle, Refused> {
        if self.is_over {
            return Err(Refused::Over);
        }
        let vacant = match self.by_target.entry(target) {
            MapEntry::Occupied(known) => {
                let place = *known.get();
                let entry = &mut self.entries[place as usize];
                entry.wire = entry.wire.checked_add(1).ok_or(Refused::Full)?;
                return Ok(handle(place, entry.generation));
            }
            MapEntry::Vacant(vacant) => vacant,
        };
        let place = match self.free.pop_front() {
            Some(place) => {
                let entry = &mut self.entries[place as usize];
                entry.target = target;
                entry.wire = 1;
                entry.state = State::Live;
                place
            }
            None if self.entries.len() < EXPORTS_MAX as usize => {
                self.entries.push(Entry {
                    target,
                    wire: 1,
                    generation: 0,
                    state: State::Live,
                });
                self.entries.len() as u32 - 1
            }
            None => return Err(Refused::Full),
        };
        vacant.insert(place);
        Ok(handle(place, self.entries[place as usize].generation))
    }

    /// What a handle stands for.
    #[must_use]
    #[inline]
    pub fn resolve(&self, of: Handle) -> Option<Target> {
        self.entry(of).map(|entry| entry.target)
    }

    #[inline]
    fn entry(&self, of: Handle) -> Option<&Entry> {
        let entry = self.entries.get(index(of) as usize)?;
        let is_named = is_handle(of) && handle(index(of), entry.generation) == of;
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
        if !self.is_over {
            self.by_target.remove(&entry.target);
        }
        Ok(true)
    }

    /// No message names a handle any more that has been given back: what it stood for, if that has
    /// not been told of by [`Self::end`]. Its index is used again.
    pub fn finish(&mut self, of: Handle) -> Option<Target> {
        if self.entry(of)?.state != State::Ending {
            return None;
        }
        let entry = &mut self.entries[index(of) as usize];
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        let target = entry.target;
        self.free.push_back(index(of));
        (!self.is_over).then_some(target)
    }

    /// The link has ended, and with it the peer's rights, which are returned the first time. Handles
    /// in messages it left behind can still be resolved.
    pub fn end(&mut self) -> Vec<Target> {
        if core::mem::replace(&mut self.is_over, true) {
            return Vec::new();
        }
        self.by_target.clear();
        let used = self
            .entries
            .iter()
            .filter(|entry| entry.state != State::Free);
        used.map(|entry| entry.target).collect()
    }

    /// How many rights the peer has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_target.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_target.is_empty()
    }
}
