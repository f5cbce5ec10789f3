//! A hash of a few words, for keys that are a process's own, or a peer's to choose. The hash of a map is keyed: a peer that knew where
//! its names go would choose those that go to one place, and the thread that looks them up serves others, too.

use core::hash::{BuildHasher, Hash, Hasher};
use std::hash::RandomState;
use std::sync::OnceLock;

/// Multiplies and folds; for keys of one or two numbers.
#[derive(Debug)]
pub struct Fold {
    state: u64,
    factor: u64,
}

/// Where hashes begin, and the odd number that they are multiplied by.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    start: u64,
    factor: u64,
}

/// A map by such keys.
pub type Map<K, V> = std::collections::HashMap<K, V, Keys>;

/// An odd number without a pattern.
const FIXED: Keys = Keys {
    start: 0,
    factor: 0x9e37_79b9_7f4a_7c15,
};

impl Default for Keys {
    /// Those of this process, which no other knows.
    fn default() -> Self {
        static OWN: OnceLock<Keys> = OnceLock::new();
        *OWN.get_or_init(|| {
            let random = RandomState::new();
            Self {
                start: random.hash_one(0),
                factor: random.hash_one(1) | 1,
            }
        })
    }
}

impl BuildHasher for Keys {
    type Hasher = Fold;

    #[inline(always)]
    fn build_hasher(&self) -> Fold {
        Fold {
            state: self.start,
            factor: self.factor,
        }
    }
}

/// The hash of a key of this process's own choice.
#[inline]
pub(super) fn hash(key: impl Hash) -> u64 {
    FIXED.hash_one(key)
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // The upper half of the product has all bits of both.
        let product = u128::from(self.state ^ number) * u128::from(self.factor);
        self.state = (product >> 64) as u64 ^ product as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 2^24 names, those whose places in a table of 2^16 are the same by one process's keys are spread by another's.
    #[test]
    fn names_that_collide_by_known_keys_are_spread_by_others() {
        let place = |keys: Keys, name: u32| keys.hash_one(name) & 0xffff;
        let chosen: Vec<u32> = (0..1 << 24)
            .map(|name| name | 0x8000_0000)
            .filter(|name| place(FIXED, *name) == 7)
            .collect();
        assert!(chosen.len() > 100);
        let own = Keys::default();
        let places: std::collections::HashSet<_> =
            chosen.iter().map(|name| place(own, *name)).collect();
        assert!(places.len() * 2 > chosen.len(), "{own:?}");
    }

    #[test]
    fn keys_that_follow_each_other_spread() {
        for shift in [0, 20, 40] {
            // Both ends of the hash are used by the map.
            let low: std::collections::HashSet<_> =
                (0..1000u64).map(|key| hash(key << shift) & 0x3ff).collect();
            let high: std::collections::HashSet<_> =
                (0..1000u64).map(|key| hash(key << shift) >> 57).collect();
            assert!(
                low.len() > 500 && high.len() > 100,
                "{} {}",
                low.len(),
                high.len()
            );
        }
    }
}
