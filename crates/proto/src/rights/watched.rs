//! Badges whose last right is to be told of.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

/// The badges of a port that are watched: how many rights there are with each. Rights that were there before are
/// found table by table, and marked; later rights are marked when they come. So each is counted once, if
/// its mark is set under the lock of its table, and rights that end with a mark are taken off here.
#[derive(Debug, Default)]
pub struct Watched {
    /// Rights, and searches for rights that are under way, below [`DUE`]. A tree: it grows without being moved, and takes
    /// some 25 bytes for each, where a hash table takes up to 40.
    badges: BTreeMap<u64, u32>,
}

/// The notice that there is none is under way.
const DUE: u32 = 1 << 31;

impl Watched {
    /// A badge is watched from now on, or still. Counts as a right until [`Self::ended`], so that rights can be
    /// searched for meanwhile.
    pub fn watch(&mut self, badge: u64) {
        *self.badges.entry(badge).or_default() += 1;
    }

    /// As many rights with this badge as `mark` has marked are counted, if it is watched. Returns whether it is.
    pub fn begin(&mut self, badge: u64, mark: impl FnOnce() -> u32) -> bool {
        let count = self.badges.get_mut(&badge);
        count.map(|count| *count += mark()).is_some()
    }

    /// So many rights that were marked have ended. Returns whether a notice is due.
    pub fn ended(&mut self, badge: u64, ended: u32) -> bool {
        let Some(count) = self.badges.get_mut(&badge) else {
            return false;
        };
        *count -= ended;
        let is_due = *count == 0;
        if is_due {
            *count = DUE;
        }
        is_due
    }

    /// The notice is about to be given. Returns whether it still is so: the badge is not watched any more then. A right
    /// that has been made since makes it wait.
    pub fn take(&mut self, badge: u64) -> bool {
        let Entry::Occupied(mut count) = self.badges.entry(badge) else {
            return false;
        };
        let is_so = *count.get() == DUE;
        if is_so {
            count.remove();
        } else {
            *count.get_mut() &= !DUE;
        }
        is_so
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_right_is_told_of_once_and_not_when_there_is_another_by_then() {
        let mut watched = Watched::default();
        assert!(!watched.begin(7, || unreachable!()), "nobody has asked");
        watched.watch(7);
        assert!(watched.begin(7, || 2));
        assert!(!watched.ended(7, 1), "the search");
        assert!(!watched.ended(7, 1));
        assert!(watched.ended(7, 1));
        // Made since; it ends before the notice is taken, or after.
        assert!(watched.begin(7, || 1));
        assert!(!watched.take(7));
        assert!(watched.ended(7, 1));
        assert!(watched.begin(7, || 1));
        assert!(!watched.ended(7, 1), "it is under way");
        assert!(watched.take(7));
        assert!(!watched.take(7) && !watched.ended(7, 1));
        // Asked for twice, told of once; of none, at once.
        watched.watch(7);
        watched.watch(7);
        assert!(!watched.ended(7, 1));
        assert!(watched.ended(7, 1) && watched.take(7));
    }
}
