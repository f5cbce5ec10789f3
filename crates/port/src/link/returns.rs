//! Return slots this process names itself, one link's: places for answers other than replies to its own calls
//! there. And the sleepers in return slots.

use super::Link;
use crate::rank;
use handfast_layout::link::{OWN_SET, REPLIES, slot_of};
use handfast_sys::sync::MutexGuard;

/// The state of a link's own set of return slots, and the wait words in which threads sleep.
#[derive(Default)]
pub(crate) struct Returns {
    /// Generation of the last use of each that was used, and whether its answer is awaited.
    used: Vec<(u32, bool)>,
    /// The free slots.
    free: Vec<u32>,
    /// The slots whose answers are not awaited: free once the answer has come.
    forsaken: Vec<u32>,
    /// A thread sleeps there, or is about to.
    asleep: Vec<usize>,
    /// For each return slot whose answers had rights, the last one that was taken.
    taken: Vec<(u32, u32)>,
}

impl Returns {
    /// Takes a free slot: its number, and its generation there. Forsaken slots are looked at when there is no other,
    /// so each is looked at about once for each use.
    pub(crate) fn take(&mut self, is_answered: impl Fn(u32, u32) -> bool) -> Option<(u32, u32)> {
        if self.free.is_empty() && self.used.len() == REPLIES as usize {
            let Self {
                used,
                free,
                forsaken,
                ..
            } = self;
            let has_come = |place: &mut u32| {
                let (generation, _) = used[*place as usize];
                is_answered(slot_of(OWN_SET, *place), generation)
            };
            free.extend(forsaken.extract_if(.., has_come));
        }
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None if self.used.len() < REPLIES as usize => {
                self.used.push((0, false));
                self.used.len() - 1
            }
            None => return None,
        };
        let (generation, in_use) = &mut self.used[place];
        *in_use = true;
        // Zero is what an unused slot's generation word holds.
        *generation = generation.wrapping_add(1).max(1);
        Some((slot_of(OWN_SET, place as u32), *generation))
    }

    /// The slot has had its answer, or will have none.
    pub(crate) fn free(&mut self, index: u32) {
        let place = index % REPLIES;
        if let Some((_, in_use)) = self.used.get_mut(place as usize) {
            *in_use = false;
            self.free.push(place);
        }
    }

    /// The answer is awaited no more, and brings nothing but bytes.
    pub(crate) fn forsake(&mut self, index: u32) {
        let place = index % REPLIES;
        if let Some((_, in_use)) = self.used.get_mut(place as usize) {
            *in_use = false;
            self.forsaken.push(place);
        }
    }

    /// The own slots in which answers are awaited, and their generations.
    pub(crate) fn in_use(&self) -> Vec<(u32, u32)> {
        let used = self.used.iter().zip(0..).filter(|((_, in_use), _)| *in_use);
        used.map(|((generation, _), place)| (slot_of(OWN_SET, place), *generation))
            .collect()
    }

    /// Whether own slots have ever been in use.
    pub(crate) const fn is_used(&self) -> bool {
        !self.used.is_empty()
    }

    /// The rights in the answer there have been taken up.
    pub(crate) fn took(&mut self, index: u32, generation: u32) {
        match self.taken.iter_mut().find(|taken| taken.0 == index) {
            Some(taken) => taken.1 = generation,
            None => self.taken.push((index, generation)),
        }
    }

    pub(crate) fn has_taken(&self, index: u32, generation: u32) -> bool {
        self.taken.contains(&(index, generation))
    }

    pub(crate) fn sleeps(&mut self, at: usize) {
        self.asleep.push(at);
    }

    pub(crate) fn wakes(&mut self, at: usize) {
        if let Some(place) = self.asleep.iter().position(|word| *word == at) {
            self.asleep.swap_remove(place);
        }
    }

    pub(crate) fn sleepers(&self) -> Vec<usize> {
        self.asleep.clone()
    }
}

impl Link {
    pub(crate) fn returns(&self) -> MutexGuard<'_, Returns, rank::Returns> {
        self.returns.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forsaken_slot_is_taken_again_once_its_answer_has_come() {
        let mut returns = Returns::default();
        let mut take = |has_come: &[u32], forsakes: bool| {
            let taken = returns.take(|index, _| has_come.contains(&index));
            let (index, generation) = taken?;
            if forsakes {
                returns.forsake(index);
            }
            Some((index, generation))
        };
        let all: Vec<_> = (0..REPLIES).map(|_| take(&[], true).unwrap()).collect();
        assert_eq!(take(&[], false), None, "none has been answered");
        let third = all[3].0;
        assert_eq!(take(&[third], false), Some((third, 2)));
        assert_eq!(take(&[third], false), None, "its answer is awaited");
        assert_eq!(returns.in_use(), [(third, 2)]);
        returns.free(third);
        assert_eq!(returns.take(|_, _| false), Some((third, 3)));
    }
}
