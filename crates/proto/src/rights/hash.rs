//! A hash of a few words. Such keys are a process's own, or those of a small table: names that peers choose, of which there may be many,
//! are kept in trees, where none collide and nothing is moved to a larger table in one go.

use core::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

/// Multiplies and folds; for keys of one or two numbers.
#[derive(Clone, Default, Debug)]
pub struct Fold(u64);

/// A map by such keys.
pub type Map<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<Fold>>;
/// A place in such a map.
pub type Entry<'a, K, V> = hashbrown::hash_map::Entry<'a, K, V, BuildHasherDefault<Fold>>;

/// The hash of one key.
#[inline]
pub(super) fn hash(key: impl Hash) -> u64 {
    BuildHasherDefault::<Fold>::default().hash_one(key)
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
        // An odd number without a pattern; the upper half of the product has all bits of both.
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
