//! The lanes that are looked at, in the order in which that is done: users in turn, each user's lanes in turn.

use super::Key;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Lanes of one user that are looked at before it is another user's turn.
const LOOKS: usize = 8;

/// Lists without lanes are kept up to so many lists: a sweep looks at all.
const EMPTY_MAX: usize = 16;

/// A user's lanes, in their order.
#[derive(Clone, Debug, Default)]
struct Of {
    user: u32,
    lanes: Vec<Key>,
    /// The next that is looked at.
    cursor: usize,
    /// Lanes that this sweep has not looked at.
    unseen: usize,
}

/// Active lanes. The lanes of the user whose turn it is lie in one list, which is all there is while one user has active lanes.
#[derive(Clone, Debug, Default)]
pub struct Active {
    front: Of,
    /// The others, in turn. Users without lanes are kept for their allocations.
    others: VecDeque<Of>,
    /// Lanes of others.
    others_lanes: usize,
    /// Looks at the front list since its turn began.
    looks: usize,
}

impl Active {
    /// How many lanes there are.
    #[inline(always)]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.front.lanes.len() + self.others_lanes
    }

    /// Whether there is no lane.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all lanes are of one user: [`Self::front`] is all then.
    #[inline(always)]
    #[must_use]
    pub const fn is_of_one(&self) -> bool {
        self.others_lanes == 0
    }

    /// All lanes, in any order.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let all = self.others.iter().chain([&self.front]);
        all.flat_map(|of| of.lanes.iter().copied())
    }

    /// Lanes of the user whose turn it is, and the place of the one that is next.
    #[inline(always)]
    #[must_use]
    pub fn front(&self) -> (&[Key], usize) {
        (&self.front.lanes, self.front.cursor)
    }

    /// The lane at `place` of the front list was the last; the lane that is next now.
    #[inline(always)]
    pub fn goes_on(&mut self, place: usize) -> Key {
        let next = place + 1;
        self.front.cursor = if next >= self.front.lanes.len() {
            0
        } else {
            next
        };
        self.front.lanes[self.front.cursor]
    }

    /// Adds a lane, which is not there.
    pub fn push(&mut self, user: u32, key: Key) {
        if self.front.lanes.is_empty() {
            self.front.user = user;
        }
        if self.front.user == user {
            self.front.lanes.push(key);
            return;
        }
        self.others_lanes += 1;
        let others = &mut self.others;
        let found = others
            .iter()
            .position(|of| of.user == user && !of.lanes.is_empty())
            .or_else(|| others.iter().position(|of| of.lanes.is_empty()));
        if let Some(place) = found {
            others[place].user = user;
            others[place].lanes.push(key);
        } else {
            others.push_back(Of {
                user,
                lanes: vec![key],
                ..Of::default()
            });
        }
    }

    /// Takes a lane out. Whether it was there.
    pub fn remove(&mut self, key: Key) -> bool {
        if self.front.remove(key) {
            self.settle();
            return true;
        }
        let found = self.others.iter_mut().any(|of| of.remove(key));
        self.others_lanes -= usize::from(found);
        found
    }

    /// Takes out any lane.
    pub fn pop(&mut self) -> Option<Key> {
        let key = self.front.lanes.pop();
        (self.front.cursor, self.front.unseen) = (0, 0);
        self.settle();
        key
    }

    /// Takes out the lanes for which `keep` is not true.
    pub fn retain(&mut self, mut keep: impl FnMut(Key) -> bool) {
        for of in self.others.iter_mut().chain([&mut self.front]) {
            of.lanes.retain(|key| keep(*key));
            of.unseen = of.unseen.min(of.lanes.len());
            of.cursor = 0;
        }
        self.others_lanes = self.others.iter().map(|of| of.lanes.len()).sum();
        self.settle();
    }

    /// Begins a sweep, which ends when each lane has been looked at.
    #[inline]
    pub fn begin(&mut self) {
        self.front.unseen = self.front.lanes.len();
        for of in &mut self.others {
            of.unseen = of.lanes.len();
        }
    }

    /// The next lane of the sweep. Lanes of users with few come again and again until all lanes of the others have been
    /// looked at.
    #[inline]
    pub fn look(&mut self) -> Option<Key> {
        if self.looks >= LOOKS.min(self.front.lanes.len()) {
            self.found();
        }
        let is_over = || self.is_of_one() || self.others.iter().all(|of| of.unseen == 0);
        if self.front.unseen == 0 && is_over() {
            return None;
        }
        self.looks += 1;
        let of = &mut self.front;
        let key = *of.lanes.get(of.cursor)?;
        of.unseen = of.unseen.saturating_sub(1);
        of.cursor = if of.cursor + 1 >= of.lanes.len() {
            0
        } else {
            of.cursor + 1
        };
        Some(key)
    }

    /// The lane that came last had a message: it is another user's turn.
    #[inline]
    pub fn found(&mut self) {
        self.looks = 0;
        if !self.is_of_one() {
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.looks = 0;
        for _ in 0..self.others.len() {
            if self.others_lanes == 0 {
                return;
            }
            let Some(next) = self.others.pop_front() else {
                return;
            };
            self.others_lanes += self.front.lanes.len();
            self.others_lanes -= next.lanes.len();
            let last = core::mem::replace(&mut self.front, next);
            if !last.lanes.is_empty() || self.others.len() < EMPTY_MAX {
                self.others.push_back(last);
            }
            if !self.front.lanes.is_empty() {
                return;
            }
        }
    }

    /// The front list has lanes if there are any.
    fn settle(&mut self) {
        if self.front.lanes.is_empty() {
            self.turn();
        }
    }
}

impl Of {
    fn remove(&mut self, key: Key) -> bool {
        let Some(place) = self.lanes.iter().position(|of| *of == key) else {
            return false;
        };
        self.lanes.remove(place);
        self.unseen = self.unseen.min(self.lanes.len());
        if self.cursor > place {
            self.cursor -= 1;
        }
        if self.cursor >= self.lanes.len() {
            self.cursor = 0;
        }
        true
    }
}
