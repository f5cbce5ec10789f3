//! A port that has moved to another process, as its old home sees those who have rights to it.
//!
//! The old home passes on what comes. It tells each holder of a right where the port is now, under a
//! number of its own; the holder gets a direct right there, says in each of its lanes to the old home that
//! nothing more comes in it by the old right (a *mark*), and uses the new one. When the old home has found
//! the last of the marks it has passed on all that came before them, and provides the holder, in order
//! with that, with what it has claimed at the new home (`introductions`). So the order of each lane is kept, and
//! nobody waits.

#[cfg(test)]
mod simulation;

use super::rights::Handle;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Who has been told, and what they have said to that.
#[derive(Debug, Default)]
pub struct Tail {
    /// By link, and by the name that the right has there.
    told: HashMap<(u32, Handle), Told>,
}

#[derive(Debug)]
struct Told {
    number: u64,
    /// In so many lanes marks are to come; zero while none has.
    lanes: u32,
    heard: u32,
}

/// What a mark has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// Others will follow in other lanes.
    More,
    /// Nothing more comes by this right: its holder is to be provided for.
    All,
    /// A mark that no honest holder sends.
    Unknown,
}

impl Tail {
    /// A holder is told. `false`: it has been.
    pub fn tell(&mut self, right: (u32, Handle), number: u64) -> bool {
        match self.told.entry(right) {
            Entry::Vacant(place) => {
                let (lanes, heard) = (0, 0);
                place.insert(Told {
                    number,
                    lanes,
                    heard,
                });
                true
            }
            Entry::Occupied(_) => false,
        }
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
        match told.heard == lanes {
            true => Marked::All,
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

    #[test]
    fn a_holder_is_provided_for_once_after_the_mark_in_its_last_lane() {
        let mut tail = Tail::default();
        assert!(tail.tell(RIGHT, 7) && !tail.tell(RIGHT, 8));
        assert_eq!(tail.mark(RIGHT, 7, 2), Marked::More);
        assert_eq!(tail.mark(RIGHT, 7, 2), Marked::All);
        assert_eq!(tail.mark(RIGHT, 7, 2), Marked::Unknown, "once more");
    }

    #[test]
    fn marks_of_others_of_other_numbers_and_counts_are_none() {
        let mut tail = Tail::default();
        tail.tell(RIGHT, 7);
        for (right, number, lanes) in [
            ((4, RIGHT.1), 7, 1),
            ((3, 5), 7, 1),
            (RIGHT, 8, 1),
            (RIGHT, 7, 0),
        ] {
            assert_eq!(tail.mark(right, number, lanes), Marked::Unknown);
        }
        assert_eq!(tail.mark(RIGHT, 7, 3), Marked::More);
        assert_eq!(tail.mark(RIGHT, 7, 2), Marked::Unknown);
        tail.end(3);
        assert_eq!(tail.mark(RIGHT, 7, 3), Marked::Unknown);
        assert!(tail.tell(RIGHT, 9));
    }
}
