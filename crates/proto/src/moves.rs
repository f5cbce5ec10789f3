//! A port that has moved to another process, as its old home sees those who have rights to it.
//!
//! The old home passes on what comes. It tells each holder of a right where the port is now, under a
//! number of its own; the holder gets a direct right there, says in each of its lanes to the old home that
//! nothing more comes in it by the old right (a *mark*), and uses the new one. When the old home has found
//! the last of the marks it has passed on all that came before them, and provides the holder, in order
//! with that, with what it has claimed at the new home (`introductions`). So the order of each lane is kept, and
//! nobody waits.
//!
//! A right may be under way while its receiver hears where its port is; the receiver remembers that until it comes ([`Early`](super::rights::Early)).
//! And one may come after all others by its name have become direct ones and were given back. The old home sees by what
//! is given back that one is under way still, and tells once more, when all marks of before have come.

#[cfg(test)]
mod simulation;

use super::rights::Handle;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

/// The holders that have been told, and their answers.
#[derive(Debug, Default)]
pub struct Trail {
    /// By link, and by the name that the right has there.
    told: BTreeMap<(u32, Handle), Told>,
}

#[derive(Debug)]
struct Told {
    number: u64,
    /// In so many lanes marks are to come; zero while none has.
    lanes: u32,
    heard: u32,
    /// It is to be told once more, when the marks have come.
    is_old: bool,
}

impl Told {
    const fn new(number: u64) -> Self {
        Self {
            number,
            lanes: 0,
            heard: 0,
            is_old: false,
        }
    }

    const fn is_over(&self) -> bool {
        self.lanes > 0 && self.heard == self.lanes
    }
}

/// The result of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// Others will follow in other lanes.
    More,
    /// Nothing more comes by this right: its holder is to be provided for; and told again, since there is another by that
    /// name under way.
    All {
        /// That is so.
        again: bool,
    },
    /// A mark that no honest holder sends.
    Unknown,
}

impl Trail {
    /// A holder is told. `false`: it has been.
    pub fn tell(&mut self, right: (u32, Handle), number: u64) -> bool {
        match self.told.entry(right) {
            Entry::Vacant(place) => {
                place.insert(Told::new(number));
                true
            }
            Entry::Occupied(mut place) => {
                let told = place.get_mut();
                let is_due = told.is_old && told.is_over();
                if is_due {
                    *told = Told::new(number);
                }
                is_due
            }
        }
    }

    /// A holder has given back its right, and more is under way by this name: the holder is to be told once more, if it
    /// does not know the last number any more. Whether it may be now; or else once its marks have come.
    pub fn tell_again(&mut self, right: (u32, Handle)) -> bool {
        self.told.get_mut(&right).is_some_and(|told| {
            told.is_old = true;
            told.is_over()
        })
    }

    #[cfg(test)]
    fn forget(&mut self, right: (u32, Handle)) {
        self.told.remove(&right);
    }

    /// A mark has come, one of those in so many lanes.
    pub fn mark(&mut self, right: (u32, Handle), number: u64, lanes: u32) -> Marked {
        let Some(told) = self.told.get_mut(&right) else {
            return Marked::Unknown;
        };
        let is_next = told.heard == 0 || (told.heard < told.lanes && told.lanes == lanes);
        if told.number != number || !is_next || lanes == 0 {
            return Marked::Unknown;
        }
        (told.lanes, told.heard) = (lanes, told.heard + 1);
        match told.is_over() {
            true => Marked::All { again: told.is_old },
            false => Marked::More,
        }
    }

    /// A link has ended: its process says nothing more.
    pub fn end(&mut self, link: u32) {
        self.told.retain(|(of, _), _| *of != link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: (u32, Handle) = (3, 0x8000_0001);
    const ALL: Marked = Marked::All { again: false };

    #[test]
    fn a_holder_is_provided_for_once_after_the_mark_in_its_last_lane() {
        let mut trail = Trail::default();
        assert!(trail.tell(RIGHT, 7) && !trail.tell(RIGHT, 8));
        assert_eq!(trail.mark(RIGHT, 7, 2), Marked::More);
        assert_eq!(trail.mark(RIGHT, 7, 2), ALL);
        assert_eq!(trail.mark(RIGHT, 7, 2), Marked::Unknown, "once more");
    }

    #[test]
    fn marks_of_others_of_other_numbers_and_counts_are_none() {
        let mut trail = Trail::default();
        trail.tell(RIGHT, 7);
        for (right, number, lanes) in [
            ((4, RIGHT.1), 7, 1),
            ((3, 5), 7, 1),
            (RIGHT, 8, 1),
            (RIGHT, 7, 0),
        ] {
            assert_eq!(trail.mark(right, number, lanes), Marked::Unknown);
        }
        assert_eq!(trail.mark(RIGHT, 7, 3), Marked::More);
        assert_eq!(trail.mark(RIGHT, 7, 2), Marked::Unknown);
        trail.end(3);
        assert_eq!(trail.mark(RIGHT, 7, 3), Marked::Unknown);
        assert!(trail.tell(RIGHT, 9));
    }

    #[test]
    fn who_is_told_once_more_has_said_all_marks_of_before() {
        let mut trail = Trail::default();
        assert!(!trail.tell_again(RIGHT), "was never told");
        trail.tell(RIGHT, 7);
        assert_eq!(trail.mark(RIGHT, 7, 2), Marked::More);
        assert!(!trail.tell_again(RIGHT) && !trail.tell(RIGHT, 8));
        assert_eq!(trail.mark(RIGHT, 7, 2), Marked::All { again: true });
        assert!(trail.tell(RIGHT, 8) && !trail.tell(RIGHT, 9));
        assert_eq!(trail.mark(RIGHT, 7, 1), Marked::Unknown);
        assert_eq!(trail.mark(RIGHT, 8, 1), ALL);
        assert!(trail.tell_again(RIGHT) && trail.tell(RIGHT, 9));
    }
}
