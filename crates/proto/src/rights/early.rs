//! News of rights that may not have come yet.

use super::{Handle, UNDER_WAY_MAX, index};
use alloc::collections::BTreeMap;
use handfast_layout::part::is_handle;

/// News of names by which a process has no right: one may be under way, or the last has been given back.
#[derive(Debug)]
pub struct Early<M> {
    /// By index: when that comes with another generation, nothing of the one before is under way.
    by_index: BTreeMap<u32, (Handle, M)>,
    max: usize,
}

impl<M> Default for Early<M> {
    /// Of as many as can be under way.
    fn default() -> Self {
        Self::new(UNDER_WAY_MAX)
    }
}

impl<M> Early<M> {
    /// Keeps so many at once.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            by_index: BTreeMap::new(),
            max,
        }
    }

    /// News of this name. Anything heard of the name before is over. When there are too many, which rights under way do not
    /// make, all are forgotten: a thread that uses such a right is told then.
    #[cold]
    pub fn hear(&mut self, name: Handle, news: M) {
        // Words are chosen here: one that is not here has been given back.
        if !is_handle(name) {
            return;
        }
        if self.by_index.len() >= self.max {
            self.by_index.clear();
        }
        self.by_index.insert(index(name), (name, news));
    }

    /// A right with this name has come: what was heard of it, once.
    #[inline(always)]
    pub fn arrived(&mut self, name: Handle) -> Option<M> {
        match self.by_index.is_empty() {
            true => None,
            false => self.take(name),
        }
    }

    #[cold]
    fn take(&mut self, name: Handle) -> Option<M> {
        let (of, news) = self.by_index.remove(&index(name))?;
        (of == name).then_some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Handle = 0x8000_0001;

    #[test]
    fn what_was_heard_too_early_is_kept_until_the_name_or_its_place_comes() {
        let mut early = Early::new(2);
        let next = NAME + (1 << 20);
        early.hear(NAME, 1);
        early.hear(5, 2);
        assert_eq!((early.arrived(5), early.arrived(NAME)), (None, Some(1)));
        early.hear(NAME, 3);
        assert_eq!((early.arrived(next), early.arrived(NAME)), (None, None));
        (0..3).for_each(|of| early.hear(NAME + of, of));
        assert_eq!(
            (early.arrived(NAME), early.arrived(NAME + 2)),
            (None, Some(2))
        );
    }

    #[test]
    fn news_of_what_was_never_given_take_little_memory() {
        let mut early = Early::default();
        for index in 0..20 * UNDER_WAY_MAX as u32 {
            early.hear(NAME + index, ());
            assert!(early.by_index.len() <= UNDER_WAY_MAX);
        }
    }
}
