//! The same right to the same recipient again: it is named by the number under which it was provided before,
//! and the exporter has nothing to do with it.
//!
//! The recipient *keeps* a right it has claimed, when the introducer asks it to, and says so; from then on the
//! introducer may name it. So that rights under way are always known and always counted at the exporter, the
//! recipient lets go of a right that nobody there uses only when the introducer says that it has *left*: it tells how often
//! the right has come again, and the introducer compares that with how often it has sent it.
//!
//! An introducer that names a right that way must have nothing under way to the exporter itself that it would overtake.

use crate::rights::Map;
use alloc::vec::Vec;
use core::hash::Hash;
use hashbrown::hash_map::Entry;

/// Rights that one introducer remembers of one recipient, and that one recipient keeps for one introducer.
const REMEMBERED_MAX: usize = 1024;

/// Introducer: what one recipient has been given. `K` is what tells rights apart.
#[derive(Debug)]
pub struct Remembered<K> {
    rights: Map<K, Told>,
    /// The numbers that were offered or are kept.
    numbers: Map<u64, K>,
    /// Kept ones of which the introducer has none any more.
    forgotten: Map<u64, Kept>,
}

#[derive(Clone, Copy, Debug)]
enum Told {
    /// So often.
    Provided(u32),
    /// So often, and the last time with this number and the question whether it be kept.
    Offered(u32, u64),
    Kept(u64, Kept),
}

/// The introducer's record of a right that is kept.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    /// How often it was sent again.
    sent: u32,
    /// How often it had come when the recipient wanted to let go of it.
    asked: Option<u32>,
}

impl Kept {
    fn may_leave(self) -> bool {
        self.asked == Some(self.sent)
    }
}

/// How a right is given to a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is provided; with the question whether it be kept, or not.
    Provide {
        /// [`Remembered::offered`] follows, if it is provided after all.
        keep: bool,
    },
    /// It is named by this number, and counts as sent.
    Again(u64),
}

impl<K> Default for Remembered<K> {
    fn default() -> Self {
        Self {
            rights: Map::default(),
            numbers: Map::default(),
            forgotten: Map::default(),
        }
    }
}

impl<K: Copy + Eq + Hash> Remembered<K> {
    /// A right is about to be given to the recipient. It is asked to keep what comes for the second time, and then
    /// ever less often: it may not have been able to.
    pub fn give(&mut self, key: K) -> How {
        let times = match self.rights.get_mut(&key) {
            Some(Told::Kept(number, kept)) => {
                kept.sent = kept.sent.wrapping_add(1);
                return How::Again(*number);
            }
            Some(Told::Provided(times) | Told::Offered(times, _)) => {
                *times = times.saturating_add(1);
                *times
            }
            None => {
                if self.has_room() {
                    self.rights.insert(key, Told::Provided(1));
                }
                return How::Provide { keep: false };
            }
        };
        How::Provide {
            keep: times.is_power_of_two(),
        }
    }

    /// As [`Self::give`], if the recipient keeps it.
    #[inline]
    pub fn give_again(&mut self, key: K) -> Option<u64> {
        let Some(Told::Kept(number, kept)) = self.rights.get_mut(&key) else {
            return None;
        };
        kept.sent = kept.sent.wrapping_add(1);
        Some(*number)
    }

    fn has_room(&mut self) -> bool {
        if self.rights.len() >= REMEMBERED_MAX {
            // A request without an answer yet is answered like one for an unknown right.
            self.rights.retain(|_, told| matches!(told, Told::Kept(..)));
            let rights = &self.rights;
            self.numbers.retain(|_, key| rights.contains_key(key));
        }
        self.rights.len() + self.forgotten.len() < REMEMBERED_MAX
    }

    /// It was provided under this number, with that question.
    pub fn offered(&mut self, key: K, number: u64) {
        let Some(told) = self.rights.get_mut(&key) else {
            return;
        };
        match *told {
            Told::Provided(times) => *told = Told::Offered(times, number),
            Told::Offered(times, before) => {
                self.numbers.remove(&before);
                *told = Told::Offered(times, number);
            }
            Told::Kept(..) => return,
        }
        self.numbers.insert(number, key);
    }

    /// The recipient keeps what was provided under this number. `false`: that is not known any more, and it is to be
    /// told that it has left.
    pub fn kept(&mut self, number: u64) -> bool {
        let key = self.numbers.get(&number);
        let told = key.and_then(|key| self.rights.get_mut(key));
        match told {
            Some(told @ Told::Offered(..)) => {
                *told = Told::Kept(number, Kept::default());
                true
            }
            // Twice.
            Some(Told::Kept(..)) => true,
            Some(Told::Provided(_)) | None => false,
        }
    }

    /// A right that was to be sent again was not sent. Returns whether the recipient is to be told that it has left.
    pub fn unsent(&mut self, number: u64) -> bool {
        let Some(kept) = self.find(number) else {
            return false;
        };
        kept.sent = kept.sent.wrapping_sub(1);
        let may_leave = kept.may_leave();
        if may_leave {
            self.leaves(number);
        }
        may_leave
    }

    /// The recipient has no use for it any more, and it has come again so often. Whether it is to be told that it has
    /// left; if not, it is on its way.
    pub fn leave(&mut self, number: u64, came: u32) -> bool {
        let Some(kept) = self.find(number) else {
            return true;
        };
        kept.asked = Some(came);
        let may_leave = kept.may_leave();
        if may_leave {
            self.leaves(number);
        }
        may_leave
    }

    fn find(&mut self, number: u64) -> Option<&mut Kept> {
        let key = self.numbers.get(&number);
        match key.and_then(|key| self.rights.get_mut(key)) {
            Some(Told::Kept(_, kept)) => Some(kept),
            _ => self.forgotten.get_mut(&number),
        }
    }

    fn leaves(&mut self, number: u64) {
        if let Some(key) = self.numbers.remove(&number) {
            self.rights.remove(&key);
        }
        self.forgotten.remove(&number);
    }

    /// The introducer has no such right any more: a later right under the same key is another.
    pub fn forget(&mut self, key: K) {
        match self.rights.remove(&key) {
            Some(Told::Kept(number, kept)) => {
                self.numbers.remove(&number);
                self.forgotten.insert(number, kept);
            }
            Some(Told::Offered(_, number)) => {
                self.numbers.remove(&number);
            }
            Some(Told::Provided(_)) | None => {}
        }
    }
}

/// Recipient: what is kept for one introducer. `R` is a right.
#[derive(Debug)]
pub struct Keeping<R> {
    kept: Map<u64, Right<R>>,
}

#[derive(Debug)]
struct Right<R> {
    /// Until it has ended.
    right: Option<R>,
    /// How often it has come again.
    came: u32,
    /// How often it had when that was looked at last.
    seen: u32,
}

/// A right that has come again.
#[derive(Debug, PartialEq, Eq)]
pub enum Came<'a, R> {
    /// This right.
    Right(&'a R),
    /// One that has ended: its introducer is asked once more to name it no more.
    Ended {
        /// How often it has come.
        came: u32,
    },
}

impl<R> Default for Keeping<R> {
    fn default() -> Self {
        Self {
            kept: Map::default(),
        }
    }
}

impl<R> Keeping<R> {
    /// Keeps a right; the introducer is to be told.
    ///
    /// # Errors
    /// The right, when there is no room, or one with that number is kept.
    pub fn keep(&mut self, number: u64, right: R) -> Result<(), R> {
        let has_room = self.kept.len() < REMEMBERED_MAX;
        match self.kept.entry(number) {
            Entry::Vacant(place) if has_room => {
                let (right, came, seen) = (Some(right), 0, u32::MAX);
                place.insert(Right { right, came, seen });
                Ok(())
            }
            _ => Err(right),
        }
    }

    /// It has come again. `None`: no honest introducer names it.
    pub fn again(&mut self, number: u64) -> Option<Came<'_, R>> {
        let kept = self.kept.get_mut(&number)?;
        kept.came = kept.came.wrapping_add(1);
        let came = kept.came;
        Some(
            kept.right
                .as_ref()
                .map_or(Came::Ended { came }, Came::Right),
        )
    }

    /// Nobody uses it at this moment: how often it has come, for the introducer to compare. `None`: it is to be looked
    /// at again soon, since it has come again since the last time.
    pub fn quiet(&mut self, number: u64) -> Option<u32> {
        let kept = self.kept.get_mut(&number)?;
        let seen = core::mem::replace(&mut kept.seen, kept.came);
        (seen == kept.came).then_some(kept.came)
    }

    /// Rights that have ended: they are not kept any more, but for their numbers, until the introducer names them no more.
    /// Returns those, and how often they have come.
    pub fn end_those(&mut self, is_one: impl Fn(&R) -> bool) -> Vec<(u64, u32, R)> {
        let those = self.kept.iter_mut().filter_map(|(number, kept)| {
            let right = kept.right.take_if(|right| is_one(right))?;
            Some((*number, kept.came, right))
        });
        those.collect()
    }

    /// The introducer names it no more.
    pub fn left(&mut self, number: u64) -> Option<R> {
        self.kept.remove(&number).and_then(|kept| kept.right)
    }

    /// Takes all out: the introducer is gone.
    pub fn end(&mut self) -> Vec<R> {
        self.kept
            .drain()
            .filter_map(|(_, kept)| kept.right)
            .collect()
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_kept_and_left_when_all_of_it_has_come() {
        let mut told = Remembered::default();
        let provide = |keep| How::Provide { keep };
        assert_eq!(told.give('a'), provide(false));
        assert_eq!(told.give('a'), provide(true));
        told.offered('a', 7);
        assert_eq!(told.give('a'), provide(false));
        assert!(!told.kept(6) && told.kept(7));
        assert_eq!(
            (told.give('a'), told.give('a')),
            (How::Again(7), How::Again(7))
        );
        assert!(!told.leave(7, 1), "one is on its way");
        assert!(told.unsent(7), "it was not sent");
        assert_eq!(told.give('a'), provide(false), "it has left");
        assert!(told.leave(7, 1) && !told.unsent(7));
    }

    #[test]
    fn a_right_that_is_gone_is_not_named_and_leaves_like_others() {
        let mut told = Remembered::default();
        for number in [3, 4] {
            while told.give('a') != (How::Provide { keep: true }) {}
            told.offered('a', number);
        }
        assert!(!told.kept(3), "an older offer");
        assert!(told.kept(4));
        assert_eq!(told.give('a'), How::Again(4));
        told.forget('a');
        assert_eq!(told.give('a'), How::Provide { keep: false });
        assert!(!told.leave(4, 0) && told.leave(4, 1));
        assert!(told.numbers.is_empty() && told.forgotten.is_empty());
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut told = Remembered::default();
        for key in 0..3 * REMEMBERED_MAX as u64 {
            let _ = told.give(key);
            if told.give(key) == (How::Provide { keep: true }) {
                told.offered(key, key);
                assert!(told.kept(key));
            }
            if key % 2 == 0 {
                told.forget(key);
            }
        }
        assert!(told.rights.len() + told.forgotten.len() <= REMEMBERED_MAX);
        assert!(told.numbers.len() <= REMEMBERED_MAX);
        let mut keeping = Keeping::default();
        for number in 0..REMEMBERED_MAX as u64 {
            assert_eq!(keeping.keep(number, ()), Ok(()));
        }
        assert_eq!(keeping.keep(1 << 40, ()), Err(()));
        assert_eq!(keeping.again(1 << 40), None);
    }
}
